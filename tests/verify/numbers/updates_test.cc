// Does an update use the gradient of its step? Stale gradients, and parameters that move without
// one.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/numbers/tiny_training.h"
#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace lockstep::verify
