"""Answers in place of the other ranks."""

import collections
import dataclasses
import sys
import types
from typing import Any, Mapping, Optional, Sequence

import torch

from lockstep_record.program import RecordError

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


def is_whole(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def _compares_models() -> bool:
    """Whether DistributedDataParallel makes the call, to compare the shapes of parameters as it is made:
    nothing that the program sends later follows from that."""
    frame: Optional[types.FrameType] = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_verify_param_shape_across_processes":
        frame = frame.f_back
    return frame is not None


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
        self.sizes_told = False  # ranks have exchanged whole numbers, such as counts
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
            self.lengths_told |= any(is_whole(t) for t in flat(call.ins) + flat(call.outs))
        if call.op in _TELLING and any(is_whole(t) for t in flat(call.ins)) and not _compares_models():
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
            self.numbers_received |= is_whole(tensor)
            tensor.data.zero_()

    _recv_any = _recv
