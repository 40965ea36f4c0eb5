#include "runtime/derive/plan_scenarios.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/documents/yaml_document.h"
#include "runtime/job/scenario_decode.h"

namespace lockstep::runtime {

namespace {

using Json = nlohmann::json;

constexpr double kOverflow = 1e30;  // factor of pixels: far beyond float16's range

Json modalities(const std::vector<Modality>& has) {
  Json out = Json::array();
  for (const Modality m : has) out.push_back(to_string(m));
  return out;
}

// The job without everything that depends on single steps. Its batches will be set by rules.
Result<Json> bare_scenario(const std::string& text, const std::string& file) {
  Result<YamlDocument> document = parse_yaml(text, file);
  if (!document) return document.error();
  Json scenario = std::move(document->value);
  for (const char* key : {"expect", "study", "watch"}) scenario.erase(key);
  for (const char* key : {"data", "train"}) {
    if (!scenario.contains(key)) scenario[key] = Json::object();
  }
  Json& data = scenario["data"];
  if (data.value("source", "shapes") == "shapes") data["text_only"] = 0;
  for (const char* key : {"outliers", "sampler"}) data.erase(key);
  data["modality"] = Json::array();
  if (Json& train = scenario["train"]; train.contains("checkpoint")) {
    train["checkpoint"].erase("resume");
  }
  scenario["train"]["evaluate"] = false;
  // The alternating remedy only decides which batch holds what, and the rules do that now.
  const Json remedy = scenario.value("remedy", Json());
  const Json kind = remedy.is_object() ? remedy.value("kind", Json()) : remedy;
  if (kind.is_string() && kind.get<std::string>() == "alternating") {
    erase_remedy(scenario);
  }
  return scenario;
}

// How many ranks a rule may name (scenarios/scenario.schema.json).
constexpr std::size_t kMaxRanksNamed = 256;

template <class Number>
std::vector<std::vector<Number>> in_parts(const std::vector<Number>& all, std::size_t size) {
  std::vector<std::vector<Number>> out;
  for (std::size_t i = 0; i < all.size(); i += size)
    out.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(i),
                     all.begin() + static_cast<std::ptrdiff_t>(std::min(i + size, all.size())));
  return out;
}

Result<std::string> checked_text(const Json& scenario, const std::string& file) {
  std::string out = scenario.dump(1);
  if (const Result<Scenario> checked = parse_scenario(out, file); !checked) return checked.error();
  return out;
}

// Removes the rules for steps that the scenario does not have.
void end_generation_before(std::size_t steps, Json& train) {
  if (!train.contains("generate") || !train["generate"].contains("ends")) return;
  Json kept = Json::array();
  for (Json end : train["generate"]["ends"]) {
    if (end.contains("steps")) {
      Json& named = end["steps"];
      named.erase(std::remove_if(named.begin(), named.end(),
                                 [&](const Json& step) { return step >= steps; }),
                  named.end());
      if (named.empty()) continue;
    }
    kept.push_back(std::move(end));
  }
  train["generate"]["ends"] = std::move(kept);
}

}  // namespace

Result<std::string> history_scenario(const std::string& text, const std::string& file,
                                     const DerivationPlan& plan,
                                     const DerivationPlan::History& history) {
  Result<Json> scenario = bare_scenario(text, file);
  if (!scenario) return scenario.error();
  Json& data = (*scenario)["data"];
  const std::vector<std::size_t> steps = plan.steps_of(history);
  Json& train = (*scenario)["train"];
  train["steps"] = steps.size();
  if (train.contains("checkpoint") && train["checkpoint"].value("every", 0) > 0) {
    train["checkpoint"]["every"] = 1;
  }
  if (train.contains("generate")) {
    train["generate"]["every"] = plan.first_conditions() < plan.conditions.size() ? 2 : 1;
    train["generate"]["ends"] = Json::array();
  }
  for (std::size_t step = 0; step < steps.size(); ++step) {
    const Condition& c = plan.conditions[steps[step]];
    if (c.overflow) data["outliers"].push_back({{"steps", {step}}, {"factor", kOverflow}});
    if (c.tokens) train["generate"]["ends"].push_back({{"steps", {step}}, {"after", *c.tokens}});
  }
  if (!plan.conditions.back().tokens) train.erase("generate");  // no step is followed by it
  // A rank gets no batch that it cannot have: a program may depend on which ranks ever have images
  // (for its groups), or refuse what never comes (DDP with a static graph). It keeps another one
  // then, in steps of which nobody asks what it does there.
  for (const DerivationPlan::Kind& kind : plan.kinds) {
    std::vector<Json> rules;
    for (std::size_t step = 0; step < steps.size() && kind.has.size() > 1; ++step) {
      const std::vector<Modality>& has = plan.conditions[steps[step]].has;
      const bool known = std::find(kind.has.begin(), kind.has.end(), has) != kind.has.end();
      rules.push_back({{"steps", {step}}, {"has", modalities(known ? has : kind.has.front())}});
    }
    if (rules.empty()) rules.push_back({{"has", modalities(kind.has.front())}});
    std::vector<std::vector<int>> parts = in_parts(kind.ranks, kMaxRanksNamed);
    if (parts.empty()) parts.emplace_back();  // everybody else
    for (const std::vector<int>& some : parts) {
      for (Json rule : rules) {
        if (!some.empty()) rule["ranks"] = some;
        data["modality"].push_back(std::move(rule));
      }
    }
  }
  return checked_text(*scenario, file);
}

Result<std::string> assignment_scenario(const std::string& text, const std::string& file,
                                        const DerivationPlan& plan,
                                        const std::vector<std::vector<std::size_t>>& conditions) {
  Result<Json> scenario = bare_scenario(text, file);
  if (!scenario) return scenario.error();
  Json& data = (*scenario)["data"];
  (*scenario)["train"]["steps"] = conditions.size();
  end_generation_before(conditions.size(), (*scenario)["train"]);
  (*scenario)["name"] = fmt::format("{}: counterexample", (*scenario)["name"].get<std::string>());
  (*scenario)["expect"] = {{"verdict", "findings"}};
  const std::size_t replica = plan.together.empty() ? 1 : plan.together.front().size();
  for (std::size_t step = 0; step < conditions.size(); ++step) {
    std::map<std::size_t, std::vector<std::size_t>> ranks_in;
    for (std::size_t rank = 0; rank < conditions[step].size(); rank += replica)
      ranks_in[conditions[step][rank]].push_back(rank);
    // Jobs may have thousands of ranks, so the rule for most of them comes last and lists none.
    const auto most = std::max_element(
        ranks_in.begin(), ranks_in.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    for (const auto& [condition, ranks] : ranks_in) {
      const Condition& c = plan.conditions[condition];
      for (const std::vector<std::size_t>& some : in_parts(ranks, kMaxRanksNamed)) {
        if (condition != most->first)
          data["modality"].push_back(
              {{"ranks", some}, {"steps", {step}}, {"has", modalities(c.has)}});
        if (c.overflow)
          data["outliers"].push_back({{"ranks", some}, {"steps", {step}}, {"factor", kOverflow}});
      }
    }
    data["modality"].push_back(
        {{"steps", {step}}, {"has", modalities(plan.conditions[most->first].has)}});
  }
  return checked_text(*scenario, file);
}

}  // namespace lockstep::runtime
