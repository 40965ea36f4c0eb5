"""Runs the program as one rank, and records it."""

import dataclasses
import os
import traceback
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

import torch
import torch.distributed as dist

from lockstep_record.program import Condition, Program, RecordError
from lockstep_record.recorder import Recorder
from lockstep_record.trace import Trace
from lockstep_record.world import BroadcastKey, World
from lockstep_record.wrappers import install


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to record: checked, and the same for all ranks."""

    build: Callable[[], Any]
    conditions: dict[str, Condition]
    world_size: int
    output: Path
    ranks: list[int]  # the ranks that are run; the others are assumed to do what the first does
    backend: Optional[str]
    root: str  # the folder to which source locations are relative
    first_steps: int = 1  # steps that are recorded together as step 0

    def later_steps(self) -> list[str]:
        return list(self.conditions) * 2


@dataclasses.dataclass
class Outcome:
    """What a rank's process reports when it ends."""

    sent: dict[BroadcastKey, Any]
    assumed: set[str]
    raised: Optional[str]
    groups: dict[str, tuple[list[int], Optional[str]]]  # Recorder.asked


def checked_conditions(conditions: Mapping[str, Any],
                       has: Mapping[str, Sequence[str]]) -> dict[str, Condition]:
    """By name, with the modalities of `has`. Raises RecordError."""
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


class StepRaised(Exception):
    """A step raised the exception that is the cause of this one."""


def run_steps(recorder: Recorder, plan: Plan, names: Sequence[str]) -> None:
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


def _environment(rank: int, world_size: int) -> None:
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0",
                       "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
                       "TORCH_DIST_INIT_BARRIER": "0"})


def shown_backend(asked: Optional[str], chosen: Optional[str]) -> str:
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
    recorder = Recorder(Trace(header), world, plan.root)
    install(recorder)
    dist.init_process_group("fake", rank=rank, world_size=plan.world_size, store=FakeStore())
    recorder.backend = None
    raised: Optional[str] = None
    try:
        run_steps(recorder, plan, [first, *plan.later_steps()])
        recorder.trace.end("clean")
    except StepRaised as error:
        assert error.__cause__ is not None
        when = "the end" if recorder.step is None else f"step {recorder.step}"
        raised = f"{when}: {error.__cause__}"
        recorder.raised(error.__cause__)
        recorder.trace.end("exception")
    recorder.trace.header["backend"] = shown_backend(recorder.backend, plan.backend)
    recorder.trace.write(file)
    return Outcome(world.sent, world.assumed, raised, recorder.asked)
