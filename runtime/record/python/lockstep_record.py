#!/usr/bin/env python3
"""Records the collectives of a PyTorch training program, for `lockstep verify`.

Can any mix of batches over the ranks make a job hang, or match the wrong tensors? This file runs
the program's own training step, one rank at a time and without the other ranks, once for every
*condition* that a rank can be in (its batch holds images or not, ...), and records every
collective that it calls. `lockstep verify` then decides for all mixes and any number of steps.
Needs torch (tested with 2.11 and 2.15) and the standard library; no GPU and no network.

Add one function to the training script:

    def lockstep():
        return {"build": make_trainer,          # () -> a function that trains one step: step(batch)
                "conditions": {"image+text": batch_a, "text": batch_b}}

and call on the command line

    python runtime/record/python/lockstep_record.py train.py --world-size 4 --output derived
    lockstep verify derived

or, from Python, `lockstep_record.derive(build=..., conditions=..., world_size=4, output=...)`.
docs/record-python.md says what is recorded and what is assumed.

How it works. Each rank is a forked process with a process group of PyTorch's `fake` backend, in
which the dispatcher's c10d operators are replaced by kernels that record the call and complete it
at once. DDP's Reducer, FSDP2, DTensor, functional collectives and `torch.distributed` all use
these operators, whether they are called from Python or from C++. The kernels of `fake` itself are
not enough: in 2.11 the Reducer does not accept their futures, and they do not compute sums.
"""

import argparse
import collections
import contextlib
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import pickle
import platform
import shutil
import signal
import sys
import tempfile
import textwrap
import threading
import time
import traceback
import weakref
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

try:
    import torch
except ImportError as _missing:
    if __name__ != "__main__":
        raise
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        print("This Python cannot import torch; with one that can, --help lists the options.")
        sys.exit(0)
    print(f"lockstep_record.py: this Python ({sys.executable}) cannot import torch: {_missing}; "
          "use the one that the script runs with", file=sys.stderr)
    sys.exit(2)
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

__all__ = ["Condition", "Program", "carries", "derive", "run"]


# ---- What users provide --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Condition:
    """One kind of step.

    batch: the argument of the step function; if it is callable, `batch()` is called in each step.
    has: the modalities in the batch, for people (`["image", "text"]`).
    phase: conditions of different phases never occur in the same step.
    dissent: another rank decides differently: where this rank asks all ranks, a minimum is 0, a
        maximum is 1, and the sum of a single 0 or 1 is as if all others had the opposite.
    """

    batch: Any
    has: Sequence[str] = ()
    phase: str = ""
    dissent: bool = False


@dataclasses.dataclass(frozen=True)
class Program:
    """What `build` may return instead of a bare step function.

    step: trains one step on one batch: forward, backward, optimizer.
    model: gives names to parameters in hand-written communication (DDP and FSDP2 need no help).
    finish: called after the last step (a final save, a last barrier).
    """

    step: Callable[[Any], Any]
    model: Optional[torch.nn.Module] = None
    finish: Optional[Callable[[], Any]] = None


class RecordError(Exception):
    """The program could not be recorded; the message says why and what to do."""


@contextlib.contextmanager
def carries(*names: str) -> Iterator[None]:
    """Names what the calls inside carry, if a flat buffer hides it. No effect unless recording."""
    if _recorder is None:
        yield
        return
    with _recorder.scope(list(names)):
        yield


# ---- The trace -----------------------------------------------------------------------------------

_HERE = os.path.abspath(__file__)
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_JOIN = os.path.join("torch", "distributed", "algorithms", "join.py")
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


def call_place(root: str) -> Optional[str]:
    """`train.py:120`: the source location in the program that led to this call.

    The innermost frame in the folder `root`, else the innermost that is neither in this file, in
    torch nor in the standard library; None if the call comes from a C++ thread.
    """
    frame: Any = sys._getframe(1)
    outside: Optional[str] = None
    while frame is not None:
        file = os.path.abspath(frame.f_code.co_filename)
        if file.startswith(root + os.sep) and file != _HERE:
            return f"{os.path.relpath(file, root)}:{frame.f_lineno}"
        library = file == _HERE or file.startswith((_TORCH, _STDLIB)) or not os.path.exists(file)
        # Remember the innermost foreign frame: the program may lie outside of `root`, or in
        # site-packages.
        if outside is None and (not library or f"{os.sep}site-packages{os.sep}" in file
                                and not file.startswith(_TORCH)):
            outside = f"{os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return outside


