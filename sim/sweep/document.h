// Changing one value of a document, by its dotted key.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace lockstep::sweep {

// "data.modality.0" in parts.
std::vector<std::string> key_parts(const std::string& key);

// `document` with that value under `key`. Mappings on the way that are missing are made; a strategy
// remedy or model that is a name alone becomes a mapping where a key of it is meant. Errors: an
// element that a list does not have.
Result<nlohmann::json> with_value(nlohmann::json document, const std::string& key,
                                  const nlohmann::json& value);

}  // namespace lockstep::sweep
