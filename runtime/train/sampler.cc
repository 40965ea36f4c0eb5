#include "runtime/train/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "runtime/data/distributed_sampler.h"

namespace lockstep::runtime {
namespace {

using Indices = std::vector<std::int64_t>;

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
  // The number of batches depends on the sizes alone, so it is the same in every epoch.
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
    case Scenario::Data::Sampler::dealt:
      batches_ = dealt_batches(seed);
      break;
  }
  epoch_ = epoch;
}

// This rank's items, dealt out like DistributedSampler does, but at least one batch of them.
Sampler::Indices Sampler::shard_of(const Indices& order) const {
  const auto world = static_cast<std::size_t>(shard_.world_size);
  const std::size_t count = std::max((order.size() + world - 1) / world, batch_size_);
  return dealt(order, static_cast<std::size_t>(shard_.rank), world, count);
}

std::vector<Sampler::Indices> Sampler::random_batches(std::uint64_t seed) const {
  return batches_of(shard_of(random_permutation(size(), seed)), batch_size_, true);
}

std::vector<Sampler::Indices> Sampler::balanced_batches(std::uint64_t seed) const {
  const ByModality parts = split(has_image_, random_permutation(size(), seed));
  if (parts.with_image.empty() || parts.text_only.empty()) return random_batches(seed);
  // Every batch gets the data set's share of images, rounded: 40 % of 8 is 3 images, 5 texts.
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
    // A modality with fewer items than a batch repeats them.
    const std::size_t length = std::max(part->size(), batch_size_);
    for (Indices& batch : batches_of(dealt(*part, 0, 1, length), batch_size_, true)) {
      pool.push_back(std::move(batch));
    }
  }
  // Deal out the batches as DistributedSampler deals out items.
  const Indices order = random_permutation(static_cast<std::int64_t>(pool.size()), seed);
  const auto world = static_cast<std::size_t>(shard_.world_size);
  std::vector<Indices> mine;
  for (const std::int64_t batch : dealt(order, static_cast<std::size_t>(shard_.rank), world,
                                        (order.size() + world - 1) / world)) {
    mine.push_back(pool[static_cast<std::size_t>(batch)]);
  }
  return mine;
}

std::vector<Sampler::Indices> Sampler::dealt_batches(std::uint64_t seed) const {
  const ByModality parts = split(has_image_, random_permutation(size(), seed));
  const auto world = static_cast<std::size_t>(shard_.world_size);
  // This rank's batches of each modality. Padded to the ranks' number, so that every rank has as
  // many: batches 0, 1, 2 of a modality on two ranks are 0, 2 and 1, 0.
  std::vector<Indices> pool;
  for (const Indices* part : {&parts.with_image, &parts.text_only}) {
    if (part->empty()) continue;
    const std::size_t length = std::max(part->size(), batch_size_);
    const auto batches = batches_of(dealt(*part, 0, 1, length), batch_size_, true);
    for (std::size_t b = 0; b < batches.size(); b += world) {
      pool.push_back(batches[(b + static_cast<std::size_t>(shard_.rank)) % batches.size()]);
    }
  }
  // One order of all steps, which is the same on every rank.
  std::vector<Indices> mine;
  for (const std::int64_t i : random_permutation(static_cast<std::int64_t>(pool.size()), seed)) {
    mine.push_back(std::move(pool[static_cast<std::size_t>(i)]));
  }
  return mine;
}

}  // namespace lockstep::runtime
