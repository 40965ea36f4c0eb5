"""Records what the ranks of a PyTorch job hold, so that `lockstep verify` finds where they diverge.

    from lockstep_watch import watch
    watch(model, optimizer, loader)      # after the model is wrapped, before the first step

In a job that `lockstep record` runs (or that has liblockstep_record.so preloaded), this writes into
each rank's ring file, in the first steps and then in every `every`-th:

- the parameters, before the first step (as step 0) and after each;
- what the optimizer gets: the gradients, the learning rate and its other numbers (weight decay, ...);
- whether the model is in training mode, and in which type autocast computes;
- the norm by which gradients are clipped (torch.nn.utils.clip_grad_norm_);
- the optimizer's own tensors (momentum, moments) in the first two of these steps and each
  `every`-th, and before the first step where they were loaded;
- whether a GradScaler made the step, and by what it scales the loss;
- gradients that backward finds as the last step left them: zero_grad() was forgotten; and how many
  backwards gave gradients that were zeroed before a step used them;
- which samples the rank reads from `loader`, a DataLoader;
- the number of the step, for all calls in it.

Each tensor's hash and norm are kept, and a sketch of 8 numbers where it can show something; not
its values. What is known to be the same on several ranks is compared: tensors of a model under
DistributedDataParallel, DTensors along the dimensions of their mesh over which they are replicated
(hybrid sharding), and normalisation layers in a tensor group. What begins equal and gets equal
gradients on all ranks is taken for replicas, too. Shards and everything else are not compared. What
else is the same you may say:

    watch(model, optimizer, replicas=group)              # data parallelism by hand
    watch(model, optimizer, replicas={"experts": expert_group, "": group})   # by prefix of names
    watch(model, optimizer, tied={"head.weight": ("embedding.weight", group)})   # one name for both
    watch(model, optimizer, same_random=group)           # random numbers: dropout in a tensor group
    watch(model, optimizer, different_random=group)      # ... of ranks that must not draw the same
    watch(model, optimizer, mean=True)   # the optimizer gets the mean of the replicas' gradients

A program may watch several models, each with its optimizer; names of the second begin with "model2.".
In a process that is not recorded it does nothing. Needs torch alone (tested with 2.11 and 2.15).
`lockstep record` makes it importable; elsewhere copy it beside the program.
"""

import atexit
import collections
import hashlib
import itertools
import os
import sys
import warnings
import weakref
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional, Union

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

__all__ = ["watch"]

Groups = Union[dist.ProcessGroup, Mapping[str, Optional[dist.ProcessGroup]], None]
Tied = Mapping[str, Union[dist.ProcessGroup, "tuple[str, dist.ProcessGroup]"]]

_FIRST_STEPS = 10  # all of these are recorded: most faults show in them
_STATE_STEPS = 2  # of those, the ones with the optimizer's own tensors
_COLUMNS = 4096  # of a sample, enough to distinguish it from others
_NO_SETTINGS = ("params", "lr", "initial_lr")  # of an optimizer's groups; lr is recorded by itself
_AUTOCAST = {None: 0.0, torch.bfloat16: 1.0, torch.float16: 2.0}


def _is_number(value: Any) -> bool:
    """A number of an optimizer's, or some of them: betas."""
    values = value if isinstance(value, tuple) else (value,)
    # A tensor of them is recorded, and its integers have 64 bits.
    return bool(values) and all(
        isinstance(v, float) or (isinstance(v, int) and not isinstance(v, bool) and abs(v) < 2**63)
        for v in values)


def _local(value: Any) -> Any:
    """What this rank holds of a tensor; of none, none."""
    return value.to_local() if hasattr(value, "to_local") else value


def _plain(value: torch.Tensor) -> Optional[torch.Tensor]:
    """Numbers that stand for a tensor's values; none for kinds that cannot be read as numbers."""
    if hasattr(value, "trigger_wait"):  # the result of a functional collective
        value = value.wait()
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return None
    if value.layout == torch.sparse_coo:
        value = value.coalesce().values()
    if value.layout != torch.strided or value.is_nested or value.is_quantized:
        return None
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def _is_norm(module: torch.nn.Module) -> bool:
    """LayerNorm, RMSNorm, LlamaRMSNorm, ...; BatchNorm is parallel over samples."""
    return type(module).__name__.endswith(("LayerNorm", "RMSNorm"))


def _ranks_suffix(ranks: "list[int]", world_size: int) -> str:
    """Values of one name are compared over all ranks; a group has names of its own."""
    if len(ranks) in (1, world_size):
        return ""
    step = ranks[1] - ranks[0]
    if len(ranks) > 8 and ranks == list(range(ranks[0], ranks[-1] + 1, step)):
        return f"@{ranks[0]},{ranks[1]},...,{ranks[-1]}"
    return "@" + ",".join(map(str, ranks))


def _along(mesh: Any, dims: "list[int]") -> "list[int]":
    """The ranks of a mesh that differ from this one in these dimensions alone, ascending."""
    at = mesh.get_coordinate()
    if at is None:
        return [dist.get_rank()]
    index = tuple(slice(None) if i in dims else at[i] for i in range(mesh.mesh.ndim))
    return sorted(mesh.mesh[index].flatten().tolist())


