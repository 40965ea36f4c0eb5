"""Jobs whose ranks all hold the model, or shards of it: DDP, FSDP, HSDP."""

from faults import point
from training import log_loss, new_programs, train


def microbatches(program, fault, choices):
    """How many a rank has in this step."""
    uneven = choices.uneven_accumulation and (program.rank + program.step) % 2
    return (choices.accumulate + int(bool(uneven)) + fault.more("one_microbatch_more", program)
            - fault.more("one_microbatch_less", program))


def towers_in_batch(program, fault, choices, first=True):
    return [t for t in choices.towers
            if not (first and t == fault.part and fault.strikes("lacks_modality", program))]


# DDP: gradients are reduced in buckets while the backward pass runs.


def ddp(mesh, rng, fault, choices):
    sizes = [rng.choice([1024, 2048, 4096, 4096, 8192, 25600]) * rng.choice([1, 3, 7])
             for _ in range(rng.randint(2, 5))]
    programs = new_programs(mesh, rng)
    for program in programs:
        train(program, fault, choices, lambda p=program: ddp_step(p, fault, choices, sizes),
              lambda p=program: ddp_forward(p, choices, training=False))
    return programs


def ddp_step(program, fault, choices, sizes):
    present = towers_in_batch(program, fault, choices)
    if len(choices.towers) > 1:
        program.mark("modality", has=present)
    count = microbatches(program, fault, choices)
    for n in range(count):
        program.host_work(0.5)
        ddp_forward(program, choices, training=True)
        point(program, fault, "forward")
        program.compute(5)
        if n == count - 1 or choices.reduce_each:
            ddp_backward(program, fault, choices, sizes, present)
    point(program, fault, "update")
    program.compute(1)
    log_loss(program, choices, "data")


def ddp_forward(program, choices, training):
    if choices.buffers and training:
        program.call("data", "broadcast", 64, "train.py:101", root=program.members("data")[0],
                     function="forward")
    program.compute(3)
    if choices.batch_norm and training:
        for layer in range(2):
            program.call("data", "all_gather_into_tensor", 129, f"model.py:{60 + layer}",
                         out=129 * len(program.members("data")), function="forward")


def ddp_backward(program, fault, choices, sizes, present):
    reductions = []
    for n, size in enumerate(sizes):
        tower = choices.towers[n % len(choices.towers)]
        if tower not in present:
            continue
        reductions.append(program.call("data", "all_reduce", size, "train.py:120", later=True,
                                       names=[f"{tower}.b{n}.w"], function="backward", redop="avg"))
        program.compute(1)
        if n == 0:
            point(program, fault, "backward")
    if choices.find_unused:
        reductions.append(program.call("data", "all_reduce", len(sizes), "train.py:120", later=True,
                                       dtype="int32", function="backward"))
    program.wait(reductions)


# FSDP: parameters are gathered before their use, gradients reduced and scattered.


class Unit:
    """A layer that is sharded as one."""

    def __init__(self, tower, name, size):
        self.tower, self.name, self.size = tower, name, size


def units_of(rng, towers):
    layers, alike = rng.randint(2, 4), rng.random() < 0.6
    base = rng.choice([4096, 16384, 65536])
    units = [Unit(t, f"{t}.layers.{n}", base) for t in towers for n in range(layers)]
    if not alike:
        for n, unit in enumerate(units):
            unit.size *= 1 + n % 3
    return units + [Unit("text", "lm_head", base * 2)]


def fsdp(mesh, rng, fault, choices):
    units = units_of(rng, choices.towers)
    programs = new_programs(mesh, rng)
    for program in programs:
        train(program, fault, choices, lambda p=program: fsdp_step(p, fault, choices, units),
              lambda p=program: fsdp_forward(p, fault, choices, units, training=False),
              part=0)  # each forward pass gathers the parameters of all
    return programs


def fsdp_step(program, fault, choices, units):
    for n in range(microbatches(program, fault, choices)):
        program.host_work(0.3)
        present = towers_in_batch(program, fault, choices, first=n == 0)
        # A dummy input that does not reach the loss: gathered in the forward pass alone.
        dead = n == 0 and fault.strikes("dead_dummy", program)
        alive = [t for t in present if not (dead and t == fault.part)]
        if len(choices.towers) > 1:
            program.mark("modality", has=alive)
        fsdp_forward(program, fault, choices, [u for u in units if u.tower in present])
        fsdp_backward(program, fault, [u for u in units if u.tower in alive])
    point(program, fault, "update")
    if choices.clip:
        program.call("shard", "all_reduce", 1, "train.py:150", function="clip_grad_norm_")
        program.synchronise()
    program.compute(2)
    log_loss(program, choices)


def gather(program, unit, line):
    shards = len(program.members("shard"))
    size = unit.size // shards
    return program.call("shard", "all_gather_into_tensor", size, f"model.py:{line}", later=True,
                        dtype="bfloat16", out=size * shards, names=[f"{unit.name}.weight"],
                        function="unshard")


def fsdp_forward(program, fault, choices, units, training=True):
    if training and fault.strikes("swapped_gathers", program):
        units = list(units)
        n = fault.index % (len(units) - 1)
        units[n], units[n + 1] = units[n + 1], units[n]
    ahead = None
    for n, unit in enumerate(units):
        handle = ahead or gather(program, unit, 210)
        ahead = None
        if choices.prefetch and n + 1 < len(units):
            ahead = gather(program, units[n + 1], 210)
        program.wait([handle])
        program.compute(2)
        if n == 0 and training:
            point(program, fault, "forward")


def fsdp_backward(program, fault, units):
    pending = []
    for n, unit in enumerate(reversed(units)):
        program.wait([gather(program, unit, 260)])
        program.compute(3)
        if n == 1:
            point(program, fault, "backward")
        pending.append(reduce_gradient(program, unit))
    program.wait(pending)


def reduce_gradient(program, unit):
    shards = len(program.members("shard"))
    size = unit.size // shards
    names = [f"{unit.name}.weight"]
    handle = program.call("shard", "reduce_scatter_tensor", size * shards, "model.py:290",
                          later=True, out=size, names=names, function="reduce_grad", redop="avg")
    if program.has("replicate"):
        program.wait([handle])
        handle = program.call("replicate", "all_reduce", size, "model.py:301", later=True,
                              names=names, function="reduce_grad", redop="avg")
    return handle
