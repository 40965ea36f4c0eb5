"""liblockstep_record.so with a real torch: programs that know nothing of it, preloaded.

usage: with_torch record_library_test.py (unittest's arguments)
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
from typing import Any, Callable, Optional, Sequence, Union

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


class Files(Preloaded):
    def test_a_healthy_program_is_clean(self) -> None:
        report = self.run_to_its_end("ddp_alone.py")
        text = self.traces.parent / "text"
        subprocess.run([LOCKSTEP, "convert", str(self.traces), "-o", str(text), "--quiet"], check=True)
        with (text / "rank_1.trace.jsonl").open() as lines:
            header = json.loads(next(lines))
        self.assertNotIn("gpu", header, "LOCAL_RANK is set, and the rank is on the CPU")
        self.assertEqual(report["verdict"], "clean", report)
        self.assertEqual(report["ranks"]["read"], 2)

    def test_a_call_that_a_rank_leaves_out_is_found_after_sigkill(self) -> None:
        stall = first_of("missing-collective", "cross-group-deadlock", "deadlock")
        report = self.run_until(stall, "ddp_alone.py", "skip")
        self.assertEqual(report["findings"][0]["certainty"], "proven", report)

    def test_a_program_ends_well_however_late_the_transport_is(self) -> None:
        for _ in range(3):
            report = self.run_to_its_end("ends_at_once.py")
            self.assertEqual(report["verdict"], "clean", report)

    def test_a_program_runs_although_its_values_cannot_be_recorded(self) -> None:
        self.variables = {"LOCKSTEP_RECORD_VALUES": "1", "PYTHONPATH": ""}
        rank, = self.start("ends_at_once.py", ranks=1)
        said = rank.communicate(timeout=LIMIT_S)[0]
        self.skip_for_another_version(said)
        self.assertEqual(rank.returncode, 0, said)
        self.assertIn("Python cannot import lockstep_watch_all", said)
        self.assertEqual(self.verify()["findings"], [], "the program raised nothing")

    def test_an_exception_is_the_end_of_a_rank_that_is_killed_after_it(self) -> None:
        report = self.run_until(first_of("rank-exception"), "raises_and_stays.py", ranks=1)
        self.assertIn("ValueError: no such batch", report["findings"][0]["message"])
        self.assertEqual(report["ranks"]["damaged"], [])

    def test_files_of_an_earlier_run_are_left_out(self) -> None:
        self.run_to_its_end("jobs.py", "raises", ranks=3)
        report = self.run_to_its_end("jobs.py", "raises", ranks=2)
        self.assertEqual(report["verdict"], "clean", report)
        self.assertEqual(report["ranks"]["read"], 2)
        self.assertIn("earlier runs of the job", " ".join(report["unknown"]))


class Forked(Preloaded):
    """Of the jobs, not of how processes begin and end."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.forks = Forks(["torch", "torch.nn.parallel", "torch.utils.data", "torch.distributed.fsdp",
                           "torch.distributed.pipelining", "torch.distributed.checkpoint",
                           "torch.distributed.tensor.parallel"], RECORDED)
        cls.addClassCleanup(cls.forks.close)


