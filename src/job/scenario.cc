#include "job/scenario.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/read_file.h"
#include "base/text.h"
#include "job/schema_check.h"
#include "job/yaml_document.h"

namespace lockstep {

namespace {

using Json = nlohmann::json;

// The index of the value among the names; the schema has made sure that it is one of them, in this
// order of the enumeration.
template <class Enum>
Enum choice(const Json& value, std::initializer_list<std::string_view> names) {
  const auto found = std::find(names.begin(), names.end(), value.get_ref<const std::string&>());
  LOCKSTEP_CHECK(found != names.end(), "the schema allows a name that the decoder does not know");
  return static_cast<Enum>(found - names.begin());
}

std::vector<Modality> decode_modalities(const Json& list) {
  std::vector<Modality> out;
  for (const Json& name : list) out.push_back(choice<Modality>(name, {"image", "text"}));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// "rank 3" as 3; the schema has made sure of the form.
int rank_of_key(const std::string& key) {
  return std::stoi(key.substr(std::string_view("rank ").size()));
}

std::vector<Scenario::Data::Rule> decode_rules(const Json& modality) {
  std::vector<Scenario::Data::Rule> rules;
  if (modality.is_object()) {
    for (const auto& [key, has] : modality.items())
      rules.push_back({{rank_of_key(key)}, {}, decode_modalities(has)});
    return rules;
  }
  for (const Json& rule : modality) {
    rules.push_back({rule.value("ranks", std::vector<int>{}),
                     rule.value("steps", std::vector<std::int64_t>{}),
                     decode_modalities(rule["has"])});
  }
  return rules;
}

Scenario::Strategy decode_strategy(const Json& strategy) {
  using Strategy = Scenario::Strategy;
  Strategy out;
  out.kind = choice<Strategy::Kind>(strategy["kind"], {"manual", "ddp", "pipeline", "fsdp"});
  out.find_unused_parameters = strategy["find_unused_parameters"];
  out.bucket_cap_mb = strategy["bucket_cap_mb"];
  out.first_bucket_mb = strategy["first_bucket_mb"];
  out.broadcast_buffers = strategy["broadcast_buffers"];
  out.gradient_as_bucket_view = strategy["gradient_as_bucket_view"];
  out.no_sync = strategy["no_sync"];
  out.process_groups =
      choice<Strategy::Groups>(strategy["process_groups"], {"one", "per-modality"});
  out.micro_batches = strategy["micro_batches"];
  out.schedule = choice<Strategy::Schedule>(strategy["schedule"], {"gpipe", "1f1b"});
  out.crossed = strategy["order"] == "crossed";
  out.shard_ranks = strategy["shard_ranks"];
  out.prefetch = strategy["prefetch"];
  return out;
}

Scenario::Remedy decode_remedy(const Json& remedy) {
  using Remedy = Scenario::Remedy;
  return {choice<Remedy::Kind>(remedy["kind"],
                               {"none", "dummy-image", "dummy-image-outside-graph",
                                "dummy-image-in-batchnorm", "alternating", "alternating-per-rank",
                                "presence-vote", "gradient-mask", "gradient-mask-decayed"}),
          choice<Remedy::Average>(remedy["average"], {"world", "contributors"})};
}

std::vector<Scenario::Data::Outlier> decode_outliers(const Json& outliers) {
  std::vector<Scenario::Data::Outlier> out;
  for (const Json& outlier : outliers) {
    out.push_back({outlier.value("ranks", std::vector<int>{}),
                   outlier.value("steps", std::vector<std::int64_t>{}), outlier["factor"]});
  }
  return out;
}

Scenario::Data decode_data(const Json& data) {
  Scenario::Data out;
  out.source = data["source"];
  if (data["manifest"].is_string()) {
    out.manifest = {data["manifest"].get<std::string>()};
  } else {
    out.manifest = data["manifest"].get<std::vector<std::string>>();
  }
  out.vocab = data["vocab"];
  if (data.contains("image_side")) out.image_side = data["image_side"].get<int>();
  if (data.contains("max_length")) out.max_length = data["max_length"].get<int>();
  out.held_out = data["held_out"];
  const Json& loader = data["loader"];
  out.loader = {loader["workers"], loader["prefetch"], loader["on_error"] == "skip"};
  out.items = data["items"];
  out.text_only = data["text_only"];
  out.modality = decode_rules(data["modality"]);
  out.sampler = choice<Scenario::Data::Sampler>(data["sampler"], {"random", "balanced", "grouped"});
  out.sharding = data["sharding"];
  out.reshuffle = data["reshuffle"];
  out.broadcast = data["broadcast"];
  out.outliers = decode_outliers(data["outliers"]);
  return out;
}

Scenario::Expect decode_expect(const Json& expect) {
  Scenario::Expect out;
  out.verdict = expect["verdict"];
  out.rules = expect["rules"].get<std::vector<std::string>>();
  if (expect.contains("culprits")) {
    out.culprits = expect["culprits"].get<std::vector<int>>();
    std::sort(out.culprits->begin(), out.culprits->end());
  }
  if (expect.contains("step")) out.step = expect["step"].get<std::int64_t>();
  if (expect.contains("ends"))
    out.ends = choice<Scenario::Expect::Ends>(expect["ends"], {"completed", "stopped", "failed"});
  return out;
}

Scenario::Train::Accumulation decode_accumulation(const Json& accumulation) {
  Scenario::Train::Accumulation out;
  if (accumulation.is_number()) {
    out.steps = accumulation;
    return out;
  }
  for (const auto& [key, steps] : accumulation.items()) {
    if (key == "steps") {
      out.steps = steps;
    } else {
      out.by_rank.emplace_back(rank_of_key(key), steps.get<int>());
    }
  }
  return out;
}

Scenario::Train::Clip decode_clip(const Json& clip) {
  Scenario::Train::Clip out;
  const auto norm = [&](const char* group, std::optional<double>& to) {
    if (clip.contains(group)) to = clip[group].get<double>();
  };
  norm("image", out.image);
  norm("text", out.text);
  norm("fusion", out.fusion);
  out.before_sync = clip["when"] == "before-sync";
  out.local_norm = clip["norm"] == "local";
  return out;
}

Scenario::Train decode_train(const Json& train) {
  Scenario::Train out;
  out.accumulation = decode_accumulation(train["accumulation"]);
  const Json& schedule = train["schedule"];
  out.schedule = {schedule["warmup_steps"], choice<Scenario::Train::Schedule::Decay>(
                                                schedule["decay"], {"constant", "cosine"})};
  out.clip = decode_clip(train["clip"]);
  out.precision =
      choice<Scenario::Train::Precision>(train["precision"], {"float32", "bfloat16", "float16"});
  const Json& checkpoint = train["checkpoint"];
  out.checkpoint = {checkpoint["folder"], checkpoint["every"], checkpoint["resume"],
                    choice<Scenario::Train::Checkpoint::Barrier>(checkpoint["barrier"],
                                                                 {"none", "all", "rank-0"})};
  const Json& scale = train["loss_scale"];
  out.loss_scale = {scale["initial"], scale["growth_interval"], scale["found_inf"] == "agreed"};
  out.steps = train["steps"];
  out.batch_size = train["batch_size"];
  out.optimizer = choice<Scenario::Train::Optimizer>(train["optimizer"], {"sgd", "adamw"});
  out.lr = train["lr"];
  out.weight_decay = train["weight_decay"];
  out.seed = train["seed"];
  out.evaluate = train["evaluate"];
  return out;
}

Scenario::Model decode_model(const Json& model) {
  Scenario::Model out;
  out.image = model["image"];
  out.text = model["text"];
  out.head = model["head"];
  out.embed_dim = model["embed_dim"];
  out.freeze = model["freeze"].get<std::vector<std::string>>();
  out.negatives = choice<Scenario::Model::Negatives>(model["negatives"],
                                                     {"local", "global", "global-detached"});
  const Json& fusion = model["fusion"];
  out.fusion = {fusion["width"], fusion["layers"], {}};
  if (fusion.contains("image_width")) out.fusion.image_width = fusion["image_width"].get<int>();
  out.weights = {model["weights"]["image"], model["weights"]["text"]};
  return out;
}

// From a document that is valid and has its defaults filled in.
Scenario decode(const Json& root, const std::string& file) {
  Scenario out;
  out.file = file;
  out.name = root["name"];
  out.description = root["description"];
  out.ranks = root["ranks"];
  out.model = decode_model(root["model"]);
  out.data = decode_data(root["data"]);
  out.strategy = decode_strategy(root["strategy"]);
  out.remedy = decode_remedy(root["remedy"]);
  out.train = decode_train(root["train"]);
  out.limits = {root["limits"]["hang_after_s"], root["limits"]["total_s"]};
  if (root.contains("expect")) out.expect = decode_expect(root["expect"]);
  return out;
}

// What a schema cannot say: contradictions between keys.
class Contradictions {
 public:
  Contradictions(const YamlDocument& document, const Scenario& scenario)
      : document_(document), scenario_(scenario) {}

  std::optional<Error> find() {
    check_modality();
    check_data();
    check_strategy();
    check_pipeline();
    check_fsdp();
    check_remedy();
    check_train();
    check_expect();
    return error_;
  }

 private:
  void refuse_key(const std::string& pointer, std::string message, std::string fix) {
    if (!error_) error_ = Error{std::move(message), document_.key_place(pointer), std::move(fix)};
  }

  void require_rank(std::int64_t rank, const std::string& pointer) {
    if (error_ || rank < scenario_.ranks) return;
    error_ = Error{"there is no rank " + std::to_string(rank) + ": the job has " +
                       plural(static_cast<std::uint64_t>(scenario_.ranks), "rank"),
                   document_.value_place(pointer), ranks_fix()};
  }

  void require_step(std::int64_t step, const std::string& pointer) {
    if (error_ || step < scenario_.train.steps) return;
    error_ = Error{"there is no step " + std::to_string(step) + ": the job has " +
                       plural(static_cast<std::uint64_t>(scenario_.train.steps), "step"),
                   document_.value_place(pointer), "steps count from 0"};
  }

  std::string ranks_fix() const {
    return scenario_.ranks == 1
               ? "rank 0 is the only one, or raise \"ranks\""
               : "ranks are 0 to " + std::to_string(scenario_.ranks - 1) + ", or raise \"ranks\"";
  }

  // Calls `require` with every number of the list at `pointer`, where there is one.
  template <class Require>
  void each(const std::string& pointer, Require require) {
    const Json::json_pointer where(pointer);
    if (!document_.value.contains(where)) return;
    const Json& list = document_.value[where];
    for (std::size_t i = 0; i < list.size(); ++i)
      require(list[i].get<std::int64_t>(), pointer + "/" + std::to_string(i));
  }

  void check_modality() {
    const std::string pointer = "/data/modality";
    const auto rank = [&](std::int64_t r, const std::string& at) { require_rank(r, at); };
    const auto step = [&](std::int64_t s, const std::string& at) { require_step(s, at); };
    const std::vector<Scenario::Data::Rule>& rules = scenario_.data.modality;
    const bool mapping = document_.value.contains(Json::json_pointer(pointer)) &&
                         document_.value[Json::json_pointer(pointer)].is_object();
    for (std::size_t i = 0; i < rules.size(); ++i) {
      const std::string item = pointer + "/" + std::to_string(i);
      const std::string entry =
          mapping ? pointer + "/rank " + std::to_string(rules[i].ranks[0]) : item;
      if (mapping && rules[i].ranks[0] >= scenario_.ranks)
        refuse_key(entry,
                   "there is no rank " + std::to_string(rules[i].ranks[0]) + ": the job has " +
                       plural(static_cast<std::uint64_t>(scenario_.ranks), "rank"),
                   ranks_fix());
      each(item + "/ranks", rank);
      each(item + "/steps", step);
      // The losses are defined on text, and on text with images.
      if (rules[i].has == std::vector{Modality::image})
        refuse_key(mapping ? entry : item + "/has", "a batch of images alone has no loss here",
                   "write [image, text] or [text]");
    }
  }

  void check_data() {
    const bool manifest = scenario_.data.source == "manifest";
    if (manifest && scenario_.data.manifest.empty())
      refuse_key("/data/source", "the source is a manifest, but \"manifest\" names none",
                 "write \"manifest: FILE or FOLDER\" beside it");
    if (manifest && scenario_.data.vocab.empty())
      refuse_key("/data/source", "a manifest's texts need a vocabulary, but \"vocab\" names none",
                 "write \"vocab: vocab.txt\"; `scripts/fetch-minilm` fetches one");
    for (const std::string key : {"manifest", "vocab"}) {
      if (!manifest && document_.spots.contains("/data/" + key))
        refuse_key("/data/" + key, "\"" + key + "\" belongs to the source \"manifest\"",
                   "write \"source: manifest\" beside it");
    }
    for (const std::string key : {"items", "text_only"}) {
      if (manifest && document_.spots.contains("/data/" + key))
        refuse_key("/data/" + key, "\"" + key + "\" belongs to the source \"shapes\"",
                   "remove it: a manifest says what it holds");
    }
    if (scenario_.model.head != "fusion" && document_.spots.contains("/model/fusion"))
      refuse_key("/model/fusion", "\"fusion\" belongs to the head \"fusion\"",
                 "write \"head: fusion\" beside it");
  }

  void check_strategy() {
    static const std::vector<std::pair<std::string, std::vector<std::string>>> kOptions = {
        {"manual", {"process_groups"}},
        {"ddp",
         {"find_unused_parameters", "bucket_cap_mb", "first_bucket_mb", "broadcast_buffers",
          "gradient_as_bucket_view", "no_sync"}},
        {"pipeline", {"micro_batches", "schedule", "order"}},
        {"fsdp", {"shard_ranks", "prefetch"}}};
    const Json& strategy = document_.value.value("strategy", Json());
    const std::string kind = strategy.is_object() ? strategy["kind"].get<std::string>() : "";
    for (const auto& [owner, keys] : kOptions) {
      for (const std::string& key : keys) {
        if (owner == kind || !document_.spots.contains("/strategy/" + key)) continue;
        refuse_key("/strategy/" + key,
                   "\"" + key + "\" is an option of " + owner + ", but the strategy is " + kind,
                   "remove it, or write \"kind: " + owner + "\"");
      }
    }
  }

  void check_fsdp() {
    const bool fsdp = scenario_.strategy.kind == Scenario::Strategy::Kind::fsdp;
    const int given = scenario_.strategy.shard_ranks;
    const int shard = given == 0 ? scenario_.ranks : given;
    if (fsdp && scenario_.ranks % shard != 0)
      refuse_key("/strategy/shard_ranks",
                 plural(static_cast<std::uint64_t>(scenario_.ranks), "rank") +
                     " cannot be cut into groups of " + std::to_string(shard),
                 "choose a divisor of \"ranks\", or leave it out to shard over all of them");
    if (!fsdp && document_.spots.contains("/train/clip/norm"))
      refuse_key("/train/clip/norm", "only fsdp shards the gradients whose norm is taken",
                 "remove it, or write \"strategy: fsdp\"");
  }

  // What the pipeline does not take is refused rather than left undone.
  void check_pipeline() {
    if (scenario_.strategy.kind != Scenario::Strategy::Kind::pipeline) return;
    const int stages = scenario_.ranks_of_replica();
    if (scenario_.ranks % stages != 0)
      refuse_key("/ranks",
                 "a pipeline has " + std::to_string(stages) + " stages, one to a rank, but " +
                     plural(static_cast<std::uint64_t>(scenario_.ranks), "rank") +
                     " cannot be shared out among them",
                 "make \"ranks\" a multiple of " + std::to_string(stages));
    constexpr int kToCross = 3;
    if (scenario_.strategy.crossed && scenario_.strategy.micro_batches < kToCross)
      refuse_key("/strategy/order", "with so few micro-batches the orders do not cross",
                 "make \"micro_batches\" 3 or more");
    using Remedy = Scenario::Remedy::Kind;
    const Remedy remedy = scenario_.remedy.kind;
    if (remedy != Remedy::none && remedy != Remedy::alternating)
      refuse_key("/remedy",
                 "a micro-batch without images needs no remedy in a pipeline: nothing is sent for "
                 "it",
                 "remove \"remedy\"");
    if (scenario_.model.negatives != Scenario::Model::Negatives::local)
      refuse_key("/model/negatives", "a pipeline's loss is computed for each micro-batch",
                 "write \"negatives: local\"");
    const Scenario::Train& train = scenario_.train;
    if (train.accumulation != Scenario::Train::Accumulation())
      refuse_key("/train/accumulation", "a pipeline accumulates over its micro-batches",
                 "remove it, and set \"micro_batches\" of the strategy");
    if (train.precision != Scenario::Train::Precision::float32)
      refuse_key("/train/precision", "the stages exchange float32", "write \"precision: float32\"");
    if (scenario_.data.broadcast)
      refuse_key("/data/broadcast", "the ranks of a pipeline read their replica's batch",
                 "remove it, or choose another strategy");
    check_replica_rules(stages);
  }

  // The stages of a replica read one batch: its first rank stands for all of them.
  void check_replica_rules(int stages) {
    const auto check = [&](const std::string& pointer, const auto& rules) {
      for (const auto& rule : rules) {
        for (const int rank : rule.ranks) {
          if (rank % stages == 0) continue;
          const std::string first = std::to_string(rank - rank % stages);
          refuse_key(
              pointer,
              "rank " + std::to_string(rank) + " reads the batch of its replica's rank " + first,
              "name rank " + first + " instead");
        }
      }
    };
    check("/data/modality", scenario_.data.modality);
    check("/data/outliers", scenario_.data.outliers);
  }

  void check_remedy() {
    using Kind = Scenario::Remedy::Kind;
    const Kind kind = scenario_.remedy.kind;
    const bool averages = kind == Kind::dummy_image || kind == Kind::gradient_mask ||
                          kind == Kind::gradient_mask_decayed;
    if (!averages && document_.spots.contains("/remedy/average"))
      refuse_key("/remedy/average",
                 "\"average\" is an option of dummy-image and gradient-mask alone",
                 "remove it, or choose one of these");
    if ((kind == Kind::alternating || kind == Kind::alternating_per_rank) &&
        !scenario_.data.modality.empty())
      refuse_key("/data/modality", "the alternating remedy says which batch holds what",
                 "remove \"modality\", or choose another remedy");
  }

  void check_train() {
    const Scenario::Train::Checkpoint& checkpoint = scenario_.train.checkpoint;
    if ((checkpoint.every > 0 || checkpoint.resume) && checkpoint.folder.empty())
      refuse_key("/train/checkpoint", "\"folder\" does not say where the checkpoints are",
                 "write \"folder: checkpoints\" beside it");
    const std::string pointer = "/train/accumulation";
    for (const auto& [rank, steps] : scenario_.train.accumulation.by_rank)
      require_rank(rank, pointer + "/rank " + std::to_string(rank));
    if (scenario_.train.clip.before_sync &&
        scenario_.strategy.kind != Scenario::Strategy::Kind::manual)
      refuse_key(
          "/train/clip/when",
          "gradients can be clipped before they are synchronised only where the loop does it",
          "write \"strategy: manual\", or \"when: after-sync\"");
    const auto rank = [&](std::int64_t r, const std::string& at) { require_rank(r, at); };
    const auto step = [&](std::int64_t s, const std::string& at) { require_step(s, at); };
    for (std::size_t i = 0; i < scenario_.data.outliers.size(); ++i) {
      each("/data/outliers/" + std::to_string(i) + "/ranks", rank);
      each("/data/outliers/" + std::to_string(i) + "/steps", step);
    }
  }

  void check_expect() {
    if (!scenario_.expect) return;
    each("/expect/culprits",
         [&](std::int64_t rank, const std::string& at) { require_rank(rank, at); });
    if (scenario_.expect->step) require_step(*scenario_.expect->step, "/expect/step");
    const bool clean = scenario_.expect->verdict == "clean";
    for (const std::string key : {"rules", "culprits", "step"}) {
      if (clean && document_.spots.contains("/expect/" + key))
        refuse_key("/expect/" + key, "a clean run has no leading finding, so no \"" + key + "\"",
                   "remove it, or write \"verdict: findings\"");
    }
  }

  const YamlDocument& document_;
  const Scenario& scenario_;
  std::optional<Error> error_;
};

template <class Rule>
bool fits(const Rule& rule, int rank, std::int64_t step) {
  const auto holds = [](const auto& list, auto value) {
    return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
  };
  return holds(rule.ranks, rank) && holds(rule.steps, step);
}

}  // namespace

std::string to_string(Modality m) { return m == Modality::image ? "image" : "text"; }

const Scenario::Data::Rule* Scenario::rule_for(int rank, std::int64_t step) const {
  if (remedy.kind == Remedy::Kind::alternating ||
      remedy.kind == Remedy::Kind::alternating_per_rank) {
    static const Data::Rule both{{}, {}, {Modality::image, Modality::text}};
    static const Data::Rule text{{}, {}, {Modality::text}};
    const bool own_time = remedy.kind == Remedy::Kind::alternating_per_rank;
    return (step + (own_time ? rank : 0)) % 2 == 0 ? &both : &text;
  }
  for (const Data::Rule& rule : data.modality) {
    if (fits(rule, rank, step)) return &rule;
  }
  return nullptr;
}

double Scenario::outlier_factor(int rank, std::int64_t step) const {
  for (const Data::Outlier& outlier : data.outliers) {
    if (fits(outlier, rank, step)) return outlier.factor;
  }
  return 1;
}

int Scenario::ranks_of_replica() const {
  constexpr int kStages = 2;  // the image branch; the text branch and the loss
  return strategy.kind == Strategy::Kind::pipeline ? kStages : 1;
}

int Scenario::micro_batches(int rank) const {
  return strategy.kind == Strategy::Kind::pipeline ? strategy.micro_batches
                                                   : train.accumulation.of(rank);
}

int Scenario::Train::Accumulation::of(int rank) const {
  for (const auto& [other, own] : by_rank) {
    if (other == rank) return own;
  }
  return steps;
}

Result<Scenario> parse_scenario(const std::string& text, const std::string& file) {
  const Json schema = Json::parse(scenario_schema());
  Result<YamlDocument> document = parse_yaml(text, file);
  if (!document) return document.error();
  if (auto error = check_against_schema(*document, schema)) return *error;
  Json value = document->value;
  for (const char* key : {"strategy", "remedy"}) {
    if (value.contains(key) && value[key].is_string()) value[key] = {{"kind", value[key]}};
  }
  Scenario scenario = decode(with_defaults(value, schema), file);
  if (auto error = Contradictions(*document, scenario).find()) return *error;
  return scenario;
}

Result<Scenario> load_scenario(const std::string& path) {
  constexpr std::size_t kMost = std::size_t{1} << 20U;  // a scenario is a page of YAML
  const Result<std::string> text = read_file(path, kMost);
  if (!text) return text.error();
  Result<Scenario> scenario = parse_scenario(*text, path);
  if (scenario || !scenario.error().fix.empty()) return scenario;
  Error error = scenario.error();
  error.fix = "docs/scenarios.md lists the keys and what they take";
  return error;
}

}  // namespace lockstep
