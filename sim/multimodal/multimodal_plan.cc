#include "sim/multimodal/multimodal_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/documents/schema_check.h"
#include "base/text.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;

// Sources: ViT-H/14 arXiv 2010.11929, table 1; ViT-22B arXiv 2302.05442, table 1; SigLIP So400m/14
// arXiv 2305.13035; EVA-02-CLIP-E arXiv 2303.15389; InternViT-6B arXiv 2312.14238, section 3.2;
// Whisper large arXiv 2212.04356, table 1. vit-5b is no published model: a ViT of five billion
// parameters in those proportions.
struct EncoderShape {
  std::string_view name;
  std::int64_t layers, hidden, heads, ffn;
};
constexpr std::array<EncoderShape, 7> kEncoders = {{
    {"vit-huge", 32, 1280, 16, 5120},
    {"siglip-so400m", 27, 1152, 16, 4304},
    {"eva02-e", 64, 1792, 16, 15360},
    {"vit-5b", 44, 3072, 24, 12288},
    {"internvit-6b", 45, 3200, 25, 12800},
    {"vit-22b", 48, 6144, 48, 24576},
    {"whisper-large", 32, 1280, 20, 5120},
}};

constexpr std::array<std::string_view, 3> kPlaces = {"first_stage", "every_gpu", "own_gpus"};
constexpr std::array<std::string_view, 3> kFillings = {"packed", "padded", "ragged"};
constexpr std::array<std::string_view, 3> kArrangements = {"drawn", "reordered", "balanced"};

template <class Enum, std::size_t N>
Enum named_in(const std::array<std::string_view, N>& names, const std::string& name) {
  return static_cast<Enum>(std::find(names.begin(), names.end(), name) - names.begin());
}

