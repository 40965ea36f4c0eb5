"""From a seed to a case: a job, a fault or none, and how it was recorded."""

import random
from dataclasses import dataclass, field

import data_parallel
import faults
import side_by_side
import transformer
from executor import Execution
from faults import Fault
from mesh import Mesh
from program import Compute, HostWork, Mark, Wait
from training import Choices

SIZES = [2, 2, 3, 4, 4, 4, 6, 8, 8, 8, 12, 16, 16, 24, 32, 64]

SHAPES = {"ddp": data_parallel.ddp, "fsdp": data_parallel.fsdp,
          "transformer": transformer.transformer, "pipeline": transformer.transformer,
          "recommender": side_by_side.recommender, "communicators": side_by_side.two_communicators}
SHAPE_WEIGHTS = [2, 2, 4, 2, 1, 1]

# Besides the faults that any job may have.
AROUND = ["skips_checkpoint", "checkpoints_alone", "uneven_evaluation"]
OF_SHAPE = {
    "ddp": ["lacks_modality", "lacks_modality", "one_microbatch_more", "evaluates_alone",
            "wrong_size", "wrong_dtype", "called_twice", *AROUND],
    "fsdp": ["lacks_modality", "lacks_modality", "dead_dummy", "one_microbatch_more",
             "one_microbatch_less", "evaluates_alone", "swapped_gathers", "left_out", "wrong_size",
             "calls_swapped", *AROUND],
    "transformer": ["one_microbatch_more", "one_microbatch_less", "skips_experts", "wrong_splits",
                    "skips_bucket", "skips_embedding", "skips_send", "wrong_message_size",
                    "skips_ring_receive", "swapped_groups", "message_order", "left_out",
                    "wrong_size", "wrong_dtype", "wrong_group", "calls_swapped",
                    "created_out_of_order", "skips_checkpoint", "checkpoints_alone"],
    "pipeline": ["one_microbatch_more", "one_microbatch_less", "skips_send", "wrong_message_size",
                 "message_order", "skips_embedding", "calls_swapped", *AROUND],
    "recommender": ["wrong_splits", "skips_bucket", "wrong_metric_size", "left_out", "called_twice",
                    *AROUND],
    "communicators": ["skips_teacher", "swapped_communicators", "swapped_communicators", "left_out",
                      "called_twice", "wrong_group", "calls_swapped", "created_out_of_order",
                      *AROUND],
}
BY_SEVERAL = ["lacks_modality", "ends_early", "uneven_evaluation", "host_stuck", "leaves_step",
              "one_microbatch_more"]
OF_REPLICA = ["one_microbatch_more", "one_microbatch_less", "ends_early", "leaves_step"]

# Text traces: with waits of the host, without, and calls alone. Flight Recorder: whole, without
# times, rings of few entries, some ranks without a dump, active calls only (of all ranks, of some),
# JSON.
FORMS = ["text_full", "text_no_waits", "text_calls", "dump", "dump_no_times", "dump_ring",
         "dump_missing", "dump_active", "dump_some_active", "dump_json"]


@dataclass
class Case:
    seed: int
    shape: str
    form: str
    mesh: Mesh
    choices: Choices
    fault: Fault
    lazy: bool
    execution: Execution = None
    differs: list = field(default_factory=list)  # ranks whose programs a fault changed
    end: int = 0  # when the job is recorded
    under_way: bool = False
    missing: tuple = ()  # ranks without a recording
    times: bool = True  # whether the recording has the beginnings of kernels
    exchanged: tuple = ()  # two groups that a rank knows by each other's name

    @property
    def healthy(self):
        return self.fault.kind in ("none", "straggles")


