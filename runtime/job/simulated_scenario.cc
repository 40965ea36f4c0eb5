#include "runtime/job/simulated_scenario.h"

#include <nlohmann/json.hpp>

#include "base/documents/yaml_document.h"
#include "runtime/job/scenario.h"

namespace lockstep {

Result<std::string> simulated_scenario(const std::string& text, const std::string& file,
                                       const SimulatedChange& change) {
  // What is wrong with it as it stands is said of it as it stands.
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
    // The changed text has other lines than the file.
    Error error = checked.error();
    error.place = {file, 0, 0};
    return error;
  }
  return out;
}

}  // namespace lockstep