def made_by_join() -> bool:
    """Whether PyTorch's Join makes this call: to learn who has batches left, and who is the last."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(_JOIN):
            return True
        frame = frame.f_back
    return False


class Trace:
    """The lines of one rank's trace, format 1 (docs/trace-format.md).

    With a `live` file every line is written and flushed at once, so that it survives a hang.
    Otherwise lines are kept in memory until `write`.
    """

    def __init__(self, header: Mapping[str, Any], live: Optional[Path] = None) -> None:
        self.header = dict(header)
        self.lines: list[dict[str, Any]] = []
        self.issued = 0
        self._insert: Optional[int] = None
        self._live = open(live, "w", encoding="utf-8") if live else None
        if self._live:
            self._print(self.header)

    def _print(self, line: Mapping[str, Any]) -> None:
        assert self._live is not None
        self._live.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._live.flush()

    def add(self, line: dict[str, Any]) -> None:
        if self._live:
            if "ev" in line:
                line["t"] = time.monotonic_ns()
            self._print(line)
        elif self._insert is not None:
            self.lines.insert(self._insert, line)
            self._insert += 1
        else:
            self.lines.append(line)

    @contextlib.contextmanager
    def before(self, place: int) -> Iterator[None]:
        """Lines added inside are inserted at index `place` (only without a `live` file)."""
        self._insert = place
        try:
            yield
        finally:
            self._insert = None

    def end(self, how: str) -> None:
        self.add({"end": how})
        if self._live:
            self._live.close()

    def write(self, file: Path) -> None:
        """Writes all lines. Call ids are renumbered in file order, because of `before`."""
        ids: dict[int, int] = {}
        with open(file, "w", encoding="utf-8") as out:
            for line in [self.header, *self.lines]:
                if line.get("ev") == "issue":
                    ids[line["id"]] = len(ids)
                if "id" in line:
                    line = {**line, "id": ids[line["id"]]}
                out.write(json.dumps(line, separators=(",", ":")) + "\n")


# ---- Names of what calls carry -------------------------------------------------------------------


class Names:
    """Names of parameters, gradients and buffers, looked up by object or by memory address."""

    def __init__(self) -> None:
        self._tensors: dict[str, torch.Tensor] = {}
        self._by_id: dict[int, str] = {}

    def add_module(self, module: torch.nn.Module) -> None:
        for kind in (module.named_parameters(), module.named_buffers()):
            for name, tensor in kind:
                if id(tensor) in self._by_id:
                    continue
                unique, copies = name, 1
                while unique in self._tensors:  # another model has this name
                    copies += 1
                    unique = f"{name}#{copies}"
                self._tensors[unique] = tensor
                self._by_id[id(tensor)] = unique

    def of_parameters(self, parameters: Sequence[torch.Tensor]) -> Optional[list[str]]:
        names = [self._by_id.get(id(p)) for p in parameters]
        return None if None in names else [n for n in names if n is not None]

    def of_tensors(self, tensors: Sequence[torch.Tensor]) -> Optional[list[str]]:
        """None unless each tensor is a known tensor as a whole, or its gradient."""
        if not tensors or not self._tensors:
            return None
        places: dict[tuple[int, int], str] = {}
        for name, tensor in self._tensors.items():
            for known in (tensor, tensor.grad if tensor.is_leaf else None):
                if known is not None and (key := _memory(known)):
                    places.setdefault(key, name)
        names = []
        for tensor in tensors:
            key = _memory(tensor)
            if key is None or key not in places:
                return None
            names.append(places[key])
        return names


def _memory(tensor: torch.Tensor) -> Optional[tuple[int, int]]:
    """Address and number of elements; None for DTensors, sparse and empty tensors."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return None
    if tensor.layout != torch.strided or tensor.numel() == 0:
        return None
    return tensor.data_ptr(), tensor.numel()


# ---- Answers of the other ranks ------------------------------------------------------------------

BroadcastKey = tuple[str, int]  # group, index among its broadcasts and scatters


@dataclasses.dataclass
class Call:
    """One call of a c10d operator, with its tensors as the program passed them."""

    op: str  # the trace format's name
    group: str
    ranks: list[int]  # global ranks, in group order
    me: int  # group rank
    ins: Any = None  # a tensor, a list of them, or a list of lists
    outs: Any = None
    redop: Optional[str] = None
    root: Optional[int] = None  # group rank
    peer: Optional[int] = None  # group rank
    tag: Optional[int] = None
    splits_in: Sequence[int] = ()
    splits_out: Sequence[int] = ()
    is_async: bool = True
    what: Optional[list[str]] = None  # names of the parameters, buffers or values


def flat(tensors: Any) -> list[torch.Tensor]:
    if tensors is None:
        return []
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [t for item in tensors for t in flat(item)]


# Operations by which every rank learns what every other rank holds.
_TELLING = ("all_to_all_single", "all_to_all", "all_gather", "all_gather_into_tensor")


