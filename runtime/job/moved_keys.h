// Keys and values of earlier versions of the format, and their replacements.
#pragma once

#include <optional>

#include "base/documents/yaml_document.h"
#include "base/result.h"

namespace lockstep::runtime {

// The error for the first such key or value in the scenario, with its location and its replacement;
// std::nullopt if there is none. Call it before the schema is checked, which would only say that
// the key is unknown.
std::optional<Error> find_moved_key(const YamlDocument& document);

}  // namespace lockstep::runtime
