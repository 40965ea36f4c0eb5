// An example scenario with every key of the format, its meaning, what it may be and its default,
// made from the schema: `lockstep scenario --new`.
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep::runtime {

struct ExampleOptions {
  std::string strategy = "ddp";  // of the schema's kinds
  std::string remedy = "none";
};

// A scenario that runs as it stands, in YAML. Keys that belong to another strategy, remedy, source
// or head are there, too, commented out. Errors: a kind that there is not (the nearest is named),
// or two that contradict each other.
Result<std::string> example_scenario(const ExampleOptions& options);

}  // namespace lockstep::runtime
