// How many bytes of a device's memory a rank holds, by what they are for.
//
// The categories are those of PyTorch's memory profiler (torch/profiler/_memory_profiler.py, class
// Category), with what is communicated on its own and without its AUTOGRAD_DETAIL, which is
// temporary here. Whoever counts (runtime/device/memory_account.h) decides by what a storage is
// used for, not by where it came from. The first of these that holds is a storage's category:
//
//   parameters       of a parameter or a buffer of the model, or a shard that is optimised
//   gradients        of the .grad of one of these, for as long as it lives, also before; so
//                    buckets that the gradients are views of are gradients
//   inputs           a tensor of a batch, from when the rank takes it until its last use
//   communication    made to be sent or received by a strategy: the buckets of data parallel,
//                    whole units of fully sharded parameters and the flat gradients that are
//                    reduced
//   optimizer_state  made by the optimizer's step, and left behind by it; the loss scale
//   activations      made in a forward pass, and left behind by it for its backward; among them the
//                    loss, and what a pipeline's stage received from the one before
//   temporary        given back before the pass or step ends in which it was made
//   other            none of these: outlives its step for a reason that is not known
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>

namespace lockstep::trace {

enum class MemoryCategory : std::uint8_t {
  parameters,
  gradients,
  optimizer_state,
  activations,
  communication,
  inputs,
  temporary,
  other,
};
inline constexpr std::size_t kMemoryCategories = 8;

// By category; the names in files, and, with blanks for underscores, in reports.
inline constexpr std::array<std::string_view, kMemoryCategories> kMemoryCategoryNames = {
    "parameters",    "gradients", "optimizer_state", "activations",
    "communication", "inputs",    "temporary",       "other"};

// Bytes of each category; none is below 0.
struct MemoryUse {
  std::array<std::int64_t, kMemoryCategories> bytes{};

  std::int64_t& operator[](MemoryCategory c) { return bytes[static_cast<std::size_t>(c)]; }
  std::int64_t operator[](MemoryCategory c) const { return bytes[static_cast<std::size_t>(c)]; }
  std::int64_t total() const {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  }
  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};

// Memory in a segment of work (trace/work_costs.h), including its beginning and end.
struct SegmentMemory {
  MemoryUse peak;  // at the first moment at which the total is largest
  MemoryUse end;   // where it ends
  friend bool operator==(const SegmentMemory&, const SegmentMemory&) = default;
};

}  // namespace lockstep::trace
