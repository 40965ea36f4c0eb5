#!/usr/bin/env python3
"""Is a certificate a proof that ranks neither diverge nor deadlock?

PATH: text traces or their folder; for a program, the folder of its product.json. Exit status 0: it
is; 1: it is not; 2: something cannot be read. Shares no code with what writes certificates; every
require() is a step of the proof in docs/certificates.md. Linear in the traces and the certificate;
for a program, times its situations.
"""
import argparse, glob, gzip, hashlib, itertools, json, math, os, sys
from collections import Counter, defaultdict

class Refused(Exception): pass

def require(holds, why):
    if not holds: raise Refused(why)

def dump(value): return json.dumps(value, sort_keys=True, separators=(",", ":"))

def parse(text):
    def once(pairs):  # null is as good as absent; two values of one key would be two statements
        if len(dict(pairs)) < len(pairs): raise ValueError("a key appears twice")
        return {key: value for key, value in pairs if value is not None}
    def number(digits):  # 8.0 is 8
        return int(float(digits)) if float(digits).is_integer() else float(digits)
    return json.loads(text, object_pairs_hook=once, parse_float=number, parse_constant=int)

# --- Traces. A value of a wrong type raises an exception somewhere; main() makes that status 2.

MESSAGES, ONE_SIZE = ("send", "recv"), ("all_reduce", "reduce", "broadcast", "send")
TWO_SIZES = ("all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor",
             "all_to_all_single")
SIZED = (*ONE_SIZE, *TWO_SIZES, "recv", "all_gather", "gather", "scatter", "all_to_all")
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scan", "exscan")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
UNRECORDED = ("operations", "sizes", "types", "reduce-operations", "roots", "names")  # None: key

def call(line):
    """The key of a call: what its members must agree on. And how this rank splits its tensors."""
    op, given = line["op"], [[min(math.prod(shape), 2**63 - 1) for shape in line.get(side, [])]
                             for side in ("in", "out")]
    i, o = (min(sum(side), 2**63 - 1) if side else None for side in given)
    splits = given if op == "all_to_all" else [[], []]
    if op == "all_to_all_single": splits = [line.get("splits_in", []), line.get("splits_out", [])]
    sizes = {"gather": [i], "scatter": [o], "recv": [i if o is None else o],
             "all_gather": ["in", i] if o is None else [o]}.get(op, [])
    if op in ONE_SIZE: sizes = [o if i is None else i]
    if op in TWO_SIZES and splits == [[], []]: sizes = [i, o]
    types, what = ([line[key]] if isinstance(line.get(key), str) else line.get(key)
                   for key in ("dtype", "what"))
    if types and len(set(types)) == 1: types = types[:1]
    return [op if op not in MESSAGES else "message",
            None if op in SIZED and i is None and o is None else sizes,
            [] if op == "barrier" else types or None,
            "" if op not in REDUCTIONS else line.get("redop") or None,
            line["root"] if line.get("root", -1) >= 0 else None if op in ROOTED else -1,
            [] if op in MESSAGES else what or ([] if op == "barrier" else None)], splits

def members(ranks):
    """In version 2 an item may be a range: [first, last] or [first, last, step], both ends in it."""
    return [r for item in ranks for r in (
        range(item[0], item[1] + 1, *item[2:]) if isinstance(item, list) else [item])]

