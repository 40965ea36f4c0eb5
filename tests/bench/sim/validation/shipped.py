"""The shipped scenarios, each simulated once: how it ends, and what its ranks call.

The verdict is held against the scenario's `expect:`, which tests hold against real processes
(`ctest -L runtime -R scenario_`). The calls are held against those that were derived, event for
event, and these are held against what real processes recorded by `ctest -L runtime -R derived`
(docs/derived.md).
"""
import json
import pathlib
import re
import subprocess
import tempfile

from validation.calculators import Refused

# What only a clock says: when something happened, and what a program does not do itself.
TIMES = ("t",)
OF_THE_CLOCK = ("complete", "waited", "span", "start", "use", "write")
# Faults of the machine: the program of calls is a healthy one.
OF_THE_MACHINE = ("stalled-network",)


class Simulated:
    """What `lockstep simulate` says of one scenario, with the traces that it wrote. A replay has
    recorded calls where another one has derived calls, and `simulate trace` runs them."""

    def __init__(self, lockstep, file, scenario, machine):
        self.refusal = None
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            derived = folder / "derived"
            program = [file, "--output-dir", derived]
            if "replay" in scenario:
                derived = pathlib.Path(file).parent / scenario["replay"]
                program = ["trace", derived]
            try:
                status, self.answer = lockstep.ask(
                    "simulate", *program, "--machine", machine, "--traces", folder / "simulated")
            except Refused as refused:
                self.refusal = refusal_of(str(refused))
                return
            # A forecast has a step time, also where calls pair wrongly.
            self.goes_on = status == 0 or "step_time_ps" in self.answer
            subprocess.run([lockstep.program, "convert", derived, "-o", folder / "text"],
                           check=True, capture_output=True)
            self.derived = events_of(folder / "text")
            self.simulated = events_of(folder / "simulated")
            self.unfinished = unfinished(folder / "simulated")

    def finding(self):
        """The leading finding, None where there is none."""
        return (self.answer.get("report") or {"findings": [None]})["findings"][0]


def refusal_of(message):
    reason = re.search(r"error: (.*)", message)
    return (reason.group(1) if reason else message).split("\n")[0]


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def events_of(folder):
    """By rank: what the program did in its order, without what only a clock says."""
    out = []
    for file in sorted(folder.glob("rank_*.trace.jsonl"), key=rank_of):
        lines = [line for line in lines_of(file) if line.get("ev", "end") not in OF_THE_CLOCK]
        out.append([{k: v for k, v in line.items() if k not in TIMES}
                    for line in lines if "ev" in line or "group" in line])
    return out


def rank_of(file):
    return int(re.search(r"rank_(\d+)", file.name).group(1))


def unfinished(folder):
    """Calls of all ranks that were issued and did not end."""
    count = 0
    for file in folder.glob("rank_*.trace.jsonl"):
        kinds = [line.get("ev") for line in lines_of(file)]
        count += kinds.count("issue") - kinds.count("complete")
    return count


def calls(events):
    return sum(event.get("ev") == "issue" for rank in events for event in rank)


