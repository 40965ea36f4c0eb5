// Does an update use the gradient of its step? Stale gradients, and parameters that move without
// one.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/numbers/tiny_training.h"
#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(StaleGradient, ZeroGradLeftOut) {
  TinyTraining t = training();
  const Report report = with_fault(t, [](TinyTraining& x) {
    x.record_local();  // what backward finds: the last step's
    x.backward();
    x.record_local();
    x.average_all();
    x.finish();
  });
  EXPECT_THAT(summary(report), HasSubstr("stale-gradient error proven step=2"));
}

TEST(StaleGradient, MicroBatchesThatAddUpAreNone) {
  TinyTraining t = training();
#include <fmt/format.h>
  for (int i = 0; i < 3; ++i) {
    t.backward();
    t.record_local();  // after the first micro-batch
    t.good_step();
  }
  EXPECT_EQ(summary(verify(t.run())), "verdict clean");
}

// A step in which p1's gradient is zero, and weight decay moves it.
void decay_p1(TinyTraining& t) {
  t.backward();
  for (std::uint32_t r = 0; r < kWorld; ++r)
    std::fill(t.grad(r, 1).begin(), t.grad(r, 1).end(), 0.0F);
  t.record_local();
  t.average_all();
  t.record_synced();
  t.update_all();
  for (std::uint32_t r = 0; r < kWorld; ++r) {
    for (float& w : t.param(r, 1)) w *= 0.99F;
  }
  t.record_params();
}

TEST(DecayedUnused, ParametersThatMoveWithoutAGradient) {
  TinyTraining t = training();
  const Report report = with_fault(t, decay_p1);
  EXPECT_EQ(summary(report), "decayed-unused warning observed step=2\nverdict findings");
  EXPECT_THAT(report.findings[0].what, ElementsAre("p1"));
}

// As a factor of LoRA's, which is multiplied by one that is initialised with zeros.
TEST(DecayedUnused, AGradientThatIsZeroInTheFirstStepAloneIsNone) {
  for (const bool again : {false, true}) {
    TinyTraining t = training();
    t.record_params();
    t.end_step();
    decay_p1(t);
    t.end_step();
    t.good_step();
    if (again) decay_p1(t);
    EXPECT_EQ(verify(t.run()).verdict, again ? Verdict::findings : Verdict::clean);
  }
}

TEST(DecayedUnused, AParameterThatStaysIsNone) {
  TinyTraining t = training();
  const Report report = with_fault(t, [](TinyTraining& x) {
    x.backward();
    for (std::uint32_t r = 0; r < kWorld; ++r)
      std::fill(x.grad(r, 1).begin(), x.grad(r, 1).end(), 0.0F);
    x.record_local();
    x.average_all();
    x.finish();
  });
  EXPECT_EQ(summary(report), "verdict clean");
}

TEST(StaleGradient, TheRecorderFoundThemAsTheLastStepLeftThem) {
  TinyTraining t = training();
  const Report report = with_fault(t, [](TinyTraining& x) {
    x.record_scalar(1, "leftover/p2", 1);
    x.backward();
    x.record_local();
    x.average_all();
    x.finish();
  });
  EXPECT_EQ(summary(report), "stale-gradient error proven culprits=1 step=2\nverdict findings");
  EXPECT_THAT(report.findings[0].what, ElementsAre("p2"));
}

// Trains for some steps at a learning rate; `updates` says whether a step changes a parameter.
template <class Updates>
Report trained(int steps, double rate, Updates updates, double stepped = 1) {
  TinyTraining t = training();
  t.record_params();
  for (int i = 0; i < steps; ++i) {
    t.end_step();
    t.backward();
    t.record_local();
    t.average_all();
    t.record_synced();
    for (std::uint32_t r = 0; r < kWorld; ++r) {
      t.record_scalar(r, "lr", rate);
      t.record_scalar(r, "stepped", stepped);
      for (std::size_t p = 0; p < t.tensors(); ++p) {
        if (!updates(i, p)) continue;
        for (float& w : t.param(r, p)) w -= 0.01F;
      }
    }
    t.record_params();
  }
  return verify(t.run());
}

TEST(NoUpdate, AnOptimizerOfAnotherModelsParameters) {
  const auto never = [](int, std::size_t) { return false; };
  const Report report = trained(3, 0.1, never);
  EXPECT_EQ(summary(report), "no-update error observed step=1\nverdict findings");
  EXPECT_THAT(report.findings[0].message, HasSubstr("no parameter changed in any step"));
  EXPECT_EQ(summary(trained(2, 0.1, never)), "verdict clean") << "too few steps";
  EXPECT_EQ(summary(trained(4, 0, never)), "verdict clean") << "a schedule that warms up";
  EXPECT_EQ(summary(trained(4, 1e-9, never)), "verdict clean") << "lost in rounding";
  EXPECT_EQ(summary(trained(4, 0.1, never, 0)), "verdict clean") << "steps that were left out";
}

TEST(NoUpdate, AParameterThatTheOptimizerLacksIsWorthANote) {
  const Report report = trained(4, 0.1, [](int, std::size_t p) { return p != 1; });
  EXPECT_TRUE(is_note(report, RuleId::no_update)) << summary(report);
  EXPECT_THAT(report.findings[0].what, ElementsAre("p1"));
}

TEST(NoUpdate, AnOptimizerThatUpdatesEveryFourthStepIsNone) {
  EXPECT_EQ(trained(4, 0.1, [](int i, std::size_t) { return i == 3; }).findings.size(), 0U);
}

