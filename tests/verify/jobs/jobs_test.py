#!/usr/bin/env python3
"""A second way to put faults into jobs, which shares nothing with tests/verify/injection.

A seed gives a job (a shape of training, a mesh, a schedule), a fault or none, and a form of
recording. The job runs on a model of NCCL's streams; the program `lockstep verify` reads what was
recorded. Healthy jobs must stay without findings; of the others, tables count whether the ranks at
fault were named.

usage: jobs_test.py [--first N] [--programs N] [--jobs N]    tables; fails beyond the bounds below
       jobs_test.py --seed N [--show] [--keep FOLDER]        one case, its report and its files

--healthy leaves the faults out, --damaged makes lines of one text trace unreadable: for either.

LOCKSTEP_PROGRAM names the program; default: build/full/lockstep or build/core/lockstep.
"""

import argparse
import collections
import concurrent.futures
import functools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import cases
import judge
import recordings

ROOT = Path(__file__).resolve().parents[3]

# Bounds for the seeds that the suite runs. Lower one when the verdicts get better.
FIRST, PROGRAMS = 1, 80
MOST = {judge.FALSE_ALARM: 0, judge.FALSE_WARNING: 0, judge.INNOCENTS: 1, judge.MISSED: 0}


@dataclass
class Outcome:
    seed: int
    mark: str
    form: str
    fault: str
    line: str  # for a person


def program():
    named = os.environ.get("LOCKSTEP_PROGRAM")
    places = [named] if named else [ROOT / "build" / p / "lockstep" for p in ("full", "core")]
    for place in places:
        if Path(place).exists():
            return str(place)
    sys.exit("lockstep is not built; LOCKSTEP_PROGRAM names it")


def verify(folder):
    """The report on a folder. The program must give one, whatever it reads."""
    report = f"{folder}.json"
    run = subprocess.run([program(), "verify", "--output", f"json={report}", folder],
                         capture_output=True, text=True, timeout=120, check=False)
    if run.returncode not in (0, 1, 3):
        raise AssertionError(f"{folder}: exit status {run.returncode}\n{run.stdout}{run.stderr}")
    with open(report, encoding="utf-8") as file:
        content = json.load(file)
    os.remove(report)
    return content, run.stdout


def record(seed, healthy, damaged, folder):
    """The case of a seed, its recording in the folder. Nothing if there is none."""
    case = cases.build(seed, healthy)
    if case is None or damaged and not case.form.startswith("text"):
        return None
    recordings.write(random.Random(seed + 2), case, folder)
    if damaged:
        recordings.lose_records(random.Random(seed + 3), folder)
    return case


def run_seed(seed, healthy=False, damaged=False):
    try:
        return outcome_of(seed, healthy, damaged)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error}") from error


def outcome_of(seed, healthy, damaged):
    with tempfile.TemporaryDirectory(prefix="lockstep-jobs-") as scratch:
        folder = f"{scratch}/job"
        case = record(seed, healthy, damaged, folder)
        if case is None:
            return None
        report, _ = verify(folder)
    mark = judge.judge(case, report)
    return Outcome(seed, mark, case.form, case.fault.kind, describe(case, mark, report))


def describe(case, mark, report):
    fault, shape = case.fault, " ".join(f"{k}{v}" for k, v in case.mesh.sizes.items() if v > 1)
    said = "; ".join(f"{f['rule']} {f.get('culprits', [])}" for f in report["findings"]
                     if f["severity"] != "note")
    return (f"{case.seed:6} {mark:11} {case.form:16} {case.shape} ({shape}) {fault.kind} "
            f"{list(fault.ranks)} step {fault.step}: {report['verdict']}, {said or 'nothing'}")


# Tables.


def print_table(outcomes, title, key):
    rows = collections.defaultdict(collections.Counter)
    for outcome in outcomes:
        rows[key(outcome)][outcome.mark] += 1
        rows["all"][outcome.mark] += 1
    marks = [m for m in judge.ORDER if rows["all"][m]]
    print(f"{title:22}" + "".join(f"{m:>12}" for m in marks))
    for name in sorted(rows, key=lambda n: (n == "all", n)):
        print(f"{name:22}" + "".join(f"{rows[name][m] or '.':>12}" for m in marks))
    print()


def run_all(first, count, workers, healthy, damaged):
    seeds = range(first, first + count)
    run = functools.partial(run_seed, healthy=healthy, damaged=damaged)
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        outcomes = [o for o in pool.map(run, seeds, chunksize=4) if o]
    kind = f"{'healthy ' if healthy else ''}{'damaged ' if damaged else ''}"
    print(f"seeds {first} to {first + count - 1}: {len(outcomes)} {kind}cases\n")
    print_table(outcomes, "recording", lambda o: o.form)
    print_table(outcomes, "fault", lambda o: o.fault)
    for outcome in outcomes:
        if outcome.mark in MOST:
            print(outcome.line)
    return outcomes


def beyond_bounds(outcomes):
    counts = collections.Counter(o.mark for o in outcomes)
    return [f"{mark}: {counts[mark]}, at most {most} expected" for mark, most in MOST.items()
            if counts[mark] > most]


# One case.


def show(seed, healthy, damaged, keep, whole):
    folder = keep or tempfile.mkdtemp(prefix="lockstep-jobs-")
    shutil.rmtree(folder, ignore_errors=True)
    case = record(seed, healthy, damaged, folder)
    if case is None:
        print(f"seed {seed}: the fault has no place in the job, or damage none in its recording")
        return
    report, text = verify(folder)
    print(describe(case, judge.judge(case, report), report))
    if whole:
        print(f"{case.fault}\n{case.choices}\nlazy {case.lazy}, changed ranks {case.differs}, "
              f"without recording {case.missing}")
        for rank, host in enumerate(case.execution.hosts):
            print(f"rank {rank}: {host.state}, instruction {host.next} of {len(host.instructions)}")
        print(text)
    if keep:
        print(f"files: {keep}")
    else:
        shutil.rmtree(folder)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--first", type=int, default=FIRST)
    options.add_argument("--programs", type=int, default=PROGRAMS)
    options.add_argument("--jobs", type=int, default=1, help="processes at once")
    options.add_argument("--seed", type=int)
    options.add_argument("--healthy", action="store_true", help="jobs without faults")
    options.add_argument("--damaged", action="store_true", help="lost lines in one text trace")
    options.add_argument("--show", action="store_true", help="with --seed: all that is known of it")
    options.add_argument("--keep", help="with --seed: the folder for its files")
    chosen = options.parse_args()
    if chosen.seed is not None:
        show(chosen.seed, chosen.healthy, chosen.damaged, chosen.keep, chosen.show)
        return
    outcomes = run_all(chosen.first, chosen.programs, chosen.jobs, chosen.healthy, chosen.damaged)
    if (chosen.first, chosen.programs) != (FIRST, PROGRAMS):
        return
    complaints = beyond_bounds(outcomes)
    if not chosen.damaged:  # lost lines accuse nobody
        damaged = run_all(FIRST, PROGRAMS, chosen.jobs, healthy=True, damaged=True)
        complaints += beyond_bounds(damaged)
    if complaints:
        sys.exit("\n".join(complaints))


if __name__ == "__main__":
    main()
