// The tensors that a call of a program needs as input and output, and the memory that they take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/run.h"

namespace lockstep::runtime {

struct CallTensors {
  using Shape = std::vector<std::int64_t>;
  // Inputs and outputs. Calls that work in place (all_reduce, reduce, broadcast, send) have only
  // `in`, receives only `out`. A root's list of one tensor per member is written out in full.
  std::vector<Shape> in, out;
  std::vector<std::string>
      types;  // one for all, or one for each of `in` (of `out` if that is empty)

  const std::string& type(std::size_t i) const { return types[i < types.size() ? i : 0]; }
};

// The tensors of a call (runtime/replay/program.h) in a group with `members` members. A side that
// was not recorded is derived from the other.
CallTensors tensors_of(const trace::Tables& tables, const trace::Call& call, std::size_t members,
                       bool is_root);

// Limit for the tensors of all ranks together, at any time.
inline constexpr std::int64_t kMaxReplayBytes = std::int64_t{4} << 30U;

// Errors: tensors that do not fit into kMaxReplayBytes, types of unknown size, splits that are
// unknown or do not match the tensors. O(calls).
Status check_tensors(const trace::Run& program);

// Bytes of a tensor; nothing if its type is unknown or its size overflows.
std::optional<std::int64_t> tensor_bytes(const CallTensors::Shape& shape, const std::string& type);

}  // namespace lockstep::runtime
