"""What one rank does, in order: a list of instructions, which a job's shape writes."""

from dataclasses import dataclass, field

MS = 1_000_000  # nanoseconds

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "int64": 8, "int32": 4}


@dataclass(eq=False)
class Call:
    """A collective, a send or a receive. Two calls are equal only if they are the same one."""

    group: str
    op: str
    given: list  # shape of the input
    filled: list  # shape of the output
    dtype: str
    at: str  # file:line
    function: str
    step: int | None
    awaited: bool = True  # the rank's stream waits for it at once
    redop: str | None = None
    root: int | None = None
    names: list | None = None
    peer: int | None = None
    batch: int | None = None  # sends and receives with one number are one kernel
    splits: tuple | None = None  # rows to and from each member
    thread: int = 0

    @property
    def is_message(self):
        return self.op in ("send", "recv")

    @property
    def bytes(self):
        count = 1
        for size in self.given:
            count *= size
        return count * ELEMENT_BYTES[self.dtype]


@dataclass
class Wait:
    """The compute stream waits for calls. `recorded`: the program waited by a handle."""

    calls: list
    recorded: bool


@dataclass
class Synchronise:
    """The host waits for its compute stream, as in loss.item()."""


@dataclass
class Compute:
    duration: int


@dataclass
class HostWork:
    duration: int


@dataclass
class Mark:
    """An event of the text form that is no call."""

    event: dict


@dataclass
class Stop:
    """The host goes no further: `stuck`, `raised` or `killed`."""

    how: str
    what: str = ""


@dataclass
class DeviceStops:
    """The device begins nothing that is launched from here on; the host goes on."""


def shape(size):
    return list(size) if isinstance(size, (list, tuple)) else [size]


@dataclass
class Program:
    rank: int
    mesh: object
    rng: object
    instructions: list = field(default_factory=list)
    step: int | None = None
    batches: int = 0
    saving: list = field(default_factory=list)  # calls of the checkpoint under way

    def members(self, label):
        return self.mesh.ranks_of(label, self.rank)

    def has(self, label):
        return self.mesh.name_of(label, self.rank) is not None

    def call(self, label, op, size, at, *, out=None, dtype="float32", later=False, function="train",
             redop=None, **more):
        """A collective in the rank's group of that label. `later`: waited for by wait()."""
        if redop is None and op in ("all_reduce", "reduce", "reduce_scatter_tensor"):
            redop = "sum"
        call = Call(self.mesh.name_of(label, self.rank), op, shape(size),
                    shape(size if out is None else out), dtype, at, function, self.step,
                    awaited=not later, redop=redop, **more)
        self.instructions.append(call)
        if not later:
            self.instructions.append(Wait([call], recorded=False))
        return call

    def exchange(self, label, messages, at, *, batched=True, dtype="bfloat16",
                 function="p2p_communicate"):
        """Sends and receives, ("send" | "recv", peer, size) each, as one kernel if batched."""
        self.batches += 1
        calls = [Call(self.mesh.name_of(label, self.rank), op, shape(size), shape(size), dtype, at,
                      function, self.step, awaited=False, peer=peer,
                      batch=self.batches if batched else None) for op, peer, size in messages]
        self.instructions += calls
        return calls

    def wait(self, calls):
        self.instructions.append(Wait(list(calls), recorded=True))

    def synchronise(self):
        self.instructions.append(Synchronise())

    def compute(self, ms):
        self.instructions.append(Compute(int(ms * MS * self.rng.uniform(0.8, 1.3))))

    def host_work(self, ms):
        self.instructions.append(HostWork(int(ms * MS)))

    def mark(self, kind, **values):
        self.instructions.append(Mark({"ev": kind, "n": self.step, **values}))

    def stop(self, how, what=""):
        self.instructions.append(Stop(how, what))

    def device_stops(self):
        self.instructions.append(DeviceStops())
