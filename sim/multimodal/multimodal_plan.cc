#include "sim/multimodal/multimodal_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/documents/document_reader.h"
#include "base/documents/schema_check.h"
#include "base/text.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;

// Sources: ViT-H/14 arXiv 2010.11929, table 1; ViT-22B arXiv 2302.05442, table 1; SigLIP So400m/14
// arXiv 2305.13035; EVA-02-CLIP-E arXiv 2303.15389; InternViT-6B arXiv 2312.14238, section 3.2;
// Whisper large arXiv 2212.04356, table 1. vit-5b is not a published model: a ViT of five billion
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

std::vector<std::string> published_encoder_names() {
  std::vector<std::string> out;
  out.reserve(kEncoders.size());
  for (const EncoderShape& shape : kEncoders) out.emplace_back(shape.name);
  return out;
}

constexpr std::array<std::string_view, 3> kPlaces = {"first_stage", "every_gpu", "own_gpus"};
constexpr std::array<std::string_view, 3> kFillings = {"packed", "padded", "ragged"};
constexpr std::array<std::string_view, 3> kArrangements = {"drawn", "reordered", "balanced"};

Json make_schema() {
  Json schema = Json::parse(towers_schema());
  const Json transformer = Json::parse(plan_schema())["properties"];
  const auto distribution = [&](const char* meaning) {
    Json out = schema["definitions"]["distribution"];
    out["description"] = meaning;
    return out;
  };
  Json& top = schema["properties"];
  for (const char* key : {"plan", "name", "calibration", "gpus", "gpus_per_node", "gpu_memory",
                          "global_batch", "micro_batch", "failures"})
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
  data["text"] = distribution("tokens of a sample's text");
  for (const std::string_view kind : kItemKinds) {
    const std::string key(kind);
    data[key] = {
        {"type", "object"},
        {"additionalProperties", false},
        {"required", {"per_sample", "size"}},
        {"description", fmt::format("{}{} of a sample", key, kind == "audio" ? " clips" : "s")},
        {"properties",
         {{"per_sample", distribution("how many")},
          {"size", distribution("input tokens of each: patches, frames")}}}};
  }
  return schema;
}

class TowersReader {
 public:
  TowersReader(const YamlDocument& document, const std::string& manifest)
      : document_(document), read_(document), root_(read_.root()), manifest_(manifest) {}

  Result<MultimodalPlan> read() {
    out_.gpus = root_["gpus"];
    out_.steps = root_.value("steps", 4);
    out_.overlapped_gradients = root_.value("overlap_gradients", false);
    for (std::size_t i = 0; i < root_["encoders"].size(); ++i)
      if (const Status read = read_encoder(i); !read) return read.error();
    if (const Status read = read_llm(); !read) return read.error();
    if (const Status read = read_offload(); !read) return read.error();
    if (read_.problem()) return *read_.problem();
    if (const Status read = read_data(); !read) return read.error();
    for (EncoderTower& tower : out_.encoders)
      if (tower.projector_hidden == 0) tower.projector_hidden = out_.llm.model.hidden;
    const bool trains =
        !out_.llm_frozen || std::any_of(out_.encoders.begin(), out_.encoders.end(),
                                        [](const EncoderTower& tower) { return tower.trained(); });
    if (!trains)
      return read_.error_at("/llm/frozen",
                            "nothing is trained: all towers and projectors are frozen",
                            "train one of them");
    if (const auto problem = place_encoders(out_))
      return read_.error_at(fmt::format("/encoders/{}/{}", problem->encoder, problem->key),
                            problem->error.message, problem->error.fix);
    if (out_.balanced_split && out_.llm.plan.chunks > 1)
      return read_.error_at(
          "/llm/pipeline/split",
          fmt::format("a balanced split cuts the layers into one piece a stage, and this schedule "
                      "has {}",
                      out_.llm.plan.chunks),
          "use split: even, or schedule: 1f1b");
    return std::move(out_);
  }

