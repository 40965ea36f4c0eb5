"""Records what the ranks of a PyTorch job hold, so that `lockstep verify` finds where they part.

    from lockstep_watch import watch
    watch(model, optimizer, loader)      # after the model is wrapped, before the first step

In a job that `lockstep record` runs (or that has liblockstep_record.so preloaded), this writes into
each rank's ring file, in the first steps and then in every `every`-th:

- the parameters, before the first step (as step 0) and after each;
- what the optimizer gets: the gradients, and the learning rate;
- the norm by which gradients are clipped (torch.nn.utils.clip_grad_norm_);
- the optimizer's own tensors (momentum, moments);
- which samples the rank reads (of a `loader` with a batch sampler);
- the number of the step, for all calls in it.

Of each tensor its hash, norm and a sketch of 8 numbers are kept, not its values. What is known to
be the same on several ranks is compared: tensors of a model under DistributedDataParallel, DTensors
that are replicated, and normalisation layers beside DTensors (their weights are whole on all ranks
of a tensor group). Shards and everything else are not. What else is the same you may say:

    watch(model, optimizer, replicas=group)              # data parallelism by hand
    watch(model, optimizer, replicas={"experts": expert_group, "": group})   # by prefix of names
    watch(model, optimizer, tied={"head.weight": ("embedding.weight", group)})   # one name for both
    watch(model, optimizer, same_random=group)           # random numbers: dropout in a tensor group
    watch(model, optimizer, mean=True)   # the optimizer gets the mean of the replicas' gradients

In a process that is not recorded it does nothing. Needs torch alone (tested with 2.15); copy it
where you need it.
"""

import atexit
import sys
import weakref
from typing import Any, Callable, Iterator, Mapping, Optional, Union

import torch
import torch.distributed as dist

__all__ = ["watch"]

Groups = Union[dist.ProcessGroup, Mapping[str, Optional[dist.ProcessGroup]], None]
Tied = Mapping[str, Union[dist.ProcessGroup, "tuple[str, dist.ProcessGroup]"]]

_FIRST_STEPS = 10  # all of these are recorded: most faults show in them
_NORMS = (torch.nn.LayerNorm, torch.nn.RMSNorm)


def _ranks_suffix(ranks: "list[int]", world_size: int) -> str:
    """Values of one name are compared over all ranks; a group has names of its own."""
    return "" if len(ranks) == world_size else "@" + ",".join(map(str, ranks))


def _group_suffix(group: dist.ProcessGroup) -> str:
    return _ranks_suffix(dist.get_process_group_ranks(group), dist.get_world_size())


class _Tensors:
    """What of a model is compared, over which ranks, and under which name."""

    def __init__(self, model: torch.nn.Module, replicas: Groups, tied: Tied) -> None:
        from torch.distributed.tensor import DTensor
        self._dtensor = DTensor
        self._world_size = dist.get_world_size()  # there is no group left when the process ends
        inner = model
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            inner = model.module
            replicas = replicas if replicas is not None else model.process_group
        self.parameters = dict(inner.named_parameters())
        by_prefix = replicas if isinstance(replicas, Mapping) else {"": replicas}
        # By parameter: the name under which it is compared; none: it is not.
        self._shared: dict[str, str] = {}
        for name in self.parameters:
            prefix = max((p for p in by_prefix if name.startswith(p)), key=len, default=None)
            group = None if prefix is None else by_prefix[prefix]
            if group is not None:
                self._shared[name] = name + _group_suffix(group)
        self._add_norms(inner)
        for name, where in tied.items():
            shared, group = where if isinstance(where, tuple) else (name, where)
            if name in self.parameters and group is not None and dist.get_rank(group) >= 0:
                self._shared[name] = shared + _group_suffix(group)
        # Whether ranks hold the same tensors, so that they must agree on the learning rate, too.
        self.compares = bool(self._shared) or any(isinstance(p, DTensor)
                                                  for p in self.parameters.values())

    def _add_norms(self, model: torch.nn.Module) -> None:
        meshes = [p.device_mesh for p in self.parameters.values() if isinstance(p, self._dtensor)]
        if not meshes:
            return
        ranks = max((m.mesh.flatten().tolist() for m in meshes), key=len)
        for prefix, module in model.named_modules():
            if not isinstance(module, _NORMS):
                continue
            for name, parameter in module.named_parameters(prefix, recurse=False):
                if not isinstance(parameter, self._dtensor):
                    self._shared.setdefault(name, name + _ranks_suffix(ranks, self._world_size))

    def of_clipping(self) -> Optional[str]:
        """The suffix of what ranks compute from all gradients; none: not all are shared."""
        if set(self._shared) != set(self.parameters):
            return None
        suffixes = {shared.rpartition("@")[2] if "@" in shared else ""
                    for shared in self._shared.values()}
        if len(suffixes) != 1:
            return None
        suffix = suffixes.pop()
        return f"@{suffix}" if suffix else ""

    def local(self, name: str, value: torch.Tensor) -> "tuple[torch.Tensor, str, bool]":
        """The values that this rank holds, their name, and whether to compare them."""
        parameter = self.parameters[name]
        if isinstance(value, self._dtensor):
            ranks = value.device_mesh.mesh.flatten().tolist()
            replicated = all(placement.is_replicate() for placement in value.placements)
            return value.to_local(), name + _ranks_suffix(ranks, self._world_size), replicated
        if isinstance(parameter, self._dtensor):  # such as a count of steps beside sharded moments
            return value, name, False
        return value, self._shared.get(name, name), name in self._shared