class Jobs(Forked):
    """programs/jobs.py: what people write, right and wrong."""

    def assert_clean(self, job: str, variant: str = "", ranks: int = 2) -> None:
        report = self.run_to_its_end("jobs.py", job, variant, ranks=ranks)
        self.assertEqual(report["verdict"], "clean", report)
        self.assertEqual(report["findings"], [], report)

    def assert_found(self, job: str, variant: str, *rules: str, ranks: int = 2,
                     culprits: "tuple[int, ...]" = ()) -> Report:
        report = self.run_until(first_of(*rules), "jobs.py", job, variant, ranks=ranks)
        finding = report["findings"][0]
        self.assertEqual(finding["severity"], "error", report)
        self.assertEqual(finding["culprits"], list(culprits), report)
        self.assertIn("jobs.py:", json.dumps(finding))  # the line of the program
        return finding

    def test_data_parallel(self) -> None:
        self.assert_clean("ddp")
        self.assert_clean("ddp", "find-unused")

    def test_data_parallel_with_a_rank_without_images(self) -> None:
        finding = self.assert_found("ddp", "text-only", "unused-parameter", culprits=(1,))
        self.assertIn("Expected to have finished reduction", finding["message"])
        told = [one["rule"] for one in finding.get("consequences", [])]
        self.assertNotIn("unused-parameter", told, "the same exception once more")

    def test_data_parallel_with_a_rank_that_freezes_a_tower(self) -> None:
        def told(report: Report) -> bool:  # by most of the ranks, which all raise
            finding = first_of("rank-exception")(report)
            return finding is not None and finding["culprits"] == [1]

        report = self.run_until(told, "jobs.py", "ddp", "frozen", ranks=3)
        self.assertIn("DDP expects same model across all ranks", report["findings"][0]["message"])

    def test_tensor_and_data_parallel(self) -> None:
        self.assert_clean("tensor_data", ranks=4)

    def test_a_head_that_only_some_ranks_of_a_tensor_group_run(self) -> None:
        self.assert_found("tensor_data", "head", "size-mismatch", "missing-collective", ranks=4,
                          culprits=(1, 3))

    def test_clipping_that_a_rank_leaves_out(self) -> None:
        self.assert_found("tensor_data", "clip", "missing-collective", ranks=4, culprits=(0,))

    def test_a_save_that_only_rank_0_makes(self) -> None:
        self.assert_found("save", "rank0-only", "extra-collective", ranks=4, culprits=(0,))

    def test_a_state_that_only_rank_0_asks_for(self) -> None:
        self.assert_clean("full_state")
        self.assert_found("full_state", "rank0", "extra-collective", culprits=(0,))

    def test_a_validation_on_rank_0_whose_calls_pair_with_others(self) -> None:
        self.assert_clean("validate")
        finding = self.assert_found("validate", "rank0", "extra-collective", culprits=(0,))
        source = (PROGRAMS / "jobs.py").read_text().splitlines()
        line = next(i for i, text in enumerate(source, 1) if "the line of the validation" in text)
        self.assertIn(f"jobs.py:{line}", finding["message"])

    def test_a_barrier_of_the_replica_that_saves(self) -> None:
        self.assert_clean("replicas", ranks=4)
        self.assert_found("replicas", "half", "cross-group-deadlock", ranks=4, culprits=(0, 1))

    def test_a_barrier_on_rank_0(self) -> None:
        self.assert_found("barrier", "rank0", "op-mismatch", culprits=(0,))

    def test_a_stage_that_receives_one_message_less(self) -> None:
        self.assert_clean("stages", ranks=3)
        self.assert_found("stages", "lost", "deadlock", "missing-collective", "p2p-unmatched",
                          ranks=3, culprits=(2,))

    def test_a_block_that_a_rank_drops_under_fsdp2(self) -> None:
        self.assert_clean("fsdp2")
        self.assert_found("fsdp2", "dropped-layer", "missing-collective", "op-mismatch",
                          culprits=(1,))

    def test_functional_collectives(self) -> None:
        self.assert_clean("functional")

    def test_inference_mode(self) -> None:
        self.assert_found("inference", "skip", "op-mismatch", "missing-collective", ranks=3,
                          culprits=(1,))

    def test_experts_with_uneven_counts(self) -> None:
        self.assert_clean("experts", ranks=3)

    def test_ranks_with_different_numbers_of_batches_under_join(self) -> None:
        self.assert_clean("join")

    def test_an_exception_is_told_with_its_line(self) -> None:
        finding = self.assert_found("raises", "batch", "rank-exception", culprits=(1,))
        self.assertRegex(finding["message"],
                         r"ValueError: no image in the batch \(.*jobs\.py:\d+\)")

    def test_an_exception_before_the_first_call(self) -> None:
        finding = self.assert_found("raises", "start", "rank-exception", culprits=(1,))
        self.assertRegex(finding["message"], r"FileNotFoundError: no tokenizer \(.*jobs\.py:\d+\)")

    def test_an_exception_is_told_with_the_one_that_caused_it(self) -> None:
        finding = self.assert_found("raises", "wrapped", "rank-exception", culprits=(1,))
        self.assertRegex(finding["message"],
                         r"RuntimeError: stage 1 failed \(.*jobs\.py:\d+\); caused by "
                         r"ValueError: no image in the batch \(.*jobs\.py:\d+\)")

    def test_an_exception_in_a_worker_of_a_loader_is_told_as_it_was_raised_there(self) -> None:
        self.assert_clean("loader")
        finding = self.assert_found("loader", "worker", "rank-exception", culprits=(1,))
        self.assertRegex(finding["message"],
                         r"OSError: truncated JPEG \(.*jobs\.py:\d+\), in DataLoader worker "
                         r"process 0 \(.*jobs\.py:\d+\)")

    def test_a_checkpoint_that_only_rank_0_writes_in_a_thread(self) -> None:
        self.assert_clean("checkpoint", ranks=3)
        self.variables = {"LOCKSTEP_RECORD_HUNG_AFTER": "3"}
        finding = self.assert_found("checkpoint", "rank0", "cross-group-deadlock",
                                    "extra-collective", ranks=3, culprits=(0,))
        self.assertIn("torch/distributed/checkpoint/", finding["message"])

    def interrupt(self, job: str, variant: str, begun: Callable[[], bool]) -> Report:
        """The report of a job that is ended by Ctrl-C once it has begun."""
        ranks = self.start("jobs.py", job, variant, ranks=3)
        deadline = time.monotonic() + LIMIT_S
        while not begun() and time.monotonic() < deadline:
            time.sleep(0.1)
        for rank in ranks:
            rank.send_signal(signal.SIGINT)
        # Those that wait in a call hear nothing until a peer's end closes their connection.
        deadline = time.monotonic() + LIMIT_S
        while any(rank.poll() is None for rank in ranks) and time.monotonic() < deadline:
            time.sleep(0.1)
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(signal.SIGKILL)
            self.skip_for_another_version(rank.communicate()[0])
        return self.verify()

    def test_a_healthy_job_that_its_user_interrupts(self) -> None:
        def begun() -> bool:
            return self.traces.is_dir() and self.verify().get("ranks", {}).get("read") == 3

        report = self.interrupt("endless", "", begun)
        self.assertEqual((report["verdict"], report["findings"]), ("inconclusive", []), report)
        self.assertIn("the job was interrupted", " ".join(report["unknown"]))

    def test_a_hung_job_that_its_user_interrupts(self) -> None:
        self.variables = {"LOCKSTEP_RECORD_HUNG_AFTER": "3"}
        report = self.interrupt("sleeper", "asleep", (self.traces / "rank_2.stack").is_file)
        finding = report["findings"][0]
        self.assertEqual((finding["rule"], finding["culprits"]), ("host-stall", [2]), report)
        self.assertRegex(json.dumps(finding), r"interrupted: KeyboardInterrupt \([^)]*jobs\.py:\d+\)")

    def test_an_exit_with_a_status(self) -> None:
        finding = self.assert_found("raises", "exits", "rank-exception", culprits=(1,))
        self.assertIn("SystemExit: 3", finding["message"])

    def test_groups_that_only_some_ranks_make(self) -> None:
        self.assert_clean("new_groups", ranks=4)
        self.variables = {"LOCKSTEP_RECORD_HUNG_AFTER": "3"}
        finding = self.assert_found("new_groups", "some", "group-divergence", ranks=4)
        self.assertIn("the creation of a process group of ranks [0, 2]", json.dumps(finding))

    def test_ranks_that_all_stay_in_the_creation_of_groups(self) -> None:
        self.variables = {"LOCKSTEP_RECORD_HUNG_AFTER": "3"}
        finding = self.assert_found("new_groups", "opposite", "group-divergence", ranks=3)
        self.assertIn("ranks 0-2 stay in the creation of a process group", finding["message"])

    def test_groups_that_are_made_again(self) -> None:
        self.assert_clean("again")
        finding = self.assert_found("again", "skip", "missing-collective", "op-mismatch",
                                    "cross-group-deadlock", culprits=(1,))
        self.assertIn("default_pg (group 0 (2))", finding["message"])

    def test_threads_that_share_a_group(self) -> None:
        self.assert_clean("threads")
        report = self.run_to_its_end("jobs.py", "threads", "shared")
        finding = report["findings"][0]
        self.assertEqual((finding["rule"], finding["culprits"]), ("order-swap", []), report)
        self.assertIn("several threads of each rank issue calls in", finding["message"])
        source = (PROGRAMS / "jobs.py").read_text().splitlines()
        line = next(i for i, text in enumerate(source, 1) if "the line of the metrics" in text)
        self.assertIn(f"jobs.py:{line}", finding["message"])

    def test_roots_that_differ_on_each_rank(self) -> None:
        self.assert_clean("roots", ranks=3)
        finding = self.assert_found("roots", "own", "root-mismatch", ranks=3, culprits=(1, 2))
        for told in ("rank 1 issued reduce of 1 float32 (sum) (root 1)",
                     "rank 2 issued reduce of 1 float32 (sum) (root 2)"):
            self.assertIn(told, finding["message"])

    def test_a_ring_whose_last_hop_a_rank_leaves_out(self) -> None:
        self.assert_clean("ring", ranks=4)
        self.assert_found("ring", "short", "deadlock", "p2p-unmatched", "missing-collective",
                          ranks=4, culprits=(1,))

    def test_messages_that_nobody_waits_for(self) -> None:
        self.assert_clean("isend")
        self.variables = {"LOCKSTEP_RECORD_HUNG_AFTER": "3"}
        self.assert_found("isend", "forgotten", "never-waited", culprits=(0,))
        self.assert_found("isend", "first", "never-waited", culprits=(0,))

    def test_a_rank_with_fewer_coalesced_tensors(self) -> None:
        self.assert_clean("coalesced", ranks=3)
        self.assert_found("coalesced", "less", "size-mismatch", ranks=3, culprits=(1,))

    def test_a_stage_that_sleeps_is_told_with_its_line(self) -> None:
        self.assert_clean("pipeline_sleeps", ranks=3)
        self.variables = {"LOCKSTEP_RECORD_HUNG_AFTER": "3"}
        finding = self.assert_found("pipeline_sleeps", "asleep", "host-stall", ranks=3, culprits=(1,))
        self.assertRegex(json.dumps(finding), r"its process was in forward \([^)]*jobs\.py:\d+\)")

    def test_a_cycle_comes_before_ranks_that_compute(self) -> None:
        self.assert_found("two_groups", "crossed", "cross-group-deadlock", ranks=4)

    def test_a_rank_that_sleeps_until_the_others_give_up(self) -> None:
        finding = self.assert_found("sleeper", "given-up", "host-stall", ranks=3, culprits=(2,))
        self.assertIn("rank 2 stopped ", finding["message"])
        self.assertIn("before call 4 of default_pg", finding["message"])

    def test_a_rank_that_sleeps_in_a_job_that_is_killed(self) -> None:
        def told(report: Report) -> "Optional[str]":
            lines = (line for line in report.get("unknown", []) if "all traces just end" in line)
            return next((line for line in lines if "rank 0" in line and "rank 1" in line), None)

        report = self.run_until(told, "jobs.py", "sleeper", "asleep", ranks=3)
        self.assertEqual(report["verdict"], "inconclusive", report)
        self.assertRegex(told(report) or "", r"jobs\.py:\d+\) for rank")
        self.assertIn("rank 2 is still running", told(report) or "")


