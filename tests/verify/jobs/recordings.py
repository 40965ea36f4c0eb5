"""Writes what ran as Lockstep's text traces, and as PyTorch's Flight Recorder dumps."""

import itertools
import json
import os
import pickle
from dataclasses import dataclass

EPOCH = 1_795_000_000_000_000_000  # ns: the job's beginning, by the clock of the dumps
MS = 1_000_000


def write(rng, case, folder):
    os.makedirs(folder)
    if case.form.startswith("text"):
        write_texts(rng, case, folder)
    else:
        write_dumps(rng, case, folder)


def lose_records(rng, folder):
    """Makes up to three lines of one text trace unreadable; its header and groups stay."""
    path = f"{folder}/{rng.choice(sorted(os.listdir(folder)))}"
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    events = [i for i, line in enumerate(lines) if line.startswith(b'{"ev"')]
    for i in rng.sample(events, min(len(events), rng.randint(1, 3))):
        middle = len(lines[i]) // 2
        lines[i] = lines[i][:middle] + b"\0\0" + lines[i][middle + 2:]
    with open(path, "wb") as file:
        file.write(b"\n".join(lines))


# Text traces.


@dataclass
class TextOptions:
    completions: bool
    waits: bool  # also those that the recorder sees inside loss.item()
    names: bool
    steps: bool


def write_texts(rng, case, folder):
    options = TextOptions(case.form != "text_calls", case.form == "text_full", rng.random() < 0.5,
                          rng.random() < 0.8)
    for rank, host in enumerate(case.execution.hosts):
        end = case.end + (int(rng.uniform(-3, 3) * MS) if case.under_way else 0)
        lines = text_header(case, rank) + text_events(case, host, options, end)
        if not case.under_way:
            lines += text_end(rng, host)
        with open(f"{folder}/rank_{rank}.trace.jsonl", "w", encoding="ascii") as file:
            for line in lines:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")


def text_header(case, rank):
    lines = [{"header": 1, "rank": rank, "world_size": case.mesh.world, "backend": "nccl",
              "clock": "ns"}]
    return lines + [{"group": name_on(case, rank, g.name), "ranks": g.ranks, "desc": g.purpose}
                    for g in creation_order(case, rank)]


def creation_order(case, rank):
    """The rank's groups as it created them."""
    groups = [g for g in case.mesh.groups.values() if rank in g.ranks]
    if case.exchanged and rank in case.fault.ranks:
        a, b = (case.mesh.groups[g] for g in case.exchanged)
        i, j = groups.index(a), groups.index(b)
        groups[i], groups[j] = b, a
    return groups


def name_on(case, rank, name):
    """A group's name on a rank that may have taken it for another one."""
    if case.exchanged and rank in case.fault.ranks and name in case.exchanged:
        return case.exchanged[1 - case.exchanged.index(name)]
    return name


def text_events(case, host, options, end):
    """In the order of their times; those of one time in the order in which they are given."""
    numbers, rows = {}, []
    for time, kind, what in host.log:
        if kind == "entered":
            numbers[what] = len(numbers)
            rows.append((time, text_call(case, host, what, numbers[what], time, options)))
        elif kind == "wait" and options.completions:
            rows += [(time, {"ev": "wait", "id": numbers[what], "t": time}),
                     (time, {"ev": "waited", "id": numbers[what], "t": time + 1000})]
        elif kind == "mark":
            rows.append((time, what))
        elif kind == "exception":
            rows.append((time, {"ev": "exception", "what": what}))
    if options.completions:
        rows += device_events(host, numbers)
    if options.waits:
        rows += waits_of_host(host, numbers)
    rows.sort(key=lambda row: row[0])
    return [event for time, event in rows if time <= end]


def text_call(case, host, call, number, time, options):
    line = {"ev": "issue", "id": number, "g": name_on(case, host.rank, call.group), "op": call.op,
            "t": time, "in": [call.given], "out": [call.filled], "dtype": call.dtype,
            "async": not call.awaited, "at": call.at}
    optional = {"redop": call.redop, "root": call.root, "peer": call.peer, "coalesced": call.batch,
                "what": call.names if options.names else None,
                "step": call.step if options.steps else None, "thread": call.thread or None}
    if call.splits:
        optional["splits_in"], optional["splits_out"] = call.splits
    line.update((key, value) for key, value in optional.items() if value is not None)
    return line


def device_events(host, numbers):
    for call, kernel in host.kernels.items():
        if kernel.start is not None:
            yield kernel.start, {"ev": "start", "id": numbers[call], "t": kernel.start}
        if kernel.end is not None:
            yield kernel.end, {"ev": "complete", "id": numbers[call], "t": kernel.end}


def waits_of_host(host, numbers):
    """While the host waits for the device, the recorder sees it wait for all calls in flight."""
    flying = []
    for time, kind, _ in host.log:
        if kind == "block":
            flying = [numbers[c] for c, k in host.kernels.items()
                      if k.launched <= time and (k.end is None or k.end > time)]
        if kind in ("block", "unblock"):
            event = "wait" if kind == "block" else "waited"
            for number in flying:
                yield time, {"ev": event, "id": number, "t": time}


