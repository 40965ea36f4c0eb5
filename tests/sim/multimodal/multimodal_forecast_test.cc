// Forecasts of several towers against closed forms, the plan of one transformer, and each other.
#include "sim/multimodal/multimodal_forecast.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/quantities.h"
#include "sim/multimodal/encoder_time.h"
#include "sim/multimodal/task_times.h"
#include "sim/transformer/kernel_time.h"
#include "tests/sim/plan_text.h"

namespace lockstep::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTop = R"(plan: 1
name: small
calibration: h100-cluster
gpus: 64
global_batch: 64
llm:
  model: {layers: 16, hidden: 2048, heads: 16, vocabulary: 32000}
  sequence: 4096
  tensor: 4
  recompute: RECOMPUTE
  zero: ZERO
  pipeline: {stages: 2, schedule: SCHEDULE}
)";

struct Options {
  std::string recompute = "none", zero = "0", schedule = "1f1b";
  std::string more = "";  // lines of the LLM
};

std::string top(const Options& options = {}) {
  std::string out = kTop;
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"RECOMPUTE", options.recompute},
        {"ZERO", options.zero},
        {"SCHEDULE", options.schedule}})
    out.replace(out.find(from), from.size(), to);
  return out + options.more;
}

std::string encoder(const std::string& more) {
  return "encoders:\n  - {name: vit, input: image, model: vit-huge, merge: 4, " + more + "}\n";
}

std::string images(const std::string& per_sample, const std::string& size,
                   const std::string& more = "sequences: padded") {
  return "data: {text: 1000, image: {per_sample: " + per_sample + ", size: " + size + "}, " + more +
         "}\n";
}

const Calibration& h100() {
  static const Calibration out = *shipped_calibration("h100-cluster");
  return out;
}

// Leaves of one node, with half of the bandwidth between them.
Calibration on_narrow_tree() {
  Calibration out = h100();
  out.cost.network.emplace();
  out.cost.network->tiers = {{1, 2}};
  return out;
}

Calibration with_slow(std::int64_t first, std::int64_t last, double work) {
  Calibration out = h100();
  out.cost.slow = {{first, last, work}};
  return out;
}

MultimodalForecast forecast(const std::string& text, const Calibration& calibration = h100()) {
  const auto plan = parse_multimodal_plan(text, "p.yaml", "");
  EXPECT_TRUE(plan) << plan.error().str() << text;
  if (!plan) return {};
  auto out = forecast_towers(*plan, calibration);
  EXPECT_TRUE(out) << out.error().str();
  return out ? *out : MultimodalForecast{};
}

double parts_sum(const MultimodalForecast& f) {
  double sum = 0;
  for (const ForecastPart& part : f.time) sum += part.value;
  return sum;
}

// Under ZeRO-3 each of two interleaved pieces keeps its 16-bit weights, and its float32 gradients
// while they are summed; a frozen LLM has none.
TEST(Towers, GatherTheLlmAsATransformersPipelineDoes) {
  const auto gathered = [](const std::string& llm) {
    const MultimodalForecast f = forecast(top({"full", "3", "interleaved", llm}) +
                                          encoder("tensor: 4, frozen: true") + images("8", "576"));
    EXPECT_EQ(f.memory[0].towers[0].tower, "LLM");
    return f.memory[0].towers[0].gathered;
  };
  const double trained = gathered(""), frozen = gathered("  frozen: true\n");
  EXPECT_GT(frozen, 0);
  // Of 16 layers on two stages, a quarter of each on a rank, and the table of the embedding: 2 and
  // 2 + 4 bytes, and the buffers of each piece: the table's and a layer's, and two layers'.
  const double layer = 12.0 * 2048 * 2048 / 4, table = 32000.0 * 2048 / 4;
  EXPECT_NEAR(frozen / (2 * (8 * layer + table) + 2 * (3 * layer + table)), 1, 0.01);
  EXPECT_NEAR(trained / (6 * (8 * layer + table) + 2 * (3 * layer + table)), 1, 0.01);
}

