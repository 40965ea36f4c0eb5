#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "runtime/faults/faults.h"
#include "runtime/models/batch.h"
#include "runtime/strategies/strategy.h"
#include "runtime/train/result.h"
#include "runtime/train/train_loop.h"
#include "tests/runtime/rank_job.h"
#include "tests/runtime/small_model.h"

namespace lockstep::runtime {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Pointwise;

// Nothing but the two projections, so that sequences fit on a screen.
const std::vector<std::string> kAllButProjections = {"image.", "text.", "text_head", "logit_scale"};

Scenario scenario(Scenario::Strategy::Kind kind, bool find_unused = false) {
  Scenario s;
  s.model.freeze = kAllButProjections;
  s.data.items = 32;
  s.strategy.kind = kind;
  s.strategy.find_unused_parameters = find_unused;
  s.train.steps = 2;
  s.train.batch_size = 4;
  return s;
}

// What rank `rank` of two ranks recorded when they trained `s`.
Recorded recorded_training(const Scenario& s, int rank = 0) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [&](ProcessGroups& groups, Recorder& recorder) {
    WorkerResult result;
    make_train_loop(s, groups, recorder, result)->run();
    return 0;
  });
  EXPECT_THAT(statuses, Each(0));
  return recorded(folder.path(), rank);
}

std::vector<std::string> tags(const std::vector<std::string>& calls) {
  std::vector<std::string> found;
  for (const std::string& call : calls) found.push_back(call.substr(call.find('#') + 1));
  return found;
}

TEST(ManualSync, AllReducesEachGradientInOrder) {
  const Recorded run = recorded_training(scenario(Scenario::Strategy::Kind::manual));
  const std::size_t start = run.calls(trace::kNone).size();  // broadcasts of the initial state
  const auto seq = [&](std::size_t i) { return std::to_string(start + i); };
  EXPECT_THAT(
      run.calls(0),
      ElementsAre("all_reduce world:" + seq(0) + " float32[32,64] sum image_proj.weight #grad",
                  "all_reduce world:" + seq(1) + " float32[32,64] sum text_proj.weight #grad"));
  EXPECT_THAT(
      run.calls(1),
      ElementsAre("all_reduce world:" + seq(2) + " float32[32,64] sum image_proj.weight #grad",
                  "all_reduce world:" + seq(3) + " float32[32,64] sum text_proj.weight #grad"));
  EXPECT_FALSE(run.trace.calls.back().has(trace::kAsync));
  EXPECT_THAT(run.tables.str(run.trace.calls.back().at), testing::StartsWith("manual.cc:"));
}

TEST(ManualSync, BroadcastsParametersAndBuffersAtTheStart) {
  const Recorded run = recorded_training(scenario(Scenario::Strategy::Kind::manual));
  const auto start = run.calls(trace::kNone);
  EXPECT_EQ(start.front(), "broadcast world:0 float32[1] logit_scale #init");
  EXPECT_THAT(start, testing::Contains(testing::HasSubstr("running_mean #init")));
}

TEST(ManualSync, ATextOnlyRankSkipsTheImageGradients) {
  Scenario s = scenario(Scenario::Strategy::Kind::manual);
  s.data.modality = {{.ranks = {}, .steps = {}, .has = {Modality::text}}};
  const Recorded run = recorded_training(s);
  ASSERT_EQ(run.calls(0).size(), 1U);
  EXPECT_THAT(run.calls(0)[0], testing::HasSubstr("text_proj.weight"));
  EXPECT_EQ(run.tables.names(run.trace.modalities.at(0).has), std::vector<std::string>{"text"});
}

TEST(ManualSync, EachModalityCanHaveItsOwnGroup) {
  Scenario s = scenario(Scenario::Strategy::Kind::manual);
  s.strategy.process_groups = Scenario::Strategy::Groups::per_modality;
  EXPECT_THAT(recorded_training(s).calls(0),
              ElementsAre("all_reduce image_branch:0 float32[32,64] sum image_proj.weight #grad",
                          "all_reduce text_branch:0 float32[32,64] sum text_proj.weight #grad"));
}

