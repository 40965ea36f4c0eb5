"""runtime/record/python/lockstep_record.py with a real torch: what is recorded, and what `lockstep` makes of it.

usage: with_torch record_test.py [Examples | Calls | Live] (unittest's arguments)
environment: LOCKSTEP_PROGRAM, the `lockstep` to judge with
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Optional

import torch

from forks import Fork, Forks

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
TOOL = str(ROOT / "runtime" / "record" / "python" / "lockstep_record.py")
EXAMPLES = ROOT / "runtime" / "record" / "python" / "examples"
PROGRAMS = HERE / "programs"
LOCKSTEP = os.environ["LOCKSTEP_PROGRAM"]
LIMIT_S = 900  # only against hanging for ever: this may be a busy machine


# What each recording would import again, for two seconds: lockstep_record.wrappers.SLOW_IMPORTS, too.
IMPORTED = ["torch", "torch.nn.parallel", "torch.testing._internal.distributed.fake_pg",
            "torch.distributed.fsdp._fully_shard._fsdp_param_group",
            "torch.distributed.algorithms.ddp_comm_hooks.default_hooks",
            "torch.distributed.checkpoint.default_planner", "torch._dynamo"]
FORKS: "Optional[Forks]" = None


def setUpModule() -> None:
    global FORKS
    FORKS = Forks(IMPORTED, {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})
    unittest.addModuleCleanup(FORKS.close)


def python(*arguments: str, **environment: str) -> Fork:
    assert FORKS
    return FORKS.start(list(arguments), environment)


def finished(process: Fork) -> tuple[int, str]:
    try:
        said = process.communicate(timeout=LIMIT_S)[0]
    finally:
        process.kill()
    return process.returncode, said


def lockstep(*arguments: Any) -> tuple[int, str]:
    result = subprocess.run([LOCKSTEP, *map(str, arguments)], capture_output=True, text=True,
                            timeout=LIMIT_S, check=False)
    return result.returncode, " ".join((result.stdout + result.stderr).split())


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def calls(file: Path) -> list[dict[str, Any]]:
    """What the peers of a call see of it, and what the rank does; in program order."""
    keys = ("g", "op", "in", "out", "dtype", "redop", "root", "peer", "ptag", "splits_in",
            "splits_out", "async", "coalesced", "what", "at", "step", "tag")
    return [{k: line[k] for k in keys if k in line}
        for line in lines(file) if line.get("ev") == "issue"]


class RecordTest(unittest.TestCase):
    maxDiff = None

    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.derived = self.folder / "derived"

    def record(self, script: Path, *arguments: str, world_size: Optional[int] = 2, own: str = "",
               status: int = 0) -> str:
        size = [] if world_size is None else ["--world-size", str(world_size)]
        code, said = finished(python(TOOL, str(script), "--output", str(self.derived), *size,
                                     *arguments, "--", *own.split()))
        self.assertEqual(code, status, said)
        return said

    def judge(self, folder: Optional[Path] = None) -> tuple[int, str]:
        return lockstep("verify", folder or self.derived)

    def assert_safe(self, folder: Optional[Path] = None) -> None:
        certificate = self.folder / "certificate"
        status, said = lockstep("verify", folder or self.derived,
                                "--certificate", certificate)
        self.assertEqual(status, 0, said)
        self.assertTrue(said.startswith("SAFE"), said)
        status, said = lockstep("check-certificate", certificate, folder or self.derived)
        self.assertEqual(status, 0, said)

    def live(self, script: Path, steps: list[str], own: str = "") -> list[tuple[int, str]]:
        """Real processes on Gloo, one for each item of `steps`; traces in self.folder / "live"."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        ranks = [python(TOOL, str(script), "--output", str(self.folder / "live"),
                        "--live", own_steps, "--", *own.split(), RANK=str(rank),
                        WORLD_SIZE=str(len(steps)), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
                 for rank, own_steps in enumerate(steps)]
        return [finished(rank) for rank in ranks]