// Without images a plan of several towers is the transformer's, to the last bit.
TEST(Towers, WithoutImagesAreTheTransformerAlone) {
  for (const Options& options :
       {Options{}, Options{"full", "1", "1f1b"}, Options{"selective", "3", "gpipe"},
        Options{"none", "0", "interleaved"}, Options{"none", "0", "zb-h1"},
        Options{"full", "2", "zbv"},
        Options{"none", "1", "1f1b", "  overlap: {gradients: true, pipeline: true}\n"},
        Options{"none", "3", "interleaved", "  overlap: {gradients: true, pipeline: true}\n"}})
    for (const Calibration& calibration :
         {h100(), on_narrow_tree(), with_slow(40, 40, 1.5), with_slow(0, 31, 1.3)}) {
      const bool network = calibration.cost.network.has_value();
      std::string text = top(options);
      const MultimodalForecast f =
          forecast(text + encoder("tensor: 4, frozen: true, projector: {frozen: true}") +
                       "data: {text: 4096, image: {per_sample: 0, size: 64}}\n",
                   calibration);
      std::string alone =
          "plan: 1\nname: a\ncalibration: h100-cluster\ngpus: 64\nglobal_batch: 64\n";
      text = text.substr(text.find("llm:\n") + 5);
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        alone += text.substr(at + 2, end - at - 1);
        at = end + 1;
      }
      const auto plan = parse_plan(alone, "a.yaml");
      ASSERT_TRUE(plan) << plan.error().str() << alone;
      const auto of_one = forecast_plan(*plan, calibration);
      ASSERT_TRUE(of_one) << of_one.error().str();
      // Rates of links that many replicas share are rounded otherwise.
      EXPECT_NEAR(f.seconds, of_one->step.seconds, (network ? 1e-6 : 1e-9) * f.seconds)
          << options.schedule << options.more << network;
      EXPECT_NEAR(f.mfu, of_one->mfu, 1e-9);
      EXPECT_NEAR(f.tokens_per_second, of_one->tokens_per_second, 1e-6 * f.tokens_per_second);
      if (!calibration.cost.slow.empty()) continue;
      EXPECT_LT(f.lost.stragglers, network ? 1e-6 : 1e-12);
      EXPECT_LT(f.lost.unequal_batches, network ? 1e-6 : 1e-12);
    }
}

// GPUs of the LLM are numbered by stages, and those of an encoder on its own after them. Slow ones
// make their own stage slower, and all others wait.
TEST(Towers, SlowGpusAreSlowWhereTheyAre) {
  const std::string text =
      top() + encoder("on: own_gpus, gpus: 32, tensor: 4") + images("4", "4096");
  const MultimodalForecast even = forecast(text);
  const auto slower = [&](std::int64_t first, std::int64_t last) {
    const MultimodalForecast f = forecast(text, with_slow(first, last, 2));
    EXPECT_GT(f.seconds, even.seconds) << first;
    EXPECT_NEAR(parts_sum(f), f.seconds, 0.005 * f.seconds) << first;
    EXPECT_EQ(f.need.bytes, even.need.bytes);
    std::vector<double> times;
    for (std::size_t p = 0; p < f.places.size(); ++p)
      times.push_back(f.places[p].micro_batch / even.places[p].micro_batch);
    return times;
  };
  // The host's pace, calls and messages are not slower.
  using ::testing::DoubleNear;
  using ::testing::ElementsAre;
  const auto same = DoubleNear(1, 1e-9);
  const auto twice = testing::AllOf(testing::Gt(1.6), testing::Lt(2.0));
  EXPECT_THAT(slower(0, 15), ElementsAre(same, twice, same));
  EXPECT_THAT(slower(16, 31), ElementsAre(same, same, twice));
  EXPECT_THAT(slower(32, 63), ElementsAre(twice, same, same));
  // In one of the four groups of GPUs that serve a replica.
  EXPECT_THAT(slower(63, 63), ElementsAre(AllOf(testing::Gt(1.15), testing::Lt(1.25)), same, same));
  EXPECT_GT(forecast(text, with_slow(63, 63, 2)).lost.stragglers, even.lost.stragglers);
  EXPECT_EQ(forecast(text, with_slow(64, 99, 2)).seconds, even.seconds);
  EXPECT_EQ(forecast(text, with_slow(0, 99, 1)).seconds, even.seconds);
  // Encoded on every GPU, before the pipeline: over when the slowest is.
  const std::string around = top() + encoder("on: every_gpu") + images("8", "576");
  EXPECT_GT(forecast(around, with_slow(20, 20, 2)).encode_seconds,
            1.5 * forecast(around).encode_seconds);
}