TEST(ManualSync, ImageRanksAverageTheImagePathAmongThemselves) {
  Scenario s = scenario(Scenario::Strategy::Kind::manual);
  s.strategy.process_groups = Scenario::Strategy::Groups::image_ranks;
  s.data.modality = {{.ranks = {0}, .steps = {}, .has = {Modality::text}}};
  s.train.evaluate = true;
  const Recorded text_rank = recorded_training(s, 0);
  EXPECT_THAT(text_rank.calls(0), ElementsAre(testing::HasSubstr("text_proj.weight #grad")));
  EXPECT_THAT(text_rank.calls(1), testing::Contains(testing::AllOf(
                                      testing::HasSubstr("broadcast world:"),
                                      testing::HasSubstr("image_proj.weight #image_ranks.share"))));
  const Recorded image_rank = recorded_training(s, 1);
  EXPECT_EQ(image_rank.calls(0).front(),
            "all_reduce image_ranks:0 float32[32,64] sum image_proj.weight #grad");
}

TEST(Ddp, AStaticGraphLetsARankBeTextOnlyInEveryStep) {
  Scenario s = scenario(Scenario::Strategy::Kind::ddp);
  s.strategy.static_graph = true;
  s.train.steps = 3;
  s.data.modality = {{.ranks = {1}, .steps = {}, .has = {Modality::text}}};
  const Recorded run = recorded_training(s, /*rank=*/1);
  EXPECT_THAT(tags(run.calls(0)), testing::Contains("ddp.used_parameters"));
  EXPECT_THAT(tags(run.calls(2)), testing::Not(testing::Contains("ddp.used_parameters")));
  EXPECT_EQ(tags(run.calls(2)).back(), "ddp.bucket.0");
}

TEST(Ddp, BucketsThatNobodyUsedCanBeSkipped) {
  for (const bool skip : {false, true}) {
    Scenario s = scenario(Scenario::Strategy::Kind::ddp, /*find_unused=*/true);
    s.strategy.bucket_cap_mb = s.strategy.first_bucket_mb = 0.001;  // a bucket for each parameter
    s.strategy.skip_all_reduce_unused_params = skip;
    s.data.modality = {{.ranks = {}, .steps = {}, .has = {Modality::text}}};
    const Recorded run = recorded_training(s);
    const auto calls = run.calls(1);
    const bool image = std::any_of(calls.begin(), calls.end(), [](const std::string& call) {
      return call.find("image_proj.weight #ddp.bucket") != call.npos;
    });
    EXPECT_EQ(image, !skip);
  }
}

// What runs again in backward is in the graph that the Reducer searches for unused parameters.
TEST(Ddp, FindsUnusedParametersOfWhatKeepsNoActivations) {
  Scenario s = scenario(Scenario::Strategy::Kind::ddp, /*find_unused=*/true);
  s.model.freeze.clear();
  s.data.modality = {{.ranks = {1}, .steps = {1}, .has = {Modality::text}}};
  s.train.steps = 3;
  std::vector<std::vector<double>> all;
  using Checkpointing = Scenario::Model::Checkpointing;
  for (const auto what : {Checkpointing::none, Checkpointing::blocks, Checkpointing::encoders}) {
    s.model.activation_checkpointing = what;
    const TempDir folder;
    all.push_back(losses(s, folder));
  }
  EXPECT_THAT(all, Each(all.front()));
}

TEST(Ddp, BucketsTravelInANarrowerType) {
  using Compression = Scenario::Strategy::Compression;
  for (const auto& [how, name] : {std::pair{Compression::float16, "float16[4096]"},
                                  std::pair{Compression::bfloat16, "bfloat16[4096]"}}) {
    Scenario s = scenario(Scenario::Strategy::Kind::ddp);
    s.strategy.compression = how;
    const Recorded run = recorded_training(s);
    EXPECT_THAT(run.calls(0)[2], testing::HasSubstr(name));
  }
}