def _group_suffix(group: dist.ProcessGroup) -> str:
    return _ranks_suffix(dist.get_process_group_ranks(group), dist.get_world_size())


def _fsdp_groups(module: torch.nn.Module) -> "list[Any]":
    """What FSDP2 gathers together of a module; nothing where it does not shard this one."""
    get = getattr(module, "_get_fsdp_state", None)
    if get is None:
        return []
    state = get()
    groups = getattr(state, "_fsdp_param_groups", None)  # one or none until torch 2.11
    groups = [getattr(state, "_fsdp_param_group", None)] if groups is None else groups
    return [group for group in groups if group is not None]


def parameters_of_model(model: torch.nn.Module) -> "dict[str, torch.nn.Parameter]":
    """A model's parameters by name. Between forward and backward FSDP has put whole ones into the
    root; the parameters are the shards, which the optimizer holds."""
    shards: "dict[int, torch.nn.Parameter]" = {}
    for module in model.modules():
        for group in _fsdp_groups(module):
            for one in group.fsdp_params:
                whole = getattr(one, "_unsharded_param", None)
                if whole is not None:
                    shards[id(whole)] = one.sharded_param
    return {name: shards.get(id(p), p) for name, p in model.named_parameters()}


class _Tensors:
    """What of a model is compared, over which ranks, and under which name."""

    def __init__(self, model: torch.nn.Module, replicas: Groups, tied: Tied) -> None:
        from torch.distributed.tensor import DTensor
        self._dtensor = DTensor
        self._world_size = dist.get_world_size()  # there is no group left when the process ends
        inner = model
        own: "set[str]" = set()  # parameters that DDP was told to leave alone, such as experts
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            inner = model.module
            if replicas is None:
                replicas = model.process_group
                own = set(getattr(model, "parameters_to_ignore", ()))
        self.parameters = parameters_of_model(inner)
        by_prefix = replicas if isinstance(replicas, Mapping) else {"": replicas}
        # By parameter: the ranks that hold what this one holds, and the name for all of them.
        self._shared: "dict[str, tuple[list[int], str]]" = {}
        self._known_holders: "dict[tuple[str, Any], list[int]]" = {}
        for name in self.parameters:
            prefix = max((p for p in by_prefix if name.startswith(p)), key=len, default=None)
            group = None if prefix is None else by_prefix[prefix]
            if group is not None and name not in own:
                self._shared[name] = (dist.get_process_group_ranks(group), name)
        # The largest mesh of the model's DTensors: its dimensions say which ranks hold the same.
        meshes = [p.device_mesh for p in self.parameters.values() if isinstance(p, DTensor)]
        self._mesh = max(meshes, key=lambda m: m.mesh.numel(), default=None)
        # Ranks that are known to train on other samples; none where the model does not show it.
        self.data_replicas: "list[int]" = []
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            ranks = dist.get_process_group_ranks(model.process_group)
            # Over all ranks, some may divide a sequence between them, and read the same.
            self.data_replicas = ranks if len(ranks) < self._world_size else []
        self.tensor_ranks = self._tensor_ranks(inner)
        self._add_norms(inner)
        for name, where in tied.items():
            shared, group = where if isinstance(where, tuple) else (name, where)
            if name in self.parameters and group is not None and dist.get_rank(group) >= 0:
                self._shared[name] = (dist.get_process_group_ranks(group), shared)
        # Whether ranks hold the same tensors, so that they must agree on the learning rate, too.
        self.compares = bool(self._shared) or self._mesh is not None

    def _tensor_ranks(self, model: torch.nn.Module) -> "list[int]":
        """The ranks of this one's tensor parallelism, which compute on the same samples: those
        along the dimensions over which layers are split, except FSDP's. Experts are split over
        ranks with samples of their own."""
        if self._mesh is None:
            return [dist.get_rank()]
        data: "set[str]" = set()  # dimensions over which FSDP splits
        split: "set[str]" = set()
        for module in model.modules():
            for group in _fsdp_groups(module):
                mesh = group.mesh_info.mesh
                # Shards may be of ranks that divide a sequence and read the same; replicas are not.
                replicas = getattr(group.mesh_info, "replicate_mesh_dim", None)
                if replicas is not None:
                    self.data_replicas = _along(mesh, [replicas])
                if mesh.mesh.numel() == self._mesh.mesh.numel():
                    return [dist.get_rank()]  # all of it, perhaps by other names
                data.update(mesh.mesh_dim_names or ())
            if not isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
                continue
            for parameter in module.parameters(recurse=False):
                if isinstance(parameter, self._dtensor):
                    mesh = parameter.device_mesh
                    names = mesh.mesh_dim_names or ("",) * mesh.mesh.ndim
                    split.update(n for n, p in zip(names, parameter.placements) if p.is_shard())
        names = self._mesh.mesh_dim_names or ("",) * self._mesh.mesh.ndim
        return _along(self._mesh, [i for i, n in enumerate(names) if n in split - data])

    def _add_norms(self, model: torch.nn.Module) -> None:
        """Norms that are plain tensors in a model of DTensors are whole on all ranks of the mesh."""
        if self._mesh is None:
            return
        everywhere = self._of_mesh()
        for prefix, module in model.named_modules():
            if not _is_norm(module):
                continue
            for name, _ in module.named_parameters(prefix, recurse=False):
                if not isinstance(self.parameters.get(name), self._dtensor):
                    self._shared.setdefault(name, (everywhere, name))

    def _of_mesh(self) -> "list[int]":
        return _along(self._mesh, list(range(self._mesh.mesh.ndim)))

    def of_clipping(self) -> Optional[str]:
        """The suffix of what ranks compute from all gradients; none: not all are shared."""
        if set(self._shared) != set(self.parameters):
            return None
        ranks = [ranks for ranks, _ in self._shared.values()]
        if not ranks or any(one != ranks[0] for one in ranks):
            return None
        return _ranks_suffix(ranks[0], self._world_size)

    def suffix(self, ranks: "list[int]") -> str:
        return _ranks_suffix(ranks, self._world_size)

    def of_settings(self) -> Optional[str]:
        """The suffix of what ranks that train one model must have set alike; none: nobody knows."""
        if self._mesh is None:
            return self.of_clipping()
        return self.suffix(self._of_mesh())

    def _holders(self, name: str, value: Any) -> "list[int]":
        """The ranks that hold the same part of a DTensor as this one."""
        key = name, value.placements
        if key not in self._known_holders:
            self._known_holders[key] = self._find_holders(name, value)
        return self._known_holders[key]

    def _find_holders(self, name: str, value: Any) -> "list[int]":
        mesh, placements = value.device_mesh, value.placements
        if any(placement.is_partial() for placement in placements):
            return [dist.get_rank()]
        ranks = _along(mesh, [i for i, p in enumerate(placements) if p.is_replicate()])
        # On a part of the model's mesh: in the other dimensions it is held, and computed, alike.
        names, all_names = mesh.mesh_dim_names or (), self._mesh.mesh_dim_names or ()
        if len(names) < len(all_names) and set(names) < set(all_names):
            others = [i for i, dim in enumerate(all_names) if dim not in names
                      or placements[names.index(dim)].is_replicate()]
            ranks = _along(self._mesh, others)
        replicas = self._shared.get(name, (ranks, name))[0]
        if len(ranks) == 1:
            return replicas
        # Two directions that make up the whole job.
        return list(range(self._world_size)) if (
            len(ranks) * len(replicas) == self._world_size and ranks != replicas) else ranks

    def local(self, name: str, value: torch.Tensor) -> "tuple[torch.Tensor, str, bool]":
        """The values that this rank holds, their name, and whether to compare them."""
        parameter = self.parameters[name]
        if isinstance(value, self._dtensor):
            ranks = self._holders(name, value)
            return value.to_local(), name + self.suffix(ranks), len(ranks) > 1
        if isinstance(parameter, self._dtensor):  # such as a count of steps beside sharded moments
            return value, name, False
        if name not in self._shared:
            return value, name, False
        ranks, shown = self._shared[name]
        return value, shown + self.suffix(ranks), len(ranks) > 1