// Nothing computes the gradient of a frozen LLM's table of logits. It was charged, so the frozen
// one saved as little with many words as with few.
TEST(Towers, AFrozenLlmComputesNoGradientOfItsLogits) {
  const auto saved = [&](const std::string& words) {
    std::string text = top() + encoder("tensor: 4") + images("2", "256");
    text.replace(text.find("32000"), 5, words);
    const auto llm = [](const MultimodalForecast& f) {
      return std::find_if(f.time.begin(), f.time.end(),
                          [](const ForecastPart& part) { return part.key == "llm"; })
          ->value;
    };
    const double trained = llm(forecast(text));
    return trained - llm(forecast(text.insert(text.find("  sequence: 4096"), "  frozen: true\n")));
  };
  // A product a micro-batch, on one of two stages; 8 replicas of a batch of 64.
  const auto gemm = [](double words) { return gemm_seconds(h100().cost, {2048, words / 4, 4096}); };
  EXPECT_NEAR(saved("128000") - saved("32000"), 8 * (gemm(128000) - gemm(32000)) / 2, 1e-6);
}

TEST(Towers, EqualWorkHasNoStragglers) {
  for (const char* place : {"on: first_stage, tensor: 4", "on: first_stage, tensor: 1",
                            "on: every_gpu", "on: own_gpus, gpus: 32, tensor: 4"}) {
    const MultimodalForecast f = forecast(top() + encoder(place) + images("8", "576"));
    EXPECT_LT(f.lost.stragglers, 1e-9) << place;
    EXPECT_LT(f.lost.unequal_batches, 1e-9) << place;
    EXPECT_LT(f.lost.within_group, 1e-9) << place;
    EXPECT_EQ(f.shortest, f.longest);
  }
}

TEST(Towers, UnequalWorkHas) {
  // The encoder has about as much work as the LLM's stages: with a much slower one all else waits
  // anyway.
  const MultimodalForecast f =
      forecast(top() + encoder("tensor: 4") + images("{poisson: 2}", "{lognormal: [200, 1]}"));
  EXPECT_GT(f.lost.stragglers, 0.005);
  EXPECT_GT(f.lost.unequal_batches, 0);
  const MultimodalForecast balanced = forecast(
      top() + encoder("tensor: 4") +
      images("{poisson: 2}", "{lognormal: [200, 1]}", "sequences: padded, arrange: balanced"));
  EXPECT_LT(balanced.lost.stragglers, f.lost.stragglers);
  EXPECT_LT(balanced.seconds, f.seconds);
}

// Sequences that are not filled up need no room: neither time nor memory, nor operations that count
// for the MFU.
TEST(Towers, RaggedSequencesDoNotDependOnTheLongestPossible) {
  const auto with_room = [&](const std::string& tokens) {
    std::string plan =
        top({.zero = "1"}) + encoder("on: first_stage") + images("2", "400", "sequences: ragged");
    const std::string known = "32000}\n  sequence: 4096";
    return forecast(plan.replace(plan.find(known), known.size(),
                                 "32000, fused_attention: true}\n  sequence: " + tokens));
  };
  const auto small = with_room("4096"), large = with_room("65536");
  EXPECT_NEAR(large.seconds, small.seconds, 0.01 * small.seconds);
  EXPECT_NEAR(large.mfu, small.mfu, 0.01 * small.mfu);
  EXPECT_DOUBLE_EQ(large.need.bytes, small.need.bytes);
  EXPECT_LT(large.mfu, 1);
}

TEST(Towers, MorePatchesNeverTakeLess) {
  for (const char* place :
       {"tensor: 4", "on: every_gpu", "on: own_gpus, gpus: 32, tensor: 2, stages: 2"}) {
    double last = 0;
    for (const int size : {16, 100, 128, 129, 255, 256, 300, 1000, 1024, 4000, 20000}) {
      const double seconds =
          forecast(top() + encoder(place) + images("3", std::to_string(size))).seconds;
      // Where the host's pace decides, more patches move time from a forward to its backward pass,
      // which may shorten a pipeline by a hair.
      EXPECT_GE(seconds, (1 - 3e-4) * last) << place << " " << size;
      last = seconds;
    }
  }
}

