// The words that findings about values share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/matching/explain_deviation.h"

namespace lockstep {

// "a.weight", "a.weight, b.weight and 3 more".
std::string names_words(const Context& context, const std::vector<StringId>& names);

// The usual cause of a rule of values: the step, the tensors and the culprits (rank indices) filled
// in; concerns all ranks of the run until told otherwise, and keeps nobody waiting.
Cause value_cause(const Context& context, RuleId rule, std::int64_t n,
                  const std::vector<StringId>& names, const std::vector<std::uint32_t>& culprits);

}  // namespace lockstep
