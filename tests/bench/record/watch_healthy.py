#!/usr/bin/env python3
"""Whether lockstep_watch accuses healthy jobs, and what it costs.

usage: tests/runtime/record/python/with_torch tests/bench/record/watch_healthy.py [--runs N] [--timed N]

Runs N jobs (200) of tests/runtime/record/python/programs/healthy.py, of each kind and type in turn with
other seeds, on two ranks over Gloo; prints each that `lockstep verify` does not call clean. Then times
N jobs (0): how many times longer a step takes that is recorded, one that is not, and all of 1,000 steps
(20 recorded). Each from medians of steps that the same job makes in turn with watch() and without.

environment: LOCKSTEP_PROGRAM, LOCKSTEP_RECORD_LIBRARY
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "tests" / "runtime" / "record" / "python" / "programs" / "healthy.py"
KINDS = ["ddp", "ddp-mean", "ddp-adamw-clip", "ddp-accumulate", "ddp-compressed", "ddp-adapted",
         "ddp-scaler-clip", "by-hand", "by-hand-clip", "fsdp2", "tensor-parallel"]
RANKS = 2
RECORDED = 10  # the first steps, all of which are


def run(folder: str, *arguments: str) -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ranks = [subprocess.Popen(
        [sys.executable, "-B", str(PROGRAM), *arguments], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "RANK": str(rank),
             "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": port, "LD_PRELOAD": os.environ["LOCKSTEP_RECORD_LIBRARY"],
             "PYTHONPATH": str(ROOT / "runtime" / "record" / "python"),
             "LOCKSTEP_RECORD_DIR": folder}) for rank in range(RANKS)]
    said = [rank.communicate()[0] for rank in ranks]
    for rank, text in zip(ranks, said):
        if rank.returncode != 0:
            sys.exit(f"{arguments}: a rank ended with {rank.returncode}\n{text}")
    return said[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--timed", type=int, default=0)
    options = parser.parse_args()
    alarms = 0
    for i in range(options.runs):
        kind, dtype = KINDS[i % len(KINDS)], ("float32", "bfloat16")[i // len(KINDS) % 2]
        with tempfile.TemporaryDirectory() as folder:
            run(folder, kind, dtype, str(i), "12")
            done = subprocess.run([os.environ["LOCKSTEP_PROGRAM"], "verify", folder, "--quiet",
                                   "--output", "json=-"], capture_output=True, text=True, check=False)
            report = json.loads(done.stdout)
        if report["verdict"] != "clean":
            alarms += 1
            print(f"{kind} {dtype} seed {i}: {report['verdict']}",
                  [(f["rule"], f.get("step"), f["message"]) for f in report["findings"]],
                  report["unknown"][:1], flush=True)
    print(f"{options.runs} healthy runs, {alarms} not called clean", flush=True)
    rows = []
    for i in range(options.timed):
        with tempfile.TemporaryDirectory() as folder:
            said = run(folder, KINDS[i % len(KINDS)], "float32", str(i), "90", "timed")
        without, watched = json.loads(said.split("seconds")[1].splitlines()[0])
        usual = statistics.median(without[1:])
        recorded, other = (statistics.median(steps) / usual
                           for steps in (watched[1:RECORDED], watched[RECORDED:]))
        rows.append((recorded, other, (20 * recorded + 980 * other) / 1000))
        print(f"{KINDS[i % len(KINDS)]}: recorded {recorded:.3f}, other {other:.3f}, "
              f"1,000 steps {rows[-1][2]:.3f} times", flush=True)
    if rows:
        recorded, other, total = (statistics.median(column) for column in zip(*rows))
        print(f"median: recorded {recorded:.3f}, other {other:.3f}, 1,000 steps {total:.3f} times")


if __name__ == "__main__":
    main()
