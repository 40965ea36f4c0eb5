// An example scenario with every key of the format, its meaning, values and default, generated from
// the schema: `lockstep scenario --new`.
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep::runtime {

struct ExampleOptions {
  std::string strategy = "ddp";  // one of the schema's kinds
  std::string remedy = "none";
};

// A scenario in YAML that can be run unchanged. Keys of other strategies, remedies, sources or
// heads are commented out. Errors: an unknown kind (the nearest is named), or two that contradict
// each other.
Result<std::string> example_scenario(const ExampleOptions& options);

}  // namespace lockstep::runtime
