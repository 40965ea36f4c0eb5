// PyTorch's torch.utils.data.DistributedSampler: which items each rank reads in an epoch.
//
// Take the items in the order of torch.randperm with seed + epoch (or unshuffled), pad them to a
// multiple of the world size by repeating from the start (or cut them), and give rank r the items
// r, r + world_size, r + 2 · world_size, … 5 items on 2 ranks, unshuffled: 0 2 4 and 1 3 0. Source:
// torch/utils/data/distributed.py.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

// The permutation of 0…n-1 that torch.randperm draws from a generator with this seed.
std::vector<std::int64_t> random_permutation(std::int64_t n, std::uint64_t seed);

// `count` items: those at first, first + stride, …; the order repeats after its end.
std::vector<std::int64_t> dealt(const std::vector<std::int64_t>& order, std::size_t first,
                                std::size_t stride, std::size_t count);

// From this size on torch.randperm draws 64-bit numbers, which is not implemented here.
inline constexpr std::int64_t kMaxSampled = 214'748'364;

struct SamplerOptions {
  std::int64_t items = 0;  // in the data set, 1…kMaxSampled
  int world_size = 1;      // ranks, >= 1
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;  // >= 0; the argument of set_epoch
  bool shuffle = true;
  bool drop_last = false;  // cut the end instead of repeating the start
};

class DistributedSampler {
 public:
  // Memory: 8 bytes per item. Errors: options out of range.
  static Result<DistributedSampler> make(const SamplerOptions& options);

  // The item indices of `rank`, in order; the same number for each rank; 0 <= rank < world_size.
  // With drop_last there may be none.
  std::vector<std::int64_t> indices(int rank) const;

 private:
  DistributedSampler() = default;
  std::vector<std::int64_t> order_;  // per_rank_ · world_size_ items; if fewer, they repeat
  std::int64_t per_rank_ = 0;
  int world_size_ = 1;
};

// Splits `indices` into batches of `batch_size` >= 1; a short last batch is kept or dropped.
std::vector<std::vector<std::int64_t>> batches_of(const std::vector<std::int64_t>& indices,
                                                  std::size_t batch_size, bool drop_short);

}  // namespace lockstep::runtime