constexpr std::string_view kTowersSchema = R"({
  "$schema": "http://json-schema.org/draft-07/schema#",
  "type": "object",
  "additionalProperties": false,
  "required": ["plan", "name", "calibration", "gpus", "global_batch", "llm", "encoders", "data"],
  "properties": {
    "plan": {}, "name": {}, "calibration": {}, "gpus": {}, "gpus_per_node": {}, "gpu_memory": {},
    "global_batch": {}, "micro_batch": {},
    "overlap_gradients": {"type": "boolean", "default": false,
      "description": "gradients are summed beside the last backward pass, not after it"},
    "steps": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 4,
      "description": "steps that are drawn from the data and simulated"},
    "offload": {"type": "object", "additionalProperties": false,
      "description": "what is kept in the host's memory",
      "properties": {
        "optimizer": {"type": "boolean", "default": false,
          "description": "the optimizer's state, which the host updates"},
        "activations": {"type": "boolean", "default": false,
          "description": "activations, from the forward to the backward pass"},
        "bandwidth": {"type": "string", "minLength": 1, "maxLength": 60, "default": "25GB/s",
          "description": "of a GPU to and from the host"}}},
    "llm": {"type": "object", "additionalProperties": false, "required": ["model", "sequence"],
      "description": "the language model: keys as in the plan of a transformer",
      "properties": {
        "frozen": {"type": "boolean", "default": false,
          "description": "not trained; gradients pass through it"}}},
    "encoders": {"type": "array", "maxItems": 16,
      "description": "the towers before the language model",
      "items": {"type": "object", "additionalProperties": false,
        "required": ["name", "input", "model"],
        "properties": {
          "name": {"type": "string", "minLength": 1, "maxLength": 60,
            "description": "what people call it"},
          "input": {"type": "string", "enum": ["image", "video", "audio"],
            "description": "what it encodes"},
          "model": {"description": "a published encoder, as vit-huge, or its hyper-parameters",
            "oneOf": [
              {"type": "string", "minLength": 1, "maxLength": 60,
               "description": "the name of a published encoder"},
              {"type": "object", "additionalProperties": false,
               "required": ["layers", "hidden", "heads"],
               "properties": {
                "layers": {"type": "integer", "minimum": 1, "maximum": 16384,
                  "description": "transformer layers"},
                "hidden": {"type": "integer", "minimum": 1, "maximum": 1048576,
                  "description": "width, in elements"},
                "heads": {"type": "integer", "minimum": 1, "maximum": 1048576,
                  "description": "heads of attention"},
                "ffn": {"type": "integer", "minimum": 1, "maximum": 1048576,
                  "description": "width inside the feed-forward block; left out: 4 x hidden"},
                "gated": {"type": "boolean", "default": false,
                  "description": "a third matrix in the feed-forward block, no biases"}}}]},
          "merge": {"type": "integer", "minimum": 1, "maximum": 1048576, "default": 1,
            "description": "input tokens (patches) that become one token of the LLM"},
          "on": {"type": "string", "enum": ["first_stage", "every_gpu", "own_gpus"],
            "default": "first_stage", "description": "where it runs"},
          "gpus": {"type": "integer", "minimum": 1, "maximum": 1048576,
            "description": "of an encoder on its own GPUs"},
          "tensor": {"type": "integer", "minimum": 1, "maximum": 32768, "default": 1,
            "description": "GPUs that a layer is cut over; fewer than the LLM's: data parallel in its group"},
          "stages": {"type": "integer", "minimum": 1, "maximum": 32768, "default": 1,
            "description": "of an encoder on its own GPUs: pipeline stages"},
          "zero": {"type": "integer", "minimum": 0, "maximum": 3, "default": 0,
            "description": "shared by its data-parallel ranks: 1 optimizer, 2 gradients, 3 all"},
          "recompute": {"type": "string", "enum": ["none", "selective", "full"], "default": "none",
            "description": "what the backward pass computes again"},
          "dtype": {"type": "string", "enum": ["bfloat16", "float8"], "default": "bfloat16",
            "description": "of the linear layers' products"},
          "gradient_dtype": {"type": "string", "enum": ["float32", "bfloat16"],
            "default": "float32", "description": "of gradients, in memory and as they are summed"},
          "frozen": {"type": "boolean", "default": false,
            "description": "not trained: forward only"},
          "gradients": {"type": "string", "enum": ["buffer", "hooks"], "default": "buffer",
            "description": "summed in one call a step, or in a call as each gradient comes"},
          "without_items": {"type": "string", "enum": ["skip", "dummy"], "default": "skip",
            "description": "what a rank without items does: nothing, or encode a dummy"},
          "projector": {"type": "object", "additionalProperties": false,
            "description": "two products from merge x hidden to the LLM's width",
            "properties": {
              "hidden": {"type": "integer", "minimum": 1, "maximum": 1048576,
                "description": "width between them; left out: the LLM's"},
              "frozen": {"type": "boolean", "default": false, "description": "not trained"}}}}}},
    "data": {"type": "object", "additionalProperties": false,
      "description": "what a sample holds",
      "properties": {
        "manifest": {"type": "string", "minLength": 1, "maxLength": 4096,
          "description": "JSONL file with a sample a line, instead of distributions"},
        "text": {"description": "tokens of a sample's text"},
        "image": {"description": "images of a sample"},
        "video": {"description": "videos of a sample"},
        "audio": {"description": "audio clips of a sample"},
        "sequences": {"type": "string", "enum": ["packed", "padded", "ragged"], "default": "packed",
          "description": "samples in a sequence: as many as fit; one, filled up; one, as it is"},
        "arrange": {"type": "string", "enum": ["drawn", "reordered", "balanced"],
          "default": "drawn",
          "description": "which micro-batch a sequence goes to: as drawn, evenly in its rank, in all"},
        "seed": {"type": "integer", "minimum": 0, "maximum": 9007199254740991, "default": 1,
          "description": "of the draws"}}}
  }
})";

constexpr std::string_view kDistributionSchema = R"({
  "oneOf": [
    {"type": "integer", "minimum": 0, "maximum": 1048576, "description": "always this many"},
    {"type": "object", "additionalProperties": false, "minProperties": 1,
     "properties": {
       "uniform": {"type": "array", "minItems": 2, "maxItems": 2,
         "items": {"type": "integer", "minimum": 0, "maximum": 1048576},
         "description": "whole numbers from the first to the second"},
       "poisson": {"type": "number", "minimum": 0, "maximum": 100000, "description": "its mean"},
       "lognormal": {"type": "array", "minItems": 2, "maxItems": 2,
         "items": {"type": "number", "minimum": 0, "maximum": 1048576},
         "description": "median, and the standard deviation of the logarithm"},
       "choice": {"type": "array", "minItems": 1, "maxItems": 1000,
         "items": {"type": "array", "minItems": 2, "maxItems": 2,
                   "items": {"type": "number", "minimum": 0, "maximum": 1048576}},
         "description": "values with their weights: [[0, 0.6], [1, 0.4]]"},
       "most": {"type": "integer", "minimum": 0, "maximum": 1048576,
         "description": "larger draws become this"}}}]
})";