def choose_choices(rng, shape, form):
    """Loops long enough for a ring to turn over where a ring is what is recorded."""
    return Choices(
        steps=(rng.randint(8, 24) if form == "dump_ring" and rng.random() < 0.6
               else rng.randint(2, 6)),
        accumulate=rng.choice([1, 1, 2, 3]),
        towers=["text", "image", "audio"][:rng.choice([1, 2, 2, 3])],
        reduce_each=rng.random() < 0.3,
        batch_norm=rng.random() < 0.2,
        buffers=rng.random() < 0.25,
        find_unused=rng.random() < 0.25,
        prefetch=rng.random() < 0.6,
        schedule=rng.choice(["fused", "fused", "1f1b", "interleaved", "interleaved", "zero_bubble",
                             "gpipe"]),
        microbatches=rng.randint(1, 6),
        layers=rng.randint(1, 2),
        activations=rng.choice([4096, 65536, 1048576]),
        sequence_parallel=rng.random() < 0.4,
        broadcast_batch=rng.random() < 0.4,
        lengths_vary=rng.random() < 0.2,
        batched=rng.random() < 0.65,
        buckets=rng.randint(1, 3),
        bucket_size=rng.choice([1024, 8192]),
        sharded_optimizer=rng.random() < 0.5,
        tables=rng.randint(1, 3),
        other_awaited=rng.random() < 0.6,
        clip=rng.random() < 0.6,
        log_every=rng.choice([0, 1, 1, 2, 3]),
        loss_item=rng.random() < 0.6,
        barrier_at_end=shape != "pipeline" and rng.random() < 0.75,
        evaluate_every=rng.choice([0, 0, 0, 2, 3]),
        evaluation_batches=rng.randint(1, 4),
        evaluation=rng.choice(["gathered", "gathered", "alone", "asked"]),
        predictions=rng.choice([16, 64, 1000]),
        checkpoint_every=rng.choice([0, 0, 2, 3]),
        checkpoint=rng.choice(["barriers", "barriers", "async"]))


# The mesh of each shape.


