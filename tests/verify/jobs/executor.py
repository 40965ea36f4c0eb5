"""Runs the programs of all ranks on devices with NCCL's rules.

Each rank has a host, a compute stream, and a stream for each communicator. A call launches a kernel
and returns; the kernel begins when the one before it on its stream has ended, and what the compute
stream waited for before the call. It ends when its counterparts have begun. Sends and receives of a
batch are one kernel on the group's stream; single ones run on a stream of the pair. Matching is by
order alone, so that the outcome depends on no order in which this file looks at ranks.

With lazy communicators the first call in one waits, on the host, for the first call of each member.
"""

from collections import deque

from program import Call, Compute, DeviceStops, HostWork, Mark, Stop, Synchronise, Wait

LAUNCH = 30_000  # ns of the host
DISPATCH = 4_000  # ns between what a kernel waits for and its beginning
CREATE = 60_000_000  # ns for a communicator


class Kernel:
    def __init__(self, rank, calls, launched, duration=None):
        self.rank, self.calls, self.launched = rank, calls, launched
        self.duration = duration  # of compute; None for communication
        self.ready = launched
        self.blockers = 0
        self.followers = []
        self.start = self.end = None
        self.partners = []  # what ends with it: instances of collectives, or message slots


class Host:
    def __init__(self, program):
        self.rank = program.rank
        self.instructions = program.instructions
        self.next = 0
        self.now = 0
        self.state = "run"  # run, stuck, raised, killed, done; run at the end is blocked
        self.device_stopped = False
        self.entered = None  # the call in which it is or was
        self.awaited = []  # kernels for which the compute stream waits next
        self.streams = {}  # communicator -> its last kernel
        self.counts = {}  # communicator -> collectives launched
        self.pending = {}  # communicator -> kernels launched whose end the host has not seen
        self.kernels = {}  # call -> kernel
        # (time, kind, what): entered, issued, wait, block, unblock, mark or exception.
        self.log = []


class Instance:
    """A collective of a group: the nth of its communicator."""

    def __init__(self, members):
        self.members = members
        self.kernels = {}


def communicator(rank, call):
    """What kernels of the call queue in, and who creates it together."""
    if call.is_message and call.batch is None:
        return (call.group, min(rank, call.peer), max(rank, call.peer))
    return (call.group,)


def splits_fit(calls):
    return all(calls[a].splits[0][b] == calls[b].splits[1][a]
               for a in range(len(calls)) for b in range(len(calls)))


def agree(calls):
    """Whether NCCL gets through: it sees operations, roots and bytes, no types."""
    first = calls[0]
    if any(c.op != first.op for c in calls):
        return False
    if first.op == "all_to_all_single":
        return splits_fit(calls)
    return all((c.root, c.bytes) == (first.root, first.bytes) for c in calls)


