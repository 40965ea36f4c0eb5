"""The recorder of one rank's calls."""

import collections
import contextlib
import threading
import weakref
from typing import Any, Callable, Iterator, Optional, Sequence

import torch
import torch.distributed as dist

from lockstep_record.names import Names
from lockstep_record.source_lines import made_by_join, source_location
from lockstep_record.trace import Trace
from lockstep_record.world import Call, World, flat, is_whole


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
        self.step_begin = 0  # index of the step's first line
        self.redop: Optional[str] = None  # noted by Python wrappers, if torch does not say
        self.backend: Optional[str] = None  # the one that the program asked for
        self.batch: Optional[int] = None  # number of the open batch of calls (coalesced)
        self.batches = 0
        self._groups: dict[str, tuple[str, list[int]]] = {}  # by c10d's name
        # By c10d's name: the ranks of each group that the program makes, with or without this rank,
        # and the line.
        self.asked: dict[str, tuple[list[int], Optional[str]]] = {}
        self._scopes: list[tuple[Optional[list[str]], str]] = []
        self._coming: collections.deque[Optional[list[str]]] = collections.deque()
        self._works: list[RecordedWork] = []
        self._kept: list[dist.Work] = []  # kept alive: LibTorch holds only their C++ half
        self._raised: Optional[BaseException] = None
        self._lock = threading.RLock()

    # Groups

    def asked_for(self, c10d_name: str, ranks: Sequence[int]) -> None:
        """The program makes a group of these ranks; of all: they are not listed."""
        if ranks:
            self.asked[c10d_name] = (list(ranks), source_location(self.root))

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
        of messages after one of whole numbers: they follow from numbers that the ranks exchanged.

        What the others sent is not known here, so that these sizes are not the real job's, and
        nothing follows from whether they fit those of other ranks.
        """
        if self.world is None:
            return
        message = (self.world.lengths_told and call.op in ("send", "recv", "recv_any") and
                   not any(is_whole(t) for t in flat(call.ins) + flat(call.outs)))
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
            with self.trace.before(self.step_begin):
                yield
        finally:
            self.step = now
            added = len(self.trace.lines) - kept
            self.step_begin += added
            passed = any(line.get("ev") == "issue" for line in self.trace.lines[self.step_begin:])
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
        self.step_begin = len(self.trace.lines)
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
            extra = {"what": what, "at": source_location(self.root), "step": self.step,
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


_active: Optional[Recorder] = None


def active() -> Optional[Recorder]:
    """The recorder of this process; None: nothing is recorded."""
    return _active


def activate(recorder: Recorder) -> None:
    global _active
    _active = recorder


@contextlib.contextmanager
def carries(*names: str) -> Iterator[None]:
    """Names what the calls inside carry, if a flat buffer hides it. No effect unless recording."""
    if _active is None:
        yield
        return
    with _active.scope(list(names)):
        yield