def choose_mesh(rng, shape, choices):
    world = rng.choice(SIZES)
    if shape == "fsdp" and world % 4 == 0 and rng.random() < 0.35:
        mesh = Mesh(replica=2, shard=world // 2)
        mesh.split("shard", ["shard"], "mesh_shard")
        mesh.split("replicate", ["replica"], "mesh_replicate")
    elif shape == "fsdp":
        mesh = Mesh(shard=world)
        mesh.split("shard", ["shard"], "mesh_shard")
    elif shape == "transformer":
        mesh = transformer_mesh(rng, world, choices)
    elif shape == "pipeline":
        mesh = pipeline_mesh(rng, min(world, 16), choices)
    else:
        mesh = Mesh(data=world)
        if shape == "ddp" and rng.random() < 0.5:
            mesh.split("data", ["data"], "data_parallel")
        elif shape == "ddp":
            mesh.call_world("data")
        elif shape == "communicators":
            add_teachers(rng, mesh)
    if choices.checkpoint == "async":
        mesh.add("save", range(mesh.world), "async_checkpoint")
    return mesh


def add_teachers(rng, mesh):
    world, kinds = mesh.world, ["same"]
    if world >= 4 and world % 2 == 0:
        kinds += ["halves", "pairs"]
    kind = rng.choice(kinds)
    if kind == "same":
        mesh.add("teacher", range(world), "teacher")
    elif kind == "halves":
        mesh.add("teacher", range(world // 2), "teacher")
        mesh.add("teacher", range(world // 2, world), "teacher")
    else:
        for rank in range(world // 2):
            mesh.add("teacher", [rank, rank + world // 2], "teacher")


def transformer_mesh(rng, world, choices):
    splits = [(tensor, context, pipeline, world // (tensor * context * pipeline))
              for tensor in (1, 2, 4, 8) for context in (1, 1, 2, 4)
              for pipeline in (1, 2, 2, 3, 4, 4, 8)
              if world % (tensor * context * pipeline) == 0]
    tensor, context, pipeline, data = rng.choice(splits)
    if world >= 32 or context == 4:  # else the trace is large and shows nothing more
        choices.layers = 1
    if world >= 32:
        choices.microbatches, choices.steps = min(choices.microbatches, 4), min(choices.steps, 4)
    mesh = Mesh(pipeline=pipeline, data=data, context=context, tensor=tensor)
    add_model_groups(rng, mesh)
    if data > 1 and not choices.uneven_accumulation and rng.random() < 0.45:
        mesh.split("expert", ["data"], "EXPERT_MODEL_PARALLEL_GROUP")
    return mesh


def pipeline_mesh(rng, stages, choices):
    """Stages alone: nothing but messages, and perhaps tensor parallelism within them."""
    tensor = 2 if stages % 2 == 0 and stages > 2 and rng.random() < 0.3 else 1
    mesh = Mesh(pipeline=stages // tensor, data=1, context=1, tensor=tensor)
    choices.log_every = 0
    choices.checkpoint = "barriers"
    if rng.random() < 0.7:
        choices.evaluate_every = choices.checkpoint_every = 0
    choices.clip = choices.clip and rng.random() < 0.4
    add_model_groups(rng, mesh)
    return mesh


def add_model_groups(rng, mesh):
    size = mesh.size
    if size("tensor") > 1:
        mesh.split("tensor", ["tensor"], "TENSOR_MODEL_PARALLEL_GROUP")
    if size("pipeline") > 1:
        mesh.split("pipeline", ["pipeline"], "PIPELINE_MODEL_PARALLEL_GROUP")
    if size("context") > 1:
        mesh.split("context", ["context"], "CONTEXT_PARALLEL_GROUP")
    if size("data") * size("context") > 1:
        mesh.split("data", ["data", "context"], "DATA_PARALLEL_GROUP_WITH_CP")
    if size("tensor") * size("pipeline") > 1:
        mesh.split("model", ["pipeline", "tensor"], "MODEL_PARALLEL_GROUP")
    if size("pipeline") > 1 and rng.random() < 0.6:
        for group in [g for g in mesh.groups.values() if g.name.startswith("pipeline")]:
            mesh.add("embedding", [group.ranks[0], group.ranks[-1]], "EMBEDDING_GROUP")


def fit_schedule(rng, mesh, choices):
    """Interleaved: rounds of as many micro-batches as there are stages."""
    stages = mesh.size("pipeline")
    if stages == 1 and choices.schedule == "interleaved":
        choices.schedule = "1f1b"
    if choices.schedule == "interleaved":
        choices.chunks = rng.choice([2, 2, 3])
        choices.microbatches = stages * (rng.randint(1, 3) if stages <= 4 else 1)
        choices.layers = 1


# The fault.


def choose_fault(rng, shape, mesh, choices, healthy):
    if rng.random() < 0.3 or healthy:
        kind = rng.choice(["none", "none", "none", "straggles"])
    else:
        kind = rng.choice(faults.GENERAL + ["host_stuck"] + 2 * OF_SHAPE[shape])
    parts = choices.towers[1:] or ["image"]
    fault = Fault(kind, step=rng.randrange(choices.steps), part=rng.choice(parts),
                  point=rng.choice(["data", "forward", "backward", "update"]
                                   + ["gradients"] * (shape in ("transformer", "pipeline"))),
                  index=rng.randrange(8), microbatch=rng.randrange(max(1, choices.microbatches)),
                  backward=rng.random() < 0.5, amount=rng.randint(1, 3))
    fault.ranks = choose_ranks(rng, kind, shape, mesh)
    if kind == "straggles":
        fault.amount = rng.choice([100, 300, 800])  # ms
    if kind == "ends_early":
        fault.step = max(1, fault.step)
    make_possible(kind, choices)
    return fault


def choose_ranks(rng, kind, shape, mesh):
    count = 1
    if mesh.world >= 8 and kind in BY_SEVERAL and rng.random() < 0.2:
        count = rng.choice([2, 3, mesh.world // 4])
    ranks = sorted(rng.sample(range(mesh.world), count))
    if kind in ("evaluates_alone", "checkpoints_alone") and rng.random() < 0.7:
        ranks = [0]
    if shape == "transformer" and kind in OF_REPLICA and rng.random() < 0.4:
        replica = mesh.place(ranks[0])["data"]
        ranks = [r for r in range(mesh.world) if mesh.place(r)["data"] == replica]
    return tuple(ranks if len(ranks) < mesh.world else ranks[:1])


def make_possible(kind, choices):
    if kind in ("lacks_modality", "dead_dummy") and len(choices.towers) < 2:
        choices.towers = ["text", "image"]
    if kind == "skips_checkpoint":
        choices.checkpoint_every = choices.checkpoint_every or 2
    if kind == "uneven_evaluation":
        choices.evaluate_every, choices.evaluation = choices.evaluate_every or 2, "gathered"
    if kind == "wrong_metric_size":
        choices.log_every = 1
    if kind == "one_microbatch_less":
        choices.microbatches = max(2, choices.microbatches)
        choices.accumulate = max(2, choices.accumulate)


# The case.


def build(seed, healthy=False):
    """The case of a seed, run; None if its fault has no place in its job. `healthy`: without one.
    """
    rng = random.Random(seed)
    shape = rng.choices(list(SHAPES), SHAPE_WEIGHTS)[0]
    form = rng.choice(FORMS)
    choices = choose_choices(rng, shape, form)
    choices.uneven_accumulation = (rng.random() < 0.2 and not
                                   (choices.buffers or choices.batch_norm or choices.reduce_each)
                                   and shape in ("ddp", "transformer"))
    mesh = choose_mesh(rng, shape, choices)
    fit_schedule(rng, mesh, choices)
    fault = choose_fault(rng, shape, mesh, choices, healthy)
    fit_schedule(rng, mesh, choices)
    lazy = rng.random() < 0.5 or fault.kind == "created_out_of_order"
    case = Case(seed, shape, form, mesh, choices, fault, lazy)
    programs = write_programs(rng, case)
    if programs is None:
        return None
    case.execution = execute(rng, case, programs)
    decide_end(rng, case)
    return case


def write_programs(rng, case):
    """The programs with the fault; also notes whom it changed. None where it has no place."""
    make, state = SHAPES[case.shape], rng.getstate()
    right = make(case.mesh, rng, Fault(), case.choices)
    rng.setstate(state)
    programs = make(case.mesh, rng, case.fault, case.choices)
    fault = case.fault
    if fault.kind in faults.EDITS and not faults.edit(fault, programs[fault.ranks[0]], rng):
        return None
    case.differs = [r for r in range(case.mesh.world)
                    if not same_calls(programs[r], right[r])]
    without_change = ("network_stuck", "created_out_of_order", "none", "straggles")
    if not case.differs and fault.kind not in without_change:
        fault.kind = "none"  # it struck where nothing was to be done
    return programs


def same_calls(one, other):
    """Whether two programs do the same; how long they compute does not count."""
    def instructions(program):
        return [i for i in program.instructions if not isinstance(i, (Compute, HostWork, Mark))]

    ours, theirs = instructions(one), instructions(other)
    return len(ours) == len(theirs) and all(
        type(a) is type(b) and (isinstance(a, Wait) or vars(a) == vars(b))
        for a, b in zip(ours, theirs))


def execute(rng, case, programs):
    fault, broken, foreign = case.fault, None, ()
    shared = [g.name for g in case.mesh.groups.values() if len(g.ranks) > 1]
    if fault.kind == "network_stuck":
        broken, fault.ranks = (rng.choice(shared), rng.randrange(6)), ()
    if fault.kind == "created_out_of_order":
        foreign = exchanged_groups(rng, case)
    return Execution(case.mesh, programs, random.Random(case.seed + 1), lazy=case.lazy,
                     run_ahead=rng.choice([60, 400]), mismatch_hangs=rng.random() < 0.75,
                     broken=broken, foreign=foreign)


def exchanged_groups(rng, case):
    """The two groups that the rank creates in the other order; c10d counts them, so that each has
    the other's name there."""
    mine = [g for g in case.mesh.shared_groups(case.fault.ranks[0]) if g != "world"]
    pairs = [(a, b) for a, b in zip(mine, mine[1:])
             if case.mesh.groups[a].ranks != case.mesh.groups[b].ranks]
    case.exchanged = rng.choice(pairs) if pairs else ()
    if not pairs:
        case.fault.kind = "none"
    return case.exchanged


def decide_end(rng, case):
    """When the job is recorded: long after it hung or ended, or while it runs."""
    last = case.execution.last_time()
    if case.healthy and case.execution.hung:
        raise AssertionError(f"seed {case.seed}: a healthy job hangs")
    if not case.healthy:
        case.end = last + rng.choice([600, 600, 1800]) * 10**9
    elif case.form.startswith("text") and case.fault.kind == "none" and rng.random() < 0.5:
        case.end = last + 10**12
    else:
        case.under_way, case.end = True, int(last * rng.uniform(0.15, 1))
