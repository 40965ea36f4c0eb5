"""The checks on a GPU themselves: that they end in time, and that they fail where something is wrong.

environment: LOCKSTEP_PROGRAM
"""

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import recorders  # noqa: E402
import scenarios  # noqa: E402
from checks import CheckFailed, Rows, Skipped, rank_environment, require, run, table  # noqa: E402

LOCKSTEP = os.environ["LOCKSTEP_PROGRAM"]


class InAFolder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.said = io.StringIO()
        quiet = contextlib.redirect_stdout(self.said)
        quiet.__enter__()
        self.addCleanup(quiet.__exit__, None, None, None)


class Checks(InAFolder):
    def test_a_command_that_hangs_is_ended_with_all_that_it_started(self) -> None:
        log = self.folder / "log"
        script = "trap '' TERM; sleep 1000 & echo $! $$; wait; sleep 1000"
        began = time.monotonic()
        with self.assertRaisesRegex(CheckFailed, "not at its end after 1 s"):
            run(["bash", "-c", script], 1, log)
        self.assertLess(time.monotonic() - began, 60)
        for pid in log.read_text().split():
            for _ in range(600):  # until init has taken it away
                if not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text():
                    break
                time.sleep(0.1)
            else:
                self.fail(f"process {pid} is still there")

    def test_a_command_gives_its_status_and_its_words(self) -> None:
        log = self.folder / "below" / "log"
        self.assertEqual(run(["bash", "-c", "echo $WHAT; exit 3"], 60, log, {"WHAT": "so"}), 3)
        self.assertEqual(log.read_text(), "so\n")

    def test_the_table_tells_what_failed(self) -> None:
        rows = Rows(self.folder / "rows.tsv")
        with rows.check("good") as found:
            found.append("as expected")
        text, failed = table(rows.file)
        self.assertEqual(failed, 0)
        self.assertIn("1 ok, 0 FAILED, 0 skipped", text)
        with rows.check("bad"):
            require(False, "two\tlines\nof it")
        with rows.check("absent"):
            raise Skipped("no GPU")
        with rows.check("ours"):
            raise KeyError("a mistake of the check")
        text, failed = table(rows.file)
        self.assertEqual((failed, rows.failed), (2, 2))
        self.assertIn("1 ok, 2 FAILED, 1 skipped", text)
        self.assertIn("two lines of it", text)

    def test_nothing_looked_at_is_a_failure(self) -> None:
        (self.folder / "rows.tsv").write_text("")
        self.assertEqual(table(self.folder / "rows.tsv"), ("0 ok, 0 FAILED, 0 skipped", 1))

    def test_ranks_that_share_a_gpu_are_of_different_hosts(self) -> None:
        shared = [rank_environment(rank, 3, "1", 1) for rank in range(3)]
        self.assertEqual(len({each["NCCL_HOSTID"] for each in shared}), 3)
        self.assertEqual({each["LOCAL_RANK"] for each in shared}, {"0"})
        own = [rank_environment(rank, 2, "1", 2) for rank in range(2)]
        self.assertEqual([each["LOCAL_RANK"] for each in own], ["0", "1"])
        self.assertFalse(any("NCCL_HOSTID" in each for each in own))


class Scenarios(InAFolder):
    def test_each_shipped_scenario_becomes_one_for_nccl(self) -> None:
        scenarios.over_nccl(scenarios.ROOT / "scenarios", self.folder / "s")
        files = sorted((self.folder / "s").glob("*/*.yaml"))
        self.assertGreater(len(files), 50)
        for file in files:
            self.assertEqual(file.read_text().count("\nbackend: nccl\n"), 1, file)
            self.assertGreaterEqual(scenarios.ranks_of(file), 1)
        self.assertTrue((self.folder / "s/replay/stalled_rank_ok.calls").exists())

    def checker(self) -> scenarios.Checker:
        return scenarios.Checker(argparse.Namespace(output=self.folder, lockstep=LOCKSTEP, minutes=60, cpu=True,
                                                    gpus=0, limit_s=120))

    def test_a_loss_that_is_another_fails(self) -> None:
        checker = self.checker()
        for name, loss in (("here", 1.0), ("there", 1.2)):
            (self.folder / name).mkdir()
            (self.folder / name / "rank_0.result.json").write_text(json.dumps({"last_loss": loss}))
        checker.train = lambda *_: (0, self.folder / "log")
        checker.output = self.folder
        (self.folder / "cpu").mkdir()
        (self.folder / "there").rename(self.folder / "cpu" / "there")
        with self.assertRaisesRegex(CheckFailed, "the last loss is 1, on the CPU 1.2"):
            checker.compare_losses(Path("x"), self.folder / "here", "there")

    def test_calls_that_are_others_fail(self) -> None:
        checker = self.checker()
        scenario = scenarios.ROOT / "scenarios/modality/manual_silent_ok.yaml"
        other = scenarios.ROOT / "scenarios/modality/manual_abort_ok.yaml"
        status, log = checker.train(scenario, self.folder / "run")
        self.assertEqual(status, 0, log.read_text())
        self.assertIn("as derived", checker.compare_calls(scenario, self.folder / "run", "same"))
        with self.assertRaisesRegex(CheckFailed, "are not those that are derived"):
            checker.compare_calls(other, self.folder / "run", "other")

    def test_after_the_time_scenarios_are_skipped(self) -> None:
        checker = self.checker()
        checker.deadline = 0
        checker.check("modality/manual_silent_ok")
        self.assertTrue(checker.rows.file.read_text().startswith("skipped\tmodality/manual_silent_ok\t"))


class Recorders(InAFolder):
    def test_only_the_right_rule_of_the_right_rank_is_expected(self) -> None:
        checker = recorders.Recorders(argparse.Namespace(output=self.folder, build=self.folder, cpu=True, minutes=1))

        def report(rule: str, culprits: "list[int]", severity: str = "error") -> "dict[str, object]":
            return {"verdict": "findings",
                    "findings": [{"rule": rule, "culprits": culprits, "severity": severity}]}

        self.assertTrue(checker.is_expected("stall", report("host-stall", [1])))
        self.assertFalse(checker.is_expected("stall", report("host-stall", [0])))
        self.assertFalse(checker.is_expected("stall", report("device-stall", [1])))
        self.assertFalse(checker.is_expected("stall", report("host-stall", [1], "note")))
        self.assertFalse(checker.is_expected("stall", {"verdict": "inconclusive", "findings": []}))


if __name__ == "__main__":
    unittest.main(verbosity=2)