class Trace:
    """A rank's groups, calls and waits. A proof needs all of them: nothing may be lost."""
    def __init__(self, path):
        self.groups, self.events, ids, last, end = {}, [], set(), -1, None
        with (gzip.open if path.endswith(".gz") else open)(
                path, "rt", encoding="utf-8-sig", newline="\n") as file:
            lines = (parse(line) for line in file if line.strip())
            header = next(lines)
            self.rank, self.world = header["rank"], header["world_size"]
            self.nccl = "nccl" in header.get("backend", "")
            require(header["header"] in (1, 2), f"{path}: of a version that this does not read")
            require(not header.get("dropped"), f"{path}: lost records")
            require(header.get("semantics", "c10d") == "c10d", f"{path}: MPI says not what blocks")
            for line in lines:
                kind = next((k for k in line if k in ("header", "group", "ev", "end")), None)
                if kind and end or kind == "header": raise ValueError("a line too many")
                event = line["ev"] if kind == "ev" else ""
                require(event != "exception", f"{path}: the rank raised an exception")
                if kind == "end": end = line["end"]
                if kind == "group":
                    line["ranks"] = members(line["ranks"])
                    if self.groups.setdefault(line["group"], line["ranks"]) != line["ranks"]:
                        raise ValueError("a group is declared twice")
                if event == "issue":
                    if line["id"] <= last: raise ValueError("ids do not grow")
                    line["key"], line["splits"] = call(line)
                    last = line["id"]
                    ids.add(last)
                if event in ("issue", "wait"):
                    if line["id"] not in ids: raise ValueError("a wait for no call")
                    self.events.append(line)
        require(end == "clean", f"{path}: does not end well, so more may follow")

class Recording:
    """The traces of all ranks. `classes`: where some stand for others, for whom, by rank."""
    def __init__(self, paths, world, classes=None):
        traces = [Trace(file) for path in paths for file in (sorted(
            glob.glob(glob.escape(path) + "/*.trace.jsonl*")) if os.path.isdir(path) else [path])]
        if not traces: raise ValueError("no text traces; lockstep check-certificate converts others")
        self.classes = classes or {t.rank: [t.rank] for t in traces}
        self.world, self.traces = world or max(t.world for t in traces), {t.rank: t for t in traces}
        require(len(self.traces) == len(traces) and {t.world for t in traces} == {self.world} and
                sorted(r for c in self.classes.values() for r in c) == list(range(self.world)) and
                set(self.classes) <= set(self.traces), "not each rank has one trace")
        self.groups = {name: ranks for t in traces for name, ranks in t.groups.items()}
        self.channels = {}
        self.unrecorded = Counter(what for t in traces for e in t.events if e["ev"] == "issue"
                                  for what, part in zip(UNRECORDED, e["key"]) if part is None)

    def channel(self, rank, op, group, peer, tag):
        """Calls match by channel: a group, or the messages from one rank to another."""
        known = self.channels.get((rank, op, group, peer, tag))
        return known or self.channels.setdefault(
            (rank, op, group, peer, tag), self.new_channel(rank, op, group, peer, tag))

    def new_channel(self, rank, op, group, peer, tag):
        require(op not in ("recv_any", "probe"), f"rank {rank} receives from any source")
        everyone, message = list(range(self.world)), op in MESSAGES
        members = self.traces[rank].groups.get(group) or self.groups.get(
            group, everyone if group in ("world", "") else [])
        # Groups that share only their name are distinguished by their members.
        shown = f" [{', '.join(map(str, members[:4]))}{', …' * (len(members) > 4)}]"
        name = "group " + group.removesuffix(shown) + shown
        if message:
            members = [rank, peer] if op == "send" else [peer, rank]
            name = f"message {members[0]}>{members[1]} tag {tag} in {name[6:]}"
        require(MEMBERS.setdefault(name, members) == members and len(set(members)) == len(members)
                and set(self.classes[rank]) <= set(members) <= set(everyone)
                and not (message and len(self.classes[rank]) > 1),
                f"rank {rank}: the members of {name} are not known")
        return name

MEMBERS, SEQUENCES = {}, {}  # of channels, by name; by digest

class Sequence:
    """What a rank does in some events: calls and waits as [how, channel, index there, …]."""
    def __init__(self, recording, rank, events, all_block=False):
        self.items, at, keys, self.splits, batch = [], {}, defaultdict(list), {}, None
        for line in events:
            if line["ev"] == "wait":  # one for a call of an earlier step orders nothing in this one
                if line["id"] not in at: continue
                self.items.append(["wait", *self.items[at[line["id"]]][1:3]])
                batch = None
                continue
            if batch is not None and batch == line.get("coalesced"):
                if self.items[-1][0] == "block": self.items[-1][0] = "batch"  # it posts together
            channel = recording.channel(rank, line["op"], line["g"], line.get("peer", -1),
                                        line.get("ptag", "-"))
            how = "issue" if line.get("async") and not all_block else "block"
            batch, at[line["id"]] = line.get("coalesced"), len(self.items)
            self.items.append([how, channel, len(keys[channel]), line["key"], line["splits"]])
            keys[channel].append(line["key"])
            splits = self.splits.setdefault(channel, [])
            if line["op"].startswith("all_to_all"): splits.append(line["splits"])
        self.digest = hashlib.sha256(dump(self.items).encode()).hexdigest()
        self.calls = {c: (len(k), dump(k)) for c, k in keys.items() if len(MEMBERS[c]) > 1}

