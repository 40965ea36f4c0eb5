"""Python functions that are wrapped, for what c10d's operators do not say: names, groups, batches."""

import functools
import importlib
import inspect
import sys
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

from lockstep_record.kernels import LIBRARIES, install_kernels, redop_name
from lockstep_record.recorder import RecordedWork, Recorder, activate


def _rebind(original: Any, replacement: Any) -> None:
    """Replaces a function in every module that has imported it by name, except this package."""
    for module in list(sys.modules.values()):
        members = getattr(module, "__dict__", None)
        if not isinstance(members, dict):
            continue
        if str(members.get("__name__")).partition(".")[0] == __package__:
            continue
        for name, value in list(members.items()):
            if value is original:
                members[name] = replacement


def _wrap_function(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replaces `owner.name` by `make(original)`. Does nothing if this torch does not have it."""
    original = getattr(owner, name, None)
    if original is not None:
        _rebind(original, functools.wraps(original)(make(original)))


def _wrap_method(owner: type, name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, functools.wraps(original)(make(original)))


def _watch_groups(recorder: Recorder) -> None:
    """Records new groups. Without a real transport they are `fake`, whatever they ask for."""

    def make(original: Any) -> Any:
        signature = inspect.signature(original)

        def helper(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            if recorder.world is not None:
                bound.arguments["backend"] = dist.Backend("fake")
                for option in ("backend_options", "device_id"):
                    bound.arguments.pop(option, None)
            recorder.asked_for(bound.arguments["group_name"],
                               bound.arguments["global_ranks_in_group"])
            result = original(*bound.args, **bound.kwargs)
            group = result[0]
            if isinstance(group, dist.ProcessGroup):
                ranks = bound.arguments["global_ranks_in_group"] or range(group.size())
                recorder.add_group(group.group_name, list(ranks), group.group_desc)
            return result

        return helper

    _wrap_function(c10d, "_new_process_group_helper", make)

    def make_init(original: Any) -> Any:
        def init(backend: Optional[str] = None, *args: Any, **kwargs: Any) -> None:
            if backend is not None:
                recorder.backend = str(backend)
            if not dist.is_initialized():
                original(backend, *args, **kwargs)

        return init

    _wrap_function(c10d, "init_process_group", make_init)
    if recorder.world is not None:  # the original refuses every backend but Gloo
        _wrap_function(c10d, "monitored_barrier", lambda original: (
            lambda group=None, timeout=None, wait_all_ranks=False: dist.barrier(group)))

    def make_batch(original: Any) -> Any:
        def batch(operations: Any) -> Any:
            recorder.batches += 1
            recorder.batch = recorder.batches
            try:
                return original(operations)
            finally:
                recorder.batch = None

        return batch

    _wrap_function(c10d, "batch_isend_irecv", make_batch)
    _watch_brackets(recorder)


class _Together(dist.Work):
    """The handle of calls that were issued between _start_coalescing and _end_coalescing."""

    def __init__(self, works: list[RecordedWork], inner: Optional[dist.Work]) -> None:
        super().__init__()
        self._works, self._inner = works, inner

    def wait(self, *timeout: Any) -> bool:
        if self._inner is not None:
            self._inner.wait(*timeout)
        for work in self._works:
            work.wait(*timeout)
        return True

    def is_completed(self) -> bool:
        return self._inner is None or self._inner.is_completed()


def _watch_brackets(recorder: Recorder) -> None:
    scopes: list[Any] = []

    def make_start(original: Any) -> Any:
        def start(self: Any, device: Any) -> None:
            recorder.batches += 1
            recorder.batch = recorder.batches
            scopes.append(recorder.works_from_here())
            if recorder.world is None:
                original(self, device)

        return start

    def make_end(original: Any) -> Any:
        def end(self: Any, device: Any) -> dist.Work:
            inner = original(self, device) if recorder.world is None else None
            recorder.batch = None
            together = _Together(scopes.pop()(), inner)
            recorder.keep(together)
            return together

        return end

    _wrap_method(dist.ProcessGroup, "_start_coalescing", make_start)
    _wrap_method(dist.ProcessGroup, "_end_coalescing", make_end)


def _average(group: Any, bucket: Any) -> torch.futures.Future:
    """A hook that does what the Reducer does without one: the mean over the ranks."""
    group = group if group is not None else dist.group.WORLD
    buffer = bucket.buffer().div_(group.size())
    work = dist.all_reduce(buffer, group=group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def _average_halves(group: Any, bucket: Any) -> torch.futures.Future:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    return fp16_compress_hook(group, bucket)


def _watch_ddp(recorder: Recorder) -> None:
    """Names DDP's buckets in a communication hook: one of ours, or around the program's."""
    hooked: set[int] = set()
    pending: list[RecordedWork] = []

    def wait_for_buckets() -> None:
        """Just after this, the Reducer waits for its buckets where nothing can observe it."""
        for work in pending:
            work.wait()
        pending.clear()

    def named(hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def run_hook(state: Any, bucket: Any) -> Any:
            what = recorder.names.of_parameters(bucket.parameters())
            with recorder.scope(what, f"ddp.bucket.{bucket.index()}") as works:
                future = hook(state, bucket)
            pending.extend(w for w in works if not w.waited)
            if bucket.is_last():
                torch.autograd.Variable._execution_engine.queue_callback(wait_for_buckets)
            return future

        return run_hook

    def make_register(original: Any) -> Any:
        def register(reducer: Any, state: Any, hook: Any) -> Any:
            hooked.add(id(reducer))
            return original(reducer, state, named(hook))

        return register

    def make_builtin(original: Any) -> Any:
        def register(reducer: Any, kind: Any) -> Any:
            halves = kind == dist.BuiltinCommHookType.FP16_COMPRESS
            return dist._register_comm_hook(reducer, None, _average_halves if halves else _average)

        return register

    def make_init(original: Any) -> Any:
        def init(self: Any, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
            recorder.names.add_module(module)
            original(self, module, *args, **kwargs)

        return init

    def make_forward(original: Any) -> Any:
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            reducer = getattr(self, "reducer", None)
            if isinstance(reducer, dist.Reducer) and id(reducer) not in hooked:
                # A hook can only be registered before the first forward; by then the program's own
                # is in.
                dist._register_comm_hook(reducer, self.process_group, _average)
            return original(self, *args, **kwargs)

        return forward

    _wrap_function(dist, "_register_comm_hook", make_register)
    _wrap_function(dist, "_register_builtin_comm_hook", make_builtin)
    _wrap_method(DistributedDataParallel, "__init__", make_init)
    _wrap_method(DistributedDataParallel, "forward", make_forward)


def _name_calls_of_ddp(recorder: Recorder) -> None:
    """Names what DDP calls besides its buckets: rebuilding these, broadcasts, the check of shapes."""

    def make_rebuild(original: Any) -> Any:
        def rebuild(self: Any) -> Any:
            with recorder.scope(None, "ddp.rebuild"), recorder.previous_step():
                return original(self)

        return rebuild

    _wrap_method(dist.Reducer, "_rebuild_buckets", make_rebuild)

    def make_coalesced(original: Any) -> Any:
        def coalesced(group: Any, tensors: Any, size: int, *args: Any) -> Any:
            tensors = list(tensors)
            parts = dist._compute_bucket_assignment_by_size(tensors, [size])[0] if tensors else []
            coming = [recorder.names.of_tensors([tensors[i] for i in part]) for part in parts]
            with recorder.scope(None, "broadcast", coming):
                return original(group, tensors, size, *args)

        return coalesced

    _wrap_function(dist, "_broadcast_coalesced", make_coalesced)

    def make_verify(original: Any) -> Any:
        def verify(*args: Any) -> Any:
            with recorder.scope(None, "ddp.verify_params"):
                return original(*args)

        return verify

    _wrap_function(dist, "_verify_params_across_processes", make_verify)


_FSDP = "torch.distributed.fsdp._fully_shard._fsdp_param_group"


def _watch_fsdp(recorder: Recorder) -> None:
    """Names what FSDP2 gathers and reduces: the parameters of a group, which know their names."""
    try:
        groups = importlib.import_module(_FSDP)
    except ImportError:
        return

    def make(original: Any) -> Any:
        def together(fsdp_params: Any, *args: Any, **kwargs: Any) -> Any:
            names = [getattr(p, "_param_fqn", None) for p in fsdp_params]
            what = None if None in names else names
            with recorder.scope(what, "fsdp." + original.__name__.removeprefix("foreach_")):
                return original(fsdp_params, *args, **kwargs)

        return together

    _wrap_function(groups, "foreach_all_gather", make)
    _wrap_function(groups, "foreach_reduce", make)


def _watch_reductions(recorder: Recorder) -> None:
    """For torch without ReduceOp.unbox (2.11): notes the reduce operation in Python wrappers."""
    if hasattr(dist.ReduceOp, "unbox"):
        return

    def said(value: Any) -> Optional[str]:
        value = getattr(value, "reduceOp", value)
        known = isinstance(value, (dist.ReduceOp, dist.ReduceOp.RedOpType))
        return redop_name(value) if known else None

    def noting(find: Callable[..., Optional[str]], original: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            before, recorder.redop = recorder.redop, find(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                recorder.redop = before

        return wrapper

    def find_option(*args: Any, **kwargs: Any) -> Optional[str]:
        return next(filter(None, map(said, [*args, *kwargs.values()])), None)

    for method in ("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter",
                   "_reduce_scatter_base", "reduce_scatter_tensor_coalesced"):
        _wrap_method(dist.ProcessGroup, method, functools.partial(noting, find_option))

    library = torch.library.Library("_c10d_functional", "IMPL")
    for operator in ("all_reduce", "all_reduce_", "all_reduce_coalesced", "all_reduce_coalesced_",
                     "reduce_scatter_tensor", "reduce_scatter_tensor_out",
                     "reduce_scatter_tensor_coalesced"):
        for key in ("CPU", "CUDA"):
            original = torch.library.get_kernel(f"_c10d_functional::{operator}", key).call_boxed
            # (keys, tensors, reduce_op, ...)
            kernel = noting(lambda keys, tensors, op, *rest, **kwargs: op.lower(), original)
            library.impl(operator, kernel, key, with_keyset=True)
    LIBRARIES.append(library)


def _watch_checkpoints(recorder: Recorder) -> None:
    """A save's plan is gathered from all ranks; here all of them have this rank's part, so that the
    parts do not make the whole. That is not a fault of the program."""
    if recorder.world is None:
        return
    try:
        planner = importlib.import_module("torch.distributed.checkpoint.default_planner")
        original = planner._validate_global_plan
    except (ImportError, AttributeError):  # a torch without them
        return
    # 2.15 returns what is wrong, 2.11 whether nothing is.
    lists = "list" in str(inspect.signature(original).return_annotation)
    planner._validate_global_plan = lambda *_: [] if lists else True


SLOW_IMPORTS = ("torch.testing._internal.distributed.fake_pg", _FSDP,
                 "torch.distributed.algorithms.ddp_comm_hooks.default_hooks",
                 "torch.distributed.checkpoint.default_planner",
                 "torch._dynamo")  # imported by the first step of an optimizer


def install(recorder: Recorder) -> None:
    """Makes this process record until it ends."""
    install_kernels()
    for watch in (_watch_groups, _watch_ddp, _name_calls_of_ddp, _watch_fsdp, _watch_reductions,
                  _watch_checkpoints):
        watch(recorder)
    activate(recorder)