Json distribution_schema(const char* meaning) {
  Json out = Json::parse(kDistributionSchema);
  out["description"] = meaning;
  return out;
}

Json make_schema() {
  Json schema = Json::parse(kTowersSchema);
  const Json transformer = Json::parse(kPlanSchema)["properties"];
  Json& top = schema["properties"];
  for (const char* key : {"plan", "name", "calibration", "gpus", "gpus_per_node", "gpu_memory",
                          "global_batch", "micro_batch"})
    top[key] = transformer[key];
  top["gpus"]["description"] = "all, with those of encoders on their own";
  Json& llm = top["llm"]["properties"];
  for (const auto& [key, value] : transformer.items())
    if (!top.contains(key)) llm[key] = value;
  llm["pipeline"]["properties"]["split"] = {
      {"type", "string"},
      {"enum", {"even", "balanced"}},
      {"default", "even"},
      {"description",
       "of the layers over the stages: the LLM's alike, or all towers' by mean work"}};
  Json& data = top["data"]["properties"];
  data["text"] = distribution_schema("tokens of a sample's text");
  for (const std::string_view kind : kItemKinds) {
    const std::string key(kind);
    data[key] = {{"type", "object"},
                 {"additionalProperties", false},
                 {"required", {"per_sample", "size"}},
                 {"description", key + (kind == "audio" ? " clips" : "s") + " of a sample"},
                 {"properties",
                  {{"per_sample", distribution_schema("how many")},
                   {"size", distribution_schema("input tokens of each: patches, frames")}}}};
  }
  return schema;
}

class TowersReader {
 public:
  TowersReader(const YamlDocument& document, const std::string& manifest)
      : document_(document), root_(document.value), manifest_(manifest) {}

  Result<MultimodalPlan> read() {
    out_.gpus = root_["gpus"];
    out_.steps = root_.value("steps", 4);
    out_.overlapped_gradients = root_.value("overlap_gradients", false);
    for (std::size_t i = 0; i < root_["encoders"].size(); ++i)
      if (const Status read = read_encoder(i); !read) return read.error();
    if (const Status read = read_llm(); !read) return read.error();
    if (const Status read = read_offload(); !read) return read.error();
    if (const Status read = read_data(); !read) return read.error();
    for (EncoderTower& tower : out_.encoders)
      if (tower.projector_hidden == 0) tower.projector_hidden = out_.llm.model.hidden;
    const bool trains =
        !out_.llm_frozen || std::any_of(out_.encoders.begin(), out_.encoders.end(),
                                        [](const EncoderTower& tower) { return tower.trained(); });
    if (!trains)
      return refused("/llm/frozen", "nothing is trained: all towers and projectors are frozen",
                     "train one of them");
    if (const auto problem = place_encoders(out_))
      return Error{
          problem->error.message,
          document_.value_location(fmt::format("/encoders/{}/{}", problem->encoder, problem->key)),
          problem->error.fix};
    if (out_.balanced_split && out_.llm.plan.chunks > 1)
      return refused("/llm/pipeline/split",
                     "a balanced split cuts the layers into one piece a stage, and this schedule "
                     "has " +
                         std::to_string(out_.llm.plan.chunks),
                     "use split: even, or schedule: 1f1b");
    return std::move(out_);
  }

 private:
  Error refused(const std::string& pointer, std::string message, std::string fix) const {
    return Error{std::move(message), document_.value_location(pointer), std::move(fix)};
  }

