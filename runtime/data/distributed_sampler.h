// PyTorch's torch.utils.data.DistributedSampler: which items each rank reads in an epoch.
//
// The items in the order of torch.randperm with seed + epoch (or as they are), made as long as a
// multiple of the ranks by repeating from the start (or cut to one), then rank r takes the items
// r, r + world_size, r + 2 · world_size, …
// Source: torch/utils/data/distributed.py.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

// The permutation of 0…n-1 that torch.randperm draws from a generator with this seed.
std::vector<std::int64_t> random_permutation(std::int64_t n, std::uint64_t seed);

// `count` of the items: those at first, first + stride, …; behind its end the order repeats.
std::vector<std::int64_t> dealt(const std::vector<std::int64_t>& order, std::size_t first,
                                std::size_t stride, std::size_t count);

// From here on torch.randperm draws 64-bit numbers.
inline constexpr std::int64_t kMostSampled = 214'748'364;

struct SamplerOptions {
  std::int64_t items = 0;  // in the data set, 1…kMostSampled
  int world_size = 1;      // ranks, >= 1
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;  // >= 0; what set_epoch was given
  bool shuffle = true;
  bool drop_last = false;  // cut the end rather than repeat the start
};

class DistributedSampler {
 public:
  // Memory: 8 bytes an item. Errors: options outside what they may be.
  static Result<DistributedSampler> make(const SamplerOptions& options);

  // Item indices of `rank`, in order, as many for each rank; 0 <= rank < world_size. With
  // drop_last there may be none.
  std::vector<std::int64_t> indices(int rank) const;

 private:
  DistributedSampler() = default;
  std::vector<std::int64_t> order_;  // per_rank_ · world_size_, or fewer: then it repeats
  std::int64_t per_rank_ = 0;
  int world_size_ = 1;
};

// `indices` in batches of `batch_size` >= 1; the last may be shorter, or is left out.
std::vector<std::vector<std::int64_t>> batches_of(const std::vector<std::int64_t>& indices,
                                                  std::size_t batch_size, bool drop_short);

}  // namespace lockstep::runtime