TEST(Towers, PartsAreTheStep) {
  for (const char* place : {"tensor: 4", "tensor: 1, recompute: full", "on: every_gpu, tensor: 2",
                            "frozen: true", "on: own_gpus, gpus: 32, tensor: 4, stages: 2"}) {
    const MultimodalForecast f = forecast(top({"selective", "1", "1f1b"}) + encoder(place) +
                                          images("{poisson: 4}", "{lognormal: [700, 0.7]}"));
    EXPECT_NEAR(parts_sum(f), f.seconds, 0.005 * f.seconds) << place;
    for (const ForecastPart& part : f.time) EXPECT_GE(part.value, 0) << place << part.key;
    EXPECT_GT(f.mfu, 0);
    EXPECT_LT(f.mfu, 1);
  }
}

// The picture is of the run that gave the figures, from the first task to the update.
TEST(Towers, ThePictureIsTheStep) {
  for (const std::string schedule : {"1f1b", "zb-h1"})
    for (const char* place : {"tensor: 4", "on: every_gpu, tensor: 2",
                              "on: own_gpus, gpus: 32, tensor: 4, stages: 2"}) {
      SCOPED_TRACE(schedule + ", " + place);
      const MultimodalForecast f =
          forecast("steps: 1\n" + top({"none", "1", schedule}) + encoder(place) +
                   images("{poisson: 4}", "{lognormal: [700, 0.7]}"));
      const Result<StepPicture> picture = draw_step(f);
      ASSERT_TRUE(picture) << picture.error().str();
      EXPECT_NEAR(picture->end.seconds(), f.seconds, 1e-9);
      EXPECT_NEAR(picture->tasks_end().seconds(), f.encode_seconds + f.pipeline_seconds, 1e-9);
      ASSERT_EQ(picture->stages.size(), f.places.size());
      Picos encodes;
      for (std::size_t p = 0; p < f.places.size(); ++p) {
        EXPECT_EQ(picture->stages[p].name, f.places[p].name);
        Picos now;
        for (const StepInterval& one : picture->stages[p].host) {
          EXPECT_EQ(one.begin, now);
          now = one.end;
          if (one.work.kind == StepWork::Kind::encode) encodes += one.end - one.begin;
        }
        EXPECT_EQ(now, picture->end);
      }
      EXPECT_GT(encodes, Picos{});
      Picos path;
      for (const StepPicture::PathSum& sum : picture->path) path += sum.time;
      EXPECT_EQ(path, picture->end);
    }
}

// One GPU, one micro-batch: the encoder's and the LLM's times simply add up.
TEST(Towers, OnOneGpuTheTowersAddUp) {
  const std::string one =
      "plan: 1\nname: one\ncalibration: h100-cluster\ngpus: 1\nglobal_batch: 1\n"
      "llm: {model: {layers: 4, hidden: 1024, heads: 8, vocabulary: 32000}, sequence: 2048}\n";
  const MultimodalForecast with = forecast(one + encoder("tensor: 1") + images("4", "512"));
  const MultimodalForecast without = forecast(one + encoder("tensor: 1") + images("0", "512"));
  const EncoderTower& tower = with.plan.encoders[0];
  const EncoderTimes encoder_times(tower, tower.layout, 1024, h100().cost, {});
  const TowerTime time = encoder_times.of({4 * 512, 4.0 * 512 * 512, 4});
  EXPECT_NEAR(with.seconds - without.seconds, time.forward + time.backward, 1e-9);
  EXPECT_LT(with.lost.total(), 1e-9);
}

// 1F1B with equal micro-batches: at least all of the slowest stage; at most (m - 1) of it and each
// stage once, which is the time where the last stage is the slowest.
TEST(Towers, AnEncoderOnItsOwnStageIsOneStageMore) {
  const MultimodalForecast f =
      forecast(top() + encoder("on: own_gpus, gpus: 32, tensor: 4") + images("8", "576"));
  ASSERT_EQ(f.places.size(), 3U);
  double most = 0, sum = 0;
  for (const PlaceFigures& place : f.places) {
    most = std::max(most, place.micro_batch);
    sum += place.micro_batch;
  }
  EXPECT_EQ(f.plan.llm.plan.data, 4);
  const double micro_batches = 64.0 / 4;
  EXPECT_LE(f.pipeline_seconds, ((micro_batches - 1) * most + sum) * (1 + 1e-9));
  EXPECT_GE(f.pipeline_seconds, micro_batches * most * (1 - 1e-9));
}