def tensors_of(batch: Any) -> "Iterator[torch.Tensor]":
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors_of(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from tensors_of(value)


def _samples_by_content(batch: Any) -> "list[int]":
    """A number for each sample of a batch, equal for equal samples; of some columns for long ones."""
    # Sparse, nested and quantized tensors have no rows to reshape.
    tensors = [t.detach() for t in tensors_of(batch)
               if t.layout == torch.strided and not t.is_nested and not t.is_quantized
               and t.device.type == "cpu" and t.ndim > 0]
    if not tensors or tensors[0].shape[0] == 0:
        return []
    total = torch.zeros(tensors[0].shape[0], dtype=torch.int64)
    generator = torch.Generator().manual_seed(1)
    for tensor in tensors:
        if tensor.shape[0] != total.shape[0] or tensor.is_complex():
            continue
        rows = tensor.reshape(tensor.shape[0], -1)
        rows = rows[:, ::rows.shape[1] // _COLUMNS + 1].contiguous()
        if rows.numel() == 0:
            continue
        numbers = (rows.double().view(torch.int64) if rows.dtype.is_floating_point
                   else rows.to(torch.int64))
        numbers = (numbers ^ (numbers >> 29)) * -4658895280553007687  # mixes the bits
        weights = torch.randint(-2**62, 2**62, (numbers.shape[1],), generator=generator) | 1
        total = total * 31 + ((numbers ^ (numbers >> 32)) * weights).sum(1)
    return [int(number) & (2**62 - 1) for number in total]


class Batch(NamedTuple):
    """What a loader handed out: the samples' indices or, where they are not known, the samples."""

    indices: "list[int]"
    content: Any
    data_set: int = 0  # what the indices are of; 0: unknown


_SIMPLE = (str, bytes, int, float, bool, type(None), os.PathLike)
_SAMPLED = 16  # of the rows of a tensor, and of the items of a list


def _every(count: int, most: int) -> int:
    return max(1, count // most)


def _identify(value: Any, digest: Any, depth: int) -> None:
    """Adds what a data set is made of: tensors and arrays, names of files, numbers, other data sets.
    Of long ones some elements. Not dictionaries, which often are caches."""
    if isinstance(value, torch.Tensor) and (value.layout != torch.strided or value.is_nested):
        return
    array = type(value).__module__ == "numpy" and str(getattr(value, "dtype", "object")) != "object"
    if isinstance(value, torch.Tensor) or array:
        digest.update(repr((tuple(value.shape), str(value.dtype))).encode())
        if len(value.shape) > 0 and value.shape[0] > 0:
            rows = value[::_every(value.shape[0], _SAMPLED)].reshape(-1)
            digest.update(repr(rows[::_every(rows.shape[0], 64 * _SAMPLED)].tolist()).encode())
    elif isinstance(value, _SIMPLE):
        digest.update(repr(os.fspath(value) if isinstance(value, os.PathLike) else value).encode())
    elif depth > 3:
        return
    elif isinstance(value, (list, tuple)):
        digest.update(b"%d" % len(value))
        for item in value[::_every(len(value), _SAMPLED)]:
            _identify(item, digest, depth + 1)
    elif depth == 0 or isinstance(value, torch.utils.data.Dataset):
        digest.update(type(value).__qualname__.encode())
        for name, attribute in sorted(getattr(value, "__dict__", {}).items()):
            digest.update(name.encode())
            _identify(attribute, digest, depth + 1)


def _number_of_data_set(data_set: Any) -> int:
    """Equal on ranks whose data sets hold the same, as far as their attributes show. They may differ
    where the data is the same, too: a data set may keep its rank."""
    digest = hashlib.blake2b(digest_size=6)
    try:
        _identify(data_set, digest, 0)
    except Exception:  # of other people's classes
        return 0
    return int.from_bytes(digest.digest(), "big")


def _in_whole(data_set: Any, indices: "list[int]") -> "tuple[Any, list[int]]":
    """The data set that a Subset is of, and the samples' indices there."""
    while type(data_set) is torch.utils.data.Subset:
        indices = [int(data_set.indices[i]) for i in indices]
        data_set = data_set.dataset
    return data_set, indices


class _Wrapped:
    """Stands for another object: has its length and attributes."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # of a copy that has no attributes yet
            raise AttributeError(name)
        return getattr(self._inner, name)


class _RecordedBatches(_Wrapped):
    """A batch sampler that remembers which samples it hands out."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.handed_out: "collections.deque[list[int]]" = collections.deque()

    def __iter__(self) -> "Iterator[Any]":
        self.handed_out.clear()
        for indices in self._inner:
            known = isinstance(indices, (list, tuple)) and all(isinstance(i, int) for i in indices)
            self.handed_out.append(list(indices) if known else [])
            yield indices


class _RecordedIterator(_Wrapped):
    """A DataLoader's iterator that reports each batch when the program takes it."""

    def __init__(self, inner: Any, tell: "Callable[[Any], None]") -> None:
        super().__init__(inner)
        self._tell = tell

    def __iter__(self) -> "_RecordedIterator":
        return self

    def __next__(self) -> Any:
        batch = next(self._inner)
        self._tell(batch)
        return batch


def parameters_of(optimizer: torch.optim.Optimizer) -> "set[int]":
    """The ids of the parameters that an optimizer changes."""
    return {id(p) for group in optimizer.param_groups for p in group["params"]}


class _Backwards:
    """What the backwards of a step find, and what becomes of their gradients."""

    def __init__(self, parameters: "Mapping[str, torch.nn.Parameter]",
                 accumulates: "Callable[[], bool]") -> None:
        self._parameters = parameters
        self._accumulates = accumulates  # whether gradients now stay on the rank: DDP's no_sync()
        self.ran = False  # some backward, in this step
        # Backwards whose gradients were to be reduced with a later one's, and were zeroed instead.
        self._lost = 0
        self._ended = False, 0  # the last one: whether it was such, and _uses() then
        self.leftovers: "set[str]" = set()  # gradients that are as the last step left them
        self.discarded = 0  # backwards whose gradients were zeroed before a step used them
        # Gradients that may still be leftovers, with the address and version that the step left.
        self._stepped_with: "dict[str, tuple[int, int]]" = {}
        self._newest = -1  # the newest backward, as PyTorch numbers them
        self._gave_gradients = False  # it did, to some parameter

    def begin_step(self, optimizer: Optional[torch.optim.Optimizer], looks: bool) -> None:
        """The optimizer made a step, or left it out. `looks`: the backwards of the next one count."""
        self.leftovers.clear()
        self.discarded, self._gave_gradients = 0, False
        self.ran, self._lost = False, 0
        self._stepped_with.clear()
        if not looks or optimizer is None:
            return
        held = parameters_of(optimizer)
        for name, parameter in self._parameters.items():
            gradient = _local(parameter.grad)
            if (gradient is not None and gradient.layout == torch.strided and gradient.numel() > 0
                    and id(parameter) in held):
                self._stepped_with[name] = gradient.data_ptr(), gradient._version

    def begins(self, _: torch.Tensor) -> None:
        """A hook of what the model gave: backward has come to it. A program may zero gradients until
        then."""
        number = torch._C._current_graph_task_id()
        if number == self._newest:  # it came to another output before
            return
        self._newest = number
        self.ran = True
        if self._gave_gradients and not self._some_gradient():
            self.discarded += 1
            self._lost += self._ended == (True, self._uses())
        self._look_for_leftovers()
        # In a callback of a callback FSDP has set the gradients, which it does in one.
        queue = torch.autograd.Variable._execution_engine.queue_callback
        queue(lambda: queue(self._ends))

    def _ends(self) -> None:
        self._gave_gradients = self._some_gradient()
        self._ended = self._accumulates(), self._uses()

    def _uses(self) -> int:
        """Grows where gradients may have been used: with a change of the parameters, for which a
        program needs no optimizer, and with a step of any optimizer, since a GAN's generator sends
        its gradients through the discriminator."""
        return _steps[0] + sum(p._version for p in self._parameters.values())

    def lost(self) -> int:
        """How many were lost before the one that is reduced. A program that never reduces in
        backward may have kept the gradients elsewhere."""
        return 0 if self._ended[0] else self._lost

    def _some_gradient(self) -> bool:
        return any(p.grad is not None and (p.grad.layout != torch.strided or bool(_local(p.grad).any()))
                   for p in self._parameters.values())

    def _look_for_leftovers(self) -> None:
        for name, (address, version) in list(self._stepped_with.items()):
            gradient = _local(self._parameters[name].grad)
            if gradient is not None and gradient.data_ptr() == address:
                if gradient._version == version:
                    self.leftovers.add(name)
                    continue
                # This step's earlier backward added to it; or it was zeroed in place only now, as
                # where a GAN's generator sends gradients through the discriminator before.
                if name in self.leftovers and bool(gradient.any()):
                    continue
            del self._stepped_with[name]
            self.leftovers.discard(name)


class Watch:
    """Records what a model and its optimizer hold, by hooks of both."""

    def __init__(self, model: torch.nn.Module, tensors: _Tensors,
                 optimizer: torch.optim.Optimizer, every: int,
                 same_random: Optional[dist.ProcessGroup],
                 different_random: Optional[dist.ProcessGroup], mean: bool, prefix: str) -> None:
        self._tensors = tensors
        self._every = every
        self._prefix = prefix
        self.on_training_forward: "Optional[Callable[[], None]]" = None
        self._random = [(f"{name}{_group_suffix(group)}", shared) for name, group, shared in (
            ("random", same_random, True), ("different_random", different_random, False))
            if group is not None and dist.get_rank(group) >= 0]
        self._mean = mean
        # Under DDP's hooks (compression, PowerSGD) gradients are not quite the mean.
        self._hooks = getattr(model, "_comm_hooks", ())
        self._mode: "dict[str, float]" = {}  # of the newest forward with gradients enabled
        self._step = 1
        self._began = False
        self._told_replicas = False
        self._told_data_set = False
        self._clipped = 0  # how often in this step
        # Whether this step's gradients were recorded; and, once the program changed them by
        # clipping or unscaling, the norms that they had then, to notice a later change.
        self._told_gradients = False
        self._changed_to: "Optional[list[torch.Tensor]]" = None
        self._unscaled = 1.0  # what they were multiplied by to unscale them
        self._not_recorded: "set[str]" = set()  # tensors of kinds whose values cannot be read
        self._own: dict[str, torch.Tensor] = {}  # gradients before their reduction
        wrapper = weakref.ref(model)
        self.backwards = _Backwards(
            tensors.parameters,
            lambda: not getattr(wrapper(), "require_backward_grad_sync", True))
        self._is_sharded = any(hasattr(m, "set_requires_gradient_sync") for m in model.modules())
        self._updated: Optional[int] = None  # a step whose parameters are still to be recorded
        self._of_parameter = {id(p): name for name, p in tensors.parameters.items()}
        self.follow(optimizer)
        model.register_forward_pre_hook(self._forward)
        model.register_forward_hook(self._forwarded)
        # A program that trains one model after another needs the memory of those before.
        self._model = weakref.ref(model, lambda _: self.end())
        if mean:
            for name, parameter in tensors.parameters.items():
                if parameter.requires_grad and tensors.local(name, parameter)[2]:
                    parameter.register_hook(self._keep_own(name))

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes this for the model's optimizer, from its next step on."""
        self._optimizer = weakref.ref(optimizer)
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)
        if self._began:
            self._optimizer_state(self._step - 1, optimizer)

    def trains(self, parameters: "set[int]") -> bool:
        """Whether the optimizer that made the last step holds some of these, given by their ids."""
        optimizer = self._optimizer()
        return optimizer is not None and not parameters_of(optimizer).isdisjoint(parameters)

    def is_replaced_by(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether this takes the place of the optimizer so far: that is gone, or holds the same."""
        known = self._optimizer()
        return known is None or (known is not optimizer and self.trains(parameters_of(optimizer)))

    def watches(self, model: torch.nn.Module) -> bool:
        """Whether this watches a parameter of the model."""
        return any(id(p) in self._of_parameter for p in parameters_of_model(model).values())

    def records(self) -> bool:
        """Whether values of this step are recorded."""
        return self._step <= _FIRST_STEPS or self._step % self._every == 0

    def _record(self, step: int, name: str, value: torch.Tensor, kind: str,
                prefix: str = "") -> None:
        if torch.nn.parameter.is_lazy(value):  # it has no values yet
            return
        local, shown, shared = self._tensors.local(name, value.detach())
        plain = _plain(local)
        if plain is None:
            if name not in self._not_recorded:
                self._not_recorded.add(name)
                warnings.warn(f"lockstep_watch does not record {name}: a {type(local).__name__} of "
                              f"layout {local.layout}", stacklevel=2)
            return
        # Ranks have other rows of a sparse gradient, so that its sketches do not add up.
        sketch = local.layout == torch.strided and (
            not shared or (self._mean and kind not in ("param", "optim")))
        torch.ops.lockstep.record_value(step, prefix + self._prefix + shown, plain, kind, shared, sketch)

    def _record_number(self, step: int, name: str, value: Any, shared: bool) -> None:
        """One that is not a tensor of the model, or a few."""
        numbers = torch.as_tensor(value, dtype=torch.float64).detach()
        torch.ops.lockstep.record_value(step, self._prefix + name, numbers, "optim", shared, False)

    def _keep_own(self, name: str) -> "Callable[[torch.Tensor], None]":
        """Adds up what each backward of the step gives, before anybody reduces it."""
        def keep(gradient: torch.Tensor) -> None:
            if self.records() and not self._hooks:
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
        optimizer = self._optimizer()
        if optimizer is not None:
            self._optimizer_state(self._step - 1, optimizer)
        torch.ops.lockstep.record_step(self._step - 1)

    def parameters(self) -> None:
        """Those of the newest step, when they are next used: a sharded optimizer made by hand hands
        them out only after its step."""
        step, self._updated = self._updated, None
        if step is not None:
            for name, parameter in self._tensors.parameters.items():
                self._record(step, name, parameter, "param")

    def end(self) -> None:
        """The program has ended, or dropped the model."""
        if self not in watches:
            return
        watches.remove(self)
        self.parameters()
        if self.backwards.discarded:  # by a rank that makes no further step
            self._record_discarded()

    def gradients(self) -> None:
        """The gradients as they come from their reduction: before they are clipped or unscaled."""
        self.begin()
        self.parameters()
        if not self.records():
            return
        if self._told_gradients and not self._reduced_since():
            return
        again, self._told_gradients, self._changed_to = self._told_gradients, True, None
        factor = self._unscaled if again else 1.0
        for name, own in self._own.items():
            own.mul_(factor)
        self._unscaled = 1.0
        for name, parameter in self._tensors.parameters.items():
            if parameter.grad is not None:
                self._record(self._step, name, parameter.grad, "grad")

    def _norms(self) -> "list[torch.Tensor]":
        gradients = [p.grad for p in self._tensors.parameters.values() if p.grad is not None]
        return [torch.linalg.vector_norm(_local(g)) for g in gradients]

    def changed_gradients(self, factor: float = 1.0) -> None:
        """The program has just clipped the gradients, or multiplied them by `factor`."""
        if self.records():
            self._changed_to = self._norms()
            self._unscaled *= factor

    def _reduced_since(self) -> bool:
        """Whether they are others than the program clipped or unscaled: it reduces them after."""
        if self._changed_to is None:
            return False
        now = self._norms()
        return len(now) != len(self._changed_to) or any(
            not torch.equal(a, b) and not (a.isnan() and b.isnan())
            for a, b in zip(now, self._changed_to))

    def clips(self, parameters: Any, norm: torch.Tensor) -> None:
        listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        if not all(id(p) in self._of_parameter for p in listed):
            return
        self.gradients()
        if self.records() and type(norm) is torch.Tensor:
            suffix = self._tensors.of_clipping()
            name = f"clip.norm/{self._clipped}" if self._clipped else "clip.norm"
            self._record_number(self._step, name + (suffix or ""), norm, suffix is not None)
        self._clipped += 1

    def clipped(self, parameters: Any) -> None:
        if any(id(p) in self._of_parameter for p in parameters):
            self.changed_gradients()

    def scaled_step(self, step: int, made: bool, scale: float) -> None:
        """What a GradScaler decided in a step: all ranks must decide alike."""
        for name, value in (("stepped", float(made)), ("loss_scale", scale)):
            self._record_number(step, name, value, self._tensors.compares)

    def takes(self, batch: Batch) -> None:
        """The program has taken a batch from its loader."""
        ranks = self._tensors.tensor_ranks
        if not torch.ops.lockstep.is_recording():
            return
        numbers = batch.indices
        if not numbers and self.records():
            numbers = _samples_by_content(batch.content)
        if not numbers:
            return
        if len(ranks) > 1 and self.records():  # these read the same
            digest = hashlib.blake2b(repr(numbers).encode(), digest_size=6).digest()
            self._record_number(self._step, f"batch{self._tensors.suffix(ranks)}",
                                int.from_bytes(digest, "big"), True)
        if batch.data_set and not self._told_data_set:
            self._told_data_set = True
            self._record_number(self._step, "data_set", batch.data_set, False)
        replicas = self._tensors.data_replicas
        if len(replicas) > 1 and not self._told_replicas:
            self._told_replicas = True
            self._record_number(self._step, f"data_replicas{self._tensors.suffix(replicas)}",
                                len(replicas), False)
        if dist.get_rank() == ranks[0]:
            torch.ops.lockstep.record_samples(self._step, numbers)

    def _before(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.gradients()
        if not self.records():
            return
        self._own_gradients()
        self._settings(optimizer)
        for name in self._tensors.parameters:
            if name in self.backwards.leftovers:
                torch.ops.lockstep.record_value(self._step, f"leftover/{self._prefix}{name}",
                                                torch.ones(1), "optim", False, False)
        # FSDP keeps gradients to itself where their reduction is off in all micro-batches.
        unreduced = self._is_sharded and self.backwards.ran and all(
            p.grad is None for p in self._tensors.parameters.values())
        for name, number in (("lost", self.backwards.lost()), ("unreduced", int(unreduced))):
            if number:
                self._record_number(self._step, name, number, False)
        for name, shared in self._random:
            torch.ops.lockstep.record_value(self._step, self._prefix + name, self._random_state(),
                                            "optim", shared, False)

    def _device(self) -> str:
        return next((p.device.type for p in self._tensors.parameters.values()), "cpu")

    def _random_state(self) -> torch.Tensor:
        """The state of the device's random generator, from which dropout draws, for instance."""
        device = self._device()
        return torch.get_rng_state() if device == "cpu" else (
            torch.get_device_module(device).get_rng_state())

    def _own_gradients(self) -> None:
        for name, own in self._own.items():
            self._record(self._step, name, own, "local")

    def _settings(self, optimizer: torch.optim.Optimizer) -> None:
        """The numbers of the optimizer's groups, and how the model computed."""
        suffix = self._tensors.of_settings()
        for i, group in enumerate(optimizer.param_groups):
            nth = f"/{i}" if i else ""
            self._record_number(self._step, f"lr{nth}", group.get("lr", 0.0), self._tensors.compares)
            for name, value in group.items():
                if name not in _NO_SETTINGS and _is_number(value):
                    self._record_number(self._step, f"{name}{nth}{suffix or ''}", value,
                                        suffix is not None)
        self._record_discarded()
        for name, number in self._mode.items():
            self._record_number(self._step, name + (suffix or ""), number, suffix is not None)
        self._mode.clear()

    def _record_discarded(self) -> None:
        suffix = self._tensors.of_settings()
        self._record_number(self._step, f"discarded{suffix or ''}", self.backwards.discarded,
                            suffix is not None)

    def _forward(self, model: torch.nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling():  # module.compile() has its hooks traced
            return
        self.parameters()
        if torch.is_grad_enabled() and self.on_training_forward is not None:
            self.on_training_forward()
        if torch.is_grad_enabled() and self.records() and self._tensors.parameters:
            device = self._device()
            kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
            inner = getattr(model, "module", model)  # programs call eval() of either
            self._mode = {"training": float(inner.training), "autocast": _AUTOCAST.get(kind, -1.0)}

    def _forwarded(self, model: torch.nn.Module, given: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or not self.records() or not torch.is_grad_enabled():
            return
        for tensor in tensors_of(output):
            if tensor.requires_grad:
                tensor.register_hook(self.backwards.begins)

    def _optimizer_state(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        for name, parameter in self._tensors.parameters.items():
            for what, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor) and value.numel() > 1:
                    self._record(step, name, value, "optim", f"{what}/")

    def _after(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        # Where they diverge, the parameters diverge in the same step: they only tell why.
        if self.records() and (self._step <= _STATE_STEPS or self._step > _FIRST_STEPS):
            self._optimizer_state(self._step, optimizer)
        self._end_step()

    def _end_step(self) -> None:
        if self.records():
            self._updated = self._step
        torch.ops.lockstep.record_step(self._step)
        self._step += 1
        self._clipped, self._told_gradients = 0, False
        self._changed_to, self._unscaled = None, 1.0
        self._own.clear()
        self.backwards.begin_step(self._optimizer(), self.records())
        # Under Join the parameters of a rank that is through change once more, with the last one's.
        model = self._model()
        if model is not None and getattr(getattr(model, "_join_config", None), "enable", False):
            self.parameters()

    @property
    def step(self) -> int:
        return self._step

    def skipped(self) -> None:
        """A step in which a GradScaler left out the update."""
        self.gradients()
        if self.records():
            self._own_gradients()
        self._end_step()


watches: "list[Watch]" = []  # of the models that there are
_steps = [0]  # of all optimizers
_numbers = itertools.count(1)  # of all that were made


def _of(optimizer: torch.optim.Optimizer) -> "list[Watch]":
    return [w for w in watches if w._optimizer() is optimizer]


def _end() -> None:
    # After an exception the device may hang, and what it would give is not the step's.
    if getattr(sys, "last_type", None) is None:
        for watching in list(watches):
            watching.end()


def _count_step(*_: Any) -> None:
    _steps[0] += 1


def _listen() -> None:
    """Hears of clipping and of skipped updates, which no hook of PyTorch's tells, and of the end."""
    atexit.register(_end)
    register_optimizer_step_post_hook(_count_step)
    module = torch.nn.utils.clip_grad
    inner = getattr(module, "_clip_grads_with_norm_", None)
    if inner is not None:
        def clip(parameters: Any, max_norm: float, total_norm: torch.Tensor, *more: Any,
                 **named: Any) -> Any:
            listed = parameters if isinstance(parameters, torch.Tensor) else list(parameters)
            for watching in watches:
                watching.clips(listed, total_norm)
            out = inner(listed, max_norm, total_norm, *more, **named)
            for watching in watches:
                watching.clipped([listed] if isinstance(listed, torch.Tensor) else listed)
            return out

        module._clip_grads_with_norm_ = clip
    scaler = torch.amp.GradScaler
    unscale, step = scaler.unscale_, scaler.step

    def unscale_(self: Any, optimizer: torch.optim.Optimizer) -> Any:
        for watching in _of(optimizer):
            watching.gradients()
        listening = [watching for watching in _of(optimizer) if watching.records()]
        scale = self.get_scale() if listening else 1.0
        out = unscale(self, optimizer)
        for watching in listening:
            watching.changed_gradients(1 / scale)
        return out

    def step_(self: Any, optimizer: torch.optim.Optimizer, *more: Any, **named: Any) -> Any:
        before = [(watching, watching.step) for watching in _of(optimizer)]
        for watching, _ in before:
            watching.gradients()
        tells = self.is_enabled() and any(watching.records() for watching, _ in before)
        scale = self.get_scale() if tells else 1.0
        out = step(self, optimizer, *more, **named)
        for watching, number in before:
            made = watching.step != number
            if not made:
                watching.skipped()
            if tells:
                watching.scaled_step(number, made, scale)
        return out

    scaler.unscale_, scaler.step = unscale_, step_


def recorded_iterator(loader: Any, make: "Callable[[], Any]",
                      tell: "Callable[[Batch], None]") -> _RecordedIterator:
    """The iterator that `make` gives for a DataLoader, which reports what the program takes."""
    batches = getattr(loader, "batch_sampler", None)
    if batches is not None and not isinstance(batches, _RecordedBatches):
        # DataLoader refuses to have it replaced; it reads it again for every epoch.
        batches = loader.__dict__["batch_sampler"] = _RecordedBatches(batches)

    data_set = getattr(loader, "dataset", None)
    if "_lockstep_data_set" not in loader.__dict__:  # once, before the data set fills caches
        loader.__dict__["_lockstep_data_set"] = _number_of_data_set(_in_whole(data_set, [])[0])
    number = loader.__dict__["_lockstep_data_set"]

    def tell_taken(batch: Any) -> None:
        indices = batches.handed_out.popleft() if batches is not None and batches.handed_out else []
        if not indices:
            tell(Batch([], batch))
            return
        try:
            tell(Batch(_in_whole(data_set, indices)[1], None, number))
        except Exception:  # indices of no whole numbers
            tell(Batch(indices, None))

    return _RecordedIterator(make(), tell_taken)


def _watch_loader(loader: Any, watching: Watch) -> None:
    inner = getattr(loader, "_get_iterator", None)
    if inner is not None:
        loader.__dict__["_get_iterator"] = lambda: recorded_iterator(loader, inner, watching.takes)


def watch(model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer], loader: Optional[Any] = None,
          every: int = 100, *, replicas: Groups = None, tied: Optional[Tied] = None,
          same_random: Optional[dist.ProcessGroup] = None,
          different_random: Optional[dist.ProcessGroup] = None, mean: bool = False) -> None:
    """Records this rank's values in the first 10 steps and in every `every`-th; see the module.

    replicas: the group whose ranks hold the same parameters, or one for each prefix of names (the
        longest counts); by default the one of DistributedDataParallel.
    tied: parameters that are the same on several ranks, perhaps under another name there.
    same_random: ranks that must draw the same random numbers, of the default generator of the model's
        device.
    different_random: ranks of which no two may draw the same.
    mean: what the optimizer gets (or what is clipped, or unscaled) is the mean over the replicas of
        what their backward gave. Keeps a copy of the gradients in the steps that are recorded. Not
        compared under a communication hook of DDP's.
    """
    if not hasattr(torch.ops.lockstep, "record_value") or not dist.is_initialized():
        return
    if optimizer is None:  # of a rank that trains nothing
        return
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError("watch() takes one torch.optim.Optimizer; call it for each")
    number = next(_numbers)
    if number == 1:
        _listen()
    tensors = _Tensors(getattr(model, "_orig_mod", model), replicas, tied or {})  # of torch.compile
    prefix = "" if number == 1 else f"model{number}."
    watching = Watch(model, tensors, optimizer, every, same_random, different_random, mean, prefix)
    watches.append(watching)
    watching.begin()
    if loader is not None:
        _watch_loader(loader, watching)
