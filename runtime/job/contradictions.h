// What a schema cannot say of a scenario: keys that contradict each other.
#pragma once

#include <optional>

#include "base/documents/yaml_document.h"
#include "base/result.h"
#include "runtime/job/scenario.h"

namespace lockstep::runtime {

// The first contradiction, with its place in the document and a fix; nothing where there is none.
// `scenario` is what `document` says.
std::optional<Error> find_contradiction(const YamlDocument& document, const Scenario& scenario);

}  // namespace lockstep::runtime
