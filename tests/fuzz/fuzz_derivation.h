// A derivation in one piece of bytes, for fuzzing: product.json, then the text traces of its
// histories, rank by rank, with a blank line between any two.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/derivation.h"

namespace lockstep {

// The bytes between blank lines.
std::vector<std::string_view> sections_of(std::string_view bytes);

// A derivation of few ranks, conditions and steps, which is judged in a moment. Errors: it is
// larger, or is none.
Result<trace::Derivation> small_derivation(const std::vector<std::string_view>& sections);

// The traces of one run.
trace::Run run_of_sections(const std::vector<std::string_view>& sections);

}  // namespace lockstep