TEST(Towers, FrozenOnesTakeNoBackwardAndKeepNothing) {
  EncoderTower tower;
  tower.model = *published_encoder("vit-huge");
  tower.frozen = tower.projector_frozen = true;
  tower.projector_hidden = 1024;
  const EncoderLoad load{1024, 1024.0 * 1024, 1};
  const TowerTime frozen = EncoderTimes(tower, tower.layout, 1024, h100().cost, {}).of(load);
  EXPECT_EQ(frozen.backward, 0);
  tower.frozen = tower.projector_frozen = false;
  const TowerTime trained = EncoderTimes(tower, tower.layout, 1024, h100().cost, {}).of(load);
  EXPECT_GT(trained.backward, 1.5 * frozen.forward);
  const std::string data = images("4", "576");
  const MultimodalForecast f = forecast(top() + encoder("tensor: 4, frozen: true") + data);
  for (const TowerMemory& memory : f.memory[0].towers) {
    EXPECT_TRUE(memory.tower != "vit" || memory.activations == 0);
  }
}

// What ZeRO-3 gathers and scatters is no collective of tensor ranks.
TEST(Towers, ShardedLayersAreExchanged) {
  const MultimodalForecast f = forecast(
      "plan: 1\nname: sharded\ncalibration: h100-cluster\ngpus: 64\nglobal_batch: 64\n"
      "llm: {model: {layers: 4, hidden: 8192, heads: 64, vocabulary: 32000}, sequence: 512, "
      "zero: 3}\n" +
      encoder("zero: 1") + images("1", "256"));
  double exchange = 0;
  for (const ForecastPart& part : f.time) {
    EXPECT_NE(part.key, "collectives");
    if (part.key == "exchange") exchange = part.value;
  }
  EXPECT_GT(exchange, f.exchange_seconds);
  EXPECT_THAT(f.reason({}),
              HasSubstr("gradients and parameters that data-parallel ranks exchange"));
}

// Of a few tokens the host takes the time, and for a frozen encoder it launches the forward pass
// alone: that took longer than the trained one's. Nothing of a frozen LLM's backward pass computes
// weights.
TEST(Towers, FrozenOnesTakeNoLongerForward) {
  EncoderTower tower;
  tower.model = *published_encoder("vit-huge");
  tower.projector_hidden = 1024;
  const EncoderLoad load{128, 128.0 * 128, 1};
  const TowerTime trained = EncoderTimes(tower, tower.layout, 1024, h100().cost, {}).of(load);
  tower.frozen = tower.projector_frozen = true;
  const TowerTime frozen = EncoderTimes(tower, tower.layout, 1024, h100().cost, {}).of(load);
  EXPECT_NEAR(frozen.forward, trained.forward, 0.01 * trained.forward);
  EXPECT_EQ(frozen.weight, 0);
  MultimodalPlan plan;
  plan.llm.model = *published_model("llama3-8b");
  plan.llm.plan.sequence = 4096;
  plan.llm.plan.global_batch = 8;
  const auto weight = [&](bool is_frozen) {
    plan.llm_frozen = is_frozen;
    const CostParameters& cost = h100().cost;
    return TowerTimes(plan, cost)
        .llm_layers(layer_times(plan.llm.model, plan.llm.plan, cost), 8)
        .weight;
  };
  EXPECT_GT(weight(false), 0);
  EXPECT_EQ(weight(true), 0);
}

// ZeRO-3 without a pipeline gathers every layer, frozen or not; a frozen one has no gradients.
TEST(Towers, FrozenLayersAreGatheredAndScatterNothing) {
  const auto exchange = [](const std::string& llm, const std::string& vit) {
    const auto plan = parse_multimodal_plan(
        "plan: 1\nname: sharded\ncalibration: h100-cluster\ngpus: 64\nglobal_batch: 64\n"
        "llm: {model: {layers: 4, hidden: 1024, heads: 8, vocabulary: 32000}, sequence: 2048, " +
            llm + "}\n" + encoder("zero: 3, without_items: dummy" + vit) + images("2", "576"),
        "p.yaml", "");
    EXPECT_TRUE(plan) << plan.error().str();
    const TowerTimes towers(*plan, h100().cost);
    return std::pair(towers.llm_exchange, towers.exchanges[0]);
  };
  const auto [llm, vit] = exchange("zero: 3", "");
  EXPECT_GT(llm.gather, 0);
  EXPECT_GT(llm.scatter, 0);
  EXPECT_GT(vit.scatter, 0);
  const auto [frozen_llm, frozen_vit] = exchange("zero: 3, frozen: true", ", frozen: true");
  EXPECT_EQ(frozen_llm.gather, llm.gather);
  EXPECT_EQ(frozen_llm.scatter, 0);
  EXPECT_EQ(frozen_vit.gather, vit.gather);
  EXPECT_EQ(frozen_vit.scatter, 0);
  // Not layer by layer: a pipeline's stages keep what they gathered, and ZeRO-1 has whole layers.
  EXPECT_EQ(exchange("zero: 3, pipeline: {stages: 2}", "").first.gather, 0);
  EXPECT_EQ(exchange("zero: 1", "").first.gather, 0);
}

