"""Watches every model that the program trains, without a line in the program.

liblockstep_record.so imports this where LOCKSTEP_RECORD_VALUES is 1 (`lockstep record --values`); a
program that is recorded otherwise may import it before it makes its optimizers.

When an optimizer first makes a step (or its gradients are first clipped or unscaled), the module
that holds its parameters is looked for and given to lockstep_watch.watch(), as

    watch(model, optimizer)

would do. So what watch() must be told stays unknown: replicas by hand are recognised by equal
gradients only. Of a model's optimizers the first one is followed, or one that takes its place.
Samples are those of the first data set whose batches a training forward uses, read by DataLoader.
"""

import functools
import gc
import weakref
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import lockstep_watch

_unwatched: "list[weakref.ref[torch.optim.Optimizer]]" = []  # optimizers, as they were made
_mine: "list[lockstep_watch.Watch]" = []  # models that this module watches, not the program
_stepping: "list[torch.optim.Optimizer]" = []  # one, and that which it uses: ZeRO's has another


def _roots() -> "list[torch.nn.Module]":
    """All modules that are in no other one."""
    # isinstance() would ask objects that stand for something else, and have it loaded.
    modules = [o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module)]
    inner = {id(child) for module in modules for child in module.__dict__.get("_modules", {}).values()}
    return [module for module in modules if id(module) not in inner]


def _model_of(optimizer: torch.optim.Optimizer) -> Optional[torch.nn.Module]:
    """The module that holds most of the optimizer's parameters; of several, the smallest."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    best, most = None, (0, 0)
    for module in _roots():
        try:
            parameters = [id(p) for p in module.parameters()]
        except AttributeError:  # its __init__ did not come to its end
            continue
        size = len(held.intersection(parameters)), -len(parameters)
        if size[0] > 0 and size > most:
            best, most = module, size
    return best


def _parameters_of(optimizer: torch.optim.Optimizer) -> "set[int]":
    return {id(p) for group in optimizer.param_groups for p in group["params"]}


def _take_up(optimizer: torch.optim.Optimizer) -> None:
    """Watches the model of an optimizer that is not watched yet."""
    _unwatched[:] = [one for one in _unwatched if one() not in (None, optimizer)]
    model = _model_of(optimizer)
    if model is None:
        return
    for watching in lockstep_watch.watches:
        if watching.watches(model):
            if watching in _mine and watching.is_replaced_by(optimizer):
                watching.follow(optimizer)
            return
    before = len(lockstep_watch.watches)
    lockstep_watch.watch(model, optimizer)
    for watching in lockstep_watch.watches[before:]:
        _mine.append(watching)
        watching.on_training_forward = functools.partial(_samples.used_by, watching)
        _samples.used_by(watching)  # by the forward before this step


def _before_gradients_change(parameters: "list[torch.Tensor] | torch.Tensor") -> None:
    if not _unwatched or not dist.is_initialized():
        return
    changed = {id(p) for p in ([parameters] if isinstance(parameters, torch.Tensor) else parameters)}
    if any(watching.trains(changed) for watching in lockstep_watch.watches):
        return
    for one in _unwatched:
        optimizer = one()
        if optimizer is not None and not changed.isdisjoint(_parameters_of(optimizer)):
            _take_up(optimizer)
            return


def _before_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if optimizer in _stepping:  # its last step raised an exception
        _stepping.clear()
    _stepping.append(optimizer)
    if len(_stepping) == 1 and any(one() is optimizer for one in _unwatched) and dist.is_initialized():
        _take_up(optimizer)


def _after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if _stepping and _stepping[-1] is optimizer:
        _stepping.pop()


class _Samples:
    """The batch that the program took last, until a training forward uses it."""

    def __init__(self) -> None:
        self._dataset: Any = None  # of which samples are recorded: the first that is trained on
        self._reader: Any = None   # ... and the model that is
        self._taken: "Optional[tuple[Any, lockstep_watch.Batch]]" = None

    def take(self, dataset: Any, batch: lockstep_watch.Batch) -> None:
        self._taken = dataset, batch

    def used_by(self, watching: lockstep_watch.Watch) -> None:
        if self._taken is None:
            return
        dataset, batch = self._taken
        if self._dataset is None:
            self._dataset, self._reader = dataset, watching
        if watching is self._reader:
            self._taken = None
            if dataset is self._dataset:
                watching.takes(batch)


_samples = _Samples()


def _listen() -> None:
    made = torch.optim.Optimizer.__init__
    get_iterator = torch.utils.data.DataLoader._get_iterator

    def init(self: Any, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named)
        _unwatched.append(weakref.ref(self))

    def recorded(loader: Any) -> Any:
        return lockstep_watch.recorded_iterator(
            loader, lambda: get_iterator(loader), lambda batch: _samples.take(loader.dataset, batch))

    torch.optim.Optimizer.__init__ = init  # type: ignore[method-assign]
    torch.utils.data.DataLoader._get_iterator = recorded  # type: ignore[method-assign]
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)
    lockstep_watch.listen()
    lockstep_watch.before_gradients_change = _before_gradients_change


_listen()
