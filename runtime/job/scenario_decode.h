// From a scenario's document to the struct.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "runtime/job/scenario.h"

namespace lockstep::runtime {

// A strategy or remedy that is a name alone as the mapping that it stands for.
nlohmann::json with_kinds(nlohmann::json scenario);

// Takes the remedy away, and a fault that is one of the remedy.
void erase_remedy(nlohmann::json& scenario);

// `root`: valid against the schema, with its defaults filled in (schema_check.h). What the schema
// does not allow is a CHECK.
Scenario decode_scenario(const nlohmann::json& root, const std::string& file);

}  // namespace lockstep::runtime