class _RecordedBatches:
    """A batch sampler that tells which samples it hands out."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._batch = 0

    def __iter__(self) -> "Iterator[Any]":
        for indices in self._inner:
            if all(isinstance(i, int) for i in indices):
                torch.ops.lockstep.record_samples(self._batch, list(indices))
            self._batch += 1
            yield indices

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Watch:
    def __init__(self, model: torch.nn.Module, tensors: _Tensors,
                 optimizer: torch.optim.Optimizer, every: int,
                 same_random: Optional[dist.ProcessGroup], mean: bool) -> None:
        self._tensors = tensors
        self._optimizer = weakref.ref(optimizer)
        self._every = every
        self._same_random = same_random and f"random{_group_suffix(same_random)}"
        self._step = 1
        self._began = False
        self._clipped = 0  # how often in this step
        self._told_gradients = False  # … of this step
        self._own: dict[str, torch.Tensor] = {}  # gradients before their reduction
        self._updated: Optional[int] = None  # a step whose parameters are still to be recorded
        self._of_parameter = {id(p): name for name, p in tensors.parameters.items()}
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)
        model.register_forward_pre_hook(lambda *_: self.parameters())
        atexit.register(self._at_exit)
        if mean:
            for name, parameter in tensors.parameters.items():
                if parameter.requires_grad and tensors.local(name, parameter)[2]:
                    parameter.register_hook(self._keep_own(name))

    def _on(self) -> bool:
        return self._step <= _FIRST_STEPS or self._step % self._every == 0

    def _record(self, step: int, name: str, value: torch.Tensor, kind: str,
                prefix: str = "") -> None:
        local, shown, shared = self._tensors.local(name, value.detach())
        torch.ops.lockstep.record_value(step, prefix + shown, local, kind, shared)

    def _keep_own(self, name: str) -> "Callable[[torch.Tensor], None]":
        """Adds up what each backward of the step gives, before anybody reduces it."""
        def keep(gradient: torch.Tensor) -> None:
            if self._on():
                known = self._own.get(name)
                self._own[name] = (gradient.detach().clone() if known is None
                                   else known + gradient.detach())
        return keep

    def begin(self) -> None:
        """The parameters before the first step."""
        if self._began:
            return
        if not torch.ops.lockstep.is_recording() and hasattr(torch.ops.lockstep, "open_record"):
            torch.ops.lockstep.open_record(dist.group.WORLD.group_name)
        if not torch.ops.lockstep.is_recording():
            return
        self._began = True
        for name, parameter in self._tensors.parameters.items():
            self._record(self._step - 1, name, parameter, "param")
        torch.ops.lockstep.record_step(self._step - 1)

    def parameters(self) -> None:
        """Those of the newest step, when they are next used: a sharded optimizer made by hand hands
        them out only after its step."""
        step, self._updated = self._updated, None
        if step is not None:
            for name, parameter in self._tensors.parameters.items():
                self._record(step, name, parameter, "param")

    def _at_exit(self) -> None:
        # After an exception the device may hang, and what it would give is not the step's.
        if getattr(sys, "last_type", None) is None:
            self.parameters()

    def gradients(self) -> None:
        """The gradients as they come from their reduction: before they are clipped or unscaled."""
        self.begin()
        self.parameters()
        if self._told_gradients or not self._on():
            return
        self._told_gradients = True
        for name, own in self._own.items():
            self._record(self._step, name, own, "local")
        for name, parameter in self._tensors.parameters.items():
            if parameter.grad is not None:
                self._record(self._step, name, parameter.grad, "grad")

    def clips(self, parameters: Any, norm: torch.Tensor) -> None:
        listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        if not all(id(p) in self._of_parameter for p in listed):
            return
        self.gradients()
        suffix = self._tensors.of_clipping()
        if self._on() and suffix is not None and type(norm) is torch.Tensor:
            name = f"clip.norm/{self._clipped}" if self._clipped else "clip.norm"
            torch.ops.lockstep.record_value(self._step, name + suffix, norm.detach(), "optim", True)
        self._clipped += 1

    def _before(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.gradients()
        if not self._on():
            return
        for i, group in enumerate(optimizer.param_groups):
            rate = torch.as_tensor(group.get("lr", 0.0), dtype=torch.float64)
            torch.ops.lockstep.record_value(self._step, f"lr/{i}" if i else "lr", rate, "optim",
                                            self._tensors.compares)
        if self._same_random is not None:
            torch.ops.lockstep.record_value(self._step, self._same_random, torch.get_rng_state(),
                                            "optim", True)

    def _after(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._on():
            for name, parameter in self._tensors.parameters.items():
                for what, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, torch.Tensor) and value.numel() > 1:
                        self._record(self._step, name, value, "optim", f"{what}/")
        self._end_step()

    def _end_step(self) -> None:
        if self._on():
            self._updated = self._step
        torch.ops.lockstep.record_step(self._step)
        self._step += 1
        self._clipped, self._told_gradients = 0, False
        self._own.clear()

    @property
    def step(self) -> int:
        return self._step

    def skipped(self) -> None:
        """A step in which a GradScaler left out the update."""
        self.gradients()
        self._end_step()


_watches: "list[_Watch]" = []


def _of(optimizer: torch.optim.Optimizer) -> "list[_Watch]":
    return [w for w in _watches if w._optimizer() is optimizer]


def _listen() -> None:
    """Hears of clipping and of skipped updates, which no hook of PyTorch's tells."""
    module = torch.nn.utils.clip_grad
    inner = getattr(module, "_clip_grads_with_norm_", None)
    if inner is not None:
        def clip(parameters: Any, max_norm: float, total_norm: torch.Tensor, *more: Any,
                 **named: Any) -> Any:
            listed = parameters if isinstance(parameters, torch.Tensor) else list(parameters)
            for watching in _watches:
                watching.clips(listed, total_norm)
            return inner(listed, max_norm, total_norm, *more, **named)

        module._clip_grads_with_norm_ = clip
    scaler = torch.amp.GradScaler
    unscale, step = scaler.unscale_, scaler.step

    def unscale_(self: Any, optimizer: torch.optim.Optimizer) -> Any:
        for watching in _of(optimizer):
            watching.gradients()
        return unscale(self, optimizer)

    def step_(self: Any, optimizer: torch.optim.Optimizer, *more: Any, **named: Any) -> Any:
        before = [(watching, watching.step) for watching in _of(optimizer)]
        for watching, _ in before:
            watching.gradients()
        out = step(self, optimizer, *more, **named)
        for watching, number in before:
            if watching.step == number:
                watching.skipped()
        return out

    scaler.unscale_, scaler.step = unscale_, step_


