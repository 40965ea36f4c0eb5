#include <limits>
#include <set>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/api/include/torch/optim.h>

#include "runtime/data/distributed_sampler.h"
#include "runtime/data/shapes.h"
#include "runtime/models/contrastive.h"
#include "runtime/remedies/dummy_fill.h"
#include "runtime/train/batch_source.h"
#include "runtime/train/evaluation.h"
#include "runtime/train/precision.h"
#include "runtime/train/sampler.h"
#include "tests/runtime/small_model.h"
#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

using Rule = Scenario::Data::Rule;
using testing::ElementsAre;
using testing::IsEmpty;

const ShapesDataset& data() {
  static const ShapesDataset shapes(256, 0.0, 1);
  return shapes;
}

Batch batch_of(const std::vector<Modality>& has, int items = 4) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < items; ++i) indices.push_back(i);
  const Rule rule{.ranks = {}, .steps = {}, .has = has};
  return make_batch(data(), indices, &rule);
}
Batch with_images(int items = 4) { return batch_of({Modality::image, Modality::text}, items); }
Batch text_only() { return batch_of({Modality::text}); }

ContrastiveModel model() {
  at::set_num_threads(1);
  at::manual_seed(1);
  return small_model();
}

// "image", "image_proj", …: the parts of the model some of whose parameters satisfy `holds`.
template <class Holds>
std::set<std::string> parts(ContrastiveModel& m, Holds holds) {
  std::set<std::string> found;
  for (auto& [name, tensor] : named_parameters(*m)) {
    if (holds(tensor)) found.insert(name.substr(0, name.find('.')));
  }
  return found;
}
std::set<std::string> without_gradient(ContrastiveModel& m) {
  return parts(m, [](const at::Tensor& p) { return p.requires_grad() && !p.grad().defined(); });
}
std::set<std::string> with_nonzero_gradient(ContrastiveModel& m) {
  return parts(m, [](const at::Tensor& p) {
    return p.grad().defined() && p.grad().abs().sum().item<double>() != 0;  // or is NaN
  });
}

TEST(Batch, TheRuleDecidesOverTheModalities) {
  EXPECT_THAT(with_images().modalities(), ElementsAre("image", "text"));
  EXPECT_THAT(text_only().modalities(), ElementsAre("text"));
  EXPECT_FALSE(text_only().has_image());
}

TEST(Batch, WithoutARuleItemsHaveWhatTheDataSetSays) {
  const ShapesDataset half(4, 0.5, 1);
  const Batch batch = make_batch(half, {0, 1, 2, 3}, nullptr);
  EXPECT_EQ(batch.images.size(0), 2);
  for (std::int64_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(half.has_image(batch.image_rows[i].item<std::int64_t>()));
  }
}

TEST(Sampler, PermutesAsTorchDoes) {
  for (const std::uint64_t seed : {0U, 1U, 77U}) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    const at::Tensor expected = at::randperm(100, generator, at::kLong);
    EXPECT_TRUE(at::tensor(random_permutation(100, seed)).equal(expected)) << "seed " << seed;
  }
}

TEST(Model, ABatchWithImagesTrainsEveryParameter) {
  ContrastiveModel m = model();
  m->losses(with_images()).total.backward();
  EXPECT_THAT(without_gradient(m), IsEmpty());
}

TEST(Model, ATextOnlyBatchLeavesTheImagePathAndTheTemperatureWithoutGradient) {
  ContrastiveModel m = model();
  m->losses(text_only()).total.backward();
  EXPECT_THAT(without_gradient(m), ElementsAre("image", "image_proj", "logit_scale"));
  EXPECT_THAT(with_nonzero_gradient(m), ElementsAre("text", "text_head", "text_proj"));
}

TEST(Model, OneImageStillGivesEveryParameterAGradient) {
  ContrastiveModel m = model();
  m->losses(with_images(1)).total.backward();
  EXPECT_THAT(without_gradient(m), IsEmpty());
}

// --- images without a text -----------------------------------------------------------------------

Batch with_lone_images(int pairs, int lone) {
  Batch batch = with_images(pairs + lone);
  batch.tokens = batch.tokens.slice(0, 0, pairs);
  batch.image_rows = batch.image_rows.slice(0, 0, pairs);
  return batch;
}

