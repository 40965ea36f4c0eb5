// Activation checkpointing against the same model without it: gradients, statistics and random
// numbers must be equal bit by bit.
#include "runtime/models/checkpointing.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/models/contrastive.h"
#include "runtime/train/precision.h"
#include "tests/runtime/small_model.h"

namespace lockstep::runtime {
namespace {

using Checkpointing = Scenario::Model::Checkpointing;
using Precision = Scenario::Train::Precision;

struct TrainedOnce {
  NamedTensors gradients, buffers;
  at::Tensor next_random;
};

// `images_in_eval`: the image encoder is in evaluation mode in the forward, and no more in the
// backward, as with a dummy image.
TrainedOnce trained_once(Scenario::Model options, Precision precision, bool images_in_eval) {
  at::set_num_threads(1);
  at::manual_seed(1);
  ContrastiveModel model(options, words_of_shapes());
  at::Tensor loss;
  {
    const Autocast autocast(precision);
    if (images_in_eval) model->image_tower().module->eval();
    loss = model->losses(items(0, 4)).total;
    model->train();
  }
  loss.backward();
  TrainedOnce out;
  for (const auto& [name, parameter] : trained_parameters(*model)) {
    out.gradients.emplace_back(name, parameter.grad());
  }
  out.buffers = named_buffers(*model);
  out.next_random = at::rand({4});
  return out;
}

void expect_equal(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].second.defined(), b[i].second.defined()) << a[i].first;
    if (!a[i].second.defined()) continue;
    EXPECT_TRUE(a[i].second.equal(b[i].second)) << a[i].first;
  }
}

struct Case {
  const char* name;
  const char* image = "resnet-small";
  const char* text = "bert-small";
  Precision precision = Precision::float32;
  bool images_in_eval = false;
};

class CheckpointingChangesNothing : public testing::TestWithParam<Case> {};

TEST_P(CheckpointingChangesNothing, OfGradientsStatisticsAndRandomNumbers) {
  const Case& c = GetParam();
  Scenario::Model options;
  options.image = c.image;
  options.text = c.text;
  options.embed_dim = 16;
  const TrainedOnce plain = trained_once(options, c.precision, c.images_in_eval);
  for (const Checkpointing what : {Checkpointing::blocks, Checkpointing::encoders}) {
    options.activation_checkpointing = what;
    const TrainedOnce again = trained_once(options, c.precision, c.images_in_eval);
    expect_equal(plain.gradients, again.gradients);
    expect_equal(plain.buffers, again.buffers);
    EXPECT_TRUE(plain.next_random.equal(again.next_random));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, CheckpointingChangesNothing,
    testing::Values(Case{.name = "small"}, Case{.name = "resnet_tiny", .image = "resnet-tiny"},
                    Case{.name = "dropout", .text = "bert-tiny"},
                    Case{.name = "bfloat16", .precision = Precision::bfloat16},
                    Case{.name = "mode_of_the_forward", .images_in_eval = true}),
    [](const auto& c) { return std::string(c.param.name); });

// A linear layer, and how often it ran.
struct Counted {
  torch::nn::Linear layer{8, 8};
  std::shared_ptr<int> runs = std::make_shared<int>(0);

  at::Tensor run(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& after) {
    return checkpointed(layer.ptr(), [layer = layer, runs = runs, x, after]() mutable {
      ++*runs;
      return after(layer(x));
    });
  }
};

TEST(Checkpointing, RunsOnceMoreInBackwardAndNotWithoutGradients) {
  Counted part;
  const auto twice = [](const at::Tensor& x) { return x.sin().sin(); };
  const at::Tensor out = part.run(at::ones({2, 8}), twice);
  EXPECT_EQ(*part.runs, 1);
  out.sum().backward();
  EXPECT_EQ(*part.runs, 2);
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(part.run(at::ones({2, 8}), twice).requires_grad());
  }
  EXPECT_EQ(*part.runs, 3);
}

TEST(Checkpointing, LeavesNothingToTheNextOperation) {
  Counted part;
  const at::Tensor out = part.run(at::ones({2, 8}), [](const at::Tensor& x) { return x; });
  out.sin().sum().backward();  // sin() is outside, and keeps what it needs
  EXPECT_EQ(*part.runs, 2);
}

TEST(Checkpointing, CanBeTurnedOff) {
  Counted part;
  at::Tensor out;
  {
    const NoCheckpointing off;
    out = part.run(at::ones({2, 8}), [](const at::Tensor& x) { return x.sin(); });
  }
  out.sum().backward();
  EXPECT_EQ(*part.runs, 1);
}

TEST(Checkpointing, ARecomputationThatDiffersIsAnError) {
  Counted part;
  const at::Tensor out = part.run(at::ones({2, 8}), [runs = part.runs](const at::Tensor& x) {
    return *runs == 1 ? x.sin().sin() : x.sin();
  });
  try {
    out.sum().backward();
    FAIL() << "nothing was noticed";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("both must do the same"));
  }
}

}  // namespace
}  // namespace lockstep::runtime
