// Exceptions in the traces of a derivation: which of them a rank may come to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/product/compose.h"
#include "verify/product/model.h"

namespace lockstep {

// An allowed assignment under which the rank does what its trace of a history did, to the
// exception.
struct PossibleRaise {
  std::uint32_t history = 0;
  std::int32_t rank = 0;
  std::int64_t step = 0;
  Assignment assignment;
};

struct RaiseSearch {
  std::optional<PossibleRaise> first;  // the earliest
  // Exceptions that no allowed assignment reproduces as they were recorded, although they may come
  // about in another way: after the same condition in the step before, or under the same one.
  std::vector<std::string> unknown;
};

RaiseSearch find_raise(const ProductModel& model);

}  // namespace lockstep