def prove(where, options, order, device):
    """options: the sequences of each rank; it may do any of them, whatever the others do."""
    agreed, splits, due, turn, position = {}, {}, Counter(), Counter(), {}
    for rank, sequences in enumerate(options):
        for s in sequences:
            for c, calls in s.calls.items():
                require(agreed.setdefault(c, calls) == calls and
                        splits.setdefault((c, rank), s.splits[c]) == s.splits[c],
                        f"{where}: rank {rank} may make other calls in {c}")
    for c in agreed: due.update(MEMBERS[c])
    require(all(len(s.calls) == due[rank] for rank, ss in enumerate(options) for s in ss),
            f"{where}: a member may make no calls on a channel")
    for c in agreed:  # what one rank sends to another is what that one receives from it
        for row in zip(*(splits[c, rank] for rank in MEMBERS[c])):
            require(all(cut == [[], []] for cut in row) or
                    {len(side) for cut in row for side in cut} == {len(row)} and
                    [list(sent) for sent in zip(*(cut[0] for cut in row))] == [c[1] for c in row],
                    f"{where}: the splits of an exchange in {c} do not fit")
    for c, length in order:  # the next calls on the channel take place
        require(c in agreed and type(length) is int and 0 < length <= agreed[c][0] - turn[c],
                f"{where}: the order has calls that nobody makes")
        position.update({(c, turn[c] + n): len(position) + 1 + n for n in range(length)})
        turn[c] += length
    require(all(turn[c] == n for c, (n, _) in agreed.items()), f"{where}: the order lacks calls")
    for s in set().union(*options):  # nobody waits for a call before it makes an earlier one
        waited = batch = 0
        for how, c, index, *_ in s.items:
            if c in s.calls:
                at = position[c, index]
                require(how == "wait" or at > waited, f"{where}: call {index} of {c} is held up")
                if how != "issue" or device and c.startswith("group"): batch = max(batch, at)
            if how != "batch": waited = max(waited, batch)

def sequence(*what):
    new = Sequence(*what)
    return SEQUENCES.setdefault(new.digest, new)

# --- Programs: situations, and what each rank may do in them (docs/product.md).

def cut(trace, recording, steps):
    """A rank's trace in parts: 0 the start, 1 step 0, 2 step 1 if calls of step 0 are among its
    own, 3 the end, and by condition what every later step under it is; where the program looks
    back, by the conditions of the step before and its own. steps: these, from step 1 on."""
    slots, slot, late = [[] for _ in range(len(steps) + 3)], 0, False
    for line in trace.events:
        if line["ev"] == "issue":
            step = line.get("step", -1)
            to = step + 1 if step != -1 else 0 if slot == 0 else len(steps) + 2
            late = late or to == 1 and slot == 2
            require(0 <= to < len(slots) and (to >= slot or to == 1 and slot == 2) and
                    (step < 0 or to <= len(steps) + 1), f"rank {trace.rank}: steps are in no order")
            slot = slot if to == 1 and slot == 2 else to
        slots[slot].append(line)
    parts, rest = {}, None
    for n, (part, events) in enumerate(zip([0, 1, *steps, 3], slots)):
        s = sequence(recording, trace.rank, events)
        if n == 2 and late:
            events = [line for line in events if line.get("step") != 0]
            parts[2], rest = s, sequence(recording, trace.rank, events)
        else: require(parts.setdefault(part, s) is s, f"rank {trace.rank}: step {n - 1} is new")
    require(not late or parts.get(steps[0], rest) is rest, f"rank {trace.rank}: step 1 is new")
    return parts

