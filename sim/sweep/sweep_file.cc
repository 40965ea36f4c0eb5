#include "sim/sweep/sweep_file.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/documents/document_reader.h"
#include "base/documents/schema_check.h"
#include "base/text.h"
#include "sim/sweep/variation.h"

namespace lockstep::sim {
namespace {

using Json = nlohmann::json;

// Replaces each value under "vary" by a text before the schema is checked: the schema cannot say
// briefly "whatever a scenario allows". Mappings and nulls, which are never values, stay.
YamlDocument with_text_values(YamlDocument document) {
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
  error.message = fmt::format("{}: {}", printable(key), error.message);
  error.location = location;
  return error;
}

// A sweep varies either a scenario on machines or a plan on calibrations.
Status check_subject(const YamlDocument& document) {
  const Json& root = document.value;
  const bool of_plan = root.contains("plan");
  const Location& whole = document.value_location("");
  if (of_plan && root.contains("scenario"))
    return Error{"a sweep varies either a scenario or a plan", document.key_location("/plan"),
                 "leave one of the two out"};
  if (!of_plan && !root.contains("scenario"))
    return Error{"the key \"scenario\" or \"plan\" is missing", whole,
                 "add \"scenario: …\": the file of the job that is varied"};
  if (!of_plan && !root.contains("machines"))
    return Error{"the key \"machines\" is missing", whole,
                 "add \"machines: …\": the files of the machines that it would run on"};
  const std::vector<const char*> others = of_plan ? std::vector<const char*>{"machines", "steps"}
                                                  : std::vector<const char*>{"calibrations"};
  for (const char* key : others)
    if (root.contains(key))
      return Error{
          fmt::format("the sweep of a {} has no key \"{}\"", of_plan ? "plan" : "scenario", key),
          document.key_location(fmt::format("/{}", key)),
          of_plan ? "a plan runs on \"calibrations\"" : "a scenario runs on \"machines\""};
  return Status::ok();
}

}  // namespace

Result<std::optional<SweepFile>> parse_sweep_file(const std::string& text,
                                                  const std::string& file) {
  const Result<YamlDocument> document = parse_yaml(text, file);
  if (!document || !document->value.is_object() || !document->value.contains("sweep"))
    return std::optional<SweepFile>();
  if (auto problem = check_against_schema(with_text_values(*document), Json::parse(sweep_schema()),
                                          "docs/sweep.md shows a whole file"))
    return *problem;
  const Json& root = document->value;
  if (const Status ok = check_subject(*document); !ok) return ok.error();
  const DocumentReader read(*document);
  SweepFile out;
  out.scenario = root.value("scenario", "");
  out.plan = root.value("plan", "");
  out.machines = root.value("machines", std::vector<std::string>{});
  out.calibrations = root.value("calibrations", std::vector<std::string>{});
  out.best = read.value_if_there<std::string>("/best");
  out.memory_limit = read.value_if_there<std::string>("/memory_limit");
  out.trials = read.value_if_there<std::int64_t>("/trials");
  out.seed = read.value_if_there<std::int64_t>("/seed");
  out.steps = read.value_if_there<std::int64_t>("/steps");
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
