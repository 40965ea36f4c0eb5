#include "runtime/job/scenario_decode.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/documents/document_reader.h"

namespace lockstep::runtime {

namespace {

// The schema was checked and defaults were filled in before (scenario.cc): every key is there and
// has a possible value, except those without a default, which are asked for by contains(). The
// names in a choice<>() are in the order of its enumeration.

using Json = nlohmann::json;

// Sorted and without repetitions: [text, image, text] and [image, text] are the same batch.
std::vector<Modality> decode_modalities(const Json& list) {
  std::vector<Modality> out;
  for (const Json& name : list) out.push_back(choice<Modality>(name, "image", "text", "video"));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// "rank 3" → 3. The schema ensures the form.
int rank_of_key(const std::string& key) {
  return std::stoi(key.substr(std::string_view("rank ").size()));
}

// [{ranks: [1, 3], steps: [2], has: [text]}]: who lacks what, and when. No ranks or no steps: all.
std::vector<Scenario::Data::Rule> decode_rules(const Json& modality) {
  std::vector<Scenario::Data::Rule> rules;
  // The short form, {rank 1: [text]}: one rule per rank, for all steps.
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
  out.kind = choice<Strategy::Kind>(strategy["kind"], "manual", "ddp", "pipeline", "fsdp");
  out.find_unused_parameters = strategy["find_unused_parameters"];
  out.bucket_cap_mb = strategy["bucket_cap_mb"];
  out.first_bucket_mb = strategy["first_bucket_mb"];
  out.broadcast_buffers = strategy["broadcast_buffers"];
  out.gradient_as_bucket_view = strategy["gradient_as_bucket_view"];
  out.no_sync = strategy["no_sync"];
  out.static_graph = strategy["static_graph"];
  out.skip_all_reduce_unused_params = strategy["skip_all_reduce_unused_params"];
  out.compression =
      choice<Strategy::Compression>(strategy["compression"], "none", "float16", "bfloat16");
  out.process_groups =
      choice<Strategy::Groups>(strategy["process_groups"], "one", "per-modality", "image-ranks");
  out.stages = strategy["stages"];
  out.micro_batches = strategy["micro_batches"];
  out.schedule = choice<Strategy::Schedule>(strategy["schedule"], "gpipe", "1f1b");
  out.exchange_lengths = strategy["exchange_lengths"];
  out.shard_ranks = strategy["shard_ranks"];
  out.prefetch = strategy["prefetch"];
  out.units = choice<Strategy::Units>(strategy["units"], "blocks", "image-encoder");
  out.shard_by = choice<Strategy::ShardBy>(strategy["shard_by"], "unit", "parameter");
  out.reduce_scatter_unused_params = strategy["reduce_scatter_unused_params"];
  return out;
}

Scenario::Remedy decode_remedy(const Json& remedy) {
  using Remedy = Scenario::Remedy;
  return {choice<Remedy::Kind>(remedy["kind"], "none", "dummy-image", "alternating",
                               "presence-vote", "gradient-mask", "empty-image"),
          choice<Remedy::Average>(remedy["average"], "world", "contributors")};
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
  out.sampler =
      choice<Scenario::Data::Sampler>(data["sampler"], "random", "balanced", "grouped", "dealt");
  out.balance = choice<Scenario::Data::Balance>(data["balance"], "none", "cost");
  out.balance_every = data["balance_every"];
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
    // Reports list culprits in order; a scenario may name them in any.
    std::sort(out.culprits->begin(), out.culprits->end());
  }
  if (expect.contains("step")) out.step = expect["step"].get<std::int64_t>();
  if (expect.contains("ends"))
    out.ends = choice<Scenario::Expect::Ends>(expect["ends"], "completed", "stopped", "failed");
  return out;
}

// "4": on all ranks; {steps: 4, rank 1: 2}: with exceptions.
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
  return out;
}

Scenario::Train::Generate decode_generate(const Json& generate) {
  Scenario::Train::Generate out;
  out.every = generate["every"];
  out.tokens = generate["tokens"];
  out.synced = generate["synced"];
  for (const Json& end : generate["ends"]) {
    out.ends.push_back({end.value("ranks", std::vector<int>{}),
                        end.value("steps", std::vector<std::int64_t>{}), end["after"]});
  }
  return out;
}

Scenario::Train decode_train(const Json& train) {
  Scenario::Train out;
  out.accumulation = decode_accumulation(train["accumulation"]);
  const Json& schedule = train["schedule"];
  out.schedule = {schedule["warmup_steps"], choice<Scenario::Train::Schedule::Decay>(
                                                schedule["decay"], "constant", "cosine")};
  out.clip = decode_clip(train["clip"]);
  out.precision =
      choice<Scenario::Train::Precision>(train["precision"], "float32", "bfloat16", "float16");
  const Json& checkpoint = train["checkpoint"];
  out.checkpoint = {checkpoint["folder"], checkpoint["every"], checkpoint["layout"] == "gathered",
                    checkpoint["resume"], checkpoint["barrier"] == "all"};
  const Json& scale = train["loss_scale"];
  out.loss_scale = {scale["initial"], scale["growth_interval"]};
  out.steps = train["steps"];
  out.batch_size = train["batch_size"];
  out.optimizer = choice<Scenario::Train::Optimizer>(train["optimizer"], "sgd", "adamw");
  out.lr = train["lr"];
  out.weight_decay = train["weight_decay"];
  out.seed = train["seed"];
  out.evaluate = train["evaluate"];
  out.generate = decode_generate(train["generate"]);
  return out;
}

Scenario::Model decode_model(const Json& model) {
  Scenario::Model out;
  out.image = model["image"];
  out.text = model["text"];
  out.head = model["head"];
  out.embed_dim = model["embed_dim"];
  out.image_experts = model["image_experts"];
  out.freeze = model["freeze"].get<std::vector<std::string>>();
  out.negatives = choice<Scenario::Model::Negatives>(model["negatives"], "local", "global");
  out.activation_checkpointing = choice<Scenario::Model::Checkpointing>(
      model["activation_checkpointing"], "none", "blocks", "encoders");
  const Json& fusion = model["fusion"];
  out.fusion = {fusion["width"], fusion["layers"], {}};
  if (fusion.contains("image_width")) out.fusion.image_width = fusion["image_width"].get<int>();
  out.weights = {model["weights"]["image"], model["weights"]["text"]};
  return out;
}

Scenario::Watch decode_watch(const Json& watch) {
  Scenario::Watch out;
  out.every = watch["every"];
  out.sketch = watch["sketch"];
  const auto what = watch["what"].get<std::vector<std::string>>();
  const auto named = [&](const char* name) {
    return std::find(what.begin(), what.end(), name) != what.end();
  };
  out.gradients = named("gradients");
  out.parameters = named("parameters");
  out.buffers = named("buffers");
  out.optimizer = named("optimizer");
  return out;
}

}  // namespace