TEST(Model, SentencesWithoutAnImageAreDistinguished) {
  ContrastiveModel m = model();
  m->eval();
  const Batch batch = with_lone_images(3, 2);
  const at::Tensor images = m->embed_images(batch.images);
  const at::Tensor sentences = m->embed_sentences(batch.tokens);
  const at::Tensor logits =
      m->named_parameters()["logit_scale"].exp() * at::matmul(sentences, images.t());
  const at::Tensor right = at::arange(3, at::kLong);
  const at::Tensor expected = (at::cross_entropy_loss(logits, right) +
                               at::cross_entropy_loss(logits.slice(1, 0, 3).t(), right)) /
                              2;
  const at::Tensor found = m->losses(batch).contrastive;
  EXPECT_NEAR(found.item<double>(), expected.item<double>(), 1e-5);
  EXPECT_GT(found.item<double>(), m->losses(with_lone_images(3, 0)).contrastive.item<double>());
}

TEST(Model, WithoutAnyPairImagesGiveGradientsOfZero) {
  Scenario::Model options;
  options.head = "fusion";
  options.fusion.width = 16;
  ContrastiveModel m(options, model()->input());
  Batch batch = with_lone_images(1, 2);
  batch.image_rows = batch.image_rows.slice(0, 0, 0);
  const Losses losses = m->losses(batch);
  EXPECT_EQ(losses.contrastive.item<double>(), 0);
  EXPECT_EQ(losses.matching.item<double>(), 0);
  losses.total.backward();
  EXPECT_THAT(without_gradient(m), IsEmpty());
  EXPECT_THAT(with_nonzero_gradient(m), ElementsAre("text", "text_head", "text_proj"));
}

TEST(BatchSource, ImagesWithoutATextComeAfterThePairs) {
  const TempDir folder;
  ShapesFiles shapes;
  shapes.items = 4;
  shapes.side = 32;
  ASSERT_TRUE(static_cast<bool>(write_shapes(folder.file("shapes"), shapes)));
  std::string lines;
  for (int i = 0; i < 4; ++i) {
    const bool text = i % 2 == 1;
    lines += R"({"image": "shapes/images/00000)" + std::to_string(i) + R"(.png")" +
             (text ? R"(, "text": "a large red circle")" : "") + "}\n";
  }
  folder.write("items.jsonl", lines);
  Scenario s;
  s.data.source = "manifest";
  s.data.manifest = {folder.file("items.jsonl")};
  s.data.vocab = folder.file("shapes/vocab.txt");
  s.train.batch_size = 4;
  const auto source = BatchSource::open(s, 0, 1);
  ASSERT_TRUE(static_cast<bool>(source)) << source.error().str();
  const Batch batch = (*source)->step(0).front();
  EXPECT_EQ(batch.tokens.size(0), 2);
  EXPECT_EQ(batch.images.size(0), 4);
  EXPECT_EQ(batch.image_rows.size(0), 2);
  ASSERT_EQ(batch.indices.size(), 4U);
  EXPECT_EQ(batch.indices[0] % 2 + batch.indices[1] % 2, 2);
  EXPECT_EQ(batch.indices[2] % 2 + batch.indices[3] % 2, 0);

  // Images alone have no loss.
  s.train.batch_size = 1;
  const auto single = BatchSource::open(s, 0, 1);
  EXPECT_THROW(
      {
        for (std::int64_t step = 0; step < 4; ++step) (*single)->step(step);
      },
      std::runtime_error);
}

TEST(Model, FrozenPartsAreNotTrainedAndTheProjectionsHaveOneShape) {
  ContrastiveModel m = model();
  freeze(*m, {"image.", "text.", "text_head", "logit_scale"});
  const NamedTensors trained = trained_parameters(*m);
  ASSERT_EQ(trained.size(), 2U);
  EXPECT_EQ(trained[0].first, "image_proj.weight");
  EXPECT_EQ(trained[1].first, "text_proj.weight");
  EXPECT_EQ(trained[0].second.sizes(), trained[1].second.sizes());
}

TEST(DummyImage, GivesTheImagePathGradientsOfZero) {
  ContrastiveModel m = model();
  (m->losses(text_only()).total + dummy_image_term(m, DummyBatchNorm::passed_by)).backward();
  EXPECT_THAT(without_gradient(m), IsEmpty());
  EXPECT_THAT(with_nonzero_gradient(m), ElementsAre("text", "text_head", "text_proj"));
}

// Kernels that leave a part of a gradient unset show it only in memory that held something else.
TEST(DummyImage, GivesZerosInLowPrecisionWhateverMemoryHeld) {
  ContrastiveModel m = model();
  const auto spoil_free_memory = [] {
    std::vector<at::Tensor> spoilt;
    for (std::int64_t size = 8; size < 200000; size += size / 2)
      for (int i = 0; i < 3; ++i)
        spoilt.push_back(at::full({size}, std::numeric_limits<float>::quiet_NaN()));
  };
  for (int i = 0; i < 20; ++i) {
    at::Tensor term;
    {
      const Autocast autocast(Scenario::Train::Precision::bfloat16);
      term = dummy_image_term(m, DummyBatchNorm::passed_by);
    }
    spoil_free_memory();
    term.backward();
    EXPECT_THAT(with_nonzero_gradient(m), IsEmpty());
  }
}