TEST(Ddp, CommunicatesAsPythonsDoes) {
  const Recorded run = recorded_training(scenario(Scenario::Strategy::Kind::ddp));
  EXPECT_THAT(tags(run.calls(trace::kNone)),
              ElementsAre("ddp.verify_params", "ddp.verify_params", "ddp.init", "ddp.init"));
  // The next step begins with the rebuilding, which counts to the step whose gradients it is about.
  EXPECT_THAT(tags(run.calls(0)), ElementsAre("ddp.buffers", "ddp.buffers", "ddp.bucket.0",
                                              "ddp.rebuild", "ddp.rebuild"));
  EXPECT_THAT(tags(run.calls(1)), ElementsAre("ddp.buffers", "ddp.buffers", "ddp.bucket.0"));
  EXPECT_EQ(run.calls(0)[2],
            "all_reduce world:6 float32[4096] sum image_proj.weight,text_proj.weight "
            "#ddp.bucket.0");
}

TEST(Ddp, FindUnusedAddsTheMapOfUsedParametersAndNeverRebuilds) {
  Scenario s = scenario(Scenario::Strategy::Kind::ddp, /*find_unused=*/true);
  s.data.modality = {{.ranks = {1}, .steps = {}, .has = {Modality::text}}};
  const Recorded run = recorded_training(s, /*rank=*/1);
  for (const std::int32_t step : {0, 1}) {
    EXPECT_THAT(tags(run.calls(step)),
                ElementsAre("ddp.buffers", "ddp.buffers", "ddp.bucket.0", "ddp.used_parameters"));
  }
  EXPECT_THAT(run.calls(0)[3], testing::HasSubstr("all_reduce world:7 int32[2] sum"));
}

TEST(Ddp, NamesWhatEachBucketHoldsAlsoAfterTheyWereRebuilt) {
  Scenario s = scenario(Scenario::Strategy::Kind::ddp);
  s.strategy.bucket_cap_mb = s.strategy.first_bucket_mb = 0.001;  // a bucket for each parameter
  const Recorded run = recorded_training(s);
  // Gradients come in reverse, and so do the rebuilt buckets.
  const auto calls = run.calls(1);
  ASSERT_EQ(calls.size(), 4U);
  EXPECT_THAT(calls[2], testing::EndsWith("float32[2048] sum image_proj.weight #ddp.bucket.0"));
  EXPECT_THAT(calls[3], testing::EndsWith("float32[2048] sum text_proj.weight #ddp.bucket.1"));
}

TEST(Ddp, WaitsForItsBucketsInsideBackward) {
  const Recorded run = recorded_training(scenario(Scenario::Strategy::Kind::ddp));
  const trace::Call& bucket = run.trace.calls.back();
  EXPECT_TRUE(bucket.has(trace::kAsync));
  EXPECT_TRUE(bucket.has(trace::kCompleted) && bucket.has(trace::kWaitBegan) &&
              bucket.has(trace::kWaitEnded));
}

// --- gradients -----------------------------------------------------------------------------------