// Nothing is kept on GPUs that only run forward.
TEST(Towers, AFrozenEncoderOnItsOwnGpusKeepsNothing) {
  const MultimodalForecast f =
      forecast(top() + encoder("on: own_gpus, gpus: 32, frozen: true, projector: {frozen: true}") +
               images("2", "576"));
  ASSERT_EQ(f.memory[0].name, "vit stage 0");
  EXPECT_EQ(f.memory[0].towers[0].activations, 0);
  EXPECT_GT(f.memory[0].towers[0].parameters, 0);
}

TEST(Towers, ABalancedSplitNeverTakesLonger) {
  std::string balanced = top();
  balanced.replace(balanced.find("stages: 2"), 9, "stages: 2, split: balanced");
  const std::string rest = encoder("tensor: 4") + images("16", "1024");
  const MultimodalForecast even = forecast(top() + rest), cut = forecast(balanced + rest);
  EXPECT_LT(cut.seconds, even.seconds);
  EXPECT_LT(cut.places[0].layers, cut.places[1].layers);
  EXPECT_EQ(cut.places[0].layers + cut.places[1].layers, 16);
}

TEST(Towers, OverlappedGradientsAndOffloadDoWhatTheySay) {
  const std::string rest = encoder("tensor: 4") + images("2", "576");
  const MultimodalForecast plain = forecast(top() + rest);
  EXPECT_LT(forecast("overlap_gradients: true\n" + top() + rest).seconds, plain.seconds);
  const MultimodalForecast offloaded =
      forecast("offload: {optimizer: true, activations: true}\n" + top() + rest);
  EXPECT_LT(offloaded.need.bytes, plain.need.bytes);
  EXPECT_GT(offloaded.seconds, plain.seconds);
}

// Gradients in buckets beside the backward passes, each tower's over its own ranks: on links that
// are too narrow for all of them they take longer, and where none leaves its leaf they do not.
TEST(Towers, ShareLinksBesideTheirTasks) {
  for (const char* place : {"tensor: 4", "on: every_gpu", "on: own_gpus, gpus: 32, tensor: 4"})
    for (const char* zero : {"0", "1"}) {
      SCOPED_TRACE(std::string(place) + zero);
      const std::string text = "overlap_gradients: true\n" +
                               top({"none", zero, "1f1b", "  overlap: {pipeline: true}\n"}) +
                               encoder(place) + images("2", "576");
      Calibration wide = on_narrow_tree();
      wide.cost.network->tiers = {{64, 1}};
      const MultimodalForecast alone = forecast(text), shared = forecast(text, on_narrow_tree());
      EXPECT_GT(shared.seconds, alone.seconds);
      // Ports are shared, too.
      EXPECT_GE(forecast(text, wide).seconds, alone.seconds * (1 - 1e-9));
      EXPECT_LT(forecast(text, wide).seconds, shared.seconds);
      EXPECT_NEAR(parts_sum(shared), shared.seconds, 0.005 * shared.seconds);
    }
}

// A mixture of experts in the LLM: its all-to-alls are charged, with the skew of tokens.
TEST(Towers, TheLlmMayHaveExperts) {
  const auto with = [&](const std::string& skew) {
    std::string text = top({"none", "1", "1f1b", "  expert: 8\n  expert_skew: " + skew + "\n"});
    text.replace(text.find("{layers"), 1, "{experts: 8, experts_per_token: 2, ffn: 4096, ");
    return forecast(text + encoder("tensor: 4") + images("2", "576"));
  };
  const MultimodalForecast even = with("1"), skewed = with("2");
  EXPECT_GT(skewed.seconds, 1.05 * even.seconds);
  EXPECT_GT(skewed.need.bytes, even.need.bytes);
  EXPECT_NEAR(parts_sum(skewed), skewed.seconds, 0.005 * skewed.seconds);
}