def _is_whole(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


class World:
    """Answers calls in place of the other ranks, as if all of them held what this rank holds.

    Integers that rank 0 broadcasts or scatters (DDP's order of buckets, pickled objects, a batch's
    shape) are those that it sent when it was recorded, because programs branch on them. All other
    broadcasts, also of parameters and buffers, leave this rank's own values.
    """

    def __init__(self, sent_by_root: Mapping[BroadcastKey, Any]) -> None:
        self.dissent = False
        self.sent: dict[BroadcastKey, Any] = {}  # by this rank, as root
        self.assumed: set[str] = set()  # assumptions made on the way
        self.sizes_told = False  # ranks have told each other whole numbers, such as counts
        self.numbers_received = False  # in messages: what they were is not known
        self.lengths_told = False  # a message of whole numbers was sent or received
        self.in_join = False  # a call was made for torch.distributed.algorithms.Join
        self._root_sent = sent_by_root
        self._counts: collections.Counter[str] = collections.Counter()

    def refuse(self, raised: bool = False) -> None:
        """Raises a RecordError where what was recorded depends on what other ranks would have said."""
        if self.in_join:
            raise RecordError(
                "the program uses Join, under which a rank's calls depend on how many batches the "
                "others have; one rank alone does not tell. Record the job instead: lockstep "
                "record, or --live")
        if raised and self.numbers_received:
            raise RecordError(
                "the program raised after it had received whole numbers in a message, such as the "
                "shape of the next one; what the other rank sends is not known, and zeros stood for "
                "it. Record the job instead: lockstep record, or --live")

    def answer(self, call: Call) -> None:
        """Fills the call's outputs in place, invisible to autograd and its version counters."""
        if call.op in ("send", "recv", "recv_any"):
            self.lengths_told |= any(_is_whole(t) for t in flat(call.ins) + flat(call.outs))
        if call.op in _TELLING and any(_is_whole(t) for t in flat(call.ins)):
            self.sizes_told = True
        with torch.no_grad():
            getattr(self, "_" + call.op)(call)

    def _combine(self, tensors: Any, call: Call) -> None:
        size = len(call.ranks)
        for tensor in flat(tensors):
            value = tensor.data
            if call.redop in ("sum", "premul_sum"):
                # A sum of one 0 or 1 is a vote: with dissent all others voted the opposite.
                if self.dissent and value.numel() == 1 and float(value) in (0.0, 1.0):
                    value.fill_(size - 1 if float(value) == 0 else 1)
                elif value.dtype != torch.bool:
                    value.mul_(size)
            elif call.redop == "product":
                value.pow_(size)
            # An even number of equal values cancels out.
            elif call.redop == "bxor" and size % 2 == 0:
                value.zero_()
            elif self.dissent and size > 1 and call.redop in ("min", "band"):
                value.zero_()
            elif self.dissent and size > 1 and call.redop in ("max", "bor"):
                value.fill_(1)

    def _all_reduce(self, call: Call) -> None:
        self._combine(call.outs, call)

    def _reduce(self, call: Call) -> None:
        if call.me == call.root:
            self._combine(call.outs, call)

    def _from_root(self, call: Call, mine: Any) -> Any:
        """The root's values: stored if this rank is the root, looked up if rank 0 is."""
        key = (call.group, self._counts[call.group])
        self._counts[call.group] += 1
        if call.me == call.root:
            self.sent[key] = mine
            return None
        assert call.root is not None
        # Only rank 0 is recorded before the others, so only its values are known.
        sent = self._root_sent.get(key) if call.ranks[call.root] == 0 else None
        if sent is None and any(not t.dtype.is_floating_point for t in flat(call.outs)):
            self.assumed.add("whole numbers that a rank broadcasts which was not recorded before "
                             "are the receiver's own")
        return sent

    def _broadcast(self, call: Call) -> None:
        # Named tensors are parameters or buffers: their values do not decide which calls follow.
        if call.what:
            return
        whole = [t.data for t in flat(call.outs) if not (t.is_floating_point() or t.is_complex())]
        sent = self._from_root(call, [t.tolist() for t in whole])
        for tensor, values in zip(whole, sent or ()):
            theirs = torch.tensor(values, dtype=tensor.dtype)
            if theirs.numel() == tensor.numel():
                tensor.copy_(theirs.view(tensor.shape))

    def _scatter(self, call: Call) -> None:
        out = flat(call.outs)[0].data
        whole = not (out.is_floating_point() or out.is_complex())
        ins = flat(call.ins)
        sent = self._from_root(call, [t.tolist() for t in ins] if whole else [])
        if call.me == call.root:
            out.copy_(ins[call.me])
            return
        out.zero_()
        if sent:
            theirs = torch.tensor(sent[call.me], dtype=out.dtype)
            if theirs.numel() == out.numel():
                out.copy_(theirs.view(out.shape))

    def _all_gather(self, call: Call) -> None:
        ins = flat(call.ins)
        if len(ins) == 1:
            for out in flat(call.outs):
                out.data.copy_(ins[0])
            return
        for outs in call.outs:  # all_gather_coalesced has one list per rank
            for out, own in zip(outs, ins):
                out.data.copy_(own)

    def _all_gather_into_tensor(self, call: Call) -> None:
        for out, own in zip(flat(call.outs), flat(call.ins)):
            out.data.copy_(torch.cat([own.reshape(-1)] * len(call.ranks)).view(out.shape))

    def _gather(self, call: Call) -> None:
        if call.me != call.root:
            return
        own = flat(call.ins)[0]
        for out in flat(call.outs):
            copies = out.numel() // own.numel() if own.numel() else 0
            out.data.copy_(torch.cat([own.reshape(-1)] * copies).view(out.shape) if copies else out)

    def _reduce_scatter(self, call: Call) -> None:
        for out, own in zip(flat(call.outs), call.ins):
            out.data.copy_(own[call.me])
        self._combine(call.outs, call)

    def _reduce_scatter_tensor(self, call: Call) -> None:
        for out, own in zip(flat(call.outs), flat(call.ins)):
            out.data.copy_(own.reshape(len(call.ranks), -1)[call.me].view(out.shape))
        self._combine(call.outs, call)

    def _all_to_all(self, call: Call) -> None:
        for out, own in zip(flat(call.outs), flat(call.ins)):
            out.data.copy_(own) if out.shape == own.shape else out.data.zero_()

    def _all_to_all_single(self, call: Call) -> None:
        out, own = flat(call.outs)[0].data, flat(call.ins)[0]
        size = len(call.ranks)
        if not call.splits_in and not call.splits_out and own.shape == out.shape and own.numel():
            # All ranks send this one what it would send to itself.
            chunk = own.reshape(size, -1)[call.me]
            out.view(size, -1).copy_(chunk.expand(size, -1))
            return
        out.zero_()
        common = min(out.numel(), own.numel())
        out.view(-1)[:common].copy_(own.reshape(-1)[:common])

    def _barrier(self, call: Call) -> None:
        pass

    def _send(self, call: Call) -> None:
        pass

    def _recv(self, call: Call) -> None:
        for tensor in flat(call.outs):
            self.numbers_received |= _is_whole(tensor)
            tensor.data.zero_()

    _recv_any = _recv


# ---- The recorder --------------------------------------------------------------------------------


class _Future(torch.futures.Future):
    """The future of a call that is complete. Waiting for it counts as waiting for the call."""

    def __init__(self, work: "RecordedWork", value: Any) -> None:
        super().__init__()
        self._work = work
        if isinstance(value, Exception):
            self.set_exception(value)
        else:
            self.set_result(value)

    def wait(self) -> Any:
        self._work.wait()
        return super().wait()

    def then(self, callback: Callable[[Any], Any]) -> torch.futures.Future:
        done: torch.futures.Future = torch.futures.Future()  # a callback does not wait
        done.set_result(super().value())
        try:
            return _Future(self._work, callback(done))
        except Exception as error:
            return _Future(self._work, error)


class RecordedWork(dist.Work):
    """The handle of a call. `inner`: the transport's handle; without it the call is complete.

    The recorder keeps all handles alive, because LibTorch holds only their C++ half.
    """

    def __init__(self, recorder: "Recorder", call: int, results: list[torch.Tensor],
                 inner: Optional[dist.Work]) -> None:
        super().__init__()
        self._recorder, self._call, self._results, self._inner = recorder, call, results, inner
        self._dropped: list["weakref.ref[torch.Tensor]"] = []
        self._future: Optional[torch.futures.Future] = None
        self.waited = False

    def wait(self, *timeout: Any) -> bool:
        first, self.waited = not self.waited, True
        if first:
            self._recorder.trace.add({"ev": "wait", "id": self._call})
        if self._inner is not None:
            try:
                self._inner.wait(*timeout)
            except Exception as error:
                self._recorder.raised(error, self._call)
                raise
            if first:
                self._recorder.trace.add({"ev": "complete", "id": self._call})
                self._recorder.trace.add({"ev": "waited", "id": self._call})
        if self._future is None:  # let tensors be freed that the caller has dropped
            self._dropped, self._results = [weakref.ref(t) for t in self._results], []
        return True

    def get_future(self) -> torch.futures.Future:
        if self._inner is not None:
            return self._inner.get_future()
        if self._future is None:
            self._future = _Future(self, self.result())
        return self._future

    def result(self) -> list[torch.Tensor]:
        return self._results or [t for t in (ref() for ref in self._dropped) if t is not None]

    def is_completed(self) -> bool:
        return True if self._inner is None else self._inner.is_completed()

    def is_success(self) -> bool:
        return True

    def synchronize(self) -> None:
        if self._inner is not None:
            self._inner.synchronize()

    def source_rank(self) -> int:
        return 0 if self._inner is None else self._inner._source_rank()

    _source_rank = source_rank


class Recorder:
    """Records the calls of one rank. `world` answers them; None: the real transport does."""

    def __init__(self, trace: Trace, world: Optional[World], root: str) -> None:
        self.trace, self.world, self.root = trace, world, root
        self.names = Names()
        self.step: Optional[int] = None
        self.step_place = 0  # index of the step's first line
        self.redop: Optional[str] = None  # noted by Python wrappers, if torch does not tell
        self.backend: Optional[str] = None  # the one that the program asked for
        self.batch: Optional[int] = None  # number of the open batch of calls (coalesced)
        self.batches = 0
        self._groups: dict[str, tuple[str, list[int]]] = {}  # by c10d's name
        self._scopes: list[tuple[Optional[list[str]], str]] = []
        self._coming: collections.deque[Optional[list[str]]] = collections.deque()
        self._works: list[RecordedWork] = []
        self._kept: list[dist.Work] = []  # kept alive: LibTorch holds only their C++ half
        self._raised: Optional[BaseException] = None
        self._lock = threading.RLock()

    # Groups

    def add_group(self, c10d_name: str, ranks: Sequence[int], description: str) -> None:
        with self._lock:
            if c10d_name in self._groups:
                return
            default = not self._groups
            name = "world" if default else c10d_name
            self._groups[c10d_name] = (name, list(ranks))
            line: dict[str, Any] = {"group": name, "ranks": list(ranks)}
            if description and description not in ("undefined", "default_pg"):
                line["desc"] = description
            self.trace.add(line)

    def group_of(self, group: dist.ProcessGroup) -> tuple[str, list[int]]:
        if group.group_name not in self._groups:
            ranks = dist.get_process_group_ranks(group)
            self.add_group(group.group_name, ranks, group.group_desc)
        return self._groups[group.group_name]

    # What calls carry

    def _hide_sizes(self, call: Call, line: dict[str, Any]) -> None:
        """Leaves out the sizes of an all-to-all with splits, of pickled objects that are gathered, and
        of messages after one of whole numbers: they follow from what ranks told each other.

        What the others told is not known here, so that these sizes are not the real job's, and
        nothing follows from whether they fit those of other ranks.
        """
        if self.world is None:
            return
        message = (self.world.lengths_told and call.op in ("send", "recv", "recv_any") and
                   not any(_is_whole(t) for t in flat(call.ins) + flat(call.outs)))
        if not self.world.sizes_told and not message:
            return
        # Also where they happen to be even on this rank.
        uneven = call.op == "all_to_all_single" and bool(call.splits_in or call.splits_out)
        objects = call.op in ("gather", "all_gather") and any(
            t.dtype == torch.uint8 for t in flat(call.ins))
        if not uneven and not objects and not message:
            return
        for key in ("in", "out", "splits_in", "splits_out"):
            line.pop(key, None)
        self.world.assumed.add("sizes that ranks have told each other before fit together")

    @contextlib.contextmanager
    def scope(self, what: Optional[list[str]], tag: str = "",
              coming: Sequence[Optional[list[str]]] = ()) -> Iterator[list[RecordedWork]]:
        """Calls inside carry `what`, or one entry of `coming` each. Yields their handles."""
        since = self.works_from_here()
        self._scopes.append((what, tag))
        self._coming, before = collections.deque(coming), self._coming
        works: list[RecordedWork] = []
        try:
            yield works
        finally:
            self._coming = before
            self._scopes.pop()
            works.extend(since())

    @contextlib.contextmanager
    def previous_step(self) -> Iterator[None]:
        """Calls inside depend on the previous step only, so they are recorded at its end."""
        now = self.step
        if not now:
            yield
            return
        self.step = now - 1
        kept = len(self.trace.lines)
        try:
            with self.trace.before(self.step_place):
                yield
        finally:
            self.step = now
            added = len(self.trace.lines) - kept
            self.step_place += added
            passed = any(line.get("ev") == "issue" for line in self.trace.lines[self.step_place:])
            if added and passed and self.world is not None:
                self.world.assumed.add("DDP's new order of buckets, which comes with the second "
                                       "step's forward, comes right after the first step")

    def works_from_here(self) -> Callable[[], list[RecordedWork]]:
        """Returns a function that returns the handles of all calls made since."""
        begin = len(self._works)
        return lambda: self._works[begin:]

    def keep(self, work: dist.Work) -> None:
        self._kept.append(work)

    # Events

    def begin_step(self, step: int, has: Sequence[str]) -> None:
        self.step = step
        self.step_place = len(self.trace.lines)
        if has:
            self.trace.add({"ev": "modality", "n": step, "has": sorted(has)})

    def end_step(self) -> None:
        self.trace.add({"ev": "step", "n": self.step})
        self.step = None

    def raised(self, error: BaseException, call: Optional[int] = None) -> None:
        """Records an exception, once, however often it is reported on its way up."""
        if error is self._raised:
            return
        self._raised = error
        line: dict[str, Any] = {"ev": "exception", "what": str(error) or type(error).__name__}
        if call is not None:
            line["id"] = call
        self.trace.add(line)

    def issue(self, call: Call) -> int:
        with self._lock:
            what, tag = self._scopes[-1] if self._scopes else (None, "")
            if self._coming:
                what = self._coming.popleft()
            if self.world is not None:
                self.world.in_join |= made_by_join()
            # No scope names the tensors: look them up by their memory.
            if what is None and not self._scopes:
                what = self.names.of_tensors(flat(call.ins if call.ins is not None else call.outs))
            call.what = what
            line = _issue_line(self.trace.issued, call)
            self._hide_sizes(call, line)
            self.trace.issued += 1
            extra = {"what": what, "at": call_place(self.root), "step": self.step,
                     "coalesced": self.batch, "tag": tag}
            line.update({k: v for k, v in extra.items() if v is not None and v != "" and v != []})
            self.trace.add(line)
            return line["id"]

    def record(self, call: Call, forward: Callable[[], Optional[dist.Work]]) -> RecordedWork:
        """Records the call, has it answered, and returns its handle."""
        number = self.issue(call)
        inner = None
        if self.world is not None:
            self.world.answer(call)
        else:
            inner = forward()
        work = RecordedWork(self, number, flat(call.outs), inner)
        self._works.append(work)
        return work


_DTYPES = {torch.float16: "float16", torch.float32: "float32", torch.float64: "float64",
           torch.bfloat16: "bfloat16"}


def _issue_line(number: int, call: Call) -> dict[str, Any]:
    ins, outs = flat(call.ins), flat(call.outs)
    line: dict[str, Any] = {"ev": "issue", "id": number, "g": call.group, "op": call.op}
    if call.ins is not None:
        line["in"] = [list(t.shape) for t in ins]
    if call.outs is not None:
        line["out"] = [list(t.shape) for t in outs]
    dtypes = [_DTYPES.get(t.dtype, str(t.dtype).removeprefix("torch.")) for t in ins or outs]
    if dtypes:
        line["dtype"] = dtypes[0] if len(set(dtypes)) == 1 else dtypes
    if call.redop is not None:
        line["redop"] = call.redop
    if call.root is not None:
        line["root"] = call.ranks[call.root]
    if call.peer is not None:
        line["peer"] = call.ranks[call.peer]
    if call.tag is not None:
        line["ptag"] = call.tag
    if call.splits_in or call.splits_out:
        line["splits_in"], line["splits_out"] = list(call.splits_in), list(call.splits_out)
    line["async"] = call.is_async
    return line


_recorder: Optional[Recorder] = None  # of this process


# ---- Kernels that replace c10d's -----------------------------------------------------------------

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
_library: list[Any] = []  # keeps the registrations alive


def _redop(recorder: Recorder, boxed: Any) -> str:
    """2.11 cannot unbox the value; there the Python wrappers note it in the recorder
    (_watch_reductions), and calls that C++ makes by itself (the Reducer) are sums."""
    if hasattr(dist.ReduceOp, "unbox"):
        return _redop_name(dist.ReduceOp.unbox(boxed))
    return recorder.redop or "sum"


def _redop_name(op: Any) -> str:
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
        recorder = _recorder
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


def _install_kernels() -> None:
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
    _library.append(library)


# ---- Wrapped Python functions --------------------------------------------------------------------


def _rebind(original: Any, replacement: Any) -> None:
    """Replaces a function in every module that has imported it by name."""
    for module in list(sys.modules.values()):
        members = getattr(module, "__dict__", None)
        if not isinstance(members, dict):
            continue
        for name, value in list(members.items()):
            if value is original and members is not globals():
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

    _wrap_function(dist, "_register_comm_hook", make_register)
    _wrap_function(dist, "_register_builtin_comm_hook", make_builtin)

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

    def make_rebuild(original: Any) -> Any:
        def rebuild(self: Any) -> Any:
            with recorder.scope(None, "ddp.rebuild"), recorder.previous_step():
                return original(self)

        return rebuild

    _wrap_method(DistributedDataParallel, "__init__", make_init)
    _wrap_method(DistributedDataParallel, "forward", make_forward)
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
        return _redop_name(value) if known else None

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
    _library.append(library)


def _watch_checkpoints(recorder: Recorder) -> None:
    """A save's plan is gathered from all ranks; here all of them have this rank's part, so that the
    parts do not make the whole. That is no fault of the program."""
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


_SLOW_IMPORTS = ("torch.testing._internal.distributed.fake_pg", _FSDP,
                 "torch.distributed.algorithms.ddp_comm_hooks.default_hooks",
                 "torch.distributed.checkpoint.default_planner",
                 "torch._dynamo")  # imported by the first step of an optimizer


def install(recorder: Recorder) -> None:
    """Makes this process record until it ends."""
    global _recorder
    _install_kernels()
    for watch in (_watch_groups, _watch_ddp, _watch_fsdp, _watch_reductions, _watch_checkpoints):
        watch(recorder)
    _recorder = recorder


# ---- One rank ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to record: checked, and the same for all ranks."""

    build: Callable[[], Any]
    conditions: dict[str, Condition]
    world_size: int
    output: Path
    ranks: list[int]  # the ranks that are run; the others are assumed to do what the first does
    backend: Optional[str]
    place: str  # the folder to which source locations are relative
    first_steps: int = 1  # steps that are recorded together as step 0

    def later_steps(self) -> list[str]:
        return list(self.conditions) * 2


@dataclasses.dataclass
class Outcome:
    """What a rank's process reports when it ends."""

    sent: dict[BroadcastKey, Any]
    assumed: set[str]
    raised: Optional[str]


def _run_steps(recorder: Recorder, plan: Plan, names: Sequence[str]) -> None:
    """Builds the program and runs the steps. Raises StepRaised for the program's exceptions."""
    built = plan.build()
    program = built if isinstance(built, Program) else Program(step=built)
    if not callable(program.step):
        raise RecordError(
            "what \"build\" returned is neither a function that makes a step nor a Program")
    if program.model is not None:
        recorder.names.add_module(program.model)
    try:
        for number, name in enumerate(names):
            condition = plan.conditions[name]
            if recorder.world is not None:
                recorder.world.dissent = condition.dissent
            recorder.begin_step(number, condition.has)
            for _ in range(plan.first_steps if number == 0 else 1):
                program.step(condition.batch() if callable(condition.batch) else condition.batch)
            recorder.end_step()
        if program.finish is not None:
            program.finish()
        if recorder.world is not None:
            recorder.world.refuse()
    except RecordError:
        raise
    except Exception as error:
        if recorder.world is not None:
            recorder.world.refuse(raised=True)
        traceback.print_exc()
        raise StepRaised() from error


class StepRaised(Exception):
    """A step raised the exception that is the cause of this one."""


def _environment(rank: int, world_size: int) -> None:
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0",
                       "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
                       "TORCH_DIST_INIT_BARRIER": "0"})