std::vector<float> gradients(const torch::nn::Module& model) {
  std::vector<float> all;
  for (const auto& [name, parameter] : trained_parameters(model)) {
    const at::Tensor flat = parameter.grad().defined() ? parameter.grad().flatten().contiguous()
                                                       : at::zeros({parameter.numel()});
    all.insert(all.end(), flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
  }
  return all;
}

void save(const TempDir& folder, const std::string& name, const std::vector<float>& values) {
  folder.write(name, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

std::vector<float> load(const TempDir& folder, const std::string& name) {
  const std::string bytes = TempDir::read(folder.file(name));
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Batch batch_of_rank(int rank) {
  const ShapesDataset data(64, 0.0, 1);
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < 4; ++i) indices.push_back(4 * rank + i);
  return make_batch(data, indices, nullptr);
}

// Each rank's own gradients, without any strategy.
std::vector<float> local_gradients(int rank) {
  ContrastiveModel model = seeded_model();
  model->losses(batch_of_rank(rank)).total.backward();
  return gradients(*model);
}

std::vector<float> synced_gradients(const Scenario::Strategy& options, ProcessGroups& groups,
                                    Recorder& recorder) {
  ContrastiveModel model = seeded_model();
  const auto strategy = make_strategy(options, {model, groups, recorder});
  strategy->start();
  strategy->before_forward(Pass::last);
  strategy->backward(model->losses(batch_of_rank(groups.who().rank)).total, Pass::last);
  strategy->synchronise();
  return gradients(*model);
}

class Gradients : public testing::TestWithParam<Scenario::Strategy> {
 protected:
  // bfloat16 keeps 8 bits of a number.
  static float tolerance() {
    const bool narrow = GetParam().compression != Scenario::Strategy::Compression::none;
    return narrow ? 1e-2F : 1e-5F;
  }
};

TEST_P(Gradients, AreTheMeanOverTheRanks) {
  const TempDir folder;
  const auto statuses = run_ranks(2, folder, [&](ProcessGroups& groups, Recorder& recorder) {
    const std::string rank = std::to_string(groups.who().rank);
    save(folder, "local" + rank, local_gradients(groups.who().rank));
    save(folder, "synced" + rank, synced_gradients(GetParam(), groups, recorder));
    return 0;
  });
  ASSERT_THAT(statuses, Each(0));
  std::vector<float> mean = load(folder, "local0");
  const std::vector<float> other = load(folder, "local1");
  for (std::size_t i = 0; i < mean.size(); ++i) mean[i] = (mean[i] + other[i]) / 2;
  EXPECT_THAT(load(folder, "synced0"), Pointwise(testing::FloatNear(tolerance()), mean));
  EXPECT_EQ(load(folder, "synced0"), load(folder, "synced1"));
}

std::vector<Scenario::Strategy> strategies() {
  using Strategy = Scenario::Strategy;
  std::vector<Strategy> out(5);
  out[0].kind = Strategy::Kind::manual;
  for (std::size_t i = 1; i < out.size(); ++i) out[i].kind = Strategy::Kind::ddp;
  out[2].find_unused_parameters = true;
  out[3].static_graph = true;
  out[4].compression = Strategy::Compression::bfloat16;
  return out;
}

INSTANTIATE_TEST_SUITE_P(Strategies, Gradients, testing::ValuesIn(strategies()));

// The Reducer as it is without our communication hook.
std::vector<float> plain_reducer_gradients(ProcessGroups& groups) {
  ContrastiveModel model = seeded_model();
  std::vector<at::Tensor> parameters;
  std::vector<std::size_t> all;
  for (auto& [name, parameter] : trained_parameters(*model)) {
    all.push_back(all.size());
    parameters.push_back(parameter);
  }
  c10d::Reducer reducer(parameters, {all}, groups.make("plain", "no hook"),
                        std::vector<bool>(parameters.size(), false), 1 << 20, false, false, {},
                        1 << 20, false, false, {});
  const at::Tensor loss = model->losses(batch_of_rank(groups.who().rank)).total;
  reducer.prepare_for_backward({});
  loss.backward();
  return gradients(*model);
}

TEST(Ddp, ItsHookChangesNeitherTheNumbersNorTheCalls) {
  const TempDir folder;
  // Three ranks: a scale of 1/3 shows in the last bit whether it is applied in the same way.
  const auto statuses = run_ranks(3, folder, [](ProcessGroups& groups, Recorder& recorder) {
    const auto plain = plain_reducer_gradients(groups);
    return plain == synced_gradients({}, groups, recorder) ? 0 : 1;
  });
  EXPECT_THAT(statuses, Each(0));
  const Recorded run = recorded(folder.path(), 2);
  const trace::Call& hooked = run.trace.calls.back();
  const trace::Call& plain = run.trace.calls.front();
  EXPECT_EQ(hooked.signature, plain.signature);
  EXPECT_EQ(hooked.flags & trace::kAsync, plain.flags & trace::kAsync);
}

}  // namespace
}  // namespace lockstep::runtime
