// Two runs side by side: their values, how far they drift apart, and one rank's calls.

#include "verify/compare_runs.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"
#include "tests/verify/numbers/tiny_training.h"
#include "verify/compare_calls.h"

namespace lockstep::verify {
namespace {

// Three steps whose reduction adds the ranks up forwards or backwards; `fault(step)` may change
// what ranks hold before the update.
template <class Fault>
auto trained_to_compare(bool backwards, Fault fault) {
  TinyTraining t(4, {64, 256, 64}, 7);
  for (int step = 0; step < 3; ++step) {
    t.backward();
    std::vector<std::uint32_t> order = {0, 1, 2, 3};
    if (backwards) std::reverse(order.begin(), order.end());
    for (std::size_t i = 0; i < t.tensors(); ++i) t.average(i, order, 4);
    fault(t, step);
    t.record_synced();
    t.update_all();
    t.record_params();
    t.end_step();
  }
  return t.run();
}
const auto kNone = [](TinyTraining&, int) {};

TEST(CompareRuns, AnotherOrderOfSummationIsTheSame) {
  const Comparison c =
      compare_runs(trained_to_compare(false, kNone), trained_to_compare(true, kNone));
  EXPECT_FALSE(c.first_difference);
  EXPECT_EQ(c.compared, 18U);
  ASSERT_EQ(c.steps.size(), 3U);
  EXPECT_LT(c.steps[0].gradient->error, 1e-6);
}

TEST(CompareRuns, SaysWhereTheyPartAndHow) {
  const auto doubled = [](TinyTraining& t, int step) {
    if (step != 1) return;
    for (std::uint32_t r = 0; r < 4; ++r) {
      for (float& x : t.grad(r, 1)) x *= 2;
    }
  };
  const Comparison c =
      compare_runs(trained_to_compare(false, doubled), trained_to_compare(false, kNone));
  ASSERT_TRUE(c.first_difference);
  EXPECT_EQ(c.first_difference->n, 1);
  EXPECT_EQ(c.first_difference->name, "p1");
  EXPECT_EQ(c.first_difference->phase, Phase::synced_grad);
  EXPECT_NEAR(c.first_difference->ratio, 2, 1e-3);
  EXPECT_GT(*c.first_difference->cosine, 0.5);
  EXPECT_EQ(c.steps[0].gradient->error, 0);
}

TEST(CompareRuns, RoundingThatGrowsIsNoDivergence) {
  // Parameters that are a little apart, and gradients that follow them; then one that does not.
  const auto noisy = [](float last) {
    return trained_to_compare(false, [=](TinyTraining& t, int step) {
      const float noise = step == 0 ? 0.0F : step == 1 ? 1e-2F : last;
      for (std::uint32_t r = 0; r < 4; ++r) {
        if (step == 0) t.param(r, 0)[0] += 0.01F;
        for (float& x : t.grad(r, 1)) x *= 1 + noise;
      }
    });
  };
  const Comparison drift = compare_runs(noisy(0.02F), trained_to_compare(false, kNone));
  EXPECT_FALSE(drift.first_difference);
  EXPECT_TRUE(drift.drifted);
  const Comparison changed = compare_runs(noisy(3), trained_to_compare(false, kNone));
  ASSERT_TRUE(changed.first_difference);
  EXPECT_EQ(changed.first_difference->n, 2);
}

TEST(CompareRuns, WithoutSketchesNormsAreALowerBound) {
  TinyTraining a(2, {64}, 1);
  TinyTraining b(2, {64}, 2);
  for (TinyTraining* t : {&a, &b}) {
    t->detail = TinyTraining::Detail::norm;
    t->record_params();
  }
  const Comparison c = compare_runs(a.run(), b.run());
  ASSERT_TRUE(c.steps[0].parameter);
  EXPECT_TRUE(c.steps[0].parameter->lower_bound);
}

TEST(CompareRuns, NothingInCommonIsNothing) {
  TinyTraining a(2, {64}, 1);
  a.record_params();
  TinyTraining b(2, {64}, 1);
  EXPECT_EQ(compare_runs(a.run(), b.run()).compared, 0U);
}

// A run of so many ranks whose steps had these losses.
trace::Run with_losses(int ranks, const std::vector<double>& losses) {
  trace::Run run;
  for (int r = 0; r < ranks; ++r) {
    trace::RankTrace trace;
    trace.rank = trace::Rank(r);
    for (std::size_t n = 0; n < losses.size(); ++n) {
      trace::StepMark mark;
      mark.n = static_cast<std::int64_t>(n);
      // The ranks' mean is the loss.
      mark.loss = losses[n] + (r - (ranks - 1) * 0.5);
      trace.steps.push_back(mark);
    }
    run.ranks.push_back(std::move(trace));
  }
  return run;
}

TEST(FinalLoss, IsTheMeanOverTheRanksInTheLastStep) {
  const auto found = final_loss(with_losses(3, {9, 4}), with_losses(1, {7, 4}), "float32");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 1);
  EXPECT_DOUBLE_EQ(found->loss, 4);
  EXPECT_EQ(found->apart, 0);
  EXPECT_TRUE(found->agrees());
}

TEST(FinalLoss, AgreesUpToHalfOfTheTypesDigits) {
  const auto agrees = [](double apart, const char* dtype) {
    return final_loss(with_losses(2, {5 * (1 + apart)}), with_losses(1, {5}), dtype)->agrees();
  };
  EXPECT_TRUE(agrees(2.4e-4, "float32"));
  EXPECT_FALSE(agrees(2.5e-4, "float32"));
  EXPECT_FALSE(agrees(-2.5e-4, "float32"));
  EXPECT_TRUE(agrees(2.2e-2, "float16"));
  EXPECT_FALSE(agrees(2.3e-2, "float16"));
  EXPECT_TRUE(agrees(6.2e-2, "bfloat16"));
  EXPECT_FALSE(agrees(6.3e-2, "bfloat16"));
  EXPECT_FALSE(agrees(2.5e-4, "a type of another day"));
}

TEST(FinalLoss, NanAndInfinityAgreeWithNothing) {
  const double nan = std::nan("");
  const auto agrees = [](double a, double b) {
    return final_loss(with_losses(1, {a}), with_losses(1, {b}), "float32")->agrees();
  };
  EXPECT_FALSE(agrees(nan, nan));
  EXPECT_FALSE(agrees(nan, 1));
  EXPECT_FALSE(agrees(1, nan));
  EXPECT_FALSE(agrees(HUGE_VAL, 1));
  EXPECT_FALSE(agrees(1, HUGE_VAL));
  EXPECT_FALSE(agrees(1, 0));
  EXPECT_TRUE(agrees(0, 0));
}

TEST(FinalLoss, IsNothingWhereTheRunsEndInDifferentStepsOrRecordedNone) {
  EXPECT_FALSE(final_loss(with_losses(2, {5, 4}), with_losses(1, {5}), "float32"));
  EXPECT_FALSE(final_loss(with_losses(2, {}), with_losses(1, {5}), "float32"));
  auto silent = with_losses(1, {5});
  silent.ranks[0].steps[0].loss.reset();
  EXPECT_FALSE(final_loss(silent, with_losses(1, {5}), "float32"));
}

// One rank's calls in two runs.

constexpr const char* kHead = R"({"header":1,"rank":0,"world_size":2}
{"group":"world","ranks":[0,1]}
)";

