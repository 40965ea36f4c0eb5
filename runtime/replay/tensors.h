// The tensors that a call of a program needs: which it gives, which it gets, and how much memory
// that takes.
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
  // Given and filled. Calls that work in place (all_reduce, reduce, broadcast, send) have `in`
  // alone, receives `out` alone; a root's list of one tensor per member is spelled out.
  std::vector<Shape> in, out;
  std::vector<std::string>
      types;  // one for all, or one each of `in` (of `out` where that is empty)

  const std::string& type(std::size_t i) const { return types[i < types.size() ? i : 0]; }
};

// Of a call of a program (runtime/replay/program.h) in a group of `members`. What one side did not
// record follows from the other.
CallTensors tensors_of(const trace::Tables& tables, const trace::Call& call, std::size_t members,
                       bool is_root);

// All ranks' tensors at one time, together.
inline constexpr std::int64_t kMaxReplayBytes = std::int64_t{4} << 30U;

// Errors: tensors that do not fit into kMaxReplayBytes, types of no known size, splits that are
// not known or are not those of the tensors. O(calls).
Status check_tensors(const trace::Run& program);

// Bytes of a tensor; nothing where its type is not known or its size overflows.
std::optional<std::int64_t> tensor_bytes(const CallTensors::Shape& shape, const std::string& type);

}  // namespace lockstep::runtime