 private:
  // An encoder's model: the name of a published one, or hyper-parameters. `here`: its pointer.
  Status read_model(const Json& model, const std::string& here, EncoderTower& tower) {
    if (model.is_string()) {
      const auto published = published_encoder(model.get<std::string>());
      if (!published) {
        const std::vector<std::string> names = published_encoder_names();
        const std::string meant = did_you_mean(model.get<std::string>(), names);
        return read_.error_at(
            here,
            fmt::format("no published encoder is known as \"{}\"{}{}",
                        printable(model.get<std::string>()), meant.empty() ? "" : "; ", meant),
            fmt::format(
                "known are {}; any other one goes by its hyper-parameters: model: {{layers: …, "
                "hidden: …, heads: …}}",
                join_and(names)));
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
        return read_.error_at(
            here + "/heads",
            fmt::format("hidden {} does not divide by heads {}", m.hidden, m.heads),
            "change one of the two");
      if (m.ffn > 1 << 20U)
        return read_.error_at(here, fmt::format("a feed-forward width of {}", m.ffn),
                              "give ffn, at most 1048576");
    }
    return Status::ok();
  }

  Status read_encoder(std::size_t index) {
    const Json& given = root_["encoders"][index];
    const std::string here = fmt::format("/encoders/{}", index);
    EncoderTower tower;
    tower.name = given["name"];
    tower.input = choice<std::size_t>(given["input"], kItemKinds);
    for (const EncoderTower& other : out_.encoders)
      if (other.name == tower.name)
        return read_.error_at(here + "/name",
                              fmt::format("two encoders are called \"{}\"", printable(tower.name)),
                              "give each its own name");
    if (const Status model = read_model(given["model"], here + "/model", tower); !model)
      return model;
    tower.merge = given.value("merge", 1);
    tower.frozen = given.value("frozen", false);
    tower.place = choice<EncoderPlace>(given.value("on", "first_stage"), kPlaces);
    tower.layout.tensor = given.value("tensor", 1);
    tower.layout.pipeline = given.value("stages", 1);
    tower.layout.sharding = static_cast<Sharding>(given.value("zero", 0));
    tower.layout.recompute = choice<Recompute>(given.value("recompute", "none"), kRecomputeNames);
    tower.layout.short_gradients = given.value("gradient_dtype", "float32") == "bfloat16";
    tower.layout.fp8 = given.value("dtype", "bfloat16") == "float8";
    tower.dtype_at = read_.location(here + "/dtype");
    tower.gradients = given.value("gradients", "buffer") == "hooks" ? GradientCalls::hooks
                                                                    : GradientCalls::buffer;
    tower.dummy = given.value("without_items", "skip") == "dummy";
    const Json projector = given.value("projector", Json::object());
    tower.projector_hidden = projector.value("hidden", 0);
    tower.projector_frozen = projector.value("frozen", false);
    const bool own = tower.place == EncoderPlace::own_gpus;
    for (const char* key : {"gpus", "stages"})
      if (!own && given.contains(key))
        return read_.error_at(
            fmt::format("{}/{}", here, key),
            fmt::format("\"{}\" is of an encoder on its own GPUs, and this one runs on {}", key,
                        place_name(tower.place)),
            "leave it out, or use on: own_gpus");
    if (own && !given.contains("gpus"))
      return read_.error_at(here + "/on", "an encoder on its own GPUs does not say how many",
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
                            "global_batch", "micro_batch", "failures"})
      if (root_.contains(key)) own.value[key] = root_[key];
    std::int64_t left = out_.gpus;
    for (const EncoderTower& tower : out_.encoders) left -= tower.gpus;
    if (left < 1)
      return read_.error_at("/gpus", fmt::format("of {} GPUs the encoders have all", out_.gpus),
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

  // A bandwidth over which nothing goes is a mistake, unless the plan says that nothing moves.
  Status read_offload() {
    const Json given = root_.value("offload", Json::object());
    if (given.contains("bandwidth") && !given.contains("optimizer") &&
        !given.contains("activations"))
      return read_.error_at("/offload/bandwidth",
                            "nothing is kept in the host's memory, so this makes no difference",
                            "add optimizer: true or activations: true, or leave it out");
    out_.offload.optimizer = read_.value_or("/offload/optimizer", false);
    out_.offload.activations = read_.value_or("/offload/activations", false);
    out_.offload.bandwidth =
        read_.quantity_or("/offload/bandwidth", parse_bandwidth, Bandwidth{200'000'000'000})
            .bytes_per_second();
    return Status::ok();
  }

  Status read_data() {
    const Json& given = root_["data"];
    TrainingData& data = out_.data;
    data.filling = choice<SequenceFilling>(given.value("sequences", "packed"), kFillings);
    data.arrangement = choice<Arrangement>(given.value("arrange", "drawn"), kArrangements);
    data.seed = given.value("seed", std::uint64_t{1});
    if (given.contains("manifest")) {
      data.manifest_file = given["manifest"];
      for (const char* key : {"text", "image", "video", "audio"})
        if (given.contains(key))
          return read_.error_at(fmt::format("/data/{}", key),
                                "the data have a manifest, and a distribution, too",
                                "leave one out");
      Result<std::vector<DataSample>> samples = parse_manifest(manifest_, data.manifest_file);
      if (!samples) return samples.error();
      data.manifest = std::move(*samples);
      return check_manifest();
    }
    if (!given.contains("text"))
      return read_.error_at("/data", "the data do not say how long a sample's text is",
                            "add \"text: {lognormal: [600, 1]}\", or a manifest");
    if (const Status read = read_distribution("/data/text", given["text"], data.text); !read)
      return read.error();
    for (std::size_t kind = 0; kind < kItemKindCount; ++kind) {
      const std::string key(kItemKinds[kind]);
      const bool used = is_encoded(kind);
      if (used && !given.contains(key))
        return read_.error_at(
            "/data",
            fmt::format("an encoder takes in {}, and the data do not say how many "
                        "of them there are",
                        key),
            fmt::format("add \"{}: {{per_sample: …, size: …}}\"", key));
      if (!given.contains(key)) continue;
      if (!used)
        return read_.error_at("/data/" + key, fmt::format("no encoder takes in {}", key),
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

  bool is_encoded(std::size_t kind) const {
    return std::any_of(out_.encoders.begin(), out_.encoders.end(),
                       [&](const EncoderTower& tower) { return tower.input == kind; });
  }

  // Items that no encoder takes in would be counted, and take no time.
  Status check_manifest() const {
    for (std::size_t kind = 0; kind < kItemKindCount; ++kind) {
      if (is_encoded(kind)) continue;
      for (const DataSample& sample : out_.data.manifest)
        if (!sample.items[kind].empty())
          return read_.error_at(
              "/data/manifest",
              fmt::format("its samples have {}, and no encoder takes it in", kItemKinds[kind]),
              "add an encoder, or leave them out of the manifest");
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
      return read_.error_at(pointer,
                            kinds.empty() ? "this is not a distribution: it has only \"most\""
                                          : fmt::format("these are {} distributions: {}",
                                                        kinds.size(), join_and(kinds)),
                            "give one of uniform, poisson, lognormal and choice");
    const Json& value = given[kinds[0]];
    out.most = given.value("most", Distribution::kMaxDrawn);
    if (kinds[0] == "poisson") {
      out.kind = Distribution::Kind::poisson;
      out.first = value;
    } else if (kinds[0] == "choice") {
      out.kind = Distribution::Kind::choice;
      double all = 0;
      for (const Json& pair : value) {
        if (pair[0].get<double>() != std::floor(pair[0].get<double>()))
          return read_.error_at(pointer,
                                fmt::format("the choice {} is no whole number", pair[0].dump()),
                                "items and tokens are counted: [[0, 0.6], [1, 0.4]]");
        out.choices.push_back({std::llround(pair[0].get<double>()), pair[1].get<double>()});
        all += out.choices.back().weight;
      }
      if (all <= 0)
        return read_.error_at(pointer, "all weights of the choice are 0",
                              "give one of them a weight above 0");
    } else {
      const bool uniform = kinds[0] == "uniform";
      out.kind = uniform ? Distribution::Kind::uniform : Distribution::Kind::lognormal;
      out.first = value[0];
      out.second = value[1];
      if (uniform && out.second < out.first)
        return read_.error_at(pointer, "this range goes down", "write the smaller number first");
      if (!uniform && out.first == 0)
        return read_.error_at(pointer, "a lognormal distribution has a median above 0",
                              "lognormal: [median, sigma]; for none at all write 0");
      if (!uniform && out.second > 10)
        return read_.error_at(
            pointer, "a standard deviation of the logarithm above 10 does not occur in data",
            "lognormal: [median, sigma], with sigma about 1");
    }
    return Status::ok();
  }

  const YamlDocument& document_;
  DocumentReader read_;
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
      // The GPUs of the LLM that share the encoder's work: what `tensor` does not split is data
      // parallel.
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
  static const DocumentSchema schema(multimodal_plan_schema());
  if (auto problem = schema.check(document, "docs/simulate-multimodal.md shows a whole file"))
    return *problem;
  return TowersReader(document, manifest).read();
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

std::string_view place_name(EncoderPlace place) { return kPlaces[static_cast<std::size_t>(place)]; }
std::string_view filling_name(SequenceFilling filling) {
  return kFillings[static_cast<std::size_t>(filling)];
}
std::string_view arrangement_name(Arrangement arrangement) {
  return kArrangements[static_cast<std::size_t>(arrangement)];
}

}  // namespace lockstep::sim
