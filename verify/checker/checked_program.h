// A derivation's traces in parts, as the checker of certificates cuts them.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/derivation.h"
#include "verify/checker/checked_parts.h"

namespace lockstep::checked {

struct ProgramParts {
  // Of a history and a rank: the start, step 0, step 1 where calls of step 0 come among its own,
  // the end, then a part for each condition of later steps.
  enum : std::size_t { kStart, kFirst, kSecond, kEnd, kFirstCondition };
  static constexpr std::uint32_t kMissing = UINT32_MAX;

  PartTable table;
  std::vector<std::vector<std::vector<std::uint32_t>>> of;  // into table.all
  bool second_alone = false;                                // some kSecond is not missing
};

// Errors: a trace that does not end well, calls that belong to no step, a step that is not what
// another one under its condition was, and those of PartReader.
Result<ProgramParts> read_program(const Derivation& derivation);

}  // namespace lockstep::checked
