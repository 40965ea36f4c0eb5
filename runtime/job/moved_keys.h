// Keys and values that scenarios had in an earlier version, and what stands for them now.
#pragma once

#include <optional>

#include "base/documents/yaml_document.h"
#include "base/result.h"

namespace lockstep::runtime {

// The error for the first such key or value in the scenario, with its place and what to write
// instead; std::nullopt where there is none. For before the schema is checked, which would only say
// that the key is unknown.
std::optional<Error> find_moved_key(const YamlDocument& document);

}  // namespace lockstep::runtime