class Examples(RecordTest):
    """What examples/python say of themselves."""

    def test_ddp_diverges_where_a_batch_has_no_images(self) -> None:
        said = self.record(EXAMPLES / "ddp_image_text.py", world_size=4)
        self.assertIn("Expected to have finished reduction in the prior iteration", said)
        status, said = self.judge()
        self.assertEqual(status, 1, said)
        self.assertTrue(said.startswith("DIVERGES: ddp_image_text.py, 4 ranks, 2 conditions"), said)
        self.assertIn("rank 0 text", said)
        self.assertIn("parameters concerned: head.bias, head.weight, image.convolution.bias", said)
        self.assertIn("ERROR modality-divergence (proven)", said)
        self.assertRegex(said, r"ddp_image_text\.py:\d+")
        history = self.derived / "first-1"  # rank 0 after a first step of text
        trace = lines(history / "rank_0.trace.jsonl")
        self.assertEqual(trace[-1], {"end": "exception"})
        self.assertIn("Expected to have finished reduction", trace[-2]["what"])

    def test_ddp_is_safe_with_find_unused_parameters(self) -> None:
        self.record(EXAMPLES / "ddp_image_text.py", own="--find-unused")
        self.assert_safe()

    def test_fsdp2_diverges_where_a_branch_is_skipped(self) -> None:
        self.record(EXAMPLES / "fsdp2_image_text.py")
        status, said = self.judge()
        self.assertEqual(status, 1, said)
        self.assertTrue(said.startswith("DIVERGES: fsdp2_image_text.py"), said)
        self.assertIn("concerned: image.convolution.bias, image.convolution.weight", said)
        self.assertIn("ERROR modality-divergence (proven)", said)

    def test_fsdp2_is_safe_with_a_dummy(self) -> None:
        self.record(EXAMPLES / "fsdp2_image_text.py", own="--dummy")
        self.assert_safe()


    def test_the_command_needs_the_folder_beside_it(self) -> None:
        alone = Path(shutil.copy(TOOL, self.folder))
        status, said = finished(python(str(alone), "--help"))
        self.assertEqual(status, 2, said)
        self.assertIn("the folder lockstep_record is not in", said)
        shutil.copytree(Path(TOOL).with_suffix(""), self.folder / "lockstep_record")
        status, said = finished(python(str(alone), "--help"))
        self.assertEqual(status, 0, said)
        self.assertIn("usage: lockstep_record.py SCRIPT", said)