def _shown_backend(asked: Optional[str], chosen: Optional[str]) -> str:
    """The transport by whose rules the program is judged."""
    text = chosen or asked or ("nccl" if torch.cuda.is_available() else "gloo")
    return "nccl" if "nccl" in text.lower() else text.lower().rpartition(":")[2]


def record_alone(plan: Plan, rank: int, first: str, file: Path,
                 sent_by_root: Mapping[BroadcastKey, Any]) -> Outcome:
    """Runs one history of one rank in this process, and writes its trace."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the backend

    torch.set_num_threads(1)
    torch.manual_seed(0)
    _environment(rank, plan.world_size)
    header = {"header": 1, "rank": rank, "world_size": plan.world_size, "backend": "gloo",
              "clock": "ns"}
    world = World(sent_by_root)
    recorder = Recorder(Trace(header), world, plan.place)
    install(recorder)
    dist.init_process_group("fake", rank=rank, world_size=plan.world_size, store=FakeStore())
    recorder.backend = None
    raised: Optional[str] = None
    try:
        _run_steps(recorder, plan, [first, *plan.later_steps()])
        recorder.trace.end("clean")
    except StepRaised as error:
        assert error.__cause__ is not None
        place = "the end" if recorder.step is None else f"step {recorder.step}"
        raised = f"{place}: {error.__cause__}"
        recorder.raised(error.__cause__)
        recorder.trace.end("exception")
    recorder.trace.header["backend"] = _shown_backend(recorder.backend, plan.backend)
    recorder.trace.write(file)
    return Outcome(world.sent, world.assumed, raised)


# ---- All ranks and histories ---------------------------------------------------------------------


class Children:
    """Forked processes, at most `most` at once. Each writes its function's result to a file."""

    def __init__(self, most: int) -> None:
        self._most = max(1, most)
        self._running: dict[int, tuple[str, Path]] = {}

    def start(self, name: str, work: Callable[[], Any], result: Path) -> None:
        while len(self._running) >= self._most:
            self._wait_for_one()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            self._be_child(work, result)
        self._running[child] = (name, result)

    def finish(self) -> None:
        while self._running:
            self._wait_for_one()

    def kill(self) -> None:
        for child in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        self._running.clear()

    def _wait_for_one(self) -> None:
        child, status = os.waitpid(next(iter(self._running)), 0)
        name, result = self._running.pop(child)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return
        log = result.with_suffix(".log")
        said = log.read_text(errors="replace").splitlines()[-12:] if log.exists() else []
        how = f"was ended by signal {-code}" if code < 0 else "could not be recorded"
        raise RecordError(f"{name} {how}:\n" + "\n".join("  " + line for line in said) +
                          f"\n  all of it: {log}")

    @staticmethod
    def _be_child(work: Callable[[], Any], result: Path) -> None:
        code = 1
        try:
            log = os.open(result.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            for stream in (1, 2):
                os.dup2(log, stream)
            value = work()
            with open(result, "wb") as out:
                pickle.dump(value, out)
            code = 0
        except RecordError as error:
            print(error, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # the parent's exit handlers must not run here


class Deriver:
    """Records all histories of all ranks; rank 0 first, because others get its broadcasts."""

    def __init__(self, plan: Plan, jobs: int) -> None:
        self.plan = plan
        self.jobs = jobs
        self.assumed: set[str] = set()
        self.raised: dict[str, str] = {}  # by rank and first condition
        self._firsts = list(plan.conditions)

    def derive(self) -> list[Path]:
        """Returns the folders with a product.json: one; or, if rank 0's broadcasts depend on its
        first step, one for each first step of rank 0."""
        work = Path(tempfile.mkdtemp(prefix="lockstep-record-"))  # logs remain if this fails
        root = self.plan.ranks[0]
        traces = {(root, f, f): work / f"rank_{root}.first-{f}.jsonl"
                  for f in range(len(self._firsts))}
        outcomes = self._record({key: (path, {}) for key, path in traces.items()})
        sent = [outcomes[root, f, f].sent if root == 0 else {} for f in range(len(self._firsts))]
        # Histories may end early (a step raised), so their broadcasts are compared on the common
        # keys.
        longest = max(sent, key=len)
        alike = all(longest[key] == value for one in sent for key, value in one.items())
        roots = [sent.index(longest)] if alike else list(range(len(sent)))
        jobs = {(rank, first, r): (work / f"rank_{rank}.first-{first}.root-{r}.jsonl", sent[r])
                for r in roots for first in range(len(self._firsts))
                for rank in self.plan.ranks[1:]}
        self._record(jobs)
        folders = []
        for r in roots:
            folder = self.plan.output if alike else self.plan.output / f"root-{r}"
            for first in range(len(self._firsts)):
                self._lay_out(folder / f"first-{first}", {
                    rank: jobs[rank, first, r][0] if rank != root else traces[root, first, first]
                    for rank in self.plan.ranks})
            folders.append(folder)
        shutil.rmtree(work)
        return folders

    def _record(self, jobs: Mapping[tuple[int, int, int], tuple[Path, Mapping[BroadcastKey, Any]]]
                ) -> dict[tuple[int, int, int], Outcome]:
        children = Children(self.jobs)
        try:
            for (rank, first, _), (path, sent) in jobs.items():
                name = self._firsts[first]
                children.start(f"rank {rank}, first step \"{name}\",",
                               functools.partial(record_alone, self.plan, rank, name, path, sent),
                               path.with_suffix(".outcome"))
            children.finish()
        finally:
            children.kill()
        outcomes = {}
        for (rank, first, root), (path, _) in jobs.items():
            with open(path.with_suffix(".outcome"), "rb") as file:
                outcome = pickle.load(file)  # written by our own child
            outcomes[rank, first, root] = outcome
            self.assumed |= outcome.assumed
            if outcome.raised:
                self.raised[f"rank {rank}, first step \"{self._firsts[first]}\""] = outcome.raised
        return outcomes

    def _lay_out(self, folder: Path, traces: Mapping[int, Path]) -> None:
        """Writes one trace for each rank of the world."""
        folder.mkdir(parents=True)
        for rank in range(self.plan.world_size):
            like = rank if rank in traces else self.plan.ranks[0]
            lines = traces[like].read_text(encoding="utf-8").splitlines(keepends=True)
            if rank != like:
                self._check_alike(lines, like)
            header = {**json.loads(lines[0]), "rank": rank}
            lines[0] = json.dumps(header, separators=(",", ":")) + "\n"
            (folder / f"rank_{rank}.trace.jsonl").write_text("".join(lines), encoding="utf-8")

    def _check_alike(self, lines: Sequence[str], rank: int) -> None:
        for line in map(json.loads, lines):
            # Point-to-point calls and sub-groups depend on the rank, so one rank cannot stand for
            # others.
            message = line.get("op") in ("send", "recv", "recv_any")
            if message or line.get("group", "world") != "world":
                raise RecordError(
                    f"rank {rank} sends messages or uses groups that not all ranks are in, so that "
                    "others cannot be taken to do the same; record all ranks (leave out --ranks)")


def _conditions(conditions: Mapping[str, Any],
                has: Mapping[str, Sequence[str]]) -> dict[str, Condition]:
    unknown = set(has) - set(conditions)
    if unknown:
        raise RecordError(f"\"has\" names conditions that there are none of: {sorted(unknown)}")
    out = {}
    for name, value in conditions.items():
        condition = value if isinstance(value, Condition) else Condition(value)
        out[name] = dataclasses.replace(condition, has=has[name]) if name in has else condition
    if not out:
        raise RecordError("there are no conditions; give each kind of batch a name")
    return out


def _ranks(ranks: Any, world_size: int) -> list[int]:
    if world_size < 1:
        raise RecordError("the world has no rank; give --world-size")
    if ranks == "all":
        return list(range(world_size))
    out = sorted(set(ranks))
    if not out or out[0] < 0 or out[-1] >= world_size:
        raise RecordError(f"ranks {list(ranks)} are not ranks of a world of {world_size}")
    return out


def derive(build: Callable[[], Any], conditions: Mapping[str, Any], world_size: int, output: Any, *,
           has: Optional[Mapping[str, Sequence[str]]] = None, ranks: Any = "all",
           choice: str = "free", allowed: Sequence[Mapping[str, Any]] = (),
           assumptions: Sequence[str] = (), only_steps: Optional[int] = None, first_steps: int = 1,
           backend: Optional[str] = None, jobs: int = 2,
           program: Optional[str] = None) -> list[Path]:
    """Records a program for `lockstep verify`.

    build: creates the program in a separate process, where `torch.distributed` is initialised (a
        second init_process_group does nothing), and returns its step function or a `Program`.
    conditions: by name, a batch, a function that returns one, or a `Condition`.
    output: a new or empty folder. Gets product.json, and a trace for each history and rank.
    ranks: "all", or the ranks to run; the others are assumed to do what the first of them does.
    has, choice, allowed, only_steps: as in product.json (docs/product.md).
    first_steps: the number of steps until the program's calls no longer change. They are recorded
        as one step, step 0, all under the first condition.
    backend: the transport of the real job, if it differs from the one the program asks for here.
    jobs: the number of ranks to record at once, each with one thread.

    Returns the folders to verify: `output`; or, if rank 0's broadcasts depend on its first step,
    one for each first step of rank 0. Raises RecordError if the program cannot be recorded;
    exceptions of its steps are part of the traces. Forks, so call it before autograd or CUDA have
    run in this process.
    """
    output = Path(output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise RecordError(f"{output} is not a new or empty folder")
    if first_steps < 1:
        raise RecordError("\"first_steps\" is at least 1")
    if choice not in ("free", "agreed"):
        raise RecordError("\"choice\" is \"free\" or \"agreed\"")
    file = os.path.abspath(inspect.getsourcefile(build) or "program")
    plan = Plan(build, _conditions(conditions, has or {}), world_size, output,
                _ranks(ranks, world_size), backend, os.path.dirname(file), first_steps)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a thread pool would not survive the fork
    for module in _SLOW_IMPORTS:  # import once, before the ranks fork
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    deriver = Deriver(plan, jobs)
    folders = deriver.derive()
    torch.set_num_threads(threads)
    taken = [
        "what a rank calls in a step depends on that step's condition and on the first step's",
        "sums and gathers are answered as if all ranks held what the rank holds; messages are "
        "zeros",
        *sorted(deriver.assumed),
        *assumptions,
        f"recorded by lockstep_record.py with PyTorch {torch.__version__} and Python "
        f"{platform.python_version()}",
    ]
    if first_steps > 1:
        taken.append(f"step 0 stands for the first {first_steps} steps, in which a rank meets the "
                     "same condition")
    if len(plan.ranks) < world_size:
        taken.append(f"ranks other than {', '.join(map(str, plan.ranks))} do what rank "
                     f"{plan.ranks[0]} does")
    if os.path.exists(file):
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        taken.append(f"{os.path.basename(file)} has the SHA-256 {digest}")
    names = list(plan.conditions)
    for folder in folders:
        rules = [dict(rule) for rule in allowed]
        if len(folders) > 1:
            first = names[int(folder.name.removeprefix("root-"))]
            rules.insert(0, {"ranks": [0], "steps": [0], "conditions": [first]})
        product = {
            "product": 1, "program": program or os.path.basename(file), "world_size": world_size,
            "assumptions": taken,
            "conditions": [{"name": n, "phase": c.phase, "has": list(c.has)}
                           for n, c in plan.conditions.items()],
            "choice": choice, "allowed": rules,
            "histories": [{"first": n, "folder": f"first-{i}"} for i, n in enumerate(names)],
            "steps": plan.later_steps(),
        }
        if only_steps is not None:
            product["only_steps"] = only_steps
        (folder / "product.json").write_text(json.dumps(product, indent=1) + "\n", encoding="utf-8")
    for who, what in deriver.raised.items():
        print(f"{who}: raised in {textwrap.shorten(what, 100)}", file=sys.stderr)
    return folders


def run(build: Callable[[], Any], conditions: Mapping[str, Any], steps: Sequence[str],
        output: Any, *, has: Optional[Mapping[str, Sequence[str]]] = None,
        backend: Optional[str] = None, **_: Any) -> None:
    """Runs the steps for real, as one of the ranks that torchrun started, and records them.

    steps: the conditions of this rank's steps, by name. The trace for `lockstep verify` is
    rank_<r>.trace.jsonl in `output`; each line is written as it happens. Raises what the program
    raises.
    """
    named = _conditions(conditions, has or {})
    unknown = [s for s in steps if s not in named]
    if unknown or not steps:
        raise RecordError(f"the steps are to be some of {list(named)}, not {list(steps)}")
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        raise RecordError("RANK and WORLD_SIZE are not set; start the ranks with torchrun")
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = backend or ("nccl" if torch.cuda.is_available() else "gloo")
    file = os.path.abspath(inspect.getsourcefile(build) or "program")
    Path(output).mkdir(parents=True, exist_ok=True)
    header = {"header": 1, "rank": rank, "world_size": world_size, "clock": "ns",
              "backend": _shown_backend(backend, None), "pid": os.getpid()}
    trace = Trace(header, Path(output) / f"rank_{rank}.trace.jsonl")
    recorder = Recorder(trace, None, os.path.dirname(file))
    install(recorder)
    torch.manual_seed(0)
    dist.init_process_group(backend)
    plan = Plan(build, named, world_size, Path(output), [rank], backend, os.path.dirname(file))
    try:
        _run_steps(recorder, plan, steps)
    except StepRaised as error:
        assert error.__cause__ is not None
        recorder.raised(error.__cause__)
        trace.end("exception")
        raise error.__cause__
    trace.end("clean")
    dist.destroy_process_group()


# ---- Command line --------------------------------------------------------------------------------


def _load_script(path: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Returns the result of the script's lockstep(). Imports the script, not as __main__."""
    file = os.path.abspath(path)
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(file))
    spec = importlib.util.spec_from_file_location("lockstep_script", file)
    if spec is None or spec.loader is None or not os.path.exists(file):
        raise RecordError(f"{path} is no Python script")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    hook = getattr(module, "lockstep", None)
    if hook is None:
        raise RecordError(f"{path} has no function lockstep(); write one that returns "
                          "{\"build\": ..., \"conditions\": {...}}")
    told = hook()
    if not isinstance(told, dict) or not {"build", "conditions"} <= set(told):
        raise RecordError(f"lockstep() in {path} does not return "
                          "{\"build\": ..., \"conditions\": {...}}")
    return told


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lockstep_record.py", formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s SCRIPT --output DIR --world-size N [OPTIONS] [-- THE SCRIPT'S ARGUMENTS]",
        description="Records what a PyTorch training script calls under every condition.",
        epilog="""SCRIPT has a function lockstep() that returns the arguments of
lockstep_record.derive, at least {"build": ..., "conditions": {...}}.

Examples:
  Can any mix of batches make this job hang or mispair its tensors?
    lockstep_record.py train.py --world-size 4 --output derived
    lockstep verify derived
  Run some of the steps for real, on all ranks, and record them:
    torchrun --nproc-per-node 2 lockstep_record.py train.py --output traces --live image+text,text
    lockstep verify traces

Exit status: 0 recorded; 1 the script could not be recorded; 2 bad usage.""")
    parser.add_argument("script", metavar="SCRIPT", help="the training script")
    parser.add_argument("--output", metavar="DIR", required=True,
                        help="where the traces go: a new folder")
    parser.add_argument("--world-size", metavar="N", type=int, help="how many ranks the job has")
    parser.add_argument("--ranks", metavar="R,R", type=_numbers,
                        help="record only these; the others do as the first")
    parser.add_argument("--backend", metavar="NAME", help="the real job's transport: gloo, nccl")
    parser.add_argument("--first-steps", metavar="N", type=int,
                        help="how many steps the program takes to settle down (1)")
    parser.add_argument("--jobs", metavar="N", type=int, help="ranks at once (default 2)")
    parser.add_argument("--live", metavar="CONDITION,...",
                        help="make these steps for real, as a rank that torchrun started")
    return parser


def main(arguments: Sequence[str]) -> int:
    mine, theirs = list(arguments), []
    if "--" in mine:
        mine, theirs = mine[:mine.index("--")], mine[mine.index("--") + 1:]
    options = _parser().parse_args(mine)
    try:
        told = _load_script(options.script, theirs)
        if options.backend:
            told["backend"] = options.backend
        if options.live is not None:
            told.pop("output", None)
            run(steps=options.live.split(","), output=options.output, **told)
            return 0
        for key in ("world_size", "first_steps", "jobs"):
            if getattr(options, key) is not None:
                told[key] = getattr(options, key)
        if options.ranks:
            told["ranks"] = options.ranks
        if "world_size" not in told:
            raise RecordError("how many ranks the job has is not known; give --world-size")
        folders = derive(output=options.output, **{k: v for k, v in told.items() if k != "output"})
    except RecordError as error:
        print(f"lockstep_record.py: {error}", file=sys.stderr)
        return 1
    for folder in folders:
        print(f"recorded; next: lockstep verify {folder}")
    return 0


if __name__ == "__main__":
    sys.modules["lockstep_record"] = sys.modules["__main__"]  # scripts import it by this name
    sys.exit(main(sys.argv[1:]))