def situations(spec, world, parts, stands):
    """All kinds of steps, and what each rank may do there. parts: by first condition and rank."""
    conditions, rules = [c["name"] for c in spec["conditions"]], [
        [a.get("ranks") and set(a["ranks"]), a.get("steps") and set(a["steps"]), a["conditions"]]
        for a in spec.get("allowed", [])]
    teams = {rank: team for team in spec.get("together", []) for rank in team}
    meets = defaultdict(list)  # what ranks may be in at the same step
    for c in spec["conditions"]:
        meets[c["name"] if spec.get("choice") == "agreed" else c.get("phase", "")].append(c["name"])
    meets = list(meets.values())
    def may(rank, step, meet):
        for r in teams.get(rank, [rank]):  # the first rule that fits counts
            allowed = next((c for ranks, steps, c in rules if (not ranks or r in ranks)
                            and (not steps or step in steps)), conditions)
            meet = [c for c in meet if c in allowed]
        return meet
    def fixed(part):  # before step 0 no condition is met, and the end is taken not to depend on one
        out = [{history[stands[rank]][part] for history in parts.values()} for rank in range(world)]
        require(all(len(s) == 1 for s in out), "the start or the end depends on the first step")
        return out
    back, seen = looks_back(spec), spec["steps"]
    seen = Counter(zip(seen, seen[1:]) if back else seen)
    def later(mine, step, condition, before):
        part = (before, condition) if back else condition
        require(seen[part] > 1, f"{part} was not recorded twice")  # so nothing shows that it decides
        require(step != 1 or 2 not in mine or condition == spec["steps"][0],
                f"where calls of step 0 come in step 1 under {condition} was not recorded")
        return mine[2] if step == 1 and 2 in mine else mine[part]
    def at(step, meet, past, before):  # by rank, whatever it may be in now and was in before
        now = [may(rank, step, meet) for rank in range(world)]
        first = [may(rank, 0, past) for rank in range(world)]
        was = [may(rank, step - 1, before) if back and step > 1 else [None] for rank in range(world)]
        require(not all(first) or set().union(*first) <= set(parts), "a history is missing")
        return all(now) and all(first) and all(was) and [
            {parts[c][stands[r]][1] for c in now[r]} if step == 0 else
            {later(parts[f][stands[r]], step, c, b or f)
             for f in first[r] for c in now[r] for b in was[r]} for r in range(world)]
    yield "start", fixed(0)
    pasts = [(m, meet) for m, meet in enumerate(meets) if at(0, meet, meet, meet)]
    require(pasts, "step 0 is possible under no conditions")
    for m, meet in pasts: yield f"step 0 meet {m}", at(0, meet, meet, meet)
    named = {step for _, steps, _ in rules for step in steps or []} - {0}
    if back: named |= {1} | {step + 1 for step in named}
    if any(2 in mine for history in parts.values() for mine in history.values()): named.add(1)
    other = next(n for n in itertools.count(1) if n not in named)  # stands for all others
    for step in sorted(named | {other}):
        if step >= spec.get("only_steps", math.inf): break
        found = [(f"step {step}{' and-others' * (step == other)} meet {m} after {p}{b}", options)
                 for m, meet in enumerate(meets) for p, past in pasts
                 for b, before in ([(f" and {n}", was) for n, was in enumerate(meets)]
                                   if back and step > 1 else [("", past)])
                 for options in [at(step, meet, past, before)] if options]
        require(found, f"step {step} is possible under no conditions")
        yield from found
    yield "end", fixed(3)

def looks_back(spec):
    """Whether what a step calls depends on the condition of the step before, too."""
    require(spec.get("memory", "none") in ("none", "step-before"), "a memory of a kind not known")
    return spec.get("memory") == "step-before"