// A NaN in a gradient of a rank, which the reduction gives to all.
void overflow(TinyTraining& t, bool updated) {
  t.backward();
  t.grad(2, 1)[0] = std::numeric_limits<float>::quiet_NaN();
  t.record_local();
  t.average_all();
  t.record_synced();
  if (updated) t.update_all();
  t.record_params();
}

TEST(NonFinite, TheRankWhoseGradientWasTheFirst) {
  TinyTraining t = training();
  t.record_params();
  const Report report = with_fault(t, [](TinyTraining& x) { overflow(x, true); });
  EXPECT_EQ(summary(report), "non-finite error observed culprits=2 step=2\nverdict findings");
  EXPECT_THAT(report.findings[0].what, ElementsAre("p1"));
  EXPECT_THAT(report.findings[0].message,
              HasSubstr("the gradients that rank 2 computed in step 2"));
}

TEST(NonFinite, AStepThatAScalerLeavesOutIsNone) {
  TinyTraining t = training();
  t.record_params();
  EXPECT_EQ(summary(with_fault(t, [](TinyTraining& x) { overflow(x, false); })), "verdict clean");
}

TEST(NonFinite, HashesAloneTellNothing) {
  TinyTraining t = training();
  t.detail = TinyTraining::Detail::hash;
  t.record_params();
  const Report report = with_fault(t, [](TinyTraining& x) { overflow(x, true); });
  EXPECT_THAT(summary(report), Not(HasSubstr("non-finite")));
}

// Whether the model trains in training mode in each of some steps, by rank.
Report in_modes(const std::vector<std::string>& modes) {
  TinyTraining t = training();
  for (std::size_t i = 0; i < modes.front().size(); ++i) {
    for (std::uint32_t r = 0; r < kWorld; ++r)
      t.record_scalar(r, "training", modes[r % modes.size()][i] == 't' ? 1 : 0);
    t.good_step();
  }
  return verify(t.run());
}

TEST(EvaluationMode, AModelThatIsLeftInIt) {
  EXPECT_EQ(summary(in_modes({"tteee"})),
            "evaluation-mode warning observed step=2\nverdict findings");
  EXPECT_EQ(summary(in_modes({"eeee"})), "verdict clean") << "from the beginning: as is meant";
  EXPECT_EQ(summary(in_modes({"teet"})), "verdict clean") << "it comes back";
  EXPECT_THAT(summary(in_modes({"ttt", "tee"})), HasSubstr("rank-local-decision"));
}

TEST(Discarded, ARankThatZeroesItsGradientsWithoutAStep) {
  TinyTraining t = training();
  const Report report = with_fault(t, [](TinyTraining& x) {
    for (std::uint32_t r = 0; r < kWorld; ++r) x.record_scalar(r, "discarded", r == 3 ? 1 : 0);
    x.backward();
    x.record_local();
    x.finish();  // rank 3 is a step behind: nothing agrees
  });
  EXPECT_THAT(summary(report), HasSubstr("rank-local-decision error proven culprits=3 step=2"));
  EXPECT_THAT(report.findings[0].message, HasSubstr("without an optimizer step"));
  TinyTraining all = training();
  EXPECT_EQ(summary(with_fault(all,
                               [](TinyTraining& x) {
                                 for (std::uint32_t r = 0; r < kWorld; ++r)
                                   x.record_scalar(r, "discarded", 2);
                                 x.backward();
                                 x.record_local();
                                 x.average_all();
                                 x.finish();
                               })),
            "verdict clean")
      << "all together: the model has a further loss";
}

TEST(UnsynchronisedStep, MicroBatchesThatNoReductionCarried) {
  const auto judged = [](const std::string& name, double value) {
    TinyTraining t = training();
    return with_fault(t, [&](TinyTraining& x) {
      for (std::uint32_t r = 0; r < kWorld; ++r)
        x.line(r, fmt::format(R"({{"ev":"state","n":{},"name":"{}","kind":"optim","norm":{},)"
                              R"("sharded":true}})",
                              x.step_number(), name, value));
      x.backward();
      x.record_local();
      x.average_all();
      x.finish();
    });
  };
  const Report lost = judged("lost", 2);
  EXPECT_EQ(summary(lost), "unsynchronised-step error observed step=2\nverdict findings");
  EXPECT_THAT(lost.findings[0].message, HasSubstr("the gradients of 2 backwards under no_sync()"));
  const Report none = judged("model2.unreduced", 1);
  EXPECT_EQ(summary(none), "unsynchronised-step error observed step=2\nverdict findings");
  EXPECT_THAT(none.findings[0].message, HasSubstr("without any gradient"));
}

// The state of each rank's random numbers in two steps.
Report drawn(const std::vector<std::string>& states) {
  TinyTraining t = training();
  for (int i = 0; i < 2; ++i) {
    for (std::uint32_t r = 0; r < states.size(); ++r) {
      const std::string hash = states[r] + std::to_string(i);
      t.line(r, R"({"ev":"state","n":)" + std::to_string(i) +
                    R"(,"name":"different_random","kind":"optim","hash":")" + hash +
                    R"(","sharded":true})");
    }
    t.good_step();
  }
  return verify(t.run());
}

TEST(EqualRandom, RanksThatWereSeededAlike) {
  const Report report = drawn({"a", "b", "a", "c"});
  EXPECT_EQ(summary(report), "equal-random error observed step=0\nverdict findings");
  EXPECT_THAT(report.findings[0].message, HasSubstr("ranks 0, 2 draw the same"));
  EXPECT_EQ(summary(drawn({"a", "b", "d", "c"})), "verdict clean");
  EXPECT_EQ(summary(drawn({"a"})), "verdict clean") << "the other ranks' are not recorded";
}

}  // namespace
}  // namespace lockstep::verify
