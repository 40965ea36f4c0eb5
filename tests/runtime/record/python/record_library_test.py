"""liblockstep_record.so with a real torch: programs that know nothing of it, preloaded.

usage: with_torch record_library_test.py (unittest's arguments)
environment: LOCKSTEP_PROGRAM, LOCKSTEP_RECORD_LIBRARY
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
PROGRAM = str(HERE / "programs" / "ddp_alone.py")
LOCKSTEP = os.environ["LOCKSTEP_PROGRAM"]
LIBRARY = os.environ["LOCKSTEP_RECORD_LIBRARY"]
LIMIT_S = 600  # only against hanging for ever


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class Preloaded(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.traces = Path(folder.name) / "traces"

    def start(self, *arguments: str) -> "list[subprocess.Popen[str]]":
        port = free_port()
        ranks = []
        for rank in ("0", "1"):
            ranks.append(subprocess.Popen(
                [sys.executable, "-B", PROGRAM, *arguments],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "RANK": rank,
                     "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": port, "LD_PRELOAD": LIBRARY,
                     "LOCKSTEP_RECORD_DIR": str(self.traces)}))
            self.addCleanup(ranks[-1].kill)
        return ranks

    def verify(self) -> "dict[str, object]":
        done = subprocess.run([LOCKSTEP, "verify", str(self.traces), "--quiet", "--output", "json=-"],
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)
        return json.loads(done.stdout)

    def stall(self) -> "dict[str, object] | None":
        """The first finding that says why the ranks stand still."""
        rules = ("missing-collective", "cross-group-deadlock", "deadlock")
        return next((f for f in self.verify()["findings"] if f["rule"] in rules), None)

    def skip_for_another_version(self, said: str) -> None:
        if "it was built for LibTorch" in said:
            self.skipTest(said)

    def test_a_healthy_program_is_clean(self) -> None:
        for rank in self.start():
            said = rank.communicate(timeout=LIMIT_S)[0]
            self.skip_for_another_version(said)
            self.assertEqual(rank.returncode, 0, said)
        report = self.verify()
        self.assertEqual(report["verdict"], "clean", report)
        self.assertEqual(report["ranks"]["read"], 2)

    def test_a_call_that_a_rank_leaves_out_is_found_after_sigkill(self) -> None:
        ranks = self.start("skip")
        deadline = time.monotonic() + LIMIT_S
        found = None
        # While it hangs; the files are whole at any moment. Until then a file without an end mark is
        # all there is to report.
        while found is None and time.monotonic() < deadline:
            time.sleep(0.5)
            if any(rank.poll() is not None for rank in ranks):
                self.skip_for_another_version(ranks[0].communicate()[0])
            if self.traces.is_dir() and len(list(self.traces.iterdir())) == 2:
                found = self.stall()
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
            rank.communicate()
        found = self.stall()
        self.assertIsNotNone(found, self.verify())
        self.assertEqual(found["certainty"], "proven", found)


if __name__ == "__main__":
    print("torch", torch.__version__)
    result = unittest.main(verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.skipped else 0)  # a library for another torch was not tested
