"""What goes wrong in a job: one fault, which the job's shape asks about where it may strike."""

from dataclasses import dataclass

from program import Call, Wait


class Stopped(Exception):
    """The rank does nothing more."""


class LeftStep(Exception):
    """The rank leaves the rest of its step out, as a function that returns early."""


@dataclass
class Fault:
    kind: str = "none"
    ranks: tuple = ()
    step: int = 0
    point: str | None = None  # where in a step the general faults strike
    part: str = "text"  # the tower that a batch lacks
    index: int = 0  # of a bucket, a neighbour, a unit
    microbatch: int = 0
    backward: bool = False
    amount: int = 1

    def strikes(self, kind, program):
        return self.kind == kind and program.rank in self.ranks and program.step == self.step

    def lasts(self, kind, program):
        """As strikes, from its step on."""
        return self.kind == kind and program.rank in self.ranks and program.step >= self.step

    def more(self, kind, program):
        """1 where the rank does something once more than the others."""
        return int(self.strikes(kind, program))


# May strike any job, at a point of a step.
GENERAL = ["host_stuck", "device_stuck", "raised", "killed", "extra_reduce", "extra_barrier",
           "leaves_step", "ends_early", "network_stuck"]

# Changes of one call of a finished program.
EDITS = ["left_out", "called_twice", "wrong_size", "wrong_dtype", "wrong_group", "calls_swapped"]


def point(program, fault, where):
    """A place of a step at which the general faults may strike."""
    if program.rank not in fault.ranks or fault.point != where:
        return
    if fault.kind == "straggles" and where == "data":
        program.host_work(fault.amount)
    if program.step != fault.step:
        return
    if fault.kind == "host_stuck":
        program.stop("stuck")
    elif fault.kind == "raised":
        program.stop("raised", "RuntimeError: CUDA error: an illegal memory access was encountered")
    elif fault.kind == "killed":
        program.stop("killed")
    elif fault.kind == "device_stuck":
        program.device_stops()
    elif fault.kind == "extra_reduce":
        program.call("world", "all_reduce", 4, "utils/log.py:31", function="log_metrics")
    elif fault.kind == "extra_barrier":
        program.call("world", "barrier", 1, "utils/ckpt.py:77", function="save")
    elif fault.kind == "leaves_step":
        raise LeftStep
    if fault.kind in ("host_stuck", "raised", "killed"):
        raise Stopped


# Edits.


def collectives(program):
    """Positions of the collectives that concern more than their own rank."""
    return [i for i, c in enumerate(program.instructions) if isinstance(c, Call)
            and not c.is_message and len(program.mesh.groups[c.group].ranks) > 1]


def edit(fault, program, rng):
    """Changes the program by an edit; sets the fault's step. False where nothing fits it."""
    places = collectives(program)
    if not places:
        return False
    place = rng.choice(places)
    call = program.instructions[place]
    if fault.kind == "calls_swapped":
        return swap_calls(fault, program, rng)
    fault.step = call.step
    if fault.kind == "left_out":
        del program.instructions[place]
    elif fault.kind == "called_twice":
        again = Call(**vars(call))
        program.instructions[place:place] = [again, Wait([again], recorded=False)]
    elif fault.kind == "wrong_size":
        call.given[0] *= fault.amount + 1
        call.filled[0] *= fault.amount + 1
    elif fault.kind == "wrong_dtype":
        call.dtype = "float32" if call.dtype == "bfloat16" else "bfloat16"
    elif fault.kind == "wrong_group":
        return move_to_other_group(call, program, rng)
    return True


def move_to_other_group(call, program, rng):
    mine = program.mesh.groups[call.group].ranks
    others = [g for g in program.mesh.shared_groups(program.rank)
              if program.mesh.groups[g].ranks != mine]
    if not others or call.op not in ("all_reduce", "barrier"):
        return False
    call.group = rng.choice(others)
    return True


def swap_calls(fault, program, rng):
    """Two calls that follow each other, in groups of other ranks, each waited for at once."""
    rows, groups = program.instructions, program.mesh.groups
    places = collectives(program)
    pairs = [(a, b) for a, b in zip(places, places[1:])
             if rows[a].awaited and rows[b].awaited and rows[a].step == rows[b].step
             and groups[rows[a].group].ranks != groups[rows[b].group].ranks
             and not any(isinstance(c, Call) for c in rows[a + 1:b])]
    if not pairs:
        return False
    a, b = rng.choice(pairs)
    fault.step = rows[a].step
    rows[a:a + 2], rows[b:b + 2] = rows[b:b + 2], rows[a:a + 2]
    return True
