// Checks a YAML document against a JSON Schema, with messages that help.
//
// valijson decides whether the document is valid. Its messages are about constraints, not about
// keys and lines. So a second walk over document and schema finds the first problem and describes
// it. The walk knows the keywords that scenario.schema.json uses; a test makes sure that both
// agree.
#pragma once

#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/documents/yaml_document.h"
#include "base/result.h"

namespace lockstep {

// The first problem, in the order of the file; empty if the document is valid. The schema itself
// must be valid (CHECK). `example`: the fix where the problem has none of its own, as
// "docs/sweep.md shows a whole file".
std::optional<Error> check_against_schema(const YamlDocument& document,
                                          const nlohmann::json& schema,
                                          std::string_view example = {});

// `value` with the schema's default for every absent key, at every depth. `value` must be valid.
nlohmann::json with_defaults(const nlohmann::json& value, const nlohmann::json& schema);

}  // namespace lockstep