def watch(model: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: Optional[Any] = None,
          every: int = 100, *, replicas: Groups = None, tied: Optional[Tied] = None,
          same_random: Optional[dist.ProcessGroup] = None, mean: bool = False) -> None:
    """Records this rank's values in the first 10 steps and in every `every`-th; see the module.

    replicas: the group whose ranks hold the same parameters, or one for each prefix of names (the
        longest counts); by default the one of DistributedDataParallel.
    tied: parameters that are the same on several ranks, perhaps under another name there.
    same_random: ranks that must draw the same random numbers.
    mean: what the optimizer gets (or what is clipped, or unscaled) is the mean over the replicas of
        what their backward gave. Keeps a copy of the gradients in the steps that are recorded.
    """
    if not hasattr(torch.ops.lockstep, "record_value") or not dist.is_initialized():
        return
    if not _watches:
        _listen()
    tensors = _Tensors(model, replicas, tied or {})
    watching = _Watch(model, tensors, optimizer, every, same_random, mean)
    _watches.append(watching)
    watching.begin()
    if loader is not None and getattr(loader, "batch_sampler", None) is not None:
        # DataLoader refuses to have it replaced; it reads it anew for every epoch.
        loader.__dict__["batch_sampler"] = _RecordedBatches(loader.batch_sampler)
