// Learning rates, clipping by group, and the scale of the loss.
#include "runtime/train/optimization.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

using Train = Scenario::Train;

TEST(LearningRate, GrowsLinearlyThenFallsAsHalfACosine) {
  Train train;
  train.lr = 1;
  train.steps = 6;
  train.schedule = {2, Train::Schedule::Decay::cosine};
  EXPECT_DOUBLE_EQ(learning_rate(train, 0), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(train, 1), 1);
  EXPECT_DOUBLE_EQ(learning_rate(train, 2), 1);
  EXPECT_DOUBLE_EQ(learning_rate(train, 4), 0.5);
  EXPECT_GT(learning_rate(train, 5), 0);
  train.schedule.decay = Train::Schedule::Decay::constant;
  EXPECT_DOUBLE_EQ(learning_rate(train, 5), 1);
}

NamedTensors with_gradients() {
  NamedTensors all;
  for (const char* name : {"image.a", "image_proj.b", "text.c", "text_head.d"}) {
    at::Tensor parameter = at::zeros({1}).requires_grad_();
    parameter.mutable_grad() = at::full({1}, 3.0F);
    all.emplace_back(name, parameter);
  }
  return all;
}

void clip(const Train::Clip& limits, const NamedTensors& parameters) {
  const TempDir folder;
  trace::RingWriter::Options options;
  options.path = folder.file("rank_0.ring");
  options.rank = trace::Rank(0);
  const auto ring = trace::RingWriter::create(options);
  Recorder recorder(**ring);
  clip_gradients(limits, parameters, recorder);
}

TEST(ClipGradients, LimitsTheNormOfEachGroupByItself) {
  const NamedTensors parameters = with_gradients();
  Train::Clip limits;
  limits.image = 1;
  limits.text = 100;
  clip(limits, parameters);
  const auto gradient = [&](std::size_t i) { return parameters[i].second.grad().item<float>(); };
  EXPECT_NEAR(gradient(0), 1 / std::sqrt(2.0), 1e-5);  // 3 / norm of (3, 3)
  EXPECT_NEAR(gradient(1), 1 / std::sqrt(2.0), 1e-5);
  EXPECT_EQ(gradient(2), 3);
  EXPECT_EQ(gradient(3), 3);
}

TEST(ClipGradients, LeavesOutWhatHasNoGradient) {
  NamedTensors parameters = with_gradients();
  parameters[0].second.mutable_grad().reset();
  Train::Clip limits;
  limits.image = 1;
  clip(limits, parameters);
  EXPECT_FALSE(parameters[0].second.grad().defined());
  EXPECT_NEAR(parameters[1].second.grad().item<float>(), 1, 1e-5);
}

}  // namespace
}  // namespace lockstep::runtime
