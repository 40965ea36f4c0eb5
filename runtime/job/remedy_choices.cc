#include "runtime/job/remedy_choices.h"

#include <nlohmann/json.hpp>

#include "base/documents/yaml_document.h"
#include "runtime/job/scenario_decode.h"

namespace lockstep {

namespace {

using Json = nlohmann::json;

struct Known {
  const char* name;
  const char* change;
  const char* patch;  // JSON merge patch
};

constexpr Known kKnown[] = {
    {"dummy images", "remedy: dummy-image", R"({"remedy": {"kind": "dummy-image"}})"},
    {"gradient mask", "remedy: gradient-mask", R"({"remedy": {"kind": "gradient-mask"}})"},
    {"find unused", "strategy: {find_unused_parameters: true}",
     R"({"strategy": {"find_unused_parameters": true}})"},
    {"presence vote", "remedy: presence-vote", R"({"remedy": {"kind": "presence-vote"}})"},
    {"alternating", "remedy: alternating (without data: modality)",
     R"({"remedy": {"kind": "alternating"}, "data": {"modality": null}})"},
    {"balanced sampler", "data: {sampler: balanced} (without modality)",
     R"({"data": {"sampler": "balanced", "modality": null}})"},
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
    // One remedy takes another's place.
    if (patch.contains("remedy")) scenario.erase("remedy");
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

}  // namespace lockstep
