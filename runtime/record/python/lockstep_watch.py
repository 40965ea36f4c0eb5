"""Records what the ranks of a PyTorch job hold, so that `lockstep verify` finds where they part.

    from lockstep_watch import watch
    watch(model, optimizer, loader)      # after the model is wrapped, before the first step

In a job that `lockstep record` runs (or that has liblockstep_record.so preloaded), this writes into
each rank's ring file, in the first steps and then in every `every`-th:

- the parameters, before the first step (as step 0) and after each;
- what the optimizer gets: the gradients, and the learning rate;
- the optimizer's own tensors (momentum, moments);
- which samples the rank reads (of a `loader` with a batch sampler);
- the number of the step, for all calls in it.

Of each tensor its hash, norm and a sketch of 8 numbers are kept, not its values. Tensors of a model
under DistributedDataParallel, and DTensors that are replicated, must be the same on the ranks of
their group, and are compared; shards and everything else are not. In a process that is not recorded
it does nothing. Needs torch alone (tested with 2.15); copy it where you need it.
"""

from typing import Any, Iterator, Optional

import torch
import torch.distributed as dist

__all__ = ["watch"]

_FIRST_STEPS = 10  # all of these are recorded: most faults show in them


def _ranks_suffix(ranks: "list[int]") -> str:
    """Values of one name are compared over all ranks; a group has names of its own."""
    if len(ranks) == dist.get_world_size():
        return ""
    return "@" + ",".join(map(str, ranks))


class _Tensors:
    """What of a model is compared, and under which name."""

    def __init__(self, model: torch.nn.Module) -> None:
        from torch.distributed.tensor import DTensor
        self._dtensor = DTensor
        inner, self._replicas = model, ""
        self._replicated = isinstance(model, torch.nn.parallel.DistributedDataParallel)
        if self._replicated:
            inner = model.module
            self._replicas = _ranks_suffix(dist.get_process_group_ranks(model.process_group))
        self.parameters = dict(inner.named_parameters())
        # Whether ranks hold the same tensors, so that they must agree on the learning rate, too.
        self.compares = self._replicated or any(isinstance(p, DTensor)
                                                for p in self.parameters.values())

    def local(self, value: torch.Tensor, parameter: torch.Tensor
              ) -> "tuple[torch.Tensor, str, bool]":
        """The values that this rank holds, the suffix of their name, and whether to compare them."""
        if isinstance(value, self._dtensor):
            mesh = value.device_mesh
            replicated = all(placement.is_replicate() for placement in value.placements)
            return value.to_local(), _ranks_suffix(mesh.mesh.flatten().tolist()), replicated
        if isinstance(parameter, self._dtensor):  # such as a count of steps beside sharded moments
            return value, "", False
        return value, self._replicas, self._replicated


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
    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer,
                 every: int) -> None:
        self._tensors = _Tensors(model)
        self._every = every
        self._step = 1
        self._began = False
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)

    def _on(self) -> bool:
        return self._step <= _FIRST_STEPS or self._step % self._every == 0

    def _record(self, step: int, name: str, value: torch.Tensor, parameter: torch.Tensor,
                kind: str) -> None:
        local, suffix, shared = self._tensors.local(value.detach(), parameter)
        torch.ops.lockstep.record_value(step, name + suffix, local, kind, shared)

    def begin(self) -> None:
        """The parameters before the first step, as soon as the rank has a file."""
        if self._began or not torch.ops.lockstep.is_recording():
            return
        self._began = True
        for name, parameter in self._tensors.parameters.items():
            self._record(self._step - 1, name, parameter, parameter, "param")
        torch.ops.lockstep.record_step(self._step - 1)

    def _before(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.begin()
        if not self._on():
            return
        for name, parameter in self._tensors.parameters.items():
            if parameter.grad is not None:
                self._record(self._step, name, parameter.grad, parameter, "grad")
        for i, group in enumerate(optimizer.param_groups):
            rate = torch.as_tensor(group.get("lr", 0.0), dtype=torch.float64)
            torch.ops.lockstep.record_value(self._step, f"lr/{i}" if i else "lr", rate, "optim",
                                            self._tensors.compares)

    def _after(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._on():
            for name, parameter in self._tensors.parameters.items():
                for what, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, torch.Tensor) and value.numel() > 1:
                        self._record(self._step, f"{what}/{name}", value, parameter, "optim")
                self._record(self._step, name, parameter, parameter, "param")
        torch.ops.lockstep.record_step(self._step)
        self._step += 1


def watch(model: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: Optional[Any] = None,
          every: int = 100) -> None:
    """Records this rank's values in the first 10 steps and in every `every`-th; see the module."""
    if not hasattr(torch.ops.lockstep, "record_value") or not dist.is_initialized():
        return
    watching = _Watch(model, optimizer, every)
    watching.begin()
    if loader is not None and getattr(loader, "batch_sampler", None) is not None:
        # DataLoader refuses to have it replaced; it reads it anew for every epoch.
        loader.__dict__["batch_sampler"] = _RecordedBatches(loader.batch_sampler)