def text_end(rng, host):
    if host.state == "raised":
        return [{"end": "exception"}]
    if host.state == "killed":
        return [{"end": "killed"}] if rng.random() < 0.5 else []
    return [{"end": "clean" if host.state == "done" else "hung"}]


# Flight Recorder.

OPERATIONS = {"all_gather_into_tensor": "_all_gather_base",
              "reduce_scatter_tensor": "_reduce_scatter_base", "all_to_all_single": "all_to_all",
              "barrier": "all_reduce_barrier"}
DTYPES = {"float32": "Float", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int"}
LIBRARY = "/opt/venv/lib/python3.11/site-packages/torch/distributed/"


@dataclass
class DumpOptions:
    version: str
    times: bool  # TORCH_NCCL_ENABLE_TIMING: when kernels began
    frames: bool
    hashed_names: bool  # groups are named by their ranks, not counted
    entries: int
    skew: float  # ms between the first and the last dump
    as_json: bool


def choose_options(rng, case):
    return DumpOptions(
        version=rng.choice(["2.4", "2.9", "2.10"]),
        times=case.form != "dump_no_times" and rng.random() < 0.6,
        frames="active" not in case.form and rng.random() < 0.85,
        hashed_names=not case.exchanged and rng.random() < 0.3,
        entries=rng.choice([12, 25, 60]) if case.form == "dump_ring" else 2000,
        skew=rng.choice([100, 300, 1000]) if case.form == "dump_ring" else 300,
        as_json=case.form == "dump_json")


def write_dumps(rng, case, folder):
    options = choose_options(rng, case)
    case.times = options.times
    case.missing = choose_missing(rng, case)
    active = set(range(case.mesh.world)) if case.form == "dump_active" else set()
    if case.form == "dump_some_active":
        active = set(rng.sample(range(case.mesh.world), max(1, case.mesh.world // 2)))
    for rank, host in enumerate(case.execution.hosts):
        if rank in case.missing:
            continue
        end = case.end + int(rng.uniform(0, options.skew) * MS)
        dump = Dump(rng, case, rank, host, options, end).content(rank in active)
        path = f"{folder}/nccl_trace_rank_{rank}"
        with open(path, "wb") as file:
            file.write(as_json(dump) if options.as_json else pickle.dumps(dump, protocol=2))
        os.utime(path, ns=(EPOCH + end, EPOCH + end))


def choose_missing(rng, case):
    """Ranks that ended have written no dump, those that died seldom, and some dumps get lost."""
    missing = set()
    for rank, host in enumerate(case.execution.hosts):
        ended = host.state == "done" and not case.under_way
        raised = host.state == "raised" and rng.random() < 0.75
        if ended or raised or host.state == "killed":
            missing.add(rank)
    if case.form == "dump_missing":
        missing.update(rng.sample(range(case.mesh.world), max(1, case.mesh.world // 8)))
    if len(missing) == case.mesh.world:
        missing.discard(min(missing))
    return tuple(sorted(missing))


class Dump:
    """The dump of one rank, written at `end`."""

    def __init__(self, rng, case, rank, host, options, end):
        self.rng, self.case, self.rank, self.host = rng, case, rank, host
        self.options, self.end = options, end
        self.groups = [g for g in creation_order(case, rank)]
        self.entries = []
        self.counts = {}  # group -> [collectives, messages, all]
        self.status = {}  # group -> [enqueued, started, completed]

    def content(self, active_only):
        calls = sorted((time, n, call) for n, (time, kind, call) in enumerate(self.host.log)
                       if kind == "issued" and time <= self.end)
        self.add_calls([(time, call) for time, _, call in calls])
        entries = self.entries[-self.options.entries:]
        if active_only:
            entries = [e for e in entries if e["state"] != "completed"]
        new = self.options.version == "2.10"
        return {"version": self.options.version,
                "pg_config": {self.name(g): {"name": self.name(g), "desc": g.purpose,
                                             "ranks": str(g.ranks)} for g in self.groups},
                "comm_lib_version" if new else "nccl_version": "2.21.5",
                "pg_status": {str(self.groups.index(self.case.mesh.groups[g])): {
                    "last_enqueued_collective": enqueued, "last_started_collective": started,
                    "last_completed_collective": completed}
                    for g, (enqueued, started, completed) in self.status.items()},
                "entries": entries}

    def name(self, group):
        name = name_on(self.case, self.rank, group.name)
        number = list(self.case.mesh.groups).index(name)
        if self.options.hashed_names and number:
            return f"{hash_of(group.ranks):016x}{number:02x}"
        return str(number)

    def add_calls(self, calls):
        numbered = enumerate(calls)  # those of a batch come together, each other one by itself
        for _, together in itertools.groupby(numbered, key=lambda c: c[1][1].batch or -c[0]):
            together = [timed for _, timed in together]
            time, call = together[0]
            if call.is_message:
                self.add_messages(together)
                continue
            self.count(call.group, 0)
            state = self.add(call, time, f"nccl:{OPERATIONS.get(call.op, call.op)}")
            self.note(call.group, self.counts[call.group][0], state)

    def add_messages(self, calls):
        """The members of a batch never change their state; one entry more stands for the kernel."""
        time, first = calls[0]
        self.count(first.group, 1)
        if first.batch:
            for at, call in calls:
                self.add(call, at, self.message_name(call), state="scheduled")
            state = self.add(first, time + 3000, "nccl:coalesced", sizes=False)
        else:
            state = self.add(first, time, self.message_name(first))
        self.note(first.group, self.counts[first.group][1], state)

    def message_name(self, call):
        ranks = self.case.mesh.groups[call.group].ranks
        me, peer = ranks.index(self.rank), ranks.index(call.peer)
        return f"nccl:send {me}->{peer}" if call.op == "send" else f"nccl:recv {me}<-{peer}"

    def count(self, group, which):
        self.counts.setdefault(group, [0, 0, 0])[which] += 1

    def note(self, group, number, state):
        """What pg_status says: of collectives and messages, whatever came last."""
        status = self.status.setdefault(group, [0, -1, -1])
        status[0] = number
        if state == "completed":
            status[2] = number
        if state != "scheduled" and self.options.times:
            status[1] = number

    def seen(self, kernel):
        """(state, when the watchdog saw it begin, when it saw it end)."""
        started = completed = None
        state = "scheduled"
        if kernel.start is not None and kernel.start <= self.end and self.options.times:
            state, started = "started", min(self.end, kernel.start + self.poll())
        if kernel.end is not None and kernel.end <= self.end:
            state, completed = "completed", min(self.end, kernel.end + self.poll())
            started = min(started, completed) if started else None
        return state, started, completed

    def poll(self):
        return int(self.rng.uniform(1, 100) * MS)

    def add(self, call, time, name, state=None, sizes=True):
        kernel = self.host.kernels[call]
        seen, started, completed = (state, None, None) if state else self.seen(kernel)
        if sizes:
            self.count(call.group, 2)
        collectives, messages, all_calls = self.counts[call.group]
        group = self.case.mesh.groups[call.group]
        entry = {"frames": frames(call)} if self.options.frames else {}
        entry |= {
            "record_id": len(self.entries), "pg_id": self.groups.index(group),
            "process_group": (self.name(group), group.purpose), "collective_seq_id": collectives,
            "p2p_seq_id": messages, "op_id": all_calls, "profiling_name": name,
            "time_created_ns": EPOCH + time}
        if self.options.version != "2.4":
            entry |= {"thread_name": "save" if call.thread else "pt_main_thread",
                      "thread_id": str(139 * 10**12 + self.rank * 16 + call.thread)}
        if seen == "completed" and self.options.times:
            entry["duration_ms"] = (kernel.end - kernel.start) / 1e6
        dtype = "Float" if call.op == "barrier" else DTYPES[call.dtype]
        entry |= {
            "input_sizes": [call.given] if sizes else [], "input_dtypes": [dtype] if sizes else [],
            "output_sizes": [call.filled] if sizes else [],
            "output_dtypes": [dtype] if sizes else [], "state": seen,
            "time_discovered_started_ns": EPOCH + started if started else None,
            "time_discovered_completed_ns": EPOCH + completed if completed else None,
            "retired": seen == "completed", "timeout_ms": 600000, "is_p2p": call.is_message}
        self.entries.append(entry)
        return seen


def hash_of(ranks):
    value = 14695981039346656037
    for rank in ranks:
        value = (value ^ (rank + 1)) * 1099511628211 % 2**64
    return value


def frames(call):
    """Innermost first; the program's own begin at the third."""
    file, line = call.at.rsplit(":", 1)
    name = call.op
    if call.is_message:
        name = "batch_isend_irecv" if call.batch else "i" + call.op
    return [{"name": name, "filename": LIBRARY + "distributed_c10d.py", "line": 2500},
            {"name": "wrapper", "filename": LIBRARY + "c10d_logger.py", "line": 81},
            {"name": call.function, "filename": f"/workspace/{file}", "line": int(line)},
            {"name": "main", "filename": "/workspace/train.py", "line": 412},
            {"name": "<module>", "filename": "/workspace/train.py", "line": 440}]


def as_json(dump):
    """As _dump_fr_trace_json: no frames, zeros for None, numbers of pg_status as text."""
    for entry in dump["entries"]:
        entry.pop("frames", None)
        for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            entry[key] = entry[key] or 0
    for status in dump["pg_status"].values():
        for key, number in status.items():
            status[key] = str(number)
    if not dump["entries"]:
        del dump["entries"]
    return json.dumps(dump, sort_keys=True, separators=(",", ":")).encode("ascii")