  Status read_encoder(std::size_t index) {
    const Json& given = root_["encoders"][index];
    const std::string here = fmt::format("/encoders/{}", index);
    EncoderTower tower;
    tower.name = given["name"];
    tower.input = named_in<std::size_t>(kItemKinds, given["input"]);
    for (const EncoderTower& other : out_.encoders)
      if (other.name == tower.name)
        return refused(here + "/name",
                       fmt::format("two encoders are called \"{}\"", printable(tower.name)),
                       "give each its own name");
    const Json& model = given["model"];
    if (model.is_string()) {
      const auto published = published_encoder(model.get<std::string>());
      if (!published) {
        const std::vector<std::string> names = published_encoder_names();
        return refused(here + "/model",
                       fmt::format("no published encoder is known as \"{}\"",
                                   printable(model.get<std::string>())),
                       "known are " + join_and(names) +
                           "; any other one goes by its hyper-parameters: "
                           "model: {layers: …, hidden: …, heads: …}");
      }
      tower.model = *published;
      tower.model_name = model;
    } else {
      Transformer& m = tower.model;
      m.layers = model["layers"];
      m.hidden = model["hidden"];
      m.heads = m.kv_heads = model["heads"];
      m.ffn = model.value("ffn", 4 * m.hidden);
      m.gated = model.value("gated", false);
      m.fused_attention = true;
      if (m.hidden % m.heads != 0)
        return refused(here + "/model/heads",
                       fmt::format("hidden {} does not divide by heads {}", m.hidden, m.heads),
                       "change one of the two");
      if (m.ffn > 1 << 20U)
        return refused(here + "/model", fmt::format("a feed-forward width of {}", m.ffn),
                       "give ffn, at most 1048576");
    }
    tower.merge = given.value("merge", 1);
    tower.frozen = given.value("frozen", false);
    tower.place = named_in<EncoderPlace>(kPlaces, given.value("on", "first_stage"));
    tower.layout.tensor = given.value("tensor", 1);
    tower.layout.pipeline = given.value("stages", 1);
    tower.layout.sharding = static_cast<Sharding>(given.value("zero", 0));
    const std::string recompute = given.value("recompute", "none");
    tower.layout.recompute = recompute == "full"        ? Recompute::full
                             : recompute == "selective" ? Recompute::selective
                                                        : Recompute::none;
    tower.layout.short_gradients = given.value("gradient_dtype", "float32") == "bfloat16";
    tower.layout.fp8 = given.value("dtype", "bfloat16") == "float8";
    tower.gradients = given.value("gradients", "buffer") == "hooks" ? GradientCalls::hooks
                                                                    : GradientCalls::buffer;
    tower.dummy = given.value("without_items", "skip") == "dummy";
    const Json projector = given.value("projector", Json::object());
    tower.projector_hidden = projector.value("hidden", 0);
    tower.projector_frozen = projector.value("frozen", false);
    const bool own = tower.place == EncoderPlace::own_gpus;
    for (const char* key : {"gpus", "stages"})
      if (!own && given.contains(key))
        return refused(
            here + "/" + key,
            fmt::format("\"{}\" is of an encoder on its own GPUs, and this one runs on {}", key,
                        place_name(tower.place)),
            "leave it out, or use on: own_gpus");
    if (own && !given.contains("gpus"))
      return refused(here + "/on", "an encoder on its own GPUs does not say how many",
                     "add \"gpus: …\"");
    tower.gpus = given.value("gpus", std::int64_t{0});
    out_.encoders.push_back(std::move(tower));
    return Status::ok();
  }

  // The LLM's plan is that of a transformer on the remaining GPUs.
  Status read_llm() {
    YamlDocument own;
    own.value = root_["llm"];
    out_.llm_frozen = own.value.value("frozen", false);
    own.value.erase("frozen");
    if (own.value.contains("pipeline")) {
      out_.balanced_split = own.value["pipeline"].value("split", "even") == "balanced";
      own.value["pipeline"].erase("split");
    }
    for (const char* key : {"plan", "name", "calibration", "gpus", "gpus_per_node", "gpu_memory",
                            "global_batch", "micro_batch"})
      if (root_.contains(key)) own.value[key] = root_[key];
    std::int64_t left = out_.gpus;
    for (const EncoderTower& tower : out_.encoders) left -= tower.gpus;
    if (left < 1)
      return refused("/gpus", fmt::format("of {} GPUs the encoders have all", out_.gpus),
                     "leave some to the LLM");
    own.value["gpus"] = left;
    const std::string prefix = "/llm";
    for (const auto& [pointer, spot] : document_.spots) {
      if (pointer.starts_with(prefix + "/"))
        own.spots[pointer.substr(prefix.size())] = spot;
      else
        own.spots.emplace(pointer, spot);
    }
    Result<PlanFile> plan = read_plan(own);
    if (!plan) return plan.error();
    out_.llm = std::move(*plan);
    return Status::ok();
  }

  Status read_offload() {
    const Json given = root_.value("offload", Json::object());
    out_.offload.optimizer = given.value("optimizer", false);
    out_.offload.activations = given.value("activations", false);
    const Result<Bandwidth> bandwidth = parse_bandwidth(given.value("bandwidth", "25GB/s"));
    if (!bandwidth)
      return refused("/offload/bandwidth", bandwidth.error().message, bandwidth.error().fix);
    out_.offload.bandwidth = bandwidth->bytes_per_second();
    return Status::ok();
  }

