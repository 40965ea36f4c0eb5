"""Runs the shipped scenarios over NCCL (or as they are) and holds them against what is known of them.

usage: scenarios.py --lockstep PROGRAM --output DIR [--cpu] [--gpus N] [--jobs N] [--limit-s S]
                    [--minutes M] [--only TEXT]...

For each scenario, verdict, ranks and step are those of its `expect:` (`lockstep run --check`); if it
ends well, the last loss is that of the same job on the CPU, to 5 %; and the calls are those that
`lockstep derive` says. --cpu runs them as they are, on Gloo: a rehearsal.

DIR gets rows.tsv (checks.py), and for each scenario runs/FAMILY/NAME with its traces, logs and report.

  --jobs N      so many scenarios at a time (default: a quarter of the cores)
  --limit-s S   for one command (default: 150)
  --minutes M   scenarios that would begin later are skipped, and said to be
  --only TEXT   those whose FAMILY/NAME has TEXT in it
"""

import argparse
import json
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from checks import CheckFailed, Rows, Skipped, last_lines, options_parser, require, run

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 0.05  # a GPU computes in another order


def ranks_of(scenario: Path) -> int:
    found = re.search(r"^ranks: *(\d+)", scenario.read_text(), re.MULTILINE)
    if found is None:
        raise CheckFailed(f"{scenario} does not say its ranks")
    return int(found.group(1))


def over_nccl(scenarios: Path, target: Path) -> None:
    """Copies the scenarios, with what lies beside them, each with NCCL for its backend."""
    shutil.copytree(scenarios, target)
    for file in target.glob("*/*.yaml"):
        text = re.sub(r"^backend:.*\n", "", file.read_text(), flags=re.MULTILINE)
        file.write_text(text.rstrip("\n") + "\nbackend: nccl\n")


def last_loss(folder: Path) -> float:
    """The mean over the ranks that have one: a pipeline's first stages have none."""
    losses = [result["last_loss"] for result in map(json.loads, map(Path.read_text, folder.glob("*.result.json")))
              if result.get("last_loss") is not None]
    if not losses:
        raise CheckFailed(f"no rank left a loss in {folder}")
    return sum(losses) / len(losses)


class Checker:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.output = options.output.resolve()
        self.rows = Rows(self.output / "rows.tsv")
        self.deadline = time.monotonic() + 60 * options.minutes
        self.scenarios = ROOT / "scenarios"
        self.run_from = self.scenarios
        if not options.cpu:
            self.run_from = self.output / "scenarios"
            over_nccl(self.scenarios, self.run_from)

    def train(self, scenario: Path, folder: Path, *arguments: str) -> "tuple[int, Path]":
        log = folder.with_suffix(".log")
        shutil.rmtree(folder, ignore_errors=True)
        command = [self.options.lockstep, "run", *arguments, "--output-dir", str(folder), str(scenario)]
        return run(command, self.options.limit_s, log), log

    def check(self, name: str) -> None:
        with self.rows.check(name) as found:
            if time.monotonic() > self.deadline:
                raise Skipped(f"more than {self.options.minutes:g} minutes had passed")
            shipped, scenario = (folder / f"{name}.yaml" for folder in (self.scenarios, self.run_from))
            ranks = ranks_of(shipped)
            folder = self.output / "runs" / name
            sharing = ["--share-gpus"] if not self.options.cpu and self.options.gpus < ranks else []
            status, log = self.train(scenario, folder, "--check", *sharing)
            require(status == 0, f"lockstep run --check ended with {status}: {last_lines(log)}")
            found.append(f"{ranks} ranks as expected")
            if name.startswith("replay/"):
                return  # it trains nothing, and nothing is derived of it
            if name.endswith("_ok"):
                found.append(self.compare_losses(shipped, folder, name))
            found.append(self.compare_calls(shipped, folder, name))

    def compare_losses(self, shipped: Path, folder: Path, name: str) -> str:
        on_cpu = self.output / "cpu" / name
        status, log = self.train(shipped, on_cpu)
        require(status == 0, f"the same on the CPU ended with {status}: {last_lines(log)}")
        here, there = last_loss(folder), last_loss(on_cpu)
        require(abs(here - there) <= TOLERANCE * abs(there), f"the last loss is {here:g}, on the CPU {there:g}")
        return f"loss {here:.4f}, on the CPU {there:.4f}"

    def compare_calls(self, shipped: Path, folder: Path, name: str) -> str:
        log = self.output / "derived" / f"{name}.log"
        command = [self.options.lockstep, "derive", str(shipped), "--against", str(folder), "--no-meta"]
        status = run(command, self.options.limit_s, log)
        said = log.read_text(errors="replace")
        if status == 2 and (why := re.search(r"cannot be derived[^:]*: ([^\n]*)", said)):
            return f"not derived: {why.group(1)}"
        require(status == 0 and "recorded as derived" in said,
                f"the calls are not those that are derived (status {status}): {last_lines(log)}")
        return "calls as derived"


def main() -> int:
    parser = options_parser(__doc__, limit_s=150)
    parser.add_argument("--lockstep", required=True)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    names = sorted(str(file.relative_to(ROOT / "scenarios").with_suffix(""))
                   for file in (ROOT / "scenarios").glob("*/*.yaml") if file.stem != "study")
    names = [name for name in names if not options.only or any(text in name for text in options.only)]
    checker = Checker(options)
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(checker.check, names))
    return 1 if checker.rows.failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
