// Checks a YAML document against a JSON Schema, and says what is wrong in words that help.
//
// valijson decides whether the document is valid. Its messages speak of constraints, not of keys
// and lines, so a second walk over document and schema finds the first problem and words it. The
// walk knows the keywords that scenario.schema.json uses; a test holds the two to one opinion.
#pragma once

#include <optional>

#include <nlohmann/json.hpp>

#include "base/documents/yaml_document.h"
#include "base/result.h"

namespace lockstep {

// The first problem in the order of the file; nothing where the document is valid.
// The schema must itself be valid (CHECK).
std::optional<Error> check_against_schema(const YamlDocument& document,
                                          const nlohmann::json& schema);

// `value` with the schema's default for every key that is absent, at every depth. Needs a valid
// value.
nlohmann::json with_defaults(const nlohmann::json& value, const nlohmann::json& schema);

}  // namespace lockstep
