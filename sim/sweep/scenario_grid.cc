#include "sim/sweep/scenario_grid.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/documents/schema_check.h"
#include "base/documents/yaml_document.h"
#include "base/text.h"
#include "runtime/job/scenario.h"
#include "runtime/job/scenario_variants.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;

// Keys that a simulated job does not use, or that do not affect how it trains.
constexpr std::array<std::string_view, 9> kWithoutEffect = {
    "lockstep", "name",  "description",      "limits",        "expect",
    "study",    "watch", "train.checkpoint", "train.evaluate"};

std::optional<Error> without_effect(const std::string& key) {
  for (const std::string_view idle : kWithoutEffect)
    if (key == idle || (key.starts_with(idle) && key[idle.size()] == '.'))
      return Error{fmt::format("\"{}\" makes no difference to the steps of a simulated job", idle),
                   {},
                   "vary what does: `lockstep scenario --schema` has all keys"};
  return std::nullopt;
}

Result<Variation::Document> scenario_document(const SourceFile& scenario) {
  Result<YamlDocument> document = parse_yaml(scenario.text, scenario.file);
  if (!document) return document.error();
  // The expectations of the original job do not apply to the varied ones.
  for (const char* key : {"expect", "study", "watch"}) document->value.erase(key);
  Variation::Document out{scenario.file, std::move(document->value), {}};
  out.check = [spots = std::move(document->spots),
               schema =
                   DocumentSchema(Json::parse(runtime::scenario_schema()))](const Json& changed) {
    return schema.check({changed, spots}, "`lockstep scenario --schema` has all keys");
  };
  return out;
}

Result<Variation::Document> machine_document(const SourceFile& machine, Machine& read) {
  Result<YamlDocument> document = parse_yaml(machine.text, machine.file);
  if (!document) return document.error();
  Result<Machine> whole = machine_of(*document);
  if (!whole) return whole.error();
  read = std::move(*whole);
  const auto check = [spots = document->spots](const Json& changed) -> std::optional<Error> {
    const Result<Machine> out = machine_of({changed, spots});
    if (out) return std::nullopt;
    return out.error();
  };
  return Variation::Document{machine.file, std::move(document->value), check};
}

}  // namespace

Result<ScenarioGrid> ScenarioGrid::make(const SourceFile& scenario,
                                        const std::vector<SourceFile>& machines,
                                        const std::vector<Axis>& axes, std::optional<int> steps) {
  const Result<runtime::Scenario> parsed = runtime::parse_scenario(scenario.text, scenario.file);
  if (!parsed) return parsed.error();
  Result<Variation::Document> job = scenario_document(scenario);
  if (!job) return job.error();
  Variation::Subject subject{parsed->name,
                             std::move(*job),
                             {},
                             {.prefix = "machine.", .section = "", .in_section = {}},
                             without_effect};
  std::map<std::string, Machine> read;
  for (const SourceFile& machine : machines) {
    Result<Variation::Document> document = machine_document(machine, read[machine.file]);
    if (!document) return document.error();
    subject.machines.push_back(std::move(*document));
  }
  Result<Variation> variation = Variation::make(std::move(subject), axes);
  if (!variation) return variation.error();
  return ScenarioGrid(std::move(*variation), steps, std::move(read));
}

Result<std::string> ScenarioGrid::scenario_text(PointId point) const {
  const Result<Json> changed = variation_.job_document(point);
  if (!changed) return changed.error();
  runtime::SimulatedChange change;
  change.steps = steps_;
  Result<std::string> out =
      runtime::simulated_scenario(changed->dump(1), variation_.job_file(), change);
  if (out) return out;
  // Lines of the generated text mean nothing to the user: name the file only.
  Error error = out.error();
  error.location = {variation_.job_file(), 0, 0};
  return error;
}

Result<Machine> ScenarioGrid::machine(PointId point) const {
  const std::string& file = variation_.machine_file(point);
  const Result<Json> changed = variation_.machine_document(point);
  if (!changed) return changed.error();
  Result<Machine> out = machine_of({*changed, {}});
  if (out) {
    measured_on(*out, machines_.at(file));
    return out;
  }
  Error error = out.error();
  error.location = {file, 0, 0};
  return error;
}

}  // namespace lockstep::sim