class Calls(RecordTest):
    """What is recorded of a program's calls, and what the other ranks are taken to answer."""

    def test_every_kind_of_call(self) -> None:
        self.record(PROGRAMS / "every_call.py", world_size=None)
        trace = self.derived / "first-0" / "rank_1.trace.jsonl"
        groups = [line for line in lines(trace) if "group" in line]
        self.assertEqual([(g["ranks"], g.get("desc")) for g in groups],
                         [([0, 1, 2, 3], None), ([0, 1], "pair"), ([1, 3], "mesh_dp"),
                          ([0, 1], "mesh_tp")])
        pair, dp, tp = (g["group"] for g in groups[1:])
        four, f = [[4]] * 4, "float32"
        expected: list[tuple[Any, ...]] = [
            ("world", "all_reduce", [[4]], [[4]], f, "sum"),
            ("world", "reduce", [[4]], [[4]], f, "min", ("root", 1)),
            ("world", "broadcast", [[4]], [[4]], f, None, ("root", 2)),
            ("world", "all_gather", [[4]], four, f, None),
            ("world", "all_gather_into_tensor", [[4]], [[16]], f, None),
            ("world", "gather", [[4]], [], f, None, ("root", 3)),
            ("world", "scatter", [], [[4]], f, None, ("root", 0)),
            ("world", "reduce_scatter", four, [[4]], f, "avg"),
            ("world", "reduce_scatter_tensor", [[4]], [[1]], f, "product"),
            ("world", "all_to_all", [[1]] * 4, [[1]] * 4, f, None),
            ("world", "all_to_all_single", [[10]], [[8]], f, None,
             ("splits_in", [1, 2, 3, 4]), ("splits_out", [2, 2, 2, 2])),
            ("world", "all_to_all_single", [[8]], [[8]], f, None),
            ("world", "barrier", None, None, None, None),
            ("world", "all_reduce", [[2]], [[2]], "bfloat16", "sum", ("async", True)),
            ("world", "barrier", None, None, None, None),
            ("world", "all_reduce", [[3]], [[3]], f, "sum"),
            ("world", "all_reduce", [[]], [[]], f, "avg", ("what", ["loss"])),
            ("world", "all_reduce", [[7]], [[7]], f, "sum", ("async", True)),
            ("world", "barrier", None, None, None, None),
            ("world", "send", [[5]], None, f, None, ("peer", 2), ("ptag", 0), ("coalesced", 1)),
            ("world", "recv", None, [[5]], f, None, ("peer", 0), ("ptag", 0), ("coalesced", 1)),
            ("world", "recv", None, [[5]], f, None, ("peer", 0), ("ptag", 7)),
            (pair, "all_reduce", [[6]], [[6]], f, "max"),
            (tp, "all_reduce", [[6]], [[6]], f, "max", ("async", True)),
            (dp, "reduce_scatter_tensor", [[2, 3]], [[1, 3]], f, "avg", ("async", True)),
        ]
        recorded = calls(trace)[:len(expected)]
        for call, (group, op, ins, outs, dtype, redop, *more) in zip(recorded, expected):
            with self.subTest(op=op, at=call["at"]):
                self.assertEqual((call["g"], call["op"], call.get("in"), call.get("out")),
                                 (group, op, ins, outs))
                self.assertEqual((call.get("dtype"), call.get("redop")), (dtype, redop))
                for key, value in more:
                    self.assertEqual(call[key], value)
                self.assertEqual(call["step"], 0)
                self.assertRegex(call["at"], r"^every_call\.py:\d+$")
        self.assert_safe()

    def test_what_blocks_is_recorded_where_it_blocks(self) -> None:
        self.record(PROGRAMS / "every_call.py", world_size=None)
        events = [(line["ev"], line["id"]) for line in
                  lines(self.derived / "first-0" / "rank_0.trace.jsonl") if "id" in line]
        for call in (13, 17):  # asynchronous, with a barrier before the wait for it or its future
            place = events.index(("issue", call))
            self.assertEqual(events[place:place + 4], [("issue", call), ("issue", call + 1),
                                                       ("wait", call + 1), ("wait", call)])

    def test_ddp_with_several_buckets_that_are_rearranged(self) -> None:
        self.record(PROGRAMS / "votes.py", own="--always")
        self.assert_safe()
        recorded = calls(self.derived / "first-0" / "rank_1.trace.jsonl")
        rebuilt = [c for c in recorded if c.get("tag") == "ddp.rebuild"]
        self.assertEqual([(c["op"], c["dtype"], c["step"]) for c in rebuilt],
                         [("broadcast", "int32", 0)] * 2)
        buckets = [c for c in recorded if c.get("tag", "").startswith("ddp.bucket")]
        first = [c["what"] for c in buckets if c["step"] == 0]
        later = [c["what"] for c in buckets if c["step"] == 1]
        self.assertEqual(len(first), 1)
        self.assertGreater(len(later), 1)
        self.assertEqual(sorted(first[0]), sorted(name for bucket in later for name in bucket))
        self.assertNotIn("frozen", first[0])

    def test_a_program_that_takes_two_steps_to_settle_down(self) -> None:
        self.record(PROGRAMS / "votes.py", own="--always --static")
        status, said = self.judge()
        self.assertEqual(status, 3, said)
        self.assertIn("is not what another step under it was", said)
        self.derived = self.folder / "again"
        self.record(PROGRAMS / "votes.py", "--first-steps", "2", own="--always --static")
        self.assert_safe()
        self.assertIn("step 0 stands for the first 2 steps", self.judge()[1])

    def test_a_script_may_derive_itself(self) -> None:
        script = PROGRAMS / "derives_itself.py"
        tools = str(ROOT / "runtime" / "record" / "python")
        code, said = finished(python(str(script), str(self.derived), PYTHONPATH=tools))
        self.assertEqual(code, 0, said)
        self.assert_safe()
        groups = {line["group"] for line in lines(self.derived / "first-0" / "rank_0.trace.jsonl")
                  if "group" in line}
        self.assertEqual(len(groups), 2)

    def test_a_vote_is_answered_both_ways(self) -> None:
        self.record(PROGRAMS / "votes.py")
        self.assert_safe()

    def test_hand_written_communication_is_named(self) -> None:
        self.record(PROGRAMS / "votes.py", own="--no-vote")
        status, said = self.judge()
        self.assertEqual(status, 1, said)
        self.assertIn("all_reduce(image.0.weight)", said)

    def test_what_rank_0_broadcasts_decides_for_all(self) -> None:
        self.record(PROGRAMS / "root_decides.py", world_size=None)
        for first, length in ((0, 2), (1, 5)):
            folder = self.derived / f"root-{first}"
            self.assert_safe(folder)
            for history in ("first-0", "first-1"):
                sums = [c["in"] for c in calls(folder / history / "rank_1.trace.jsonl")
                        if c["op"] == "all_reduce"]
                self.assertEqual(sums, [[[length]]] * 5)

    def test_an_exception_is_part_of_the_program(self) -> None:
        said = self.record(PROGRAMS / "raises.py", world_size=None)
        self.assertIn("rank 1, first step \"bad\": raised in step 0: an empty batch", said)
        status, said = self.judge()
        self.assertEqual(status, 1, said)
        self.assertTrue(said.startswith("RAISES"), said)
        self.assertIn("rank 0 raises an exception in step 0: an empty batch", said)

    def test_a_checkpoint_is_part_of_the_program(self) -> None:
        self.record(PROGRAMS / "saves.py")
        for folder in sorted(self.derived.glob("**/product.json")):
            status, said = self.judge(folder.parent)
            self.assertEqual(status, 0, said)

    def test_experts_that_tell_each_other_their_counts(self) -> None:
        self.record(PROGRAMS / "experts.py", world_size=3)
        status, said = self.judge()
        self.assertEqual(status, 0, said)
        self.assertIn("sizes that ranks have told each other before fit", said)
        self.derived = self.folder / "skip"
        self.record(PROGRAMS / "experts.py", world_size=3, own="--skip")
        status, said = self.judge()
        self.assertEqual(status, 1, said)
        self.assertTrue(said.startswith("DIVERGES"), said)

    def test_replicas_that_exchange_rows_without_telling_how_many(self) -> None:
        self.record(PROGRAMS / "splits.py")
        status, said = self.judge()
        self.assertEqual(status, 1, said)
        self.assertTrue(said.startswith("DIVERGES"), said)
        self.derived = self.folder / "told"
        self.record(PROGRAMS / "splits.py", own="--told")
        status, said = self.judge()
        self.assertEqual(status, 0, said)

    def test_what_depends_on_the_other_ranks_is_not_derived(self) -> None:
        said = self.record(PROGRAMS / "joins.py", status=1)
        self.assertIn("the program uses Join", said)
        self.assertNotIn("Traceback", said)
        said = self.record(PROGRAMS / "lengths.py", own="--raises", status=1)
        self.assertIn("after it had received whole numbers in a message", said)
        self.record(PROGRAMS / "lengths.py")
        status, said = self.judge()
        self.assertEqual(status, 0, said)
        self.assertIn("sizes that ranks have told each other before fit", said)

    def test_without_torch_it_says_so(self) -> None:
        for arguments, status in ((["--help"], 0), (["train.py"], 2)):
            done = subprocess.run([sys.executable, "-I", "-S", "-B", TOOL, *arguments],
                                  capture_output=True, text=True, timeout=LIMIT_S, check=False)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn("cannot import torch", done.stdout + done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_a_program_that_cannot_be_built_is_refused(self) -> None:
        said = self.record(PROGRAMS / "raises.py", own="--broken", status=1, world_size=None)
        self.assertIn("ValueError: no such data set", said)
        self.assertFalse(self.derived.exists())

    def test_groups_that_ranks_make_in_another_order_are_refused(self) -> None:
        said = self.record(PROGRAMS / "pairs.py", own="backwards", status=1, world_size=4)
        self.assertRegex(said, r"rank 2 makes process groups in another order than rank 0: its group "
                               r"\d+ \(pairs\.py:14\) holds ranks 2, 3, and there 0, 1")
        self.record(PROGRAMS / "pairs.py", world_size=4)
        self.assert_safe()

    def test_one_rank_may_stand_for_all(self) -> None:
        self.record(PROGRAMS / "votes.py", "--ranks", "0", world_size=8)
        self.assert_safe()
        said = self.judge()[1]
        self.assertIn("assumed: ranks other than 0 do what rank 0 does", said)

    def test_one_rank_cannot_stand_for_others_in_groups_of_its_own(self) -> None:
        said = self.record(PROGRAMS / "every_call.py", "--ranks", "0", world_size=None, status=1)
        self.assertIn("record all ranks", said)

    def test_the_real_transport_counts(self) -> None:
        self.record(PROGRAMS / "root_decides.py", "--backend", "nccl", world_size=None)
        header = lines(self.derived / "root-0" / "first-0" / "rank_1.trace.jsonl")[0]
        self.assertEqual(header["backend"], "nccl")

    def test_bad_usage_says_what_to_do(self) -> None:
        said = self.record(EXAMPLES / "two_branches.py", status=1)
        self.assertIn("has no function lockstep()", said)
        said = self.record(EXAMPLES / "ddp_image_text.py", world_size=None, status=1)
        self.assertIn("give --world-size", said)
        self.derived.mkdir()
        (self.derived / "kept").touch()
        said = self.record(EXAMPLES / "ddp_image_text.py", status=1)
        self.assertIn("not a new or empty folder", said)


class Live(RecordTest):
    """What is derived is what real processes on Gloo call."""

    def assert_happens(self, script: Path, steps: list[str], own: str = "") -> None:
        self.record(script, own=own)
        product = json.loads((self.derived / "product.json").read_text())
        self.assertEqual(steps[1:], product["steps"])
        for status, said in self.live(script, [",".join(steps)] * 2, own):
            self.assertEqual(status, 0, said)
        status, said = lockstep("verify", self.folder / "live")
        self.assertEqual(status, 0, said)
        for rank in range(2):
            name = f"rank_{rank}.trace.jsonl"
            derived = calls(self.derived / "first-0" / name)
            real = calls(self.folder / "live" / name)
            self.assertGreater(len(real), 10)
            # Derived traces have DDP's new order of buckets at the end of the step before.
            for tag in (True, False):
                self.assertEqual([c for c in derived if (c.get("tag") == "ddp.rebuild") == tag],
                                 [c for c in real if (c.get("tag") == "ddp.rebuild") == tag])

    def test_ddp_that_finds_unused_parameters(self) -> None:
        self.assert_happens(EXAMPLES / "ddp_image_text.py",
                            ["image+text", "image+text", "text", "image+text", "text"],
                            "--find-unused")

    def test_ddp_with_several_buckets(self) -> None:
        self.assert_happens(PROGRAMS / "votes.py",
                            ["image", "image", "text", "image", "text"], "--always")

    def test_fsdp2(self) -> None:
        self.assert_happens(EXAMPLES / "fsdp2_image_text.py",
                            ["image+text", "image+text", "text", "image+text", "text"])

    def test_the_hang_that_is_derived_is_there(self) -> None:
        ended = self.live(EXAMPLES / "ddp_image_text.py", ["text,text", "image+text,image+text"])
        self.assertNotEqual(ended[0][0], 0)
        self.assertIn("Expected to have finished reduction", ended[0][1])
        status, said = lockstep("verify", self.folder / "live")
        self.assertEqual(status, 1, said)
        self.assertIn("image.convolution.weight", said)


if __name__ == "__main__":
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}", flush=True)
    unittest.main(verbosity=2)
