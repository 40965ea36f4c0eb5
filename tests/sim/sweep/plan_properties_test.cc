// What must hold of all plans on the shipped machines, of a transformer and of several towers: one
// plan written in two ways is predicted alike, and no change has its effect the wrong way round.
// What a step is predicted to take is not tested here.
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/sweep/plan_grid.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/transformer.h"

namespace lockstep::sim {
namespace {

struct Figures {
  double seconds = 0, bytes = 0;
  double layers = 0;   // seconds of the layers' kernels; of a transformer's plan
  double goodput = 0;  // with failures
};

using Settings = std::vector<std::string>;  // as of --set

// Nothing: this plan cannot be.
std::optional<Figures> figures_of(const std::string& text, const std::string& machine,
                                  const Settings& settings = {}) {
  std::vector<Axis> axes;
  for (const std::string& setting : settings) {
    Result<Axis> axis = parse_axis(setting);
    EXPECT_TRUE(axis) << axis.error().str();
    axes.push_back(std::move(*axis));
  }
  const Result<PlanGrid> plans =
      PlanGrid::make({"p.yaml", text}, {{machine, *read_calibration(machine)}}, axes);
  if (!plans) return std::nullopt;
  if (plans->multimodal()) {
    const Result<MultimodalForecast> towers = plans->towers(0);
    if (!towers) return std::nullopt;
    return Figures{towers->seconds, towers->need.bytes};
  }
  const Result<PlanForecast> plan = plans->forecast(0);
  if (!plan) return std::nullopt;
  return Figures{plan->step.seconds, plan->need.bytes, plan->time.front().value,
                 plan->goodput ? plan->goodput->share : 0};
}

class Draws {
 public:
  explicit Draws(unsigned seed) : random_(seed) {}
  template <class... Choices>
  auto one_of(Choices... choices) {
    const std::array all = {choices...};
    return all[std::uniform_int_distribution<std::size_t>(0, all.size() - 1)(random_)];
  }
  const char* yes_or_no() { return one_of("true", "false"); }

