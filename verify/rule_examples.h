// A small program or trace for every rule, as `lockstep explain` shows it.
#pragma once

#include <string_view>

#include "verify/rules.h"

namespace lockstep::verify {

// Lines of at most 80 columns, indented by two, each ending in a newline.
std::string_view rule_example(RuleId id);

}  // namespace lockstep::verify