TEST(Towers, AlternativesAreForecastsOfChangedPlans) {
  const MultimodalForecast f =
      forecast(top() + encoder("tensor: 4") + images("{poisson: 6}", "{lognormal: [700, 1]}"));
  const std::vector<Alternative> rows = alternatives(f);
  EXPECT_GE(rows.size(), 6U);
  bool planned = false;
  for (const Alternative& row : rows) {
    planned = planned || (row.change == "as planned" && row.seconds == f.seconds);
    EXPECT_TRUE(row.refused.empty() == (row.seconds > 0)) << row.change;
  }
  EXPECT_TRUE(planned);
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (!rows[i].refused.empty() || rows[i].fits != rows[i - 1].fits) continue;
    EXPECT_LE(rows[i].tokens_per_second, rows[i - 1].tokens_per_second);
  }
}

// A forecast in which nothing is lost but what replicas wait for the slowest.
MultimodalForecast with_stragglers() {
  MultimodalForecast f = forecast(top() + encoder("tensor: 4") + images("1", "256"));
  f.time = {{"llm", "", 0.8 * f.seconds, ""}, {"stragglers", "", 0.2 * f.seconds, ""}};
  return f;
}

// The reason names a remedy that was tried, and what came of it.
TEST(Towers, AdviceIsWhatHelpedWhereItWasTried) {
  MultimodalForecast f = with_stragglers();
  const auto tried = [&](ChangeKind kind, double times) {
    Alternative out;
    out.kind = kind;
    out.change = "this";
    out.tokens_per_second = times * f.tokens_per_second;
    return std::vector<Alternative>{out};
  };
  const std::string lost =
      "beside computing, most time goes to replicas that wait for the one with the most work (20 "
      "% of the GPUs')";
  EXPECT_EQ(f.reason(tried(ChangeKind::balanced_data, 1.2)),
            lost + "; this gives 20 % more tokens/s");
  EXPECT_EQ(f.reason(tried(ChangeKind::balanced_data, 3)),
            lost + "; this gives 3 times the tokens/s");
  EXPECT_EQ(f.reason(tried(ChangeKind::balanced_data, 1)), lost + "; this gives no more tokens/s");
  EXPECT_EQ(f.reason(tried(ChangeKind::filling, 2)), lost);
  std::vector<Alternative> refused = tried(ChangeKind::balanced_data, 2);
  refused.front().refused = "too many";
  EXPECT_EQ(f.reason(refused), lost);
}

// What moves to the host and back is not waiting, but takes the most.
TEST(Towers, TheReasonMayBeWhatIsOffloaded) {
  const std::string rest = encoder("tensor: 4") + images("2", "576");
  const auto reason_of = [&](const std::string& offload) {
    const MultimodalForecast f = forecast(offload + top() + rest);
    return f.reason(alternatives(f));
  };
  EXPECT_THAT(reason_of("offload: {activations: true, bandwidth: 1GB/s}\n"),
              AllOf(HasSubstr("most time goes to activations that move to and from the host"),
                    HasSubstr("; offload.activations: false gives ")));
  EXPECT_THAT(reason_of("offload: {optimizer: true, bandwidth: 1GB/s}\n"),
              AllOf(HasSubstr("most time goes to the optimizer's state in the host's memory"),
                    HasSubstr("; offload.optimizer: false gives ")));
  EXPECT_THAT(reason_of(""), Not(HasSubstr("the host's memory")));
}

// What the LLM's layout costs is found as in a transformer's plan, and the change is a plan's key.
TEST(Towers, TheReasonMayBeTheLayoutOfTheLlm) {
  Calibration slow_nodes = h100();
  slow_nodes.cost.node_speed = 0.02;
  const std::string rest =
      encoder("on: every_gpu") + images("1", "256", "sequences: packed, seed: 3");
  const MultimodalForecast f = forecast(top() + rest, slow_nodes);
  const std::string reason = f.reason(alternatives(f));
  EXPECT_THAT(reason, HasSubstr("most time goes to collectives of tensor"));
  const std::string changed = top({.more = "  async_tensor: true\n"}) + rest;
  const double times = forecast(changed, slow_nodes).tokens_per_second / f.tokens_per_second;
  EXPECT_THAT(reason, HasSubstr("llm.async_tensor: true gives " + number_text(times) + " times"));
}

