"""Programs that know nothing of liblockstep_record.so, started with it for tests.

environment: LOCKSTEP_PROGRAM, LOCKSTEP_RECORD_LIBRARY
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any, Callable, Optional, Union

import torch

from forks import Fork, Forks

sys.path.append(str(Path(__file__).resolve().parents[3] / "gpu"))
from checks import free_port  # noqa: E402

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
TOOLS = HERE.parents[3] / "runtime" / "record" / "python"
LOCKSTEP = os.environ["LOCKSTEP_PROGRAM"]
LIBRARY = os.environ["LOCKSTEP_RECORD_LIBRARY"]
LIMIT_S = 600  # only against hanging for ever
RECORDED = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "LD_PRELOAD": LIBRARY,
            "PYTHONPATH": str(TOOLS)}

Report = dict[str, Any]
Rank = Union["subprocess.Popen[str]", Fork]


def end(rank: "Rank") -> None:
    rank.kill()
    rank.wait()
    if isinstance(rank, subprocess.Popen) and rank.stdout is not None:
        rank.stdout.close()


class Preloaded(unittest.TestCase):
    """A process for each rank, started as torchrun does. With `forks` from one that has torch."""

    forks: "Optional[Forks]" = None
    variables: "dict[str, str]" = {}  # of the ranks' environment

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.traces = Path(folder.name) / "traces"

    def start(self, program: str, *arguments: str, ranks: int = 2) -> "list[Rank]":
        port = free_port()
        started = []
        command = [str(PROGRAMS / program), *filter(None, arguments)]
        for rank in map(str, range(ranks)):
            own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": port, "LOCKSTEP_RECORD_DIR": str(self.traces), **self.variables}
            started.append(
                self.forks.start(command, own) if self.forks else
                subprocess.Popen([sys.executable, "-B", *command], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True,
                                 env={**os.environ, **RECORDED, **own}))
            self.addCleanup(end, started[-1])
        return started

    def verify(self) -> Report:
        done = subprocess.run([LOCKSTEP, "verify", str(self.traces), "--quiet", "--output", "json=-"],
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)
        return json.loads(done.stdout) if done.stdout else {"findings": [], "said": done.stderr}

    def skip_for_another_version(self, said: str) -> None:
        if "it was built for LibTorch" in said:
            self.skipTest(said)

    def run_to_its_end(self, program: str, *arguments: str, ranks: int = 2) -> Report:
        for rank in self.start(program, *arguments, ranks=ranks):
            said = rank.communicate(timeout=LIMIT_S)[0]
            self.skip_for_another_version(said)
            self.assertEqual(rank.returncode, 0, said)
        return self.verify()

    def run_until(self, found: Callable[[Report], Any], program: str, *arguments: str,
                  ranks: int = 2) -> Report:
        """Runs a job that hangs or dies until its traces show it; then kills what is left of it. The
        report is of the traces that are left."""
        started = self.start(program, *arguments, ranks=ranks)
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            time.sleep(0.5)
            over = all(rank.poll() is not None for rank in started)
            here = self.traces.is_dir() and len(list(self.traces.glob("*.ring"))) == ranks
            if over or here and found(self.verify()):
                break
        for rank in started:
            if rank.poll() is None:
                rank.send_signal(signal.SIGKILL)
            self.skip_for_another_version(rank.communicate()[0])
        report = self.verify()
        self.assertTrue(found(report), report)
        return report


def first_of(*rules: str) -> "Callable[[Report], Optional[Report]]":
    """The first finding of a report, where it is of one of these rules."""
    def find(report: Report) -> Optional[Report]:
        findings = report["findings"]
        return findings[0] if findings and findings[0]["rule"] in rules else None

    return find


class Forked(Preloaded):
    """For jobs in which it does not matter how processes begin and end: forking ranks is quicker."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.forks = Forks(["torch", "torch.nn.parallel", "torch.utils.data", "torch.distributed.fsdp",
                           "torch.distributed.pipelining", "torch.distributed.checkpoint",
                           "torch.distributed.tensor.parallel"], RECORDED)
        cls.addClassCleanup(cls.forks.close)


def run_tests() -> None:
    print("torch", torch.__version__)
    result = unittest.main(verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.skipped else 0)  # a library for another torch was not tested