std::string call(int id, int size, const std::string& what) {
  return issue_line(id, "world", "all_reduce",
                    {{"dtype", {"float32"}}, {"redop", "sum"}, {"in", {{size}}}, {"what", {what}}});
}

CallComparison compared(const std::string& a, const std::string& b) {
  const auto run_a = run_from_text({kHead + a});
  const auto run_b = run_from_text({kHead + b});
  return compare_calls(run_a, 0, run_b, 0);
}

TEST(CompareCalls, EqualOnesAreTheSame) {
  const std::string calls = call(0, 4, "a.w") + call(1, 8, "b.w");
  const CallComparison c = compared(calls, calls);
  EXPECT_TRUE(c.same());
  EXPECT_EQ(c.equal, 2U);
  EXPECT_FALSE(c.a || c.b);
}

TEST(CompareCalls, ARunThatWasStoppedDidTheBeginning) {
  const CallComparison c = compared(call(0, 4, "a.w") + call(1, 8, "b.w"), call(0, 4, "a.w"));
  EXPECT_FALSE(c.same());
  EXPECT_TRUE(c.b_is_beginning());
  EXPECT_TRUE(c.a && !c.b);
  EXPECT_FALSE(compared(call(0, 4, "a.w"), call(0, 4, "a.w") + call(1, 8, "b.w")).b_is_beginning());
}

TEST(CompareCalls, SizeAndIdentityCount) {
  const CallComparison size = compared(call(0, 4, "a.w"), call(0, 5, "a.w"));
  EXPECT_EQ(size.equal, 0U);
  EXPECT_THAT(*size.a, ::testing::HasSubstr("in=4,"));
  EXPECT_FALSE(compared(call(0, 4, "a.w"), call(0, 4, "b.w")).b_is_beginning());
}

// How far two trainings ended apart.

trace::Run trained_to_drift(float rate_of_p0) {
  TinyTraining t(2, {64, 256}, 7);
  for (int step = 0; step < 4; ++step) {
    t.backward();
    t.average_all();
    t.record_synced();
    for (std::uint32_t r = 0; r < 2; ++r) {
      for (float& g : t.grad(r, 0)) g *= rate_of_p0;
    }
    t.update_all();
    t.record_params();
    t.end_step();
  }
  return t.run();
}

bool all(std::string_view) { return true; }

TEST(Drift, EqualTrainingsEndTogether) {
  const Drift d = drift_between(trained_to_drift(1), trained_to_drift(1), Phase::param, all);
  EXPECT_EQ(d.tensors, 2U);
  EXPECT_EQ(d.apart, 0);
  EXPECT_GT(d.travelled, 0);
  EXPECT_GT(d.size, d.travelled);
}

TEST(Drift, CountsTheNamesThatItIsToldTo) {
  const auto slow = trained_to_drift(0);
  const auto normal = trained_to_drift(1);
  const auto p0 = [](std::string_view name) { return name == "p0"; };
  const auto p1 = [](std::string_view name) { return name == "p1"; };
  EXPECT_EQ(drift_between(slow, normal, Phase::param, p1).apart, 0);
  // It never moved, so it is as far behind as the other has gone, the first step included.
  const Drift d = drift_between(slow, normal, Phase::param, p0);
  EXPECT_EQ(d.tensors, 1U);
  EXPECT_GT(d.apart, d.travelled);
}

TEST(Drift, NothingInCommonIsNothing) {
  const Drift d = drift_between(trained_to_drift(1), trained_to_drift(1), Phase::buffer, all);
  EXPECT_EQ(d.tensors, 0U);
  EXPECT_EQ(d.apart, 0);
}

}  // namespace
}  // namespace lockstep::verify
