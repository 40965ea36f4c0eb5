"""Watches every model that the program trains, without a line in the program.

liblockstep_record.so imports this where LOCKSTEP_RECORD_VALUES is 1 (`lockstep record --values`); a
program that is recorded otherwise may import it before it makes its optimizers.

At the first backward after an optimizer was made, the module that holds its parameters is looked for
and given to lockstep_watch.watch(), as

    watch(model, optimizer)

would do. So what watch() must be told stays unknown: replicas by hand are recognised by equal
gradients only. The first of a model's optimizers is followed, or one that takes its place.
Samples are those of the first data set whose batches a training forward uses, read by DataLoader.
"""

import atexit
import contextlib
import functools
import gc
import os
import sys
import weakref
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import lockstep_watch

_made: "list[weakref.ref[torch.optim.Optimizer]]" = []  # optimizers, since the last backward
_stepped: "weakref.WeakSet[torch.optim.Optimizer]" = weakref.WeakSet()
_stepping: "list[torch.optim.Optimizer]" = []  # one, and that which it uses: ZeRO's has another


def _roots() -> "list[torch.nn.Module]":
    """All modules that are in no other one."""
    # isinstance() would ask objects that stand for something else, and have it loaded.
    modules = [o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module)]
    inner = {id(child) for module in modules for child in module.__dict__.get("_modules", {}).values()}
    return [module for module in modules if id(module) not in inner]


def _model_of(optimizer: torch.optim.Optimizer, steps: bool) -> Optional[torch.nn.Module]:
    """The module that holds most of the optimizer's parameters; of several, the smallest. If these
    have no gradients although the optimizer steps: the module that has the most."""
    counts = lockstep_watch.parameters_of(optimizer)
    roots = []
    for module in _roots():
        with contextlib.suppress(AttributeError):  # its __init__ did not come to its end
            held = lockstep_watch.parameters_of_model(module)
            roots.append((module, {id(p): p for p in held.values()}))
    if steps and all(p.grad is None for group in optimizer.param_groups for p in group["params"]):
        # It was made before the model was copied, moved or sharded, and changes other tensors.
        counts = {i for _, held in roots for i, p in held.items() if p.grad is not None}
    best, most = None, (0, 0)
    for module, held in roots:
        size = len(counts.intersection(held)), -len(held)
        if size[0] > 0 and size > most:
            best, most = module, size
    return best


def _take_up(optimizer: torch.optim.Optimizer, steps: bool) -> "list[lockstep_watch.Watch]":
    """Watches the model of an optimizer, where that is not watched yet. `steps`: it makes a step."""
    model = _model_of(optimizer, steps)
    if model is None:
        return []
    for watching in lockstep_watch.watches:
        if watching.watches(model):
            # One that this module watches; the program knows what it watches itself.
            if watching.on_training_forward is not None and watching.is_replaced_by(optimizer):
                watching.follow(optimizer)
            return []
    before = len(lockstep_watch.watches)
    lockstep_watch.watch(model, optimizer)
    new = lockstep_watch.watches[before:]
    for watching in new:
        atexit.unregister(_say_that_nothing_was_watched)
        watching.on_training_forward = functools.partial(_samples.used_by, watching)
        _samples.used_by(watching)  # by the forward before
    return new


def _before_backward(tensors: Any) -> None:
    if not _made or not dist.is_initialized():
        return
    made = [one() for one in _made]
    _made.clear()
    for optimizer in made:
        # What holds parameters of another is used by that, or takes its place when it makes a step.
        if optimizer is None:
            continue
        held = lockstep_watch.parameters_of(optimizer)
        if any(watching.trains(held) for watching in lockstep_watch.watches):
            continue
        for watching in _take_up(optimizer, steps=False):
            for tensor in lockstep_watch.tensors_of(tensors):
                if tensor.requires_grad:
                    tensor.register_hook(watching.backwards.begins)


def _before_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if optimizer in _stepping:  # its last step raised an exception
        _stepping.clear()
    _stepping.append(optimizer)
    if len(_stepping) == 1 and optimizer not in _stepped and dist.is_initialized():
        _stepped.add(optimizer)
        _take_up(optimizer, steps=True)


def _after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if _stepping and _stepping[-1] is optimizer:
        _stepping.pop()


class _Samples:
    """The batch that the program took last, until a training forward uses it."""

    def __init__(self) -> None:
        self._dataset: Any = None  # of which samples are recorded: the first that is trained on
        self._reader: Any = None   # ... and a reference to who watches the model that is
        self._taken: "Optional[tuple[Any, lockstep_watch.Batch]]" = None

    def take(self, dataset: Any, batch: lockstep_watch.Batch) -> None:
        self._taken = dataset, batch

    def used_by(self, watching: lockstep_watch.Watch) -> None:
        if self._taken is None:
            return
        dataset, batch = self._taken
        if self._dataset is None:
            self._dataset, self._reader = dataset, weakref.ref(watching)
        if watching is self._reader():
            self._taken = None
            if dataset is self._dataset:
                watching.takes(batch)


_samples = _Samples()


def _listen() -> None:
    made = torch.optim.Optimizer.__init__
    get_iterator = torch.utils.data.DataLoader._get_iterator
    backward = torch.autograd.backward

    def init(self: Any, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named)
        _made.append(weakref.ref(self))

    def recorded(loader: Any) -> Any:
        return lockstep_watch.recorded_iterator(
            loader, lambda: get_iterator(loader), lambda batch: _samples.take(loader.dataset, batch))

    def begins(tensors: Any, *arguments: Any, **named: Any) -> None:
        _before_backward(tensors)
        backward(tensors, *arguments, **named)

    torch.optim.Optimizer.__init__ = init  # type: ignore[method-assign]
    torch.utils.data.DataLoader._get_iterator = recorded  # type: ignore[method-assign]
    torch.autograd.backward = begins
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)


def _say_that_nothing_was_watched() -> None:
    if not lockstep_watch.watches and os.environ.get("RANK", "0") == "0":
        print("lockstep_watch_all: no optimizer of torch.optim made a step: no values were recorded",
              file=sys.stderr)


_listen()
atexit.register(_say_that_nothing_was_watched)
