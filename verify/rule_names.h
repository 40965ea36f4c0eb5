// Rule ids as users type them.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "verify/rules.h"

namespace lockstep {

// The rule of that id. Errors: there is none; the fix names the ids that may have been meant.
Result<RuleId> rule_named(std::string_view name);

}  // namespace lockstep