TEST(DummyImage, LeavesTheLossAndBatchNormAlone) {
  ContrastiveModel m = model();
  const auto buffers_of = [&] {
    std::vector<at::Tensor> copies;
    for (auto& [name, tensor] : named_buffers(*m)) copies.push_back(tensor.clone());
    return copies;
  };
  const auto before = buffers_of();
  EXPECT_EQ(dummy_image_term(m, DummyBatchNorm::passed_by).item<double>(), 0);
  const auto after = buffers_of();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(before[i].equal(after[i]));
  EXPECT_TRUE(m->image_tower().module->is_training());
}

TEST(Training, TheLossFallsAndCaptionsOfUnseenPicturesAreFoundAboveChance) {
  Scenario scenario;
  scenario.data.items = 256;
  scenario.data.held_out = 64;
  scenario.train.batch_size = 32;
  scenario.train.steps = 40;
  const auto source = BatchSource::open(scenario, 0, 1);
  ASSERT_TRUE(source) << source.error().str();
  at::manual_seed(1);
  ContrastiveModel m(scenario.model, (*source)->input());
  std::vector<at::Tensor> trained;
  for (auto& [name, parameter] : trained_parameters(*m)) trained.push_back(parameter);
  torch::optim::AdamW optimizer(trained, torch::optim::AdamWOptions(3e-3));
  double first = 0;
  double last = 0;
  for (std::int64_t step = 0; step < scenario.train.steps; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = m->losses((*source)->step(step).front()).total;
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.7 * first);
  const Retrieval retrieval = evaluate_retrieval(m, **source, 64);
  EXPECT_EQ(retrieval.items, 64);
  EXPECT_GT(retrieval.recall_at_1, 3 * retrieval.chance);
  EXPECT_GE(retrieval.recall_at_5, retrieval.recall_at_1);
  EXPECT_GE(retrieval.recall_at_10, retrieval.recall_at_5);
}

// A model that gives every sentence the same embedding, or none that is a number, finds nothing.
TEST(Evaluation, AModelThatDistinguishesNothingFindsNothing) {
  Scenario scenario;
  scenario.data.items = 64;
  scenario.data.held_out = 64;
  const auto source = BatchSource::open(scenario, 0, 1);
  ASSERT_TRUE(source) << source.error().str();
  for (const double value : {0.0, std::numeric_limits<double>::quiet_NaN()}) {
    ContrastiveModel m(scenario.model, (*source)->input());
    {
      const at::NoGradGuard no_grad;
      for (auto& [name, parameter] : named_parameters(*m)) {
        if (name == "text_proj.weight") parameter.fill_(value);
      }
    }
    const Retrieval retrieval = evaluate_retrieval(m, **source, 64);
    ASSERT_GT(1 / retrieval.chance, 10);  // so many different sentences
    EXPECT_EQ(retrieval.recall_at_1, 0) << value;
    EXPECT_EQ(retrieval.recall_at_10, 0) << value;
  }
}

TEST(Fusion, DistinguishesRightPairsFromWrongOnesAndNeedsImages) {
  Scenario::Model options;
  options.head = "fusion";
  options.fusion.width = 32;
  ContrastiveModel m(options, model()->input());
  m->losses(with_images(4)).total.backward();
  EXPECT_THAT(without_gradient(m), IsEmpty());
  ContrastiveModel other(options, model()->input());
  other->losses(text_only()).total.backward();
  EXPECT_THAT(without_gradient(other), testing::Contains("fusion"));
}

TEST(Fusion, AWidthThatDoesNotFitTheEncoderIsAnError) {
  Scenario::Model options;
  options.head = "fusion";
  options.fusion.image_width = 512;
  try {
    ContrastiveModel m(options, model()->input());
    FAIL() << "no error";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("512"));
  }
}

TEST(MaskedWords, TrainABidirectionalTextEncoderWithoutImages) {
  Scenario::Model options;
  options.text = "minilm";
  InputSpec input = model()->input();
  input.mask = input.vocabulary - 1;
  ContrastiveModel m(options, input);
  at::manual_seed(3);
  const Losses losses = m->losses(text_only());
  losses.total.backward();
  EXPECT_GT(losses.text.item<double>(), 0);
  // All of the text path, so that DDP needs no search for unused parameters.
  for (const std::string& part : without_gradient(m))
    EXPECT_THAT(part, testing::Not(testing::StartsWith("text")));
}

}  // namespace
}  // namespace lockstep::runtime
