"""Kernels that replace c10d's: they record a call, and complete it."""

from typing import Any, Callable, Mapping, Optional

import torch
import torch.distributed as dist

from lockstep_record.program import RecordError
from lockstep_record.recorder import Recorder, active
from lockstep_record.world import Call

# By c10d operator: the operation, and the names of its input and output arguments.
_OPERATORS = {
    "allreduce_": ("all_reduce", "tensors", "tensors"),
    "allreduce_coalesced_": ("all_reduce", "tensors", "tensors"),
    "reduce_": ("reduce", "tensors", "tensors"),
    "broadcast_": ("broadcast", "tensors", "tensors"),
    "allgather_": ("all_gather", "input_tensors", "output_tensors"),
    "allgather_coalesced_": ("all_gather", "input_list", "output_lists"),
    "_allgather_base_": ("all_gather_into_tensor", "input_tensor", "output_tensor"),
    "allgather_into_tensor_coalesced_": ("all_gather_into_tensor", "inputs", "outputs"),
    "gather_": ("gather", "input_tensors", "output_tensors"),
    "gather_into_tensor_": ("gather", "input_tensor", "output_tensor"),
    "scatter_": ("scatter", "input_tensors", "output_tensors"),
    "reduce_scatter_": ("reduce_scatter", "input_tensors", "output_tensors"),
    "_reduce_scatter_base_": ("reduce_scatter_tensor", "input_tensor", "output_tensor"),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter_tensor", "inputs", "outputs"),
    "alltoall_": ("all_to_all", "input_tensors", "output_tensors"),
    "alltoall_base_": ("all_to_all_single", "input", "output"),
    "barrier": ("barrier", None, None),
    "monitored_barrier_": ("barrier", None, None),
    "send": ("send", "tensors", None),
    "recv_": ("recv", None, "tensors"),
    "recv_any_source_": ("recv_any", None, "tensors"),
}

_REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor")
LIBRARIES: list[Any] = []  # keeps the registrations alive


def _redop(recorder: Recorder, boxed: Any) -> str:
    """2.11 cannot unbox the value; there the Python wrappers note it in the recorder
    (lockstep_record.wrappers), and calls that C++ makes by itself (the Reducer) are sums."""
    if hasattr(dist.ReduceOp, "unbox"):
        return redop_name(dist.ReduceOp.unbox(boxed))
    return recorder.redop or "sum"


def redop_name(op: Any) -> str:
    return getattr(op, "op", op).name.lower()


def _describe(recorder: Recorder, operator: str, arguments: Mapping[str, Any]) -> Call:
    op, ins, outs = _OPERATORS[operator]
    group = dist.ProcessGroup.unbox(arguments["process_group"])
    name, ranks = recorder.group_of(group)
    call = Call(op, name, ranks, group.rank())
    call.ins = arguments[ins] if ins else None
    call.outs = arguments[outs] if outs else None
    if op in _REDUCTIONS:
        call.redop = _redop(recorder, arguments["reduce_op"])
    if "root_rank" in arguments:
        call.root = arguments["root_rank"]
    if op in ("send", "recv", "recv_any"):
        call.peer = arguments.get("dst", arguments.get("src"))
        call.tag = arguments["tag"]
    call.splits_in = arguments.get("input_split_sizes", ())
    call.splits_out = arguments.get("output_split_sizes", ())
    call.is_async = bool(arguments.get("async_op", operator != "monitored_barrier_"))
    return call


def _make_kernel(operator: str, schema: Any, original: Any) -> Callable[..., Any]:
    names = [a.name for a in schema.arguments]
    defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    results = len(schema.returns)

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        # Not recording (or not any more): behave like the original kernel.
        recorder = active()
        if recorder is None:
            return original.call_boxed(keys, *args, **kwargs)
        arguments = {**defaults, **dict(zip(names, args)), **kwargs}
        if operator not in _OPERATORS:
            raise RecordError(f"this torch has an operator c10d::{operator}, which is not known "
                              "here; use a torch that lockstep_record.py was tested with")

        def forward() -> Optional[dist.Work]:
            out = original.call_boxed(keys, *args, **kwargs)
            # Operators without a handle in their result are synchronous.
            if results == 0:
                return None
            return dist.Work.unbox(out if results == 1 else out[1])

        work = recorder.record(_describe(recorder, operator, arguments), forward)
        if results == 0:
            work.wait()
            return None
        return work.boxed() if results == 1 else (args[0], work.boxed())

    return kernel


def install_kernels() -> None:
    library = torch.library.Library("c10d", "IMPL")
    for full_name in torch._C._dispatch_get_all_op_names():
        namespace, _, operator = full_name.partition("::")
        if namespace != "c10d" or "." in operator:
            continue
        schema = getattr(torch.ops.c10d, operator).default._schema
        if all(a.name != "process_group" for a in schema.arguments):
            continue
        # allreduce_ also has kernels for sparse gradients.
        keys = ["CPU", "CUDA"] + (["SparseCPU", "SparseCUDA"] if operator == "allreduce_" else [])
        for key in keys:
            # A build without CUDA has no CUDA kernels to replace.
            if not torch._C._dispatch_has_kernel_for_dispatch_key(full_name, key):
                continue
            original = torch.library.get_kernel(full_name, key)
            library.impl(operator, _make_kernel(operator, schema, original), key, with_keyset=True,
                         allow_override=True)
    LIBRARIES.append(library)
