// The reason of a plan names what its step really waits for, and changes that were simulated.
#include "sim/transformer/step_reason.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/quantities.h"
#include "sim/transformer/plan_file.h"
#include "sim/transformer/plan_forecast.h"

namespace lockstep::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Sixteen nodes of eight. Large products, so that little is lost unless a test sees to it.
constexpr const char* kModel =
    "{layers: 16, hidden: 8192, heads: 64, ffn: 32768, vocabulary: 1024}";

std::string plan(const std::string& layout, const std::string& model = kModel) {
  return fmt::format(
      "plan: 1\nname: p\ncalibration: any\ngpus_per_node: 8\nmodel: {}\nsequence: 4096\n{}", model,
      layout);
}

PlanForecast forecast(const std::string& text, const Calibration& calibration) {
  const Result<PlanFile> parsed = parse_plan(text, "p.yaml");
  EXPECT_TRUE(parsed) << parsed.error().str();
  if (!parsed) return {};
  Result<PlanForecast> out = forecast_plan(*parsed, calibration);
  EXPECT_TRUE(out) << out.error().str();
  return out ? std::move(*out) : PlanForecast{};
}

// Without what limits plans on real machines: quick links, and a host that keeps up.
Calibration ideal() {
  Calibration out = *shipped_calibration("h100-cluster");
  out.cost.node_speed = out.cost.network_speed = 100;
  out.cost.launch_forward = out.cost.launch_backward = out.cost.launch_unfused = 0;
  out.cost.launch_micro_batch = out.cost.step_overhead = out.cost.call_overhead = 0;
  out.cost.stage_handover = 0;
  return out;
}

std::string limited_by(const std::string& what) {
  return "beside computing, most time goes to " + what + " (";
}

TEST(StepReason, FewMicroBatchesAreABubble) {
  const PlanForecast f =
      forecast(plan("gpus: 8\npipeline: {stages: 8}\nglobal_batch: 8\n"), ideal());
  EXPECT_THAT(reason_of(f), StartsWith(limited_by("the pipeline's bubble")));
  EXPECT_NEAR(f.bubble_share, 7.0 / 15, 0.01);
}

TEST(StepReason, SlowLinksInANodeAreTensorParallelCalls) {
  Calibration machine = ideal();
  machine.cost.node_speed = 0.1;
  const std::string text = plan("gpus: 16\ntensor: 8\nglobal_batch: 32\n");
  const std::string reason = reason_of(forecast(text, machine));
  EXPECT_THAT(reason, StartsWith(limited_by("tensor-parallel collectives")));
  EXPECT_THAT(reason, HasSubstr("; async_tensor: true gives "));
}

TEST(StepReason, SlowLinksBetweenNodesAreGradients) {
  Calibration machine = ideal();
  machine.cost.network_speed = 2;
  const std::string text = plan("gpus: 128\ntensor: 8\nglobal_batch: 64\n");
  const std::string to = limited_by("gradients and parameters that data-parallel ranks exchange");
  EXPECT_THAT(reason_of(forecast(text, machine)),
              AllOf(StartsWith(to), HasSubstr("overlap.gradients: true")));
  // What is overlapped already is not advised again.
  EXPECT_THAT(reason_of(forecast(text + "overlap: {gradients: true}\n", machine)),
              AllOf(StartsWith(to), Not(HasSubstr("overlap.gradients"))));
}

TEST(StepReason, ManyParametersAndFewTokensAreTheOptimizer) {
  const std::string reason = reason_of(
      forecast("plan: 1\nname: p\ncalibration: any\nmodel: {layers: 16, hidden: 8192, heads: 64, "
               "vocabulary: 1024}\nsequence: 64\ngpus: 1\nglobal_batch: 1\n",
               ideal()));
  EXPECT_THAT(reason, StartsWith(limited_by("the optimizer's memory traffic")));
}

TEST(StepReason, SmallKernelsAreTheHost) {
  Calibration machine = ideal();
  machine.cost.launch_forward = machine.cost.launch_backward = 20e-3;
  const std::string reason = reason_of(forecast(
      plan("gpus: 1\nglobal_batch: 8\n", "{layers: 16, hidden: 1024, heads: 16, vocabulary: 1024}"),
      machine));
  EXPECT_THAT(reason, AllOf(HasSubstr("most time goes to waiting for the host"),
                            HasSubstr("micro_batch: 2")));
}

