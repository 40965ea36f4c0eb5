"""The values that liblockstep_record.so records, of models that are watched.

usage: with_torch record_values_test.py (unittest's arguments)
environment: LOCKSTEP_PROGRAM, LOCKSTEP_RECORD_LIBRARY
"""

import subprocess
import sys
from pathlib import Path

import torch

from preloaded import LOCKSTEP, TOOLS, Forked, Report, run_tests


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


if __name__ == "__main__":
    run_tests()