  Status read_data() {
    const Json& given = root_["data"];
    TrainingData& data = out_.data;
    data.filling = named_in<SequenceFilling>(kFillings, given.value("sequences", "packed"));
    data.arrangement = named_in<Arrangement>(kArrangements, given.value("arrange", "drawn"));
    data.seed = given.value("seed", std::uint64_t{1});
    if (given.contains("manifest")) {
      data.manifest_file = given["manifest"];
      for (const char* key : {"text", "image", "video", "audio"})
        if (given.contains(key))
          return refused(std::string("/data/") + key,
                         "the data have a manifest, and a distribution, too", "leave one out");
      Result<std::vector<DataSample>> samples = parse_manifest(manifest_, data.manifest_file);
      if (!samples) return samples.error();
      data.manifest = std::move(*samples);
      return Status::ok();
    }
    if (!given.contains("text"))
      return refused("/data", "the data do not say how long a sample's text is",
                     "add \"text: {lognormal: [600, 1]}\", or a manifest");
    if (const Status read = read_distribution("/data/text", given["text"], data.text); !read)
      return read.error();
    for (std::size_t kind = 0; kind < kItemKindCount; ++kind) {
      const std::string key(kItemKinds[kind]);
      const bool used = std::any_of(out_.encoders.begin(), out_.encoders.end(),
                                    [&](const EncoderTower& tower) { return tower.input == kind; });
      if (used && !given.contains(key))
        return refused("/data",
                       fmt::format("an encoder takes in {}, and the data do not say how many "
                                   "of them there are",
                                   key),
                       fmt::format("add \"{}: {{per_sample: …, size: …}}\"", key));
      if (!given.contains(key)) continue;
      if (!used)
        return refused("/data/" + key, fmt::format("no encoder takes in {}", key),
                       "leave it out, or add an encoder");
      for (const auto& [part, into] : {std::pair{"per_sample", &data.items[kind].per_sample},
                                       {"size", &data.items[kind].size}})
        if (const Status read =
                read_distribution(fmt::format("/data/{}/{}", key, part), given[key][part], *into);
            !read)
          return read.error();
    }
    return Status::ok();
  }

  Status read_distribution(const std::string& pointer, const Json& given, Distribution& out) {
    if (given.is_number()) {
      out = {Distribution::Kind::constant, given.get<double>(), 0, {}};
      return Status::ok();
    }
    std::vector<std::string> kinds;
    for (const auto& [key, value] : given.items())
      if (key != "most") kinds.push_back(key);
    if (kinds.size() != 1)
      return refused(pointer,
                     kinds.empty() ? "this distribution is none: it has only \"most\""
                                   : "these are " + std::to_string(kinds.size()) +
                                         " distributions: " + join_and(kinds),
                     "give one of uniform, poisson, lognormal and choice");
    const Json& value = given[kinds[0]];
    out.most = given.value("most", Distribution::kMostDrawn);
    if (kinds[0] == "poisson") {
      out.kind = Distribution::Kind::poisson;
      out.first = value;
    } else if (kinds[0] == "choice") {
      out.kind = Distribution::Kind::choice;
      double all = 0;
      for (const Json& pair : value) {
        out.choices.push_back({std::llround(pair[0].get<double>()), pair[1].get<double>()});
        all += out.choices.back().weight;
      }
      if (all <= 0) return refused(pointer, "all weights of the choice are 0", "give one more");
    } else {
      const bool uniform = kinds[0] == "uniform";
      out.kind = uniform ? Distribution::Kind::uniform : Distribution::Kind::lognormal;
      out.first = value[0];
      out.second = value[1];
      if (uniform && out.second < out.first)
        return refused(pointer, "this range goes down", "write the smaller number first");
      if (!uniform && out.second > 10)
        return refused(pointer, "a logarithm with a standard deviation above 10 is none of data",
                       "lognormal: [median, sigma], with sigma about 1");
    }
    return Status::ok();
  }

  const YamlDocument& document_;
  const Json& root_;
  const std::string& manifest_;
  MultimodalPlan out_;
};

PlaceProblem place_problem(std::size_t encoder, std::string_view key, std::string message,
                           std::string fix) {
  return {encoder, key, Error{std::move(message), {}, std::move(fix)}};
}

}  // namespace

