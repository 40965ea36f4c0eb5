// How far two trainings ended apart.
#include <gtest/gtest.h>

#include "tests/verify/numbers/tiny_training.h"
#include "verify/compare_runs.h"

namespace lockstep::verify {
namespace {

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
