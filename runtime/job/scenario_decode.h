// From a scenario's document to the struct, and what no schema checks.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "base/documents/yaml_document.h"
#include "base/result.h"
#include "runtime/job/scenario.h"

namespace lockstep::runtime {

// Expands a strategy or remedy given as a name: "strategy: ddp" → "strategy: {kind: ddp}".
nlohmann::json with_kinds(nlohmann::json scenario);

// Removes the remedy, and a fault that belongs to it.
void erase_remedy(nlohmann::json& scenario);

// `root` must be valid against the schema, with defaults filled in (schema_check.h). Everything
// else is a CHECK failure.
Scenario decode_scenario(const nlohmann::json& root, const std::string& file);

// What a schema cannot express: the first keys that contradict each other, with its location in the
// document and a fix; nothing if there is none. `scenario` must be decoded from `document`.
std::optional<Error> find_contradiction(const YamlDocument& document, const Scenario& scenario);

// The error for the first key or value of an earlier version of the format, with its location and
// its replacement; std::nullopt if there is none. Call it before the schema is checked, which would
// only say that the key is unknown.
std::optional<Error> find_moved_key(const YamlDocument& document);

}  // namespace lockstep::runtime