class Verdicts:
    """(d): hangs or goes on, rule, ranks and step."""

    def __init__(self, families):
        self.families = families  # by rule
        self.rows, self.missed, self.counts = [], [], {}

    def real(self, expect):
        """(whether the real job goes on, in words)."""
        if expect.get("ends") == "completed":
            values = sorted({self.families[rule] for rule in expect.get("rules", [])})
            return True, "goes on" + (f" ({', '.join(values)} wrong)" if values else "")
        words = " or ".join(expect.get("rules", ["any rule"]))
        if "culprits" in expect:
            words += f", ranks {','.join(map(str, expect['culprits']))}"
        if "step" in expect:
            words += f", step {expect['step']}"
        return False, f"{expect.get('ends', 'stopped or failed')}: {words}"

    def add(self, name, scenario, simulated):
        expect = scenario["expect"]
        goes_on, real = self.real(expect)
        if simulated.refusal is not None:
            kind, ours = "refused", f"refused: {simulated.refusal}"
        else:
            first = simulated.finding()
            ours = "goes on" if simulated.goes_on else (
                "fails" if simulated.answer.get("raised") else "hangs")
            alike = simulated.goes_on == goes_on
            if first is not None:
                ours += (f": {first['rule']}, ranks {','.join(map(str, first['culprits'])) or 'none'}, "
                         f"step {first.get('step', '–')}")
                alike = (alike and expect["verdict"] == "findings"
                         and first["rule"] in expect.get("rules", [first["rule"]])
                         and first["culprits"] == expect.get("culprits", first["culprits"])
                         and first.get("step") == expect.get("step", first.get("step")))
            kind = "equal" if alike else "different"
            if alike and first is None and expect["verdict"] == "findings":
                kind = "equal, not seen"
        if kind == "different" and simulated.goes_on and scenario.get("fault") in OF_THE_MACHINE:
            kind = "the machine's"
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if kind == "different":
            self.missed.append(f"{name}: really {real}, simulated {ours}")
        self.rows.append(f"| {name} | {real} | {ours} | {kind} |")


class Sequences:
    """(e): the simulated calls are the derived ones, event for event."""

    def __init__(self, recorded):
        self.recorded = recorded  # calls by scenario, of docs/derived.md
        self.rows, self.missed, self.events, self.same = [], [], 0, 0

    def add(self, name, simulated):
        if simulated.refusal is not None:
            return
        parts = None
        for rank, (a, b) in enumerate(zip(simulated.derived, simulated.simulated, strict=True)):
            equal = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            whole = equal == len(a) == len(b)
            beginning = not simulated.goes_on and equal == len(b)
            if parts is None and not whole and not beginning:
                parts = f"rank {rank} diverges at event {equal + 1}"
            self.events += equal
        ended = simulated.unfinished == 0
        if simulated.goes_on and not ended and parts is None:
            parts = f"{simulated.unfinished} calls do not end"
        derived, ours = calls(simulated.derived), calls(simulated.simulated)
        if parts is None and derived != self.recorded.get(name, derived):
            parts = f"{derived} calls are derived, and another number for docs/derived.md"
        if parts:
            self.missed.append(f"{name}: {parts}")
        else:
            self.same += 1
        words = parts or ("equal, all end" if ended and derived == ours else
                          f"equal up to the end of each rank; {simulated.unfinished} do not end")
        self.rows.append(f"| {name} | {len(simulated.derived)} | {derived} | {ours} | {words} | "
                         f"{self.recorded.get(name, '–')} |")


def recorded_calls(page):
    """By scenario: the calls that were derived and recorded alike, of docs/derived.md."""
    # A sample row: "| modality/manual_hang_bad | 4 | 1,602 | as derived | as derived |".
    rows = re.findall(r"^\| (\S+/\S+) \| \d+ \| ([\d,]+) \| as derived", page.read_text(), re.M)
    return {name: int(count.replace(",", "")) for name, count in rows}


def named(folder, file):
    return str(pathlib.Path(file).relative_to(folder).with_suffix(""))


def scenarios(lockstep, folder):
    """(name, file, scenario) of every one that says how its job ends."""
    done = subprocess.run([lockstep.program, "scenario", "--json", folder], check=True,
                          capture_output=True, text=True)
    for line in map(json.loads, done.stdout.splitlines()):
        if "expect" in line["scenario"]:
            yield named(folder, line["file"]), line["file"], line["scenario"]


def families(lockstep):
    done = subprocess.run([lockstep.program, "explain", "--json"], check=True, capture_output=True,
                          text=True)
    return {rule["id"]: rule["family"] for rule in json.loads(done.stdout)}


def hold(lockstep, chosen, machine, derived_page, progress):
    """Both, of the chosen scenarios: (Verdicts, Sequences)."""
    verdicts, sequences = Verdicts(families(lockstep)), Sequences(recorded_calls(derived_page))
    for name, file, scenario in chosen:
        progress(name)
        simulated = Simulated(lockstep, file, scenario, machine)
        verdicts.add(name, scenario, simulated)
        sequences.add(name, simulated)
    return verdicts, sequences
