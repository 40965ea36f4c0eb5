#include "runtime/job/scenario_variants.h"

#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/documents/yaml_document.h"
#include "runtime/job/scenario.h"
#include "runtime/job/scenario_decode.h"

namespace lockstep::runtime {

Result<Scenario> reference_of(const Scenario& scenario) {
  const auto refuse = [&](const std::string& why, std::string fix) {
    return Error{fmt::format("there is no reference for this job: {}", why),
                 {scenario.file},
                 std::move(fix)};
  };
  if (scenario.replays()) {
    return refuse("a replay only makes the calls of a recorded run, and trains nothing",
                  "compare the job that was recorded");
  }
  // Dropout masks differ between one process and several ranks, because each rank draws its own. Of
  // the encoders only "bert-small" has no dropout.
  if (scenario.model.head == "fusion" || scenario.model.text != "bert-small") {
    return refuse(
        "its dropout leaves out other values in one process than in each rank",
        "compare with the text encoder bert-small and the head contrastive, which have none");
  }
  if (scenario.model.negatives != Scenario::Model::Negatives::local) {
    return refuse(
        "its losses need the features of all ranks at once, and a rank's BatchNorm sees "
        "its own batch alone",
        "compare with \"negatives: local\"");
  }
  if (scenario.data.balance != Scenario::Data::Balance::none) {
    return refuse("the ranks distribute their batches by what they measure",
                  "compare with \"balance: none\"");
  }
  if (scenario.strategy.process_groups == Scenario::Strategy::Groups::image_ranks) {
    return refuse("the ranks with images average the image path among themselves, not over all",
                  "compare with \"process_groups: one\" and a remedy");
  }
  Scenario out = scenario;
  out.ranks = 1;
  out.strategy = {};
  out.strategy.kind = Scenario::Strategy::Kind::manual;
  if (scenario.strategy.kind == Scenario::Strategy::Kind::pipeline) {
    out.train.accumulation.steps = scenario.strategy.micro_batches;
  }
  out.train.accumulation.by_rank.clear();
  out.train.checkpoint = {};
  // Neither changes what is trained.
  out.train.generate = {};
  out.model.activation_checkpointing = Scenario::Model::Checkpointing::none;
  out.fault = Fault::none;
  return out;
}

namespace {

using Json = nlohmann::json;

struct Known {
  const char* name;
  const char* change;
  const char* patch;  // JSON merge patch
};

constexpr Known kKnown[] = {
    {"dummy images", "remedy: dummy-image", R"({"remedy": {"kind": "dummy-image"}})"},
    {"empty images", "remedy: empty-image", R"({"remedy": {"kind": "empty-image"}})"},
    {"gradient mask", "remedy: gradient-mask", R"({"remedy": {"kind": "gradient-mask"}})"},
    {"find unused", "strategy: {find_unused_parameters: true}",
     R"({"strategy": {"find_unused_parameters": true}})"},
    {"presence vote", "remedy: presence-vote", R"({"remedy": {"kind": "presence-vote"}})"},
    {"alternating", "remedy: alternating (without data: modality)",
     R"({"remedy": {"kind": "alternating"}, "data": {"modality": null}})"},
    {"balanced sampler", "data: {sampler: balanced} (without modality)",
     R"({"data": {"sampler": "balanced", "modality": null}})"},
    {"dealt groups", "data: {sampler: dealt} (without modality)",
     R"({"data": {"sampler": "dealt", "modality": null}})"},
};

}  // namespace

Result<std::vector<RemedyChoice>> remedy_choices(const std::string& text, const std::string& file) {
  Result<YamlDocument> document = parse_yaml(text, file);
  if (!document) return document.error();
  const Json base = with_kinds(std::move(document->value));
  const Result<Scenario> own = parse_scenario(text, file);
  if (!own) return own.error();
  std::vector<RemedyChoice> out;
  for (const Known& choice : kKnown) {
    const Json patch = Json::parse(choice.patch);
    Json scenario = base;
    if (patch.contains("remedy")) erase_remedy(scenario);
    scenario.erase("expect");
    scenario.merge_patch(patch);
    if (patch.contains("strategy") && !base.contains("strategy")) {
      scenario["strategy"]["kind"] = "ddp";  // the default
    }
    std::string changed = scenario.dump(1);
    Result<Scenario> parsed = parse_scenario(changed, file);
    if (!parsed) continue;
    parsed->expect = own->expect;
    if (*parsed != *own) out.push_back({choice.name, choice.change, std::move(changed)});
  }
  return out;
}

Result<std::string> simulated_scenario(const std::string& text, const std::string& file,
                                       const SimulatedChange& change) {
  // Errors of the unchanged scenario are reported with its own lines.
  if (const Result<Scenario> own = parse_scenario(text, file); !own) return own.error();
  Result<YamlDocument> document = parse_yaml(text, file);
  if (!document) return document.error();
  nlohmann::json scenario = std::move(document->value);
  for (const char* key : {"expect", "study", "watch"}) scenario.erase(key);
  if (change.ranks) scenario["ranks"] = *change.ranks;
  if (change.steps) scenario["train"]["steps"] = *change.steps;
  if (scenario.contains("train") && scenario["train"].contains("checkpoint"))
    scenario["train"]["checkpoint"].erase("resume");
  std::string out = scenario.dump(1);
  if (const Result<Scenario> checked = parse_scenario(out, file); !checked) {
    // Line numbers of the changed text would mislead: name the file only.
    Error error = checked.error();
    error.location = {file, 0, 0};
    return error;
  }
  return out;
}

}  // namespace lockstep::runtime