 private:
  std::mt19937 random_;
};

struct Drawn {
  std::string text, machine;
};

Drawn transformer_plan(Draws& draw) {
  const int tensor = draw.one_of(1, 2, 4, 8), context = draw.one_of(1, 1, 2);
  const int stages = draw.one_of(1, 1, 2, 4), data = draw.one_of(8, 16);
  const int micro_batch = draw.one_of(1, 2);
  const int batch = 2 * data * micro_batch * stages * draw.one_of(1, 2, 4);
  const char* machine = draw.one_of("h100-cluster", "dgx-h100", "dgx-a100", "dgx-b200");
  std::string text = fmt::format(
      "plan: 1\nname: drawn\ncalibration: {}\nmodel: {}\nsequence: {}\ngpus: {}\ntensor: {}\n"
      "context: {}\npipeline: {{stages: {}, schedule: {}}}\nzero: {}\nmicro_batch: {}\n"
      "global_batch: {}\nrecompute: {}\ncompile: {}\n"
      "overlap: {{gradients: {}, context: {}, pipeline: {}}}\n",
      machine, draw.one_of("llama3-8b", "llama3-70b", "gpt-7.5b", "gpt3-175b", "mixtral-8x7b"),
      draw.one_of(2048, 8192), tensor * context * stages * data, tensor, context, stages,
      stages == 1 ? "1f1b" : draw.one_of("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zbv"),
      draw.one_of(0, 1, 2, 3), micro_batch, batch, draw.one_of("none", "selective", "full"),
      draw.yes_or_no(), draw.yes_or_no(), draw.yes_or_no(), draw.yes_or_no());
  if (tensor > 1)
    text += fmt::format("sequence_parallel: {}\nasync_tensor: {}\n", draw.yes_or_no(),
                        draw.yes_or_no());
  return {text, machine};
}

// A language model of eight billion parameters that sees images, each sample's own.
Drawn towers_plan(Draws& draw) {
  const int tensor = draw.one_of(1, 2, 4), stages = draw.one_of(1, 2, 4);
  const int data = 32 / tensor / stages, micro_batch = draw.one_of(1, 2);
  const std::string place = draw.one_of("first_stage", "every_gpu", "own_gpus, gpus: 16");
  const char* machine = draw.one_of("h100-cluster", "dgx-h100", "dgx-a100");
  return {
      fmt::format("plan: 1\nname: drawn\ncalibration: {}\ngpus: {}\nmicro_batch: {}\n"
                  "global_batch: {}\nsteps: 2\noverlap_gradients: {}\n"
                  "llm: {{model: llama3-8b, sequence: 4096, tensor: {}, zero: {}, recompute: {},\n"
                  "      pipeline: {{stages: {}, schedule: {}}}}}\n"
                  "encoders: [{{name: vit, input: image, model: {}, merge: {}, zero: {}, "
                  "recompute: {}, on: {}}}]\n"
                  "data:\n  text: {{lognormal: [400, 1], most: 2000}}\n  sequences: {}\n"
                  "  arrange: {}\n  image: {{per_sample: {{poisson: 1.5}}, size: 500}}\n",
                  machine, place.starts_with("own") ? 48 : 32, micro_batch,
                  micro_batch * data * stages * draw.one_of(1, 2), draw.yes_or_no(), tensor,
                  draw.one_of(0, 1, 2, 3), draw.one_of("none", "selective", "full"), stages,
                  draw.one_of("1f1b", "gpipe"), draw.one_of("vit-huge", "internvit-6b"),
                  draw.one_of(1, 4), draw.one_of(0, 1, 2), draw.one_of("none", "full"), place,
                  draw.one_of("padded", "ragged"), draw.one_of("drawn", "reordered", "balanced")),
      machine};
}

constexpr double kRounding = 1 + 1e-9;
// Time that host and GPU deal to the passes may move between them; buckets of gradients cost a
// call's latency each.
constexpr double kMoved = 1 + 5e-3;

struct Change {
  Settings settings;
  bool longer = false;   // may take longer, and never less; else the other way round
  bool larger = false;   // the same of memory
  const char* why = "";  // what the failure says
};

void expect_changes(const Drawn& drawn, const std::vector<Change>& changes) {
  const std::optional<Figures> before = figures_of(drawn.text, drawn.machine);
  ASSERT_TRUE(before) << drawn.text;
  for (const Change& change : changes) {
    const std::optional<Figures> after = figures_of(drawn.text, drawn.machine, change.settings);
    ASSERT_TRUE(after) << change.why << "\n" << drawn.text;
    const auto [less, more] =
        change.longer ? std::pair(*before, *after) : std::pair(*after, *before);
    EXPECT_LE(less.seconds, more.seconds * kMoved) << change.why << "\n" << drawn.text;
    const auto [small, large] =
        change.larger ? std::pair(*before, *after) : std::pair(*after, *before);
    EXPECT_LE(small.bytes, large.bytes * kRounding) << change.why << "\n" << drawn.text;
  }
}

TEST(PlanProperties, ChangesOfATransformerHaveTheirEffectTheRightWayRound) {
  Draws draw(40);
  for (int i = 0; i < 40; ++i) {
    const Drawn drawn = transformer_plan(draw);
    expect_changes(
        drawn,
        {{{"calibration.network_speed=2"}, false, false, "a faster network"},
         {{"calibration.node_speed=2"}, false, false, "faster links inside nodes"},
         {{"calibration.slow=[{first: 0, work: 1.5}]"}, true, true, "a slow GPU"},
         {{"calibration.network={topology: fat-tree, tiers: [{nodes: 2, oversubscription: 7}]}"},
          true,
          true,
          "an oversubscribed network"},
         {{"gradient_dtype=bfloat16"}, false, false, "shorter gradients"}});
  }
}

TEST(PlanProperties, TwiceTheGpusComputeAndHoldNoMore) {
  Draws draw(41);
  for (int i = 0; i < 40; ++i) {
    const Drawn drawn = transformer_plan(draw);
    const Result<PlanFile> plan = read_plan(*parse_yaml(drawn.text, "p.yaml"));
    ASSERT_TRUE(plan) << plan.error().str();
    const std::optional<Figures> before = figures_of(drawn.text, drawn.machine);
    const std::optional<Figures> after =
        figures_of(drawn.text, drawn.machine, {fmt::format("gpus={}", 2 * plan->plan.ranks())});
    if (!after) continue;  // the batch is too small for interleaved stages
    EXPECT_LE(after->layers, before->layers * kRounding) << drawn.text;
    EXPECT_LE(after->bytes, before->bytes * kRounding) << drawn.text;
  }
}

TEST(PlanProperties, FewerFailuresLeaveMoreOfTheTime) {
  Draws draw(42);
  for (int i = 0; i < 10; ++i) {
    const Drawn drawn = transformer_plan(draw);
    double before = 0;
    for (const int hours : {100, 10'000, 1'000'000}) {
      const auto now = figures_of(
          drawn.text, drawn.machine,
          {fmt::format("failures={{gpu_mtbf_hours: {}, checkpoint: 30s, restart: 10min}}", hours)});
      ASSERT_TRUE(now);
      EXPECT_GT(now->goodput, before) << hours;
      EXPECT_LT(now->goodput, 1);
      before = now->goodput;
    }
  }
}

// A published model by its name or by its numbers, and what is left out or written as it would be.
TEST(PlanProperties, APlanWrittenInTwoWaysIsPredictedAlike) {
  for (const std::string& name : published_model_names()) {
    const Transformer m = *published_model(name);
    const std::string by_name = fmt::format(
        "plan: 1\nname: x\ncalibration: dgx-h100\nmodel: {}\nsequence: 2048\ngpus: 64\n"
        "global_batch: 64\n",
        name);
    std::string numbers = fmt::format(
        "{{layers: {}, hidden: {}, heads: {}, kv_heads: {}, ffn: {}, vocabulary: {}, gated: {}, "
        "tied_embeddings: {}, fused_attention: {}, causal: {}, diffusion: {}, "
        "two_stream_layers: {}, side_parameters: {}",
        m.layers, m.hidden, m.heads, m.kv_heads, m.ffn, m.vocabulary, m.gated, m.tied_embeddings,
        m.fused_attention, m.causal, m.diffusion, m.two_stream_layers, m.side_parameters);
    if (m.experts > 0)
      numbers +=
          fmt::format(", experts: {}, experts_per_token: {}", m.experts, m.experts_per_token);
    const auto named = figures_of(by_name, "dgx-h100");
    const auto numbered = figures_of(by_name, "dgx-h100", {"model=" + numbers + "}"});
    const auto written = figures_of(
        by_name, "dgx-h100",
        {"gpus_per_node=8", "gpu_memory=80GiB", "tensor=1", "context=1", "expert=1", "zero=0",
         "expert_skew=1", "pipeline={stages: 1, schedule: 1f1b, split: even}", "micro_batch=1",
         "recompute=none", "dtype=bfloat16", "gradient_dtype=float32", "compile=false",
         "kernels=fused", "scatter=step", "async_tensor=false", "sequence_parallel=false",
         "overlap={gradients: false, context: false, pipeline: false}"});
    ASSERT_TRUE(named && numbered && written) << name;
    for (const auto& other : {numbered, written}) {
      EXPECT_EQ(named->seconds, other->seconds) << name;
      EXPECT_EQ(named->bytes, other->bytes) << name;
    }
  }
}

TEST(PlanProperties, ChangesOfTowersHaveTheirEffectTheRightWayRound) {
  Draws draw(43);
  for (int i = 0; i < 30; ++i) {
    const Drawn drawn = towers_plan(draw);
    expect_changes(drawn,
                   {{{"calibration.network_speed=2"}, false, false, "a faster network"},
                    {{"calibration.node_speed=2"}, false, false, "faster links inside nodes"},
                    {{"encoders.0.frozen=true"}, false, false, "a frozen encoder"},
                    {{"llm.frozen=true"}, false, false, "a frozen LLM"},
                    {{"encoders.0.projector={frozen: true}"}, false, false, "a frozen projector"},
                    {{"data.image.size=4000"}, true, true, "larger images"},
                    {{"offload.activations=true"}, true, false, "activations in the host's memory"},
                    {{"encoders.0.without_items=dummy"}, true, true, "dummy images"}});
  }
}

}  // namespace
}  // namespace lockstep::sim
