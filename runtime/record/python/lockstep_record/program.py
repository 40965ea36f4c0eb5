"""What users provide."""

import dataclasses
from typing import Any, Callable, Optional, Sequence

import torch


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