class Values(Forked):
    """lockstep_watch.py."""

    def found(self, variant: str) -> Report:
        report = self.run_to_its_end("watched.py", variant)
        self.assertEqual(report["verdict"], "findings", report)
        return report["findings"][0]

    def test_replicas_that_agree(self) -> None:
        report = self.run_to_its_end("watched.py")
        self.assertEqual(report["verdict"], "clean", report)

    def test_a_rank_with_a_learning_rate_of_its_own(self) -> None:
        finding = self.found("rate")
        self.assertEqual((finding["rule"], finding["step"]), ("rank-local-decision", 1), finding)
        self.assertIn("lr", finding["message"])

    def test_a_parameter_that_differs_before_the_first_step(self) -> None:
        finding = self.found("start")
        self.assertEqual((finding["rule"], finding["step"]), ("param-divergence", 0), finding)
        self.assertEqual(finding["what"], ["2.bias"])

    def test_tensors_of_unusual_kinds(self) -> None:
        report = self.run_to_its_end("kinds_of_tensors.py")
        self.assertEqual((report["verdict"], report["findings"]), ("clean", []), report)

    def test_ranks_that_read_the_same_samples(self) -> None:
        self.assertEqual(self.found("samples")["rule"], "no-sharding")


class Faults(Forked):
    """programs/silent_faults.py: first wrong step and tensor, and nothing where the job is right."""

    def assert_found(self, job: str, rules: str, step: int, what: "list[str]",
                     ranks: int = 2, also: str = "") -> None:
        """`also`: what a consequence of the finding names."""
        report = self.run_to_its_end("silent_faults.py", job, "wrong", ranks=ranks)
        self.assertEqual(report["verdict"], "findings", report)
        finding = report["findings"][0]
        self.assertIn(finding["rule"], rules.split(), report)
        self.assertEqual(finding["step"], step, report)
        self.assertEqual(finding["what"], what, report)
        if also:
            self.assertIn([also], [one["what"] for one in finding["consequences"]], report)
        right = self.run_to_its_end("silent_faults.py", job, ranks=ranks)
        self.assertEqual((right["verdict"], right["findings"]), ("clean", []), right)

    def test_gradients_clipped_before_they_are_reduced(self) -> None:
        self.assert_found("clip", "rank-local-decision", 1, ["clip.norm"])

    def test_a_norm_whose_gradients_are_not_reduced_in_its_tensor_group(self) -> None:
        self.assert_found("tensor_parallel", "grad-divergence", 1, ["norm.weight"])

    def test_a_rank_that_goes_on_from_an_older_checkpoint(self) -> None:
        self.assert_found("stale", "param-divergence", 0, [
            "0.weight", "0.bias", "1.weight", "3.weight", "3.bias"])

    def test_a_sharded_optimizer_that_hands_one_shard_out_to_nobody(self) -> None:
        self.assert_found("shard", "rank-local-decision", 1, ["3.bias"])

    def test_a_loader_that_gives_all_ranks_the_same(self) -> None:
        self.assert_found("loader", "no-sharding", 1, [])

    def test_a_stream_that_all_ranks_read_from_its_beginning(self) -> None:
        self.assert_found("stream", "no-sharding", 1, [])

    def test_a_loader_that_gives_one_rank_a_batch_twice(self) -> None:
        self.assert_found("repeats", "overlap", 3, [])

    def test_ranks_of_a_tensor_group_that_read_different_samples(self) -> None:
        self.assert_found("tensor_batches", "rank-local-decision", 1, ["batch"])

    def test_a_shard_of_an_older_checkpoint_under_hybrid_sharding(self) -> None:
        self.assert_found("hybrid", "param-divergence", 0, ["0.weight@1,3"], ranks=4)

    def test_a_shard_that_one_ranks_optimizer_lacks(self) -> None:
        self.assert_found("shard_left_out", "rank-local-decision", 1, ["3.weight"])

    def test_a_norm_of_another_class_under_tensor_and_sharded_data_parallelism(self) -> None:
        self.assert_found("tensor_and_data", "grad-divergence", 1,
                          ["norm.weight@0,1", "norm.weight@2,3"], ranks=4)

    def test_a_parameter_left_out_where_nothing_is_said(self) -> None:
        self.assert_found("unsaid", "grad-divergence", 1, ["1.bias"])

    def test_gradients_that_are_unscaled_before_they_are_reduced(self) -> None:
        self.assert_found("unscale", "rank-local-decision", 2, ["stepped"])

    def test_an_overflow_that_one_rank_sees_alone(self) -> None:
        self.assert_found("mixed_precision", "grad-divergence", 2, ["0.weight"])

    def test_a_head_that_is_tied_without_its_gradients(self) -> None:
        self.assert_found("tied", "grad-divergence", 1, ["embedding"])

    def test_random_numbers_that_differ_in_a_tensor_group(self) -> None:
        self.assert_found("dropout", "grad-divergence", 1,
                          ["down.bias", "norm.weight", "norm.bias"], also="random")

    def test_a_learning_rate_that_differs(self) -> None:
        self.assert_found("rate", "rank-local-decision", 1, ["lr"])

    def test_a_rank_that_stays_in_evaluation_mode(self) -> None:
        self.assert_found("evaluation", "rank-local-decision", 3, ["training"])

    def test_a_rank_that_computes_in_another_precision(self) -> None:
        self.assert_found("precision", "rank-local-decision", 1, ["autocast"])

    def test_gradients_that_one_rank_does_not_zero(self) -> None:
        self.assert_found("forgotten", "stale-gradient", 2, [
            "0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"])

    def test_gradients_of_another_models_step_that_are_not_zeroed(self) -> None:
        self.assert_found("adversaries", "stale-gradient", 2, ["model2.weight", "model2.bias"])

    def test_an_optimizer_of_the_model_that_was_copied(self) -> None:
        self.assert_found("copied", "no-update", 1, [
            "0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"])

    def test_random_numbers_that_are_equal_where_each_rank_needs_its_own(self) -> None:
        self.assert_found("alike", "equal-random", 1, [])

    def test_a_step_that_one_rank_leaves_out(self) -> None:
        self.assert_found("left_out", "rank-local-decision", 3, [])

    def test_gradients_that_are_not_a_number(self) -> None:
        self.assert_found("not_a_number", "non-finite", 3, [
            "0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"])

    def test_ranks_that_all_stay_in_evaluation_mode(self) -> None:
        self.assert_found("still_evaluates", "evaluation-mode", 3, [])

    def test_a_weight_decay_that_differs(self) -> None:
        self.assert_found("decay", "rank-local-decision", 1, ["weight_decay"])

    def test_micro_batches_none_of_which_is_reduced(self) -> None:
        self.assert_found("accumulated", "grad-divergence", 3, [
            "0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"])

    def test_gradients_that_are_zeroed_in_each_micro_batch(self) -> None:
        self.assert_found("zeroed", "unsynchronised-step", 1, [])

    def test_a_step_whose_micro_batches_are_all_without_reduction(self) -> None:
        self.assert_found("unreduced", "unsynchronised-step", 2, [])

    def test_adapters_that_each_rank_makes_with_its_own_seed(self) -> None:
        self.assert_found("adapters", "param-divergence", 0, ["0.down"])

    def test_a_teacher_that_one_rank_does_not_update(self) -> None:
        self.assert_found("teacher", "param-divergence", 2, [
            f"teacher.{name}" for name in ("0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias")])

    def test_activations_that_one_rank_recomputes_with_another_mask(self) -> None:
        self.assert_found("recomputed", "grad-divergence", 1, ["norm.weight", "norm.bias"])

    def test_a_norm_on_parts_of_a_sequence(self) -> None:
        self.assert_found("sequence", "grad-divergence", 1, ["norm.weight"])

    def test_moments_of_an_older_checkpoint(self) -> None:
        self.assert_found("moments", "rank-local-decision", 0, [
            f"{moment}/{name}" for name in ("0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias")
            for moment in ("exp_avg", "exp_avg_sq")])

    def test_a_loss_scale_that_grows_on_one_rank(self) -> None:
        self.assert_found("scalers", "rank-local-decision", 3, ["loss_scale"])

    def test_replicas_of_shards_that_read_the_same_samples(self) -> None:
        self.assert_found("hybrid_samples", "no-sharding", 1, [], ranks=4)

    def test_an_optimizer_that_reduces_what_ranks_added_up(self) -> None:
        report = self.run_to_its_end("silent_faults.py", "reduces_itself")
        self.assertEqual(report["verdict"], "clean", report)

    def test_experts_whose_gradients_are_divided_by_the_wrong_world(self) -> None:
        self.assert_found("experts", "reduction-wrong", 1, [
            "expert.weight@0,2", "expert.bias@0,2", "expert.weight@1,3", "expert.bias@1,3"], ranks=4)


