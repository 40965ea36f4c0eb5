"""The steps for real, on all ranks."""

import inspect
import os
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

import torch
import torch.distributed as dist

from lockstep_record.one_rank import Plan, StepRaised, checked_conditions, run_steps, shown_backend
from lockstep_record.program import RecordError
from lockstep_record.recorder import Recorder
from lockstep_record.trace import Trace
from lockstep_record.wrappers import install


def run(build: Callable[[], Any], conditions: Mapping[str, Any], steps: Sequence[str],
        output: Any, *, has: Optional[Mapping[str, Sequence[str]]] = None,
        backend: Optional[str] = None, **_: Any) -> None:
    """Runs the steps for real, as one of the ranks that torchrun started, and records them.

    steps: the conditions of this rank's steps, by name. The trace for `lockstep verify` is
    rank_<r>.trace.jsonl in `output`; each line is written as it happens. Raises what the program
    raises.
    """
    named = checked_conditions(conditions, has or {})
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
              "backend": shown_backend(backend, None), "pid": os.getpid()}
    trace = Trace(header, Path(output) / f"rank_{rank}.trace.jsonl")
    recorder = Recorder(trace, None, os.path.dirname(file))
    install(recorder)
    torch.manual_seed(0)
    dist.init_process_group(backend)
    plan = Plan(build, named, world_size, Path(output), [rank], backend, os.path.dirname(file))
    try:
        run_steps(recorder, plan, steps)
    except StepRaised as error:
        assert error.__cause__ is not None
        recorder.raised(error.__cause__)
        trace.end("exception")
        raise error.__cause__
    trace.end("clean")
    dist.destroy_process_group()
