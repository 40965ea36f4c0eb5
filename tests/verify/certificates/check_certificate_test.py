#!/usr/bin/env python3
"""Every change of a certificate is refused, or leaves a proof; hostile files end in a sentence.

Programs are written here twice: as traces, and as the plain lists from which `is_proof` decides by
the definition whether an order is one. Needs LOCKSTEP_PROGRAM.
"""
import contextlib, copy, gzip, importlib.util, io, itertools, json, os, pathlib
import subprocess, sys, tempfile, time, unittest

sys.dont_write_bytecode = True
CHECKER = pathlib.Path(__file__).parents[3] / "verify/certificates/check_certificate.py"
spec = importlib.util.spec_from_file_location("check_certificate", CHECKER)
checker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(checker)
LOCKSTEP = os.environ["LOCKSTEP_PROGRAM"]


def status(*arguments):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            return checker.main([str(a) for a in arguments]), said.getvalue()
        except SystemExit as exit:  # of argparse
            return exit.code, said.getvalue()


def trace_lines(rank, world, groups, calls, backend="gloo"):
    """calls: dicts of an `issue` line without id, {"wait": n}, or a line of its own."""
    lines = [{"header": 1, "rank": rank, "world_size": world, "backend": backend}]
    lines += [{"group": name, "ranks": ranks} for name, ranks in groups.items() if rank in ranks]
    number = 0
    for call in calls:
        if "wait" in call:
            lines.append({"ev": "wait", "id": call["wait"]})
            continue
        lines.append({"ev": "issue", "id": number, "dtype": "float32", **call})
        if not call.get("async"):
            lines.append({"ev": "complete", "id": number})
        number += 1
    return lines + [{"end": "clean"}]


def reduce(group, name, size=8, **more):
    return {"g": group, "op": "all_reduce", "in": [[size]], "redop": "sum", "what": [name], **more}


def rich_run():
    """Three ranks: two groups, messages, a batch, waits, an uneven exchange."""
    groups = {"world": [0, 1, 2], "pair": [0, 1]}
    cuts = [([1, 2, 3], [1, 4, 7]), ([4, 5, 6], [2, 5, 8]), ([7, 8, 9], [3, 6, 9])]
    ranks = []
    for rank in range(3):
        calls = []
        for step in range(3):
            calls.append(reduce("world", "w"))
            if rank < 2:
                peer = {"peer": 1 - rank, "g": "pair", "coalesced": step}
                calls += [{"op": "send", "in": [[4]], **peer}, {"op": "recv", "out": [[4]], **peer}]
                calls.append(reduce("pair", "v", **{"async": True}))
            at = len([c for c in calls if "op" in c]) - 1
            calls.append({"g": "world", "op": "all_to_all_single", "what": ["e"],
                          "in": [[sum(cuts[rank][0])]], "out": [[sum(cuts[rank][1])]],
                          "splits_in": cuts[rank][0], "splits_out": cuts[rank][1]})
            if rank < 2:
                calls.append({"wait": at})
            calls.append({"g": "world", "op": "broadcast", "in": [[5]], "root": 1, "what": ["b"]})
        ranks.append(trace_lines(rank, 3, groups, calls))
    return groups, ranks


def write_run(folder, ranks):
    folder.mkdir(parents=True, exist_ok=True)
    for rank, lines in enumerate(ranks):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"rank_{rank}.trace.jsonl").write_text(text)


def write_program(folder):
    """Two conditions with a rule, messages, a start, an end; rank 2 may never meet the second."""
    conditions = ["image", "text"]
    spec = {"product": 1, "program": "small", "world_size": 3, "assumptions": ["one library"],
            "conditions": [{"name": c, "has": [c]} for c in conditions], "choice": "free",
            "allowed": [{"ranks": [2], "conditions": ["image"]},
                        {"ranks": [0, 1], "steps": [2], "conditions": ["text"]}],
            "histories": [{"first": c, "folder": f"first-{i}"} for i, c in enumerate(conditions)],
            "steps": conditions * 2}
    groups = {"world": [0, 1, 2], "pair": [0, 1]}
    for history in spec["histories"]:
        ranks = []
        for rank in range(3):
            calls = [reduce("world", "init")]
            for step in range(5):
                calls.append(reduce("world", "w", step=step))
                if rank < 2:
                    calls.append(reduce("pair", "v", step=step, **{"async": True}))
                    at = len([c for c in calls if "op" in c]) - 1
                    message = {"op": "send", "in": [[2]]} if rank == 0 else {"op": "recv", "out": [[2]]}
                    calls += [{"g": "pair", "peer": 1 - rank, "step": step, **message}, {"wait": at}]
                calls.append(reduce("world", "u", 16, step=step))
            ranks.append(trace_lines(rank, 3, groups, calls + [reduce("world", "bye")]))
        write_run(folder / history["folder"], ranks)
    (folder / "product.json").write_text(json.dumps(spec))