TEST(StepReason, RecomputationIsCountedAsLost) {
  const PlanForecast f =
      forecast(plan("gpus: 8\ntensor: 8\nglobal_batch: 8\nrecompute: full\n"), ideal());
  EXPECT_THAT(reason_of(f), StartsWith(limited_by("computing the forward pass again")));
}

// Its share is what the step is longer than without it, though its parts count it as exchange.
TEST(StepReason, ASlowRankIsNoSlowNetwork) {
  Calibration machine = ideal();
  machine.cost.slow = {{3, 3, 1.5}};
  const std::string text = plan("gpus: 16\ntensor: 2\nglobal_batch: 128\n");
  const double slow = forecast(text, machine).step.seconds;
  const double even = forecast(text, ideal()).step.seconds;
  EXPECT_THAT(reason_of(forecast(text, machine)),
              StartsWith(limited_by("waiting for slow ranks") + percent(1 - even / slow)));
  // One that the job does not have slows nothing.
  machine.cost.slow = {{16, 16, 1.5}};
  EXPECT_EQ(reason_of(forecast(text, machine)), reason_of(forecast(text, ideal())));
}

TEST(StepReason, FullExpertsAreNamed) {
  const std::string text = plan(
      "gpus: 8\nexpert: 8\nexpert_skew: 3\nglobal_batch: 64\n",
      "{layers: 8, hidden: 4096, heads: 32, experts: 8, experts_per_token: 2, vocabulary: 1024}");
  EXPECT_THAT(reason_of(forecast(text, ideal())),
              StartsWith(limited_by("experts that get more tokens than others")));
}

TEST(StepReason, APlanThatComputesIsLimitedByNothingElse) {
  const std::string busy = reason_of(forecast(plan("gpus: 8\nglobal_batch: 512\n"), ideal()));
  EXPECT_EQ(busy, "nothing but computing takes more than a hundredth of the time");
  // 3/(m + 3) of it is a bubble: little, but the largest part.
  const std::string nearly =
      reason_of(forecast(plan("gpus: 4\npipeline: {stages: 4}\nglobal_batch: 128\n"), ideal()));
  EXPECT_THAT(nearly, AllOf(StartsWith("computing takes the time: nothing else takes more than "),
                            HasSubstr("the pipeline's bubble"), Not(HasSubstr("most time goes"))));
}

// What is advised is what the plan gives with that key in its file.
TEST(StepReason, AdviceIsWhatThePlanGivesWithTheChange) {
  const Calibration machine = *shipped_calibration("h100-cluster");
  const std::string rest = "gpus: 64\nzero: 1\nglobal_batch: 512\ngpu_memory: 1TB\n";
  const PlanForecast f = forecast(plan(rest + "tensor: 8\nrecompute: full\n"), machine);
  const double gain =
      forecast(plan(rest + "tensor: 8\nrecompute: none\n"), machine).tokens_per_second /
          f.tokens_per_second -
      1;
  ASSERT_GT(gain, 0.05);
  EXPECT_THAT(reason_of(f), HasSubstr(fmt::format("recompute: none gives {} more", percent(gain))));
}

TEST(StepReason, OnlyWhatHelpsAndFitsIsAdvised) {
  const StepLoss loss{"pipeline_bubble", "the pipeline's bubble", 0.2};
  const std::string lost = limited_by("the pipeline's bubble") + "20 % of the GPUs')";
  const TriedChange planned{"", 100, true};
  EXPECT_EQ(reason_sentence(loss, planned, {}), lost);
  EXPECT_EQ(reason_sentence(loss, planned, {{"a", 110, true}, {"b", 120, true}}),
            lost + "; b gives 20 % more tokens/s");
  EXPECT_EQ(reason_sentence(loss, planned, {{"a", 110, true}, {"b", 120, false}}),
            lost + "; a gives 10 % more tokens/s");
  EXPECT_EQ(reason_sentence(loss, planned, {{"a", 100.1, true}, {"b", 120, false}}),
            lost + "; b would give 20 % more tokens/s, but does not fit");
  EXPECT_EQ(reason_sentence(loss, planned, {{"a", 100, true}, {"b", 90, true}}),
            lost + "; a and b give no more tokens/s");
  EXPECT_EQ(reason_sentence(loss, {"", 100, false}, {{"b", 120, false}}),
            lost + "; b gives 20 % more tokens/s");
}

}  // namespace
}  // namespace lockstep::sim
