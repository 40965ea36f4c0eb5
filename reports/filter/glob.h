// Shell-like patterns, for names of parameters and source places.
#pragma once

#include <string_view>

namespace lockstep {

// Whether `pattern` describes all of `text`: "*" stands for any bytes, also none and also "/"; "?"
// for one byte; everything else for itself. O(|pattern|·|text|) at worst, no recursion.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace lockstep