def program(folder):
    """A program: a recording for each condition that the first step may be under."""
    with open(folder + "/product.json", encoding="utf-8") as file: spec = parse(file.read())
    world = spec["world_size"]
    classes = {c["rank"]: [r for a, b in c["ranks"] for r in range(a, min(b, world) + 1)]
               for c in spec.get("classes", [])} or {r: [r] for r in range(world)}
    stands, parts, digests = {r: c for c, rs in classes.items() for r in rs}, {}, {}
    recordings = [Recording([f"{folder}/{h['folder']}"], world, classes) for h in spec["histories"]]
    labels = {0: "start", 1: "step 0", 2: "step 1", 3: "end"}
    for n, (history, recording) in enumerate(zip(spec["histories"], recordings)):
        steps = spec["steps"]
        if looks_back(spec): steps = list(zip([history["first"], *steps], steps))
        parts[history["first"]] = {rank: cut(recording.traces[rank], recording, steps)
                                   for rank in sorted(classes)}
        for rank, mine in parts[history["first"]].items():
            for part, s in mine.items():
                name = labels.get(part) or "under " + (
                    " after ".join(reversed(part)) if looks_back(spec) else part)
                where = f"history {n} {name}"
                digests.setdefault(where, defaultdict(list))[s.digest].append(rank)
    require(len(parts) == len(recordings) and len({c["name"] for c in spec["conditions"]}) ==
            len(spec["conditions"]), "two histories or conditions have one name")
    return recordings, {"kind": "program", "product": spec, "sequences": digests}, situations(
        spec, world, parts, stands)

def run(paths):
    """A recorded run is one situation in which each rank has one choice: its whole trace."""
    recording, options, digests, blind = Recording(paths, None), [], defaultdict(list), []
    for rank, trace in sorted(recording.traces.items()):
        waits = any(line["ev"] == "wait" for line in trace.events)
        if any(line.get("async") for line in trace.events) and not waits: blind.append(rank)
        options.append({sequence(recording, rank, trace.events, rank in blind)})
        digests[next(iter(options[-1])).digest].append(rank)
    if blind: recording.unrecorded["waits"] = blind  # each call blocks: the worst that can be
    return [recording], {"kind": "run", "sequences": {"run": digests}}, [("run", options)]

def check(certificate, paths, assume):
    MEMBERS.clear(), SEQUENCES.clear()
    with open(certificate, encoding="utf-8") as file: said = parse(file.read())
    require(set(said) == {"lockstep_certificate", "claims", "orders"} and
            dump(said["lockstep_certificate"]) == "2", "it is not a certificate of this version")
    of_program = len(paths) == 1 and os.path.exists(paths[0] + "/product.json")
    recordings, claims, cases = program(paths[0]) if of_program else run(paths)
    nccl = any(t.nccl for r in recordings for t in r.traces.values())
    device = nccl or said["claims"].get("order") == "device"  # what holds on devices holds on hosts
    claims |= {"ranks": recordings[0].world, "order": "device" if device else "host",
               "assume": assume, "unrecorded": sum((r.unrecorded for r in recordings), Counter())
               if of_program else recordings[0].unrecorded}
    for key in sorted(set(claims) | set(said["claims"])):
        is_said, holds = dump(said["claims"].get(key)), dump(claims.get(key))
        require(is_said == holds, f"it says {key} {is_said[:200]}; what it is about, {holds[:200]}")
    orders = dict(said["orders"])
    for where, options in cases: prove(where, options, orders.pop(where, []), device)
    require(not orders, "it has orders of what cannot happen")

def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("certificate", metavar="CERTIFICATE")
    parser.add_argument("paths", metavar="PATH", nargs="+")
    parser.add_argument("--assume", metavar="TEXT", action="append", default=[],
                        help="what the source of converted traces never records")
    options = parser.parse_args(arguments)
    try: check(options.certificate, options.paths, options.assume)
    except Refused as why: return print("refused:", ascii(str(why)), file=sys.stderr) or 1
    except Exception as error:  # whatever is wrong with the files
        return print("unreadable:", ascii(repr(error)), file=sys.stderr) or 2
    return print("accepted: neither divergence nor deadlock is possible") or 0

if __name__ == "__main__": sys.exit(main(sys.argv[1:]))