class Execution:
    """`mismatch_hangs`: calls that do not agree never end; else they pass, as NCCL's may.

    `broken`: (group, n), a collective that the network never finishes. `foreign`: groups that do
    not connect, because a rank knows them by other names."""

    def __init__(self, mesh, programs, rng, *, run_ahead=400, mismatch_hangs=True, lazy=False,
                 broken=None, foreign=()):
        self.mesh, self.rng = mesh, rng
        self.hosts = [Host(p) for p in programs]
        self.run_ahead, self.mismatch_hangs, self.lazy = run_ahead, mismatch_hangs, lazy
        self.broken, self.foreign = broken, set(foreign)
        self.instances = {}
        self.channels = {}  # (communicator, source, destination) -> (sends, receives)
        self.arrivals = {}  # communicator -> {rank: time}
        self.todo = deque()
        self._run()

    @property
    def hung(self):
        return any(h.state in ("run", "stuck") for h in self.hosts)

    def last_time(self):
        times = [h.now for h in self.hosts]
        times += [k.end for h in self.hosts for k in h.kernels.values() if k.end]
        return max(times)

    def _run(self):
        moved = True
        while moved:
            moved = False
            for rank, host in enumerate(self.hosts):
                while host.state == "run" and self._step(rank, host):
                    moved = True

    # Hosts.

    def _step(self, rank, host):
        """The host's next instruction; false if it is blocked."""
        if host.next == len(host.instructions):
            host.state = "done"
            return True
        instruction = host.instructions[host.next]
        if isinstance(instruction, Call):
            return self._call(rank, host, instruction)
        if isinstance(instruction, Synchronise):
            return self._synchronise(host)
        host.next += 1
        if isinstance(instruction, Wait):
            self._wait(host, instruction)
        elif isinstance(instruction, Compute):
            host.now += 20_000
            kernel = Kernel(rank, [], host.now, instruction.duration)
            self._launch(host, kernel, host.awaited)
            host.awaited = [kernel]
        elif isinstance(instruction, HostWork):
            host.now += instruction.duration
        elif isinstance(instruction, Mark):
            host.log.append((host.now, "mark", instruction.event))
        elif isinstance(instruction, DeviceStops):
            host.device_stopped = True
        elif isinstance(instruction, Stop):
            host.state = instruction.how
            if instruction.how == "raised":
                host.log.append((host.now, "exception", instruction.what))
        return True

    def _call(self, rank, host, call):
        key = communicator(rank, call)
        queue = host.pending.setdefault(key, deque())
        while len(queue) > self.run_ahead:  # the stream takes no more launches
            if queue[0].end is None:
                return False
            host.now = max(host.now, queue.popleft().end)
        batch = self._batch(host, call)
        self._enter(host, batch)
        if self.lazy and not self._connected(rank, host, key):
            return False
        host.now += int(LAUNCH * self.rng.uniform(0.6, 1.8))
        kernel = Kernel(rank, batch, host.now)
        for n, one in enumerate(batch):
            host.kernels[one] = kernel
            host.log.append((host.now + n * 1000, "issued", one))
        self._enlist(rank, host, key, kernel)
        before = host.streams.get(key)
        host.streams[key] = kernel
        queue.append(kernel)
        host.next += len(batch)
        self._launch(host, kernel, host.awaited + ([before] if before else []))
        return True

    def _batch(self, host, call):
        if call.batch is None:
            return [call]
        end = host.next
        while (end < len(host.instructions) and isinstance(host.instructions[end], Call)
               and host.instructions[end].batch == call.batch):
            end += 1
        return host.instructions[host.next:end]

    def _enter(self, host, batch):
        if host.entered is batch[0]:
            return  # it is in the call and waits for the communicator
        host.entered = batch[0]
        for n, one in enumerate(batch):
            host.log.append((host.now + n * 1000, "entered", one))

    def _connected(self, rank, host, key):
        """Whether the communicator exists. Its creation waits for the first call of each member."""
        arrivals = self.arrivals.setdefault(key, {})
        arrivals.setdefault(rank, host.now)
        members = key[1:] or self.mesh.groups[key[0]].ranks
        if key[0] in self.foreign or not set(arrivals) >= set(members):
            return False
        if key not in host.streams:
            host.now = max(host.now, max(arrivals.values()) + CREATE)
        return True

    def _enlist(self, rank, host, key, kernel):
        """Finds the kernel's counterparts: by number, and per channel by order."""
        if not kernel.calls[0].is_message:
            number = host.counts.get(key, 0)
            host.counts[key] = number + 1
            group = kernel.calls[0].group
            instance = self.instances.setdefault(
                (group, number), Instance(self.mesh.groups[group].ranks))
            instance.kernels[rank] = kernel
            kernel.partners.append((group, number))
            return
        for call in kernel.calls:
            ends = (rank, call.peer) if call.op == "send" else (call.peer, rank)
            sides = self.channels.setdefault((key, *ends), ([], []))
            side = sides[0 if call.op == "send" else 1]
            kernel.partners.append((sides, len(side)))
            side.append((kernel, call))

    def _wait(self, host, wait):
        for call in wait.calls:
            if call in host.kernels:  # a fault may have taken the call away
                host.awaited.append(host.kernels[call])
                if wait.recorded:
                    host.log.append((host.now, "wait", call))

    def _synchronise(self, host):
        if not host.log or host.log[-1][1] != "block":
            host.log.append((host.now, "block", None))
        if host.device_stopped or any(k.end is None for k in host.awaited):
            return False
        host.now = max([host.now] + [k.end for k in host.awaited]) + 5000
        host.log.append((host.now, "unblock", None))
        host.awaited = []
        for queue in host.pending.values():
            while queue and queue[0].end is not None and queue[0].end <= host.now:
                queue.popleft()
        host.next += 1
        return True

    # Devices.

    def _launch(self, host, kernel, after):
        if host.device_stopped:
            kernel.blockers = 1  # that nothing takes away
        for other in after:
            if other.end is None:
                kernel.blockers += 1
                other.followers.append(kernel)
            else:
                kernel.ready = max(kernel.ready, other.end)
        if kernel.blockers == 0:
            self.todo.append(kernel)
        self._begin_all()

    def _begin_all(self):
        while self.todo:
            kernel = self.todo.popleft()
            kernel.start = kernel.ready + DISPATCH
            if kernel.duration is not None:
                self._end(kernel, kernel.start + kernel.duration)
            elif kernel.calls[0].is_message:
                self._match_messages(kernel)
            else:
                self._match_collective(kernel.partners[0])

    def _end(self, kernel, time):
        kernel.end = time
        for follower in kernel.followers:
            follower.ready = max(follower.ready, time)
            follower.blockers -= 1
            if follower.blockers == 0:
                self.todo.append(follower)

    def _match_collective(self, number):
        instance = self.instances[number]
        kernels = [instance.kernels.get(r) for r in instance.members]
        if any(k is None or k.start is None for k in kernels):
            return
        if number == self.broken or number[0] in self.foreign:
            return
        if self.mismatch_hangs and not agree([k.calls[0] for k in kernels]):
            return
        time = max(k.start for k in kernels) + int(100_000 * self.rng.uniform(0.5, 2))
        for kernel in kernels:
            self._end(kernel, time + int(self.rng.uniform(0, 20_000)))

    def _match_messages(self, kernel):
        """The kernel's beginning may end it, and those that hold the other sides."""
        self._try_to_end(kernel)
        for sides, n in kernel.partners:
            for side in sides:
                if n < len(side) and side[n][0].end is None:
                    self._try_to_end(side[n][0])

    def _try_to_end(self, kernel):
        if kernel.start is None or kernel.end is not None:
            return
        if kernel.calls[0].group in self.foreign:
            return
        time = kernel.start
        for sides, n in kernel.partners:
            if any(n >= len(side) or side[n][0].start is None for side in sides):
                return
            (_, sent), (_, received) = sides[0][n], sides[1][n]
            if self.mismatch_hangs and sent.bytes != received.bytes:
                return
            time = max([time] + [side[n][0].start for side in sides])
        self._end(kernel, time + int(80_000 * self.rng.uniform(0.5, 2)))