def certificate_of(folder, file):
    done = subprocess.run([LOCKSTEP, "verify", folder, "--certificate", file], capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(file.read_text())


def changes(value, path=()):
    """Every change of a JSON value at one place: (where, changed value)."""
    def at(path, change):
        out = copy.deepcopy(value)
        if not path:
            return change(out)
        inner = out
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = change(inner[path[-1]])
        return out
    def places(inner, path):
        yield path, inner
        items = inner.items() if isinstance(inner, dict) else enumerate(inner) if isinstance(inner, list) else []
        for key, item in items:
            yield from places(item, path + (key,))
    def without(key):
        return lambda o: ({k: v for k, v in o.items() if k != key} if isinstance(o, dict) else o[:key] + o[key + 1:])
    for path, inner in places(value, ()):
        others = [None, True, [], {}, "", 0, -1, 1.5, 10**30]
        if isinstance(inner, int): others += [inner + 1, inner - 1, str(inner), inner * 2]
        if isinstance(inner, str): others += [inner + "x", inner[:-1], inner.upper(), inner[::-1]]
        for other in others:
            if json.dumps(other) != json.dumps(inner):
                yield f"{path} = {other}", at(path, lambda o, other=other: other)
        if isinstance(inner, (dict, list)):
            for key in inner if isinstance(inner, dict) else range(len(inner)):
                yield f"{path} without {key}", at(path, without(key))
        if isinstance(inner, dict):
            yield f"{path} more", at(path, lambda o: {**o, "more": 1})
            for a, b in itertools.combinations(inner, 2):
                if inner[a] != inner[b]:
                    yield f"{path} {a}<->{b}", at(path, lambda o, a=a, b=b: {**o, a: o[b], b: o[a]})
        if isinstance(inner, list):
            for i in range(len(inner)):
                yield f"{path} {i} twice", at(path, lambda o, i=i: o[:i] + [o[i]] + o[i:])
            for i, j in itertools.combinations(range(len(inner)), 2):
                if inner[i] != inner[j]:
                    def swap(o, i=i, j=j):
                        o[i], o[j] = o[j], o[i]
                        return o
                    yield f"{path} {i}<->{j}", at(path, swap)


def waits_of(lines, groups):
    """By definition: for each call, the calls that the rank has waited for before it makes it."""
    out, passed, ids, counts, pending, batch = [], set(), {}, {}, [], None
    rank = lines[0]["rank"]
    for line in lines:
        if line.get("ev") == "wait":
            passed |= set(pending) | {ids[line["id"]]}
            pending, batch = [], None
        if line.get("ev") != "issue":
            continue
        if pending and line.get("coalesced") != batch:
            passed |= set(pending)
            pending = []
        batch = line.get("coalesced")
        shown = f"{line['g']} [{', '.join(map(str, groups[line['g']]))}]"
        channel = "group " + shown
        if line["op"] in ("send", "recv"):
            a, b = (rank, line["peer"]) if line["op"] == "send" else (line["peer"], rank)
            channel = f"message {a}>{b} tag - in {shown}"
        call = channel, counts.get(channel, 0)
        counts[channel] = call[1] + 1
        ids[line["id"]] = call
        out.append((call, frozenset(passed)))
        if not line.get("async"):
            if batch is None: passed.add(call)
            else: pending.append(call)
    return out


def is_proof(order, ranks, groups):
    """Each call stands once, and none before one that some rank has waited for before it."""
    try:
        turn, position = {}, {}
        for channel, length in order:
            if type(length) is not int or not 0 < length < 100: return False
            for _ in range(length):
                position[channel, turn.setdefault(channel, 0)] = len(position)
                turn[channel] += 1
    except (TypeError, ValueError):
        return False
    made = [pair for lines in ranks for pair in waits_of(lines, groups)]
    return {call for call, _ in made} == set(position) and all(
        position[before] < position[call] for call, passed in made for before in passed)


class Mutations(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.file = self.folder / "certificate"

    def tearDown(self):
        self.temporary.cleanup()

    def refused(self, changed, path, what):
        self.file.write_text(json.dumps(changed))
        code, said = status(self.file, path)
        self.assertIn(code, (1, 2), what)
        self.assertNotIn("Traceback", said)

    def test_every_change_of_a_run_s_certificate(self):
        groups, ranks = rich_run()
        write_run(self.folder / "run", ranks)
        good = certificate_of(self.folder / "run", self.file)
        self.assertEqual(status(self.file, self.folder / "run")[0], 0)
        self.assertTrue(is_proof(good["orders"]["run"], ranks, groups))
        equivalent = tried = 0
        for what, changed in changes(good):
            tried += 1
            if isinstance(changed, dict) and changed.get("claims") == good["claims"] and \
                    json.dumps({**changed, "orders": 0}) == json.dumps({**good, "orders": 0}) and \
                    isinstance(changed.get("orders"), dict) and list(changed["orders"]) == ["run"] and \
                    is_proof(changed["orders"]["run"], ranks, groups):
                # Another order that is one, too: the only change that leaves a proof.
                self.file.write_text(json.dumps(changed))
                self.assertEqual(status(self.file, self.folder / "run")[0], 0, what)
                equivalent += 1
            else:
                self.refused(changed, self.folder / "run", what)
        self.assertGreater(tried, 500)
        self.assertGreater(equivalent, 0)
        self.assertLess(equivalent, tried / 10)

    def test_every_change_of_a_program_s_certificate(self):
        write_program(self.folder / "program")
        good = certificate_of(self.folder / "program", self.file)
        self.assertEqual(status(self.file, self.folder / "program")[0], 0)
        text = json.dumps(good)
        groups = {"world": [0, 1, 2], "pair": [0, 1]}
        # What ranks do in each situation: all conditions call the same, so any history shows it.
        lines = [[json.loads(line) for line in
                  (self.folder / f"program/first-0/rank_{r}.trace.jsonl").read_text().splitlines()]
                 for r in range(3)]
        def part(where):
            step = None if where in ("start", "end") else 3
            seen = [[l for l in ls if "header" in l or l.get("ev") in ("issue", "wait")] for ls in lines]
            out = []
            for ls in seen:
                calls = [l for l in ls if l.get("ev") == "issue" and l.get("step") == step]
                if step is None: calls = calls[:1] if where == "start" else calls[-1:]
                ids = {c["id"] for c in calls}
                out.append([l for l in ls if "header" in l or l.get("id") in ids])
            return out
        tried = equivalent = 0
        for what, changed in changes(good):
            tried += 1
            same = isinstance(changed, dict) and isinstance(changed.get("orders"), dict) and \
                json.dumps({**changed, "orders": 0}) == json.dumps({**good, "orders": 0}) and \
                set(changed["orders"]) == set(good["orders"])
            if same and all(is_proof(order, part(where), groups)
                            for where, order in changed["orders"].items()):
                self.file.write_text(json.dumps(changed))
                self.assertEqual(status(self.file, self.folder / "program")[0], 0, what)
                equivalent += 1
            else:
                self.refused(changed, self.folder / "program", what)
        self.assertGreater(tried, 1000)
        self.assertGreater(equivalent, 0)
        self.assertEqual(text, json.dumps(good))

    def test_every_cut_and_every_turned_bit(self):
        ranks = [trace_lines(r, 2, {"world": [0, 1]}, [reduce("world", "w"), reduce("world", "v")])
                 for r in range(2)]
        write_run(self.folder / "run", ranks)
        certificate_of(self.folder / "run", self.file)
        whole = self.file.read_bytes()
        good = json.loads(whole)
        def check(damaged):
            self.file.write_bytes(damaged)
            code, said = status(self.file, self.folder / "run")
            self.assertNotIn("Traceback", said)
            if code == 0:  # blanks decide nothing
                self.assertEqual(json.loads(damaged), good, damaged)
        for at in range(len(whole)):
            check(whole[:at])
            for bit in range(8):
                check(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1:])


class Claims(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.file = self.folder / "certificate"

    def tearDown(self):
        self.temporary.cleanup()

    # No order can be made up for ranks that deadlock, even with every claim made right.
    def test_a_deadlock_has_no_order(self):
        groups = {"world": [0, 1], "a": [0, 1], "b": [0, 1]}
        ranks = [trace_lines(r, 2, groups, [reduce(g, "w") for g in order])
                 for r, order in enumerate(("ab", "ba"))]
        write_run(self.folder / "run", ranks)
        recording = checker.Recording([str(self.folder / "run")], None)
        digests = {checker.sequence(recording, r, recording.traces[r].events).digest: [r]
                   for r in range(2)}
        for order in itertools.permutations(["group a [0, 1]", "group b [0, 1]"]):
            forged = {"lockstep_certificate": 2, "orders": {"run": [[c, 1] for c in order]},
                      "claims": {"kind": "run", "ranks": 2, "order": "host", "assume": [],
                                 "unrecorded": {}, "sequences": {"run": digests}}}
            self.file.write_text(json.dumps(forged))
            code, said = status(self.file, self.folder / "run")
            self.assertEqual(code, 1)
            self.assertIn("is held up", said)

    def test_groups_of_one_name_and_packed_traces(self):
        ranks = []
        for rank in range(4):
            mine = [0, 1] if rank < 2 else [2, 3]
            calls = [reduce("1", "w" if rank < 2 else "v"), reduce("world", "u")]
            ranks.append(trace_lines(rank, 4, {"world": [0, 1, 2, 3], "1": mine}, calls))
        write_run(self.folder / "run", ranks)
        good = certificate_of(self.folder / "run", self.file)
        self.assertIn("group 1 [2, 3]", json.dumps(good))
        self.assertEqual(status(self.file, self.folder / "run")[0], 0)
        for file in (self.folder / "run").iterdir():
            (file.parent / (file.name + ".gz")).write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
        self.assertEqual(status(self.file, self.folder / "run")[0], 0)
        subprocess.run([LOCKSTEP, "convert", self.folder / "run", "-o", self.folder / "text"],
                       check=True, capture_output=True)
        self.assertEqual(status(self.file, self.folder / "text")[0], 0)

    def test_traces_that_lack_something(self):
        ranks = [trace_lines(r, 2, {"world": [0, 1]}, [reduce("world", "w")]) for r in range(2)]
        write_run(self.folder / "run", ranks)
        certificate_of(self.folder / "run", self.file)
        def answer(change):
            changed = copy.deepcopy(ranks)
            change(changed)
            for file in (self.folder / "run").iterdir():
                file.unlink()
            write_run(self.folder / "run", changed)
            return status(self.file, self.folder / "run")[0]
        self.assertEqual(answer(lambda r: None), 0)
        self.assertEqual(answer(lambda r: r[1].pop()), 1)
        self.assertEqual(answer(lambda r: r[1].pop(2)), 1)  # rank 1 makes no call
        self.assertEqual(answer(lambda r: r.pop()), 1)
        self.assertEqual(answer(lambda r: r[0][0].update(dropped=3)), 1)
        self.assertEqual(answer(lambda r: r[0][0].update(semantics="mpi")), 1)
        self.assertEqual(answer(lambda r: r[0][0].update(world_size=3)), 1)
        self.assertEqual(answer(lambda r: r[0].insert(3, {"ev": "exception", "what": "x"})), 1)
        self.assertEqual(answer(lambda r: r[0].append({"ev": "step", "n": 1})), 2)

    def test_every_healthy_fixture(self):
        source = pathlib.Path(__file__).parents[3]
        folders = sorted({p.parent for root in (source / "scenarios", source / "tests", source / "docs")
                          for p in root.rglob("*.trace.jsonl")})
        certified = 0
        for folder in folders:
            self.file.unlink(missing_ok=True)
            subprocess.run([LOCKSTEP, "verify", folder, "--certificate", self.file], capture_output=True)
            if self.file.exists():
                self.assertEqual(status(self.file, folder), (0, status(self.file, folder)[1]), folder)
                certified += 1
        self.assertGreater(certified, 0)


class Hostile(unittest.TestCase):
    def test_what_is_no_certificate(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write_run(folder / "run", [trace_lines(0, 1, {"world": [0]}, [])])
            certificate = certificate_of(folder / "run", folder / "good")
            self.assertEqual(status(folder / "good", folder / "run")[0], 0)
            for text in (b"", b"{", b"[" * 100000, b"\xff\xfe", b"NaN", b'{"a":1,"a":1}', b"1" * 5000,
                         b'{"lockstep_certificate": NaN}', b"\x00", b"{}" * 2):
                (folder / "bad").write_bytes(text)
                code, said = status(folder / "bad", folder / "run")
                self.assertEqual(code, 2, text[:20])
                self.assertEqual(len(said.splitlines()), 1)
                (folder / "run" / "rank_0.trace.jsonl").rename(folder / "kept")
                (folder / "run" / "rank_0.trace.jsonl").write_bytes(text)
                self.assertEqual(status(folder / "good", folder / "run")[0], 2, text[:20])
                (folder / "kept").rename(folder / "run" / "rank_0.trace.jsonl")
            for value in (1, [], {}, "\ud800", {"lockstep_certificate": 1}, {**certificate, "more": 1}):
                (folder / "bad").write_text(json.dumps(value))
                self.assertIn(status(folder / "bad", folder / "run")[0], (1, 2))
            self.assertEqual(status(folder / "none", folder / "run")[0], 2)
            self.assertEqual(status(folder / "good", folder / "none")[0], 2)
            self.assertEqual(status(folder / "good")[0], 2)

    def test_a_long_run_takes_seconds(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            calls = [reduce("world", f"w{i % 50}") for i in range(12500)]
            write_run(folder / "run", [trace_lines(r, 4, {"world": [0, 1, 2, 3]}, calls) for r in range(4)])
            certificate_of(folder / "run", folder / "good")  # 50,000 calls, 100,000 events
            begin = time.process_time()
            self.assertEqual(status(folder / "good", folder / "run")[0], 0)
            self.assertLess(time.process_time() - begin, 30)  # 3 s on an idle core


if __name__ == "__main__":
    unittest.main()
