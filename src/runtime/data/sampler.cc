#include "runtime/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/check.h"

namespace lockstep {
namespace {

using Indices = std::vector<std::int64_t>;

// `order`, repeated from its start until it has `length` items.
Indices padded(const Indices& order, std::size_t length) {
  Indices out;
  out.reserve(length);
  for (std::size_t i = 0; i < length; ++i) out.push_back(order[i % order.size()]);
  return out;
}

std::vector<Indices> cut(const Indices& order, std::size_t batch_size) {
  std::vector<Indices> batches;
  for (std::size_t i = 0; i + batch_size <= order.size(); i += batch_size) {
    batches.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(i),
                         order.begin() + static_cast<std::ptrdiff_t>(i + batch_size));
  }
  return batches;
}

struct ByModality {
  Indices with_image, text_only;
};

ByModality split(const std::vector<bool>& has_image, const Indices& order) {
  ByModality parts;
  for (const std::int64_t i : order) {
    (has_image[static_cast<std::size_t>(i)] ? parts.with_image : parts.text_only).push_back(i);
  }
  return parts;
}

}  // namespace

std::vector<std::int64_t> random_permutation(std::int64_t n, std::uint64_t seed) {
  // Torch's CPU generator is mt19937 seeded with the low 32 bits; randperm is this loop.
  std::mt19937 generator(static_cast<std::uint32_t>(seed));
  Indices order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    std::swap(order[i], order[i + generator() % (order.size() - i)]);
  }
  return order;
}

Sampler::Sampler(std::vector<bool> has_image, Scenario::Data::Sampler kind, int batch_size,
                 std::uint64_t seed, Shard shard, bool reshuffle)
    : has_image_(std::move(has_image)),
      kind_(kind),
      batch_size_(static_cast<std::size_t>(batch_size)),
      seed_(seed),
      shard_(shard),
      reshuffle_(reshuffle) {
  LOCKSTEP_CHECK(
      !has_image_.empty() && batch_size > 0 && shard.rank >= 0 && shard.rank < shard.world_size,
      "a shard of the data");
}

const std::vector<std::int64_t>& Sampler::batch(std::int64_t step) {
  LOCKSTEP_CHECK(step >= 0, "steps count from 0");
  if (epoch_ < 0) plan_epoch(0);
  // Every epoch has as many batches as the first one: their number follows from the sizes alone.
  const auto per_epoch = static_cast<std::int64_t>(batches_.size());
  if (step / per_epoch != epoch_) plan_epoch(step / per_epoch);
  return batches_[static_cast<std::size_t>(step % per_epoch)];
}

void Sampler::plan_epoch(std::int64_t epoch) {
  const std::uint64_t seed = seed_ + static_cast<std::uint64_t>(reshuffle_ ? epoch : 0);
  switch (kind_) {
    case Scenario::Data::Sampler::random:
      batches_ = random_batches(seed);
      break;
    case Scenario::Data::Sampler::balanced:
      batches_ = balanced_batches(seed);
      break;
    case Scenario::Data::Sampler::grouped:
      batches_ = grouped_batches(seed);
      break;
  }
  epoch_ = epoch;
}

// DistributedSampler: the order padded to a multiple of the ranks, then every world_size-th item.
Sampler::Indices Sampler::shard_of(const Indices& order) const {
  const auto world = static_cast<std::size_t>(shard_.world_size);
  const std::size_t least = batch_size_ * world;
  const std::size_t total = std::max((order.size() + world - 1) / world * world, least);
  const Indices all = padded(order, total);
  Indices mine;
  for (auto i = static_cast<std::size_t>(shard_.rank); i < total; i += world) {
    mine.push_back(all[i]);
  }
  return mine;
}

std::vector<Sampler::Indices> Sampler::random_batches(std::uint64_t seed) const {
  return cut(shard_of(random_permutation(size(), seed)), batch_size_);
}

std::vector<Sampler::Indices> Sampler::balanced_batches(std::uint64_t seed) const {
  const ByModality parts = split(has_image_, random_permutation(size(), seed));
  if (parts.with_image.empty() || parts.text_only.empty()) return random_batches(seed);
  const double share = static_cast<double>(parts.with_image.size()) / static_cast<double>(size());
  const auto images = std::min(
      batch_size_, static_cast<std::size_t>(std::lround(share * static_cast<double>(batch_size_))));
  const Indices with_image = shard_of(parts.with_image);
  const Indices text_only = shard_of(parts.text_only);
  const std::size_t count =
      static_cast<std::size_t>(size()) / static_cast<std::size_t>(shard_.world_size) / batch_size_;
  std::vector<Indices> batches;
  for (std::size_t b = 0; b < std::max<std::size_t>(count, 1); ++b) {
    Indices batch;
    for (std::size_t i = 0; i < batch_size_; ++i) {
      // A modality whose shard runs out early starts over.
      if (i < images) {
        batch.push_back(with_image[(b * images + i) % with_image.size()]);
      } else {
        const std::size_t texts = batch_size_ - images;
        batch.push_back(text_only[(b * texts + i - images) % text_only.size()]);
      }
    }
    batches.push_back(std::move(batch));
  }
  return batches;
}

std::vector<Sampler::Indices> Sampler::grouped_batches(std::uint64_t seed) const {
  const ByModality parts = split(has_image_, random_permutation(size(), seed));
  std::vector<Indices> pool;
  for (const Indices* part : {&parts.with_image, &parts.text_only}) {
    if (part->empty()) continue;
    const std::size_t length = std::max(part->size(), batch_size_);
    for (Indices& batch : cut(padded(*part, length), batch_size_)) pool.push_back(std::move(batch));
  }
  // The batches are then dealt out as DistributedSampler deals items.
  const Indices order = random_permutation(static_cast<std::int64_t>(pool.size()), seed);
  const auto world = static_cast<std::size_t>(shard_.world_size);
  const Indices all = padded(order, (order.size() + world - 1) / world * world);
  std::vector<Indices> mine;
  for (auto i = static_cast<std::size_t>(shard_.rank); i < all.size(); i += world) {
    mine.push_back(pool[static_cast<std::size_t>(all[i])]);
  }
  return mine;
}

}  // namespace lockstep
