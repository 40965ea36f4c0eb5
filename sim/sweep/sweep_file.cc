#include "sim/sweep/sweep_file.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/documents/schema_check.h"
#include "base/documents/yaml_document.h"
#include "base/text.h"
#include "sim/sweep/variation.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSchema = R"({
  "$schema": "http://json-schema.org/draft-07/schema#",
  "type": "object",
  "additionalProperties": false,
  "required": ["sweep"],
  "properties": {
    "sweep": {"type": "integer", "enum": [1], "description": "version of the format: 1"},
    "scenario": {"type": "string", "minLength": 1, "maxLength": 4096,
                 "description": "the file of the job that is varied"},
    "machines": {
      "type": "array", "minItems": 1, "maxItems": 1000,
      "description": "the files of what it would run on",
      "items": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "a file"}
    },
    "plan": {"type": "string", "minLength": 1, "maxLength": 4096,
             "description": "the file of the plan that is varied"},
    "calibrations": {
      "type": "array", "minItems": 1, "maxItems": 1000,
      "description": "what the plan would run on",
      "items": {"type": "string", "minLength": 1, "maxLength": 4096,
                "description": "a name or a file"}
    },
    "vary": {
      "type": "object",
      "description": "values by key",
      "additionalProperties": false,
      "patternProperties": {"^.{1,200}$": {"type": "string", "description": "values"}}
    },
    "best": {"type": "string",
             "enum": ["step_time", "samples_per_second", "samples_per_second_per_rank"],
             "description": "what is sought"},
    "memory_limit": {"type": "string", "minLength": 1, "maxLength": 60,
                     "description": "of a rank, as 80GB"},
    "trials": {"type": "integer", "minimum": 1, "maximum": 100000,
               "description": "points to try"},
    "seed": {"type": "integer", "minimum": 0, "description": "of the search"},
    "steps": {"type": "integer", "minimum": 1, "maximum": 100000,
              "description": "this many, instead of the scenario's"}
  }
})";

// Replaces every value under "vary" that is a list, a number or a boolean by a text, since a schema
// cannot say briefly "whatever a scenario allows".
YamlDocument with_plain_values(YamlDocument document) {
  if (!document.value.contains("vary") || !document.value["vary"].is_object()) return document;
  for (Json& value : document.value["vary"])
    if (!value.is_null() && !value.is_object()) value = "values";
  return document;
}

Result<Axis> axis_of(const std::string& key, const Json& value, const Location& location) {
  Result<std::vector<Json>> values = value.is_string()
                                         ? parse_values(value.get<std::string>())
                                         : expand_values(value.is_array() ? value : Json{value});
  if (values) return Axis{key, std::move(*values), location};
  Error error = values.error();
  error.message = printable(key) + ": " + error.message;
  error.location = location;
  return error;
}

// Checks that the sweep is of a scenario on machines or of a plan on calibrations.
Status check_subject(const YamlDocument& document) {
  const Json& root = document.value;
  const bool of_plan = root.contains("plan");
  const Location& whole = document.value_location("");
  if (of_plan && root.contains("scenario"))
    return Error{"a sweep is of a scenario or of a plan", document.key_location("/plan"),
                 "leave one of the two out"};
  if (!of_plan && !root.contains("scenario"))
    return Error{"the key \"scenario\" or \"plan\" is missing", whole,
                 "add \"scenario: …\": the file of the job that is varied"};
  if (!of_plan && !root.contains("machines"))
    return Error{"the key \"machines\" is missing", whole,
                 "add \"machines: …\": the files of what it would run on"};
  const std::vector<const char*> others = of_plan ? std::vector<const char*>{"machines", "steps"}
                                                  : std::vector<const char*>{"calibrations"};
  for (const char* key : others)
    if (root.contains(key))
      return Error{"\"" + std::string(key) + "\" is nothing that a " +
                       (of_plan ? "plan" : "scenario") + " has",
                   document.key_location("/" + std::string(key)),
                   of_plan ? "a plan runs on \"calibrations\"" : "a scenario runs on \"machines\""};
  return Status::ok();
}

template <class T>
std::optional<T> value_of(const Json& root, const char* key) {
  return root.contains(key) ? std::optional(root[key].get<T>()) : std::nullopt;
}

}  // namespace

Result<std::optional<SweepFile>> parse_sweep_file(const std::string& text,
                                                  const std::string& file) {
  const Result<YamlDocument> document = parse_yaml(text, file);
  if (!document || !document->value.is_object() || !document->value.contains("sweep"))
    return std::optional<SweepFile>();
  if (auto problem = check_against_schema(with_plain_values(*document), Json::parse(kSchema))) {
    if (problem->fix.empty()) problem->fix = "docs/sweep.md shows a whole file";
    return *problem;
  }
  const Json& root = document->value;
  if (const Status ok = check_subject(*document); !ok) return ok.error();
  SweepFile out;
  out.scenario = root.value("scenario", "");
  out.plan = root.value("plan", "");
  out.machines = root.value("machines", std::vector<std::string>{});
  out.calibrations = root.value("calibrations", std::vector<std::string>{});
  out.best = value_of<std::string>(root, "best");
  out.memory_limit = value_of<std::string>(root, "memory_limit");
  out.trials = value_of<std::int64_t>(root, "trials");
  out.seed = value_of<std::int64_t>(root, "seed");
  out.steps = value_of<std::int64_t>(root, "steps");
  if (!root.contains("vary")) return std::optional(std::move(out));
  for (const auto& [key, value] : root["vary"].items()) {
    Result<Axis> axis = axis_of(key, value, document->key_location("/vary/" + pointer_part(key)));
    if (!axis) return axis.error();
    out.axes.push_back(std::move(*axis));
  }
  // JSON sorts keys by name; the grid's axes are in the order of the file.
  const auto earlier = [](const Axis& a, const Axis& b) {
    return std::tie(a.location.line, a.location.column) <
           std::tie(b.location.line, b.location.column);
  };
  std::sort(out.axes.begin(), out.axes.end(), earlier);
  return std::optional(std::move(out));
}

}  // namespace lockstep::sim