// "strategy: ddp" is short for "strategy: {kind: ddp}".
Json with_kinds(Json scenario) {
  for (const char* key : {"strategy", "remedy"}) {
    if (scenario.contains(key) && scenario[key].is_string()) {
      scenario[key] = {{"kind", scenario[key]}};
    }
  }
  return scenario;
}

void erase_remedy(Json& scenario) {
  scenario.erase("remedy");
  // A fault of the remedy would be refused without it: the scenario then has neither.
  const Json fault = scenario.value("fault", Json());
  if (fault.is_string() &&
      is_of_remedy(fault_named(fault.get<std::string>()).value_or(Fault::none)))
    scenario.erase("fault");
}

Scenario decode_scenario(const Json& root, const std::string& file) {
  Scenario out;
  out.file = file;
  out.name = root["name"];
  out.description = root["description"];
  out.ranks = root["ranks"];
  out.backend = choice<Scenario::Backend>(root["backend"], "gloo", "nccl");
  out.share_gpus = root["gpus"] == "shared";
  out.model = decode_model(root["model"]);
  out.data = decode_data(root["data"]);
  out.strategy = decode_strategy(root["strategy"]);
  out.remedy = decode_remedy(root["remedy"]);
  const std::optional<Fault> fault = fault_named(root["fault"].get_ref<const std::string&>());
  LOCKSTEP_CHECK(fault.has_value(), "the schema allows a fault that the decoder does not know");
  out.fault = *fault;
  out.replay = root.value("replay", "");
  out.train = decode_train(root["train"]);
  out.watch = decode_watch(root["watch"]);
  out.limits = {root["limits"]["hang_after_s"], root["limits"]["total_s"]};
  if (root.contains("expect")) out.expect = decode_expect(root["expect"]);
  return out;
}

}  // namespace lockstep::runtime