class Unwatched(Forked):
    """programs/unwatched.py: what lockstep_watch_all.py finds by itself."""

    variables = {"LOCKSTEP_RECORD_VALUES": "1"}

    def assert_found(self, job: str, rule: str, step: int, what: "list[str]") -> None:
        finding = self.run_to_its_end("unwatched.py", job, "wrong")["findings"][0]
        self.assertEqual((finding["rule"], finding["step"], finding["what"][:1]), (rule, step, what))
        right = self.run_to_its_end("unwatched.py", job)
        self.assertEqual((right["verdict"], right["findings"]), ("clean", []), right)

    def test_samples_of_the_training_and_not_of_the_validation(self) -> None:
        self.assert_found("loader", "no-sharding", 1, [])

    def test_data_sets_are_the_same_by_what_they_hold(self) -> None:
        sys.path.append(str(TOOLS))
        import lockstep_watch
        from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

        class Shard(Dataset):  # type: ignore[type-arg]
            def __init__(self, *files: Path) -> None:
                self.files, self.cache = list(files), {1: object()}

            def __len__(self) -> int:
                return 8

        number = lockstep_watch._number_of_data_set
        rows = torch.arange(100).reshape(50, 2)
        self.assertEqual(number(TensorDataset(rows)), number(TensorDataset(rows.clone())))
        self.assertNotEqual(number(TensorDataset(rows)), number(TensorDataset(rows + 1)))
        self.assertNotEqual(number(TensorDataset(rows)), number(TensorDataset(rows[:49])))
        self.assertEqual(number(Shard(Path("a"), Path("b"))), number(Shard(Path("a"), Path("b"))))
        self.assertNotEqual(number(Shard(Path("a"))), number(Shard(Path("b"))))
        whole = ConcatDataset([Shard(Path("a")), Shard(Path("b"))])
        self.assertEqual(number(whole), number(ConcatDataset(list(whole.datasets))))
        self.assertNotEqual(number(whole), number(ConcatDataset([Shard(Path("a"))] * 2)))
        part = Subset(Subset(TensorDataset(rows), range(10, 20)), [3, 4])
        self.assertEqual(lockstep_watch._in_whole(part, [1])[1], [14])

    def test_experts_that_ddp_leaves_to_their_ranks(self) -> None:
        self.assert_found("experts", "param-divergence", 0, ["3.bias"])

    def test_columns_that_are_split_by_hand_and_read_one_batch(self) -> None:
        self.assert_found("columns", "no-sharding", 1, [])

    def test_gradients_that_are_clipped_before_the_first_step(self) -> None:
        self.assert_found("clip", "rank-local-decision", 1, ["clip.norm"])

    def test_an_optimizer_that_takes_the_place_of_another(self) -> None:
        self.assert_found("resumed", "rank-local-decision", 4, ["0.weight"])
        text = self.traces.parent / "text"
        subprocess.run([LOCKSTEP, "convert", str(self.traces), "-o", str(text), "--quiet"], check=True)
        calls = (text / "rank_1.trace.jsonl").read_text()
        self.assertIn("unwatched.py:", calls)
        self.assertNotIn("lockstep_watch", calls, "the line of a call is the program's")

    def test_an_optimizer_that_holds_the_parameters_before_they_were_sharded(self) -> None:
        self.assert_found("early", "no-update", 1, ["0.weight"])

    def test_parameters_of_a_root_that_are_gathered_when_the_watch_begins(self) -> None:
        self.assert_found("root", "rank-local-decision", 1, ["3.weight"])

    def test_a_second_model_whose_first_step_a_rank_leaves_out(self) -> None:
        self.assert_found("outliers", "rank-local-decision", 1, [])

    def test_an_optimizer_that_uses_another(self) -> None:
        self.assert_found("zero", "rank-local-decision", 1, ["weight_decay"])