std::optional<PlaceProblem> place_encoders(MultimodalPlan& plan) {
  const TrainingPlan& llm = plan.llm.plan;
  for (std::size_t i = 0; i < plan.encoders.size(); ++i) {
    EncoderTower& tower = plan.encoders[i];
    TrainingPlan& own = tower.layout;
    if (tower.model.heads % own.tensor != 0)
      return place_problem(i, "tensor",
                           fmt::format("heads {} of {} do not divide by tensor {}",
                                       tower.model.heads, printable(tower.name), own.tensor),
                           "change one of the two");
    if (own.pipeline > tower.model.layers)
      return place_problem(i, "stages",
                           fmt::format("{} stages for {} layers", own.pipeline, tower.model.layers),
                           "use fewer stages");
    if (tower.place != EncoderPlace::own_gpus) {
      const std::int64_t ranks = tower.place == EncoderPlace::every_gpu
                                     ? plan.replica_gpus()
                                     : std::int64_t{llm.tensor} * llm.context;
      if (ranks % own.tensor != 0)
        return place_problem(
            i, "tensor",
            fmt::format("{} GPUs of the LLM ({}) do not divide by the encoder's tensor {}", ranks,
                        tower.place == EncoderPlace::every_gpu ? "a whole replica"
                                                               : "a stage: tensor x context",
                        own.tensor),
            "use a tensor that divides it");
      own.pipeline = 1;
      own.data = static_cast<std::int32_t>(ranks / own.tensor);
      continue;
    }
    const std::int64_t group = std::int64_t{own.tensor} * own.pipeline;
    if (tower.gpus % group != 0)
      return place_problem(i, "gpus",
                           fmt::format("{} GPUs do not divide by tensor x stages = {} x {}",
                                       tower.gpus, own.tensor, own.pipeline),
                           fmt::format("use a multiple of {}", group));
    const std::int64_t data = tower.gpus / group;
    if (data % llm.data != 0 && llm.data % data != 0)
      return place_problem(
          i, "gpus",
          fmt::format("{} replicas of the encoder for {} of the LLM: neither divides the other",
                      data, llm.data),
          "change the GPUs of one of them");
    own.data = static_cast<std::int32_t>(data);
    if (llm.chunks > 1)
      return place_problem(i, "on",
                           "stages of an encoder's own are in front of the LLM's, and a schedule "
                           "of several chunks goes round",
                           "use pipeline.schedule: 1f1b, or another place");
  }
  return std::nullopt;
}

bool is_multimodal(const Json& document) {
  return document.is_object() && document.contains("llm");
}

const Json& multimodal_plan_schema() {
  static const Json schema = make_schema();
  return schema;
}

std::string manifest_of(const Json& document) {
  if (!is_multimodal(document) || !document.contains("data")) return {};
  const Json& data = document["data"];
  if (!data.is_object() || !data.contains("manifest") || !data["manifest"].is_string()) return {};
  return data["manifest"];
}

Result<MultimodalPlan> read_multimodal_plan(const YamlDocument& document,
                                            const std::string& manifest) {
  if (auto problem = check_against_schema(document, multimodal_plan_schema())) {
    if (problem->fix.empty()) problem->fix = "docs/simulate-multimodal.md shows a whole file";
    return *problem;
  }
  return TowersReader(document, manifest).read();
}

Result<MultimodalPlan> parse_multimodal_plan(const std::string& text, const std::string& file,
                                             const std::string& manifest) {
  const Result<YamlDocument> document = parse_yaml(text, file);
  if (!document) return document.error();
  return read_multimodal_plan(*document, manifest);
}

std::optional<Transformer> published_encoder(std::string_view name) {
  for (const EncoderShape& shape : kEncoders) {
    if (shape.name != name) continue;
    Transformer out;
    out.layers = shape.layers;
    out.hidden = shape.hidden;
    out.heads = out.kv_heads = shape.heads;
    out.ffn = shape.ffn;
    out.fused_attention = true;
    return out;
  }
  return std::nullopt;
}

std::vector<std::string> published_encoder_names() {
  std::vector<std::string> out;
  for (const EncoderShape& shape : kEncoders) out.emplace_back(shape.name);
  return out;
}

std::string_view place_name(EncoderPlace place) { return kPlaces[static_cast<std::size_t>(place)]; }
std::string_view filling_name(SequenceFilling filling) {
  return kFillings[static_cast<std::size_t>(filling)];
}
std::string_view arrangement_name(Arrangement arrangement) {
  return kArrangements[static_cast<std::size_t>(arrangement)];
}

}  // namespace lockstep::sim
