// Which of Lockstep's YAML files a document is, by the key that each kind must have: "lockstep" (a
// scenario), "plan", "machine" or "sweep".
#pragma once

#include <optional>
#include <string_view>

#include "base/documents/yaml_document.h"
#include "base/result.h"

namespace lockstep {

// The error for a file of another kind than `key`'s, with what takes such a file. Nothing where the
// document has `key`, or is of no known kind.
std::optional<Error> other_kind(const YamlDocument& document, std::string_view key);

}  // namespace lockstep
