"""Runs small jobs of Python's torch under each recorder, and compares what is found with what was done.

usage: recorders.py --build DIR --output DIR [--cpu] [--gpus N] [--jobs N] [--limit-s S]
                    [--minutes M] [--only TEXT]...

Jobs of 3 ranks, DDP and FSDP2 (job.py). Rank 1 does as it should, makes a call too many, leaves one out,
stops, raises, or is killed. Recorded by NCCL's profiler plugin, by liblockstep_nccl.so and by
liblockstep_record.so from the build folder. A job that hangs is judged while it hangs, and again after SIGKILL.
Then what each recorder costs: the same job of many small calls with and without it, in turns.

--cpu: over Gloo, where only liblockstep_record.so sees anything: a rehearsal.

DIR gets rows.tsv (checks.py) and, for each job, RECORDER/STRATEGY-CASE with its traces and logs.
"""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from checks import (
    CheckFailed,
    Rows,
    Skipped,
    end,
    free_port,
    last_lines,
    options_parser,
    rank_environment,
    require,
)

HERE = Path(__file__).resolve().parent
RANKS = 3
PATIENCE_S = 5  # without a record, before a rank's file says that it hangs
REPEATS = 3     # jobs of each kind where costs are measured

RECORDERS = {
    "plugin": ("liblockstep_nccl_profiler.so", "NCCL_PROFILER_PLUGIN"),
    "nccl": ("liblockstep_nccl.so", "LD_PRELOAD"),
    "record": ("liblockstep_record.so", "LD_PRELOAD"),
}

# The leading finding of a case is one of these, and its culprit rank 1. Calls that pair although they do
# not belong together are found by what differs first, so that an extra or a missing call may also show
# as a call of another size or operation of rank 1. Where it is silent, only the others' waiting tells.
DIVERGED = {"missing-collective", "extra-collective", "op-mismatch", "size-mismatch", "group-divergence", "order-swap"}
EXPECTED = {
    "clean": set(),
    "extra": DIVERGED,
    "missing": DIVERGED,
    "stall": {"host-stall"},
    "exception": {"rank-exception", "missing-collective", "host-stall"},
    "killed": {"host-stall", "missing-collective"},
}


