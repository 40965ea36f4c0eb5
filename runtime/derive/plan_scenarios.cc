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

Json modalities(const Condition& c) {
  Json out = Json::array();
  for (const Modality m : c.has) out.push_back(to_string(m));
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

// The ranks that are not among the plan's text ranks; empty where that has none.
std::vector<int> other_ranks(const DerivationPlan& plan, int ranks) {
  std::vector<int> out;
  if (plan.text_ranks.empty()) return out;
  for (int rank = 0; rank < ranks; ++rank)
    if (!std::binary_search(plan.text_ranks.begin(), plan.text_ranks.end(), rank))
      out.push_back(rank);
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
                                     const DerivationPlan& plan, std::size_t first) {
  Result<Json> scenario = bare_scenario(text, file);
  if (!scenario) return scenario.error();
  Json& data = (*scenario)["data"];
  // A program may depend on which ranks ever have images: for its groups, or for a graph that it
  // assumes to be static. So the rules must keep the ranks without images. They list the smaller
  // set: either the ranks without images, in a first rule; or in each step the ranks with images,
  // and a last rule gives all others text.
  const std::vector<int> image_ranks = other_ranks(plan, (*scenario).value("ranks", 2));
  const bool most_have_none = plan.text_ranks.size() > image_ranks.size();
  if (!most_have_none) {
    for (const std::vector<int>& some : in_parts(plan.text_ranks, kMaxRanksNamed))
      data["modality"].push_back({{"ranks", some}, {"has", {"text"}}});
  }
  const std::vector<std::size_t> steps = plan.steps_of_history(first);
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
    Json rule = {{"steps", {step}}, {"has", modalities(c)}};
    if (!most_have_none) data["modality"].push_back(rule);
    for (const std::vector<int>& some : in_parts(image_ranks, kMaxRanksNamed)) {
      rule["ranks"] = some;
      if (most_have_none) data["modality"].push_back(rule);
    }
    if (c.overflow) data["outliers"].push_back({{"steps", {step}}, {"factor", kOverflow}});
    if (c.tokens) train["generate"]["ends"].push_back({{"steps", {step}}, {"after", *c.tokens}});
  }
  if (!plan.conditions.back().tokens) train.erase("generate");  // no step is followed by it
  if (most_have_none) data["modality"].push_back({{"has", {"text"}}});
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
          data["modality"].push_back({{"ranks", some}, {"steps", {step}}, {"has", modalities(c)}});
        if (c.overflow)
          data["outliers"].push_back({{"ranks", some}, {"steps", {step}}, {"factor", kOverflow}});
      }
    }
    data["modality"].push_back(
        {{"steps", {step}}, {"has", modalities(plan.conditions[most->first])}});
  }
  return checked_text(*scenario, file);
}

}  // namespace lockstep::runtime
