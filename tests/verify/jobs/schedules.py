"""The order in which the stages of a pipeline compute, and the messages between them.

A schedule is a list of actions for each stage's rank. A chunk is a part of the model; rank r holds
the chunks r, r + ranks, ... (interleaved), or one. Passes: F forward, B backward; with a split
backward pass I (of the inputs) and W (of the weights).
"""

import functools
from typing import NamedTuple


class Action(NamedTuple):
    kind: str  # F, B, I or W
    chunk: int  # of the whole model
    microbatch: int


class Message(NamedTuple):
    source: int  # position in the pipeline
    target: int
    kind: str  # F: activations, B: gradients
    microbatch: int


def gpipe(ranks, rank, microbatches):
    return ([Action("F", rank, m) for m in range(microbatches)]
            + [Action("B", rank, m) for m in range(microbatches)])


def one_forward_one_backward(ranks, rank, microbatches):
    warmup = min(microbatches, ranks - rank - 1)
    order = [Action("F", rank, m) for m in range(warmup)]
    for m in range(microbatches):
        if warmup + m < microbatches:
            order.append(Action("F", rank, warmup + m))
        order.append(Action("B", rank, m))
    return order


def zero_bubble(ranks, rank, microbatches):
    """The gradients of weights are computed later, where the stage would idle."""
    order, due = [], []
    for action in one_forward_one_backward(ranks, rank, microbatches):
        if action.kind == "F":
            order.append(action)
            continue
        order.append(action._replace(kind="I"))
        due.append(action._replace(kind="W"))
        if len(due) > rank:
            order.append(due.pop(0))
    return order + due


def interleaved(ranks, rank, microbatches, chunks):
    """Of Megatron: microbatches come in rounds of as many as there are ranks."""
    def nth(n, backward):
        chunk = n % (ranks * chunks) // ranks
        chunk = chunks - 1 - chunk if backward else chunk
        microbatch = n // (ranks * chunks) * ranks + n % ranks
        return Action("B" if backward else "F", chunk * ranks + rank, microbatch)

    total = microbatches * chunks
    warmup = min(total, (ranks - rank - 1) * 2 + (chunks - 1) * ranks)
    order = [nth(n, False) for n in range(warmup)]
    for n in range(total):
        if warmup + n < total:
            order.append(nth(warmup + n, False))
        order.append(nth(n, True))
    return order


@functools.lru_cache(maxsize=None)
def rows_of(schedule, chunks, ranks, microbatches):
    """What each rank does in each time step: see by_time_steps."""
    def order(rank):
        if schedule == "interleaved":
            return interleaved(ranks, rank, microbatches, chunks)
        return {"gpipe": gpipe, "1f1b": one_forward_one_backward,
                "zero_bubble": zero_bubble}[schedule](ranks, rank, microbatches)

    return by_time_steps([order(rank) for rank in range(ranks)], chunks)


def message_of(action, ranks, chunks):
    """What an action sends on, or None."""
    if action.kind == "F" and action.chunk + 1 < ranks * chunks:
        target = action.chunk + 1
    elif action.kind in ("B", "I") and action.chunk > 0:
        target = action.chunk - 1
    else:
        return None
    kind = "F" if action.kind == "F" else "B"
    return Message(action.chunk % ranks, target % ranks, kind, action.microbatch)


def by_time_steps(orders, chunks):
    """The schedule on a common clock, as PyTorch's: in each step each rank computes one action or
    none, and then all that was computed for a neighbour is sent and received as one batch.

    Gives for each rank a list of (action or None, messages)."""
    ranks = len(orders)
    next_of, done, rows = [0] * ranks, set(), [[] for _ in orders]
    while any(n < len(o) for n, o in zip(next_of, orders)):
        now = []
        for rank, order in enumerate(orders):
            action = order[next_of[rank]] if next_of[rank] < len(order) else None
            now.append(action if action and ready(action, done, ranks * chunks) else None)
        assert any(now), "the schedule waits for itself"
        messages = [m for m in (message_of(a, ranks, chunks) for a in now if a) if m]
        for rank, action in enumerate(now):
            next_of[rank] += action is not None
            rows[rank].append((action, [m for m in messages if rank in m[:2] and m[0] != m[1]]))
        done.update(a for a in now if a)
    return rows


def ready(action, done, chunks):
    """Whether what the action needs was computed in an earlier step."""
    kind, chunk, microbatch = action
    if kind == "F":
        return chunk == 0 or Action("F", chunk - 1, microbatch) in done
    if kind == "W":
        return Action("I", chunk, microbatch) in done
    if chunk == chunks - 1:
        return Action("F", chunk, microbatch) in done
    return Action(kind, chunk + 1, microbatch) in done