class Recorders:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.output = options.output.resolve()
        self.rows = Rows(self.output / "rows.tsv")
        self.lockstep = str(options.build.resolve() / "lockstep")
        self.device = "cpu" if options.cpu else "cuda"
        self.deadline = time.monotonic() + 60 * options.minutes

    def environment(self, recorder: str, traces: Path) -> "dict[str, str]":
        library, variable = RECORDERS[recorder]
        path = self.options.build.resolve() / library
        if not path.exists():
            raise Skipped(f"{path} was not built")
        return {variable: str(path), "LOCKSTEP_RECORD_DIR": str(traces),
                "LOCKSTEP_RECORD_HUNG_AFTER": str(PATIENCE_S)}

    def start(self, program: str, arguments: "list[str]", environment: "dict[str, str]", ranks: int,
              folder: Path) -> "list[subprocess.Popen[bytes]]":
        port = free_port()
        jobs = []
        for rank in range(ranks):
            with (folder / f"rank_{rank}.log").open("wb") as log:
                jobs.append(subprocess.Popen(
                    [sys.executable, "-B", str(HERE / program), *arguments], stdin=subprocess.DEVNULL,
                    stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                    # Its watchdog would end the hang before it is looked at.
                    env={**os.environ, "TORCH_NCCL_ENABLE_MONITORING": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
                         **rank_environment(rank, ranks, port, 0 if self.options.cpu else self.options.gpus),
                         **environment}))
        return jobs

    def verify(self, traces: Path) -> "dict[str, object]":
        done = subprocess.run([self.lockstep, "verify", str(traces), "--quiet", "--output", "json=-"],
                              capture_output=True, text=True, timeout=60, check=False)
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            return {"verdict": "unreadable", "findings": [], "why": done.stderr}

    @staticmethod
    def answer(report: "dict[str, object]") -> "tuple[str, list[int]]":
        """Rule and culprits of what leads the report."""
        errors = [found for found in report["findings"] if found["severity"] == "error"]
        return (errors[0]["rule"], errors[0]["culprits"]) if errors else (str(report["verdict"]), [])

    def is_expected(self, case: str, report: "dict[str, object]") -> bool:
        rule, culprits = self.answer(report)
        return rule in EXPECTED[case] and culprits == [1]

    def job(self, recorder: str, strategy: str, case: str) -> None:
        with self.rows.check(f"{recorder} {strategy} {case}") as found:
            if time.monotonic() > self.deadline:
                raise Skipped(f"more than {self.options.minutes:g} minutes had passed")
            folder = self.output / recorder / f"{strategy}-{case}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            traces = folder / "traces"
            jobs = self.start("job.py", [strategy, case, self.device], self.environment(recorder, traces), RANKS,
                              folder)
            try:
                self.wait(jobs, case, traces)
            finally:
                for each in jobs:
                    each.send_signal(signal.SIGKILL)
                    end(each)
            for log in folder.glob("rank_*.log"):
                if "was built for LibTorch" in (said := log.read_text(errors="replace")):
                    raise Skipped(said.strip().splitlines()[0])
            report = self.verify(traces)
            rule, culprits = self.answer(report)
            seen = f"{rule} of ranks {culprits}" if culprits else rule
            if case == "clean":
                require(all(each.returncode == 0 for each in jobs), f"it does not train: {last_lines(folder / 'rank_0.log')}")
                require(report["verdict"] == "clean", f"a healthy job: {seen}")
            else:
                require(self.is_expected(case, report), f"expected {' or '.join(sorted(EXPECTED[case]))} of rank 1, found {seen}")
            found.append(seen)

    def wait(self, jobs: "list[subprocess.Popen[bytes]]", case: str, traces: Path) -> None:
        """Until all ranks are gone, or what is expected is found while they hang."""
        limit = time.monotonic() + self.options.limit_s
        while time.monotonic() < limit and any(job.poll() is None for job in jobs):
            time.sleep(1)
            if case != "clean" and len(list(traces.glob("*.ring"))) == RANKS:
                if self.is_expected(case, self.verify(traces)):
                    return

    def cost(self) -> None:
        """Host time of a call, the best of many blocks, with each recorder and with none."""
        recorders = ["none", "record"] if self.options.cpu else ["none", *RECORDERS]
        with self.rows.check("cost per call") as found:
            times: "dict[str, list[float]]" = {recorder: [] for recorder in recorders}
            for turn in range(REPEATS):
                for recorder in recorders:
                    folder = self.output / "cost" / f"{recorder}-{turn}"
                    shutil.rmtree(folder, ignore_errors=True)
                    folder.mkdir(parents=True)
                    environment = {} if recorder == "none" else self.environment(recorder, folder / "traces")
                    jobs = self.start("calls.py", [self.device], environment, 2, folder)
                    limit = time.monotonic() + self.options.limit_s
                    try:
                        for each in jobs:
                            each.wait(max(1, limit - time.monotonic()))
                    except subprocess.TimeoutExpired:
                        raise CheckFailed(f"not at its end after {self.options.limit_s:.0f} s: {folder}") from None
                    finally:
                        for each in jobs:
                            end(each)
                    said = re.search(r"^us (\S+)$", (folder / "rank_0.log").read_text(), re.MULTILINE)
                    require(said is not None, f"no time in {folder}: {last_lines(folder / 'rank_0.log')}")
                    times[recorder].append(float(said.group(1)))
            plain = statistics.median(times["none"])
            found.append(f"without a recorder {plain:.2f} us of host time")
            for recorder in recorders[1:]:
                found.append(f"{recorder} {statistics.median(times[recorder]) - plain:+.2f} us")


def main() -> int:
    parser = options_parser(__doc__, limit_s=90)
    parser.add_argument("--build", type=Path, required=True)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    checker = Recorders(options)
    recorders = ["record"] if options.cpu else list(RECORDERS)
    work = [(recorder, strategy, case) for recorder in recorders for strategy in ("ddp", "fsdp2") for case in EXPECTED]
    work = [each for each in work if not options.only or any(text in " ".join(each) for text in options.only)]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda each: checker.job(*each), work))
    if not options.only or "cost" in options.only:
        checker.cost()  # alone
    return 1 if checker.rows.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