// A change for which the memory does not suffice is none.
TEST(Towers, AdviceFits) {
  const MultimodalForecast f = with_stragglers();
  Alternative faster;
  faster.kind = ChangeKind::balanced_data;
  faster.change = "this";
  faster.tokens_per_second = 2 * f.tokens_per_second;
  faster.fits = false;
  EXPECT_THAT(f.reason({faster}), HasSubstr("this would give 2 times the tokens/s, but does not "));
  faster.fits = true;
  EXPECT_THAT(f.reason({faster}), HasSubstr("this gives 2 times the tokens/s"));
}

// They share what they draw and deal; each is as if forecast alone.
TEST(Towers, AlternativesAreAsIfForecastAlone) {
  const std::string text =
      top() + encoder("tensor: 4") + images("{poisson: 6}", "{lognormal: [700, 1]}");
  const auto planned = parse_multimodal_plan(text, "p.yaml", "");
  ASSERT_TRUE(planned) << planned.error().str();
  const std::map<std::string, std::function<void(MultimodalPlan&)>> changes = {
      {"data.arrange: reordered",
       [](MultimodalPlan& plan) { plan.data.arrangement = Arrangement::reordered; }},
      {"data.arrange: balanced",
       [](MultimodalPlan& plan) { plan.data.arrangement = Arrangement::balanced; }},
      {"data.sequences: packed",
       [](MultimodalPlan& plan) { plan.data.filling = SequenceFilling::packed; }},
      {"data.sequences: ragged",
       [](MultimodalPlan& plan) { plan.data.filling = SequenceFilling::ragged; }},
      {"pipeline.split: balanced", [](MultimodalPlan& plan) { plan.balanced_split = true; }},
      {"overlap_gradients: true", [](MultimodalPlan& plan) { plan.overlapped_gradients = true; }},
      {"encoders on: every_gpu",
       [](MultimodalPlan& plan) { plan.encoders[0].place = EncoderPlace::every_gpu; }},
      {"encoders' tensor: 1, data parallel in the group",
       [](MultimodalPlan& plan) { plan.encoders[0].layout.tensor = 1; }},
  };
  std::size_t compared = 0;
  for (const Alternative& row : alternatives(forecast(text))) {
    EXPECT_EQ(row.kind == ChangeKind::none, row.change == "as planned") << row.change;
    const auto change = changes.find(row.change);
    if (change == changes.end()) continue;
    MultimodalPlan plan = *planned;
    change->second(plan);
    ASSERT_FALSE(place_encoders(plan)) << row.change;
    const auto alone = forecast_towers(plan, h100());
    ASSERT_TRUE(alone) << alone.error().str();
    EXPECT_EQ(row.seconds, alone->seconds) << row.change;
    EXPECT_EQ(row.lost, alone->lost.total()) << row.change;
    EXPECT_EQ(row.memory_bytes, alone->need.bytes) << row.change;
    ++compared;
  }
  EXPECT_EQ(compared, changes.size());
}

// 70,000 tokens are two sequences of as many tiles as one of 35,000.
TEST(Towers, EncoderTimesDoNotDependOnWhatWasAskedBefore) {
  const auto plan =
      parse_multimodal_plan(top() + encoder("tensor: 4") + images("1", "64"), "p.yaml", "");
  ASSERT_TRUE(plan) << plan.error().str();
  const EncoderTower& tower = plan->encoders[0];
  const EncoderTimes times(tower, tower.layout, 1024, h100().cost, {});
  for (const double tokens : {35'000.0, 70'000.0, 640.0, 641.0, 640.0, 35'000.0, 1.0})
    for (const bool projector : {true, false}) {
      const EncoderLoad load{tokens, tokens * 512, 1};
      const TowerTime now = times.of(load, 1, projector);
      const TowerTime fresh =
          EncoderTimes(tower, tower.layout, 1024, h100().cost, {}).of(load, 1, projector);
      EXPECT_EQ(now.forward, fresh.forward) << tokens;
      EXPECT_EQ(now.backward, fresh.backward) << tokens;
    }
}

TEST(Towers, TooManyStepsAreRefused) {
  std::string text = "steps: 1000\n" + top() + encoder("tensor: 4") + images("1", "64");
  text.replace(text.find("global_batch: 64"), 16, "global_batch: 65536");
  const auto plan = parse_multimodal_plan(text, "p.yaml", "");
  ASSERT_TRUE(plan) << plan.error().str();
  const auto refused = forecast_towers(*plan, h100());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("too many to simulate"));
}

}  // namespace
}  // namespace lockstep::sim
