// One rank's calls in two runs, side by side: does a derivation say what was recorded?
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "trace/run.h"

namespace lockstep::verify {

struct CallComparison {
  std::size_t calls_a = 0, calls_b = 0;
  std::size_t equal = 0;  // calls from the start that are the same in both
  // The first calls that are not, in words; nothing where that run has no further call.
  std::optional<std::string> a, b;

  bool same() const { return equal == calls_a && equal == calls_b; }
  // b ended, or was ended, before a; all of it is as in a.
  bool b_is_beginning() const { return equal == calls_b; }
};

// Compared of each call: operation, group, index in the group's sequence, shapes, dtypes, reduce
// operation, root, splits, peer and message tag, step, and the parameters carried. O(calls).
CallComparison compare_calls(const trace::Run& a, std::uint32_t rank_a, const trace::Run& b,
                             std::uint32_t rank_b);

}  // namespace lockstep::verify