class Command(Preloaded):
    """lockstep record."""

    def record(self, *job: str, program: str = "jobs.py",
               options: "Sequence[str]" = ()) -> "subprocess.CompletedProcess[str]":
        torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port()]
        return self.run_command([*torchrun, str(PROGRAMS / program), *job], options)

    def run_command(self, arguments: "Sequence[str]",
                    options: "Sequence[str]" = ()) -> "subprocess.CompletedProcess[str]":
        """A job of this Python, started with these arguments in the folder of the programs."""
        done = subprocess.run(
            [LOCKSTEP, "record", *options, "--traces", str(self.traces), "--library", LIBRARY, "--",
             sys.executable, "-B", *arguments],
            capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=PROGRAMS,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})
        self.skip_for_another_version(done.stdout + done.stderr)
        if "this recorder is for torch" in done.stderr:
            self.skipTest(done.stderr)
        return done

    def test_a_healthy_job(self) -> None:
        done = self.record("inference")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("CLEAN", done.stdout.upper())

    def test_values_of_a_job_that_is_not_watched(self) -> None:
        done = self.record("clip", "wrong", program="unwatched.py", options=["--values"])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("rank-local-decision", done.stdout)

    def test_a_job_whose_launcher_starts_it_again_is_not_ended(self) -> None:
        done = self.run_command(["restarts.py"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("can never continue", done.stderr)
        self.assertIn("CLEAN", done.stdout.upper())
        self.assertIn("after an attempt that failed: attempt 0:", " ".join(done.stdout.split()))
        self.assertIn("ValueError: no such file (restarts.py:", " ".join(done.stdout.split()))

    def test_an_exception_in_a_process_that_multiprocessing_starts(self) -> None:
        done = self.run_command(["spawned.py", free_port()])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("rank 1 raised an exception: IndexError: sample 17 out of range", done.stdout)
        self.assertRegex(done.stdout, r"\(spawned\.py:\d+\)")

    def test_a_rank_that_fails_before_its_first_group(self) -> None:
        done = self.run_command(["restarts.py", "early"])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("rank 1 raised an exception: FileNotFoundError: no checkpoint", done.stdout)
        self.assertIn("(restarts.py:", done.stdout)
        first, again, earlier = done.stdout.partition("the launcher started the job again")
        self.assertNotIn("no such file", first, "the exception of the first attempt")
        self.assertIn("no such file", earlier, "the first attempt is told apart")

    def test_ranks_that_all_fail_before_their_first_group(self) -> None:
        done = self.run_command(["restarts.py", "both"])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("in 2 ranks", done.stdout)
        self.assertIn("raised an exception: FileNotFoundError: no checkpoint", done.stdout)

    def test_a_rank_that_is_killed_before_its_first_group(self) -> None:
        done = self.run_command(["restarts.py", "killed"])
        self.assertIn("rank 1 raised an exception: ValueError: no such file", done.stdout)
        self.assertRegex(done.stderr, "1 (was|were) started again, and ended before (its|their) first")

    def test_a_job_that_can_never_continue_is_ended(self) -> None:
        done = self.record("inference", "skip")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("can never continue", done.stderr)
        self.assertRegex(done.stdout, r"jobs\.py:\d+")


if __name__ == "__main__":
    print("torch", torch.__version__)
    result = unittest.main(verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.skipped else 0)  # a library for another torch was not tested
