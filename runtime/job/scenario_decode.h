// Converts a scenario's document to the struct.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "runtime/job/scenario.h"

namespace lockstep::runtime {

// Expands a strategy or remedy given as a name: "strategy: ddp" → "strategy: {kind: ddp}".
nlohmann::json with_kinds(nlohmann::json scenario);

// Removes the remedy, and a fault that belongs to it.
void erase_remedy(nlohmann::json& scenario);

// `root` must be valid against the schema, with defaults filled in (schema_check.h). Everything
// else is a CHECK failure.
Scenario decode_scenario(const nlohmann::json& root, const std::string& file);

}  // namespace lockstep::runtime
