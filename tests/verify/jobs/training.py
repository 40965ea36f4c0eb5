"""What jobs of every shape share: the loop over steps, evaluation, checkpoints, the log."""

from dataclasses import dataclass, field

from faults import LeftStep, Stopped, point
from program import Program


@dataclass
class Choices:
    """How a job trains; equal on all ranks unless said otherwise."""

    steps: int = 3
    accumulate: int = 1  # micro-batches of a step, without pipelines
    towers: list = field(default_factory=lambda: ["text"])
    host_ms: tuple = (1, 8)  # what a rank's host does before a step
    # data parallel
    reduce_each: bool = False  # gradients of every micro-batch are reduced, not of the last alone
    batch_norm: bool = False  # synchronised
    buffers: bool = False  # broadcast before each forward
    find_unused: bool = False
    prefetch: bool = False
    uneven_accumulation: bool = False  # ranks or replicas differ in micro-batches, as data falls
    # parts of models
    schedule: str = "1f1b"
    chunks: int = 1
    microbatches: int = 4
    layers: int = 1
    activations: int = 4096
    sequence_parallel: bool = False
    broadcast_batch: bool = False
    lengths_vary: bool = False
    batched: bool = True
    buckets: int = 1
    bucket_size: int = 1024
    sharded_optimizer: bool = False
    tables: int = 1
    other_awaited: bool = True  # the calls of the second communicator
    # around the steps
    clip: bool = False
    log_every: int = 0
    loss_item: bool = True
    barrier_at_end: bool = True
    evaluate_every: int = 0
    evaluation_batches: int = 2
    # gathered: equal batches; alone: of any number, without calls between the parts of the job;
    # asked: until no rank has a batch left.
    evaluation: str = "gathered"
    predictions: int = 64
    checkpoint_every: int = 0
    checkpoint: str = "barriers"  # or async: a group of its own, from a thread


def every(period, step):
    return period and (step + 1) % period == 0


def new_programs(mesh, rng):
    return [Program(rank, mesh, rng) for rank in range(mesh.world)]


def train(program, fault, choices, step, forward=None, part=None):
    """Runs `step()` for each step, and what comes around it. `forward`: of a batch in evaluation.
    `part`: the number of the part of the job that evaluates by itself; default: the rank."""
    steps = choices.steps
    if fault.kind == "ends_early" and program.rank in fault.ranks:
        steps = max(1, fault.step)
    try:
        for program.step in range(steps):
            program.host_work(program.rng.uniform(*choices.host_ms))
            try:
                point(program, fault, "data")
                write_checkpoint(program, choices, before_step=True)
                step()
            except LeftStep:
                program.host_work(5)
            write_checkpoint(program, choices, before_step=False)
            program.mark("step")
            evaluate(program, fault, choices, forward or (lambda: program.compute(1)),
                     program.rank if part is None else part)
            checkpoint(program, fault, choices)
        program.step = None
        end_checkpoint(program)
        if choices.barrier_at_end:
            program.call("world", "barrier", 1, "train.py:430", function="main")
        program.synchronise()
    except Stopped:
        pass


def log_loss(program, choices, label="world", at="train.py:160"):
    """The end of a step: the loss is reduced, or read on each rank alone."""
    if choices.log_every and program.step % choices.log_every == 0:
        program.call(label, "all_reduce", 1, at, function="log_loss")
        program.synchronise()
    elif choices.loss_item:
        program.synchronise()


def evaluate(program, fault, choices, forward, part):
    if fault.strikes("evaluates_alone", program):
        for _ in range(2):
            forward()
    if not every(choices.evaluate_every, program.step):
        return
    batches = choices.evaluation_batches
    uneven = fault.kind == "uneven_evaluation" and program.rank in fault.ranks
    if choices.evaluation == "gathered":
        for _ in range(batches + (fault.amount if uneven else 0)):
            forward()
            gather_predictions(program, choices)
    elif choices.evaluation == "alone":
        for _ in range(batches + part % 3):
            forward()
    else:
        ask_before_each_batch(program, choices, batches)
    program.call("world", "barrier", 1, "evaluate.py:70", function="evaluate")


def gather_predictions(program, choices):
    size = choices.predictions
    program.call("world", "all_gather_into_tensor", size, "evaluate.py:58",
                 out=size * program.mesh.world, function="gather_predictions")


def ask_before_each_batch(program, choices, batches):
    """Ranks have batches of uneven number; all go on until the last has none left."""
    most = batches + min(2, program.mesh.world - 1)
    for n in range(most + 1):
        program.call("world", "all_reduce", 1, "evaluate.py:31", dtype="int32", redop="max",
                     function="any_batch_left")
        program.synchronise()
        if n < batches + program.rank % 3:
            program.compute(2)


def checkpoint(program, fault, choices):
    if fault.strikes("checkpoints_alone", program):
        program.call("world", "barrier", 1, "checkpoint.py:52", function="save_checkpoint")
    if not every(choices.checkpoint_every, program.step):
        return
    if choices.checkpoint == "async":
        plan_checkpoint(program, fault)
        return
    if not fault.lasts("skips_checkpoint", program):
        program.call("world", "barrier", 1, "checkpoint.py:40", function="save_checkpoint")
    if program.rank == 0:
        program.host_work(30)
    program.call("world", "barrier", 1, "checkpoint.py:52", function="save_checkpoint")


def plan_checkpoint(program, fault):
    """Plans are gathered and sent back in the checkpoint's own group, by a thread of its own."""
    end_checkpoint(program)
    if fault.lasts("skips_checkpoint", program):
        return
    members = program.members("save")
    program.saving = [
        program.call("save", "all_gather_into_tensor", 96, "async_checkpoint.py:71", later=True,
                     out=96 * len(members), function="gather_plans", thread=1),
        program.call("save", "broadcast", 480, "async_checkpoint.py:83", later=True,
                     root=members[0], function="scatter_plans", thread=1)]


def write_checkpoint(program, choices, before_step):
    """The thread comes to its barrier within the next step, on some ranks later than on others."""
    if program.saving and before_step == (program.rank % 2 == 0):
        if choices.checkpoint == "async" and every(choices.checkpoint_every, program.step - 1):
            program.saving.append(
                program.call("save", "barrier", 1, "async_checkpoint.py:97", later=True,
                             function="finish_save", thread=1))


def end_checkpoint(program):
    if program.saving:
        program.wait(program.saving)
        program.saving = []
