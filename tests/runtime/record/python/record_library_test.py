"""liblockstep_record.so with a real torch: programs that know nothing of it, preloaded.

usage: with_torch record_library_test.py (unittest's arguments)
environment: LOCKSTEP_PROGRAM, LOCKSTEP_RECORD_LIBRARY
"""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Callable, Optional, Sequence

from preloaded import (LIBRARY, LIMIT_S, LOCKSTEP, PROGRAMS, Forked, Preloaded, Report, end, first_of,
                       free_port, run_tests)


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

    def test_what_another_rank_raised_is_told_without_its_traceback(self) -> None:
        finding = self.assert_found("checkpoint", "full", "rank-exception", culprits=(1,))
        self.assertRegex(finding["message"],
                         r"CheckpointException ranks:dict_keys\(\[1\]\); rank 1: OSError: "
                         r"\[Errno 28\] No space left on device \(.*jobs\.py:\d+\)")

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
    run_tests()
