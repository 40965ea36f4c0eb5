// Checks of a scenario that a schema cannot express: keys that contradict each other.
#pragma once

#include <optional>

#include "base/documents/yaml_document.h"
#include "base/result.h"
#include "runtime/job/scenario.h"

namespace lockstep::runtime {

// The first contradiction, with its location in the document and a fix; nothing if there is none.
// `scenario` must be decoded from `document`.
std::optional<Error> find_contradiction(const YamlDocument& document, const Scenario& scenario);

}  // namespace lockstep::runtime
