#include "runtime/data/distributed_sampler.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "base/check.h"

namespace lockstep::runtime {

std::vector<std::int64_t> random_permutation(std::int64_t n, std::uint64_t seed) {
  // Torch's CPU generator is mt19937 seeded with the low 32 bits; randperm is this loop.
  std::mt19937 generator(static_cast<std::uint32_t>(seed));
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    std::swap(order[i], order[i + generator() % (order.size() - i)]);
  }
  return order;
}

std::vector<std::int64_t> dealt(const std::vector<std::int64_t>& order, std::size_t first,
                                std::size_t stride, std::size_t count) {
  std::vector<std::int64_t> out;
  out.reserve(count);
  for (std::size_t i = 0; i < count; ++i) out.push_back(order[(first + i * stride) % order.size()]);
  return out;
}

Result<DistributedSampler> DistributedSampler::make(const SamplerOptions& options) {
  if (options.items < 1 || options.items > kMaxSampled) {
    return Error{fmt::format("a data set of {} items cannot be sampled", options.items),
                 {},
                 fmt::format("1 to {} items", kMaxSampled)};
  }
  if (options.world_size < 1) {
    return Error{fmt::format("a world of {} ranks", options.world_size), {}, "1 or more"};
  }
  if (options.epoch < 0) {
    return Error{fmt::format("epoch {}", options.epoch), {}, "epochs count from 0"};
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
  return dealt(order_, static_cast<std::size_t>(rank), static_cast<std::size_t>(world_size_),
               static_cast<std::size_t>(per_rank_));
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

}  // namespace lockstep::runtime
