"""Jobs with calls in flight at once: a recommender's all-to-alls, and two communicators."""

from faults import point
from training import log_loss, new_programs, train


def recommender(mesh, rng, fault, choices):
    """Tables are spread over the ranks, rows go where they are looked up; the rest is DDP."""
    programs = new_programs(mesh, rng)
    for program in programs:
        train(program, fault, choices, lambda p=program: recommender_step(p, fault, choices))
    return programs


def recommender_step(program, fault, choices):
    tables = range(choices.tables)
    rows = [look_up(program, fault, t, backward=False) for t in tables]
    program.compute(1)
    program.wait(rows)
    point(program, fault, "forward")
    program.compute(3)
    program.wait([look_up(program, fault, t, backward=True) for t in tables])
    point(program, fault, "backward")
    skips = fault.strikes("skips_bucket", program)
    program.wait([program.call("world", "all_reduce", 4096 * (b + 1), "train.py:88", later=True,
                               function="backward", names=[f"over.{b}"])
                  for b in range(2) if not (skips and b == fault.index % 2)])
    point(program, fault, "update")
    program.compute(1)
    if choices.log_every and program.step % choices.log_every == 0:
        size = 7 + (fault.amount if fault.strikes("wrong_metric_size", program) else 0)
        program.call("world", "all_gather_into_tensor", size, "metrics.py:44",
                     out=size * program.mesh.world, function="compute_auc")
        program.synchronise()
    elif choices.loss_item:
        program.synchronise()


def look_up(program, fault, table, backward):
    def rows(sender, owner):
        return 16 * (8 + (sender * 31 + owner * 17 + program.step * 7 + table * 3) % 11)

    world, me = program.mesh.world, program.rank
    sent = [rows(me, r) for r in range(world)]
    received = [rows(r, me) for r in range(world)]
    if backward:
        sent, received = received, sent
    elif table == 0 and fault.strikes("wrong_splits", program):
        received[fault.index % world] += 32
    return program.call("world", "all_to_all_single", sum(sent),
                        f"embedding.py:{120 if backward else 80}", later=True, out=sum(received),
                        splits=(sent, received), function="input_dist")


def two_communicators(mesh, rng, fault, choices):
    """Gradients in the group of all, a teacher's averages in other groups."""
    programs = new_programs(mesh, rng)
    for program in programs:
        train(program, fault, choices, lambda p=program: two_communicators_step(p, fault, choices))
    return programs


def two_communicators_step(program, fault, choices):
    program.compute(3)
    point(program, fault, "forward")
    pending = [program.call("world", "all_reduce", 8192, "train.py:70", later=True,
                            function="backward", names=["encoder"])]
    program.compute(2)
    point(program, fault, "backward")
    parts = [reduce_head, update_teacher]
    if fault.lasts("swapped_communicators", program):
        parts.reverse()
    for part in parts:
        part(program, fault, choices, pending)
    program.wait(pending)
    point(program, fault, "update")
    program.compute(1)
    log_loss(program, choices)


def reduce_head(program, fault, choices, pending):
    program.call("world", "all_reduce", 2048, "train.py:75", function="backward", names=["head"])


def update_teacher(program, fault, choices, pending):
    if fault.strikes("skips_teacher", program):
        return
    call = program.call("teacher", "all_reduce", 512, "ema.py:30", later=not choices.other_awaited,
                        function="update_teacher", names=["ema"])
    if not choices.other_awaited:
        pending.append(call)
