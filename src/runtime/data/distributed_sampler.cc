#include "runtime/data/distributed_sampler.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/check.h"
#include "runtime/data/sampler.h"

namespace lockstep {

Result<DistributedSampler> DistributedSampler::make(const SamplerOptions& options) {
  if (options.items < 1 || options.items > kMostSampled) {
    return Error{"a data set of " + std::to_string(options.items) + " items cannot be sampled",
                 {},
                 "1 to " + std::to_string(kMostSampled) + " items"};
  }
  if (options.world_size < 1) {
    return Error{"a world of " + std::to_string(options.world_size) + " ranks", {}, "1 or more"};
  }
  if (options.epoch < 0) {
    return Error{"epoch " + std::to_string(options.epoch), {}, "epochs count from 0"};
  }
  DistributedSampler out;
  out.world_size_ = options.world_size;
  const std::int64_t world = options.world_size;
  out.per_rank_ = options.drop_last ? options.items / world : (options.items + world - 1) / world;
  if (options.shuffle) {
    out.order_ =
        random_permutation(options.items, options.seed + static_cast<std::uint64_t>(options.epoch));
  } else {
    out.order_.resize(static_cast<std::size_t>(options.items));
    std::iota(out.order_.begin(), out.order_.end(), 0);
  }
  return out;
}

std::vector<std::int64_t> DistributedSampler::indices(int rank) const {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size_, "a rank of the world");
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(per_rank_));
  auto at = static_cast<std::size_t>(rank);
  for (std::int64_t i = 0; i < per_rank_; ++i, at += static_cast<std::size_t>(world_size_)) {
    mine.push_back(order_[at % order_.size()]);
  }
  return mine;
}

std::vector<std::vector<std::int64_t>> batches_of(const std::vector<std::int64_t>& indices,
                                                  std::size_t batch_size, bool drop_short) {
  LOCKSTEP_CHECK(batch_size > 0, "a batch has items");
  std::vector<std::vector<std::int64_t>> batches;
  for (std::size_t at = 0; at < indices.size(); at += batch_size) {
    const std::size_t size = std::min(batch_size, indices.size() - at);
    if (size < batch_size && drop_short) break;
    const auto from = indices.begin() + static_cast<std::ptrdiff_t>(at);
    batches.emplace_back(from, from + static_cast<std::ptrdiff_t>(size));
  }
  return batches;
}

}  // namespace lockstep
