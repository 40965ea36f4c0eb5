// Sampler: decides which items a rank's batch of a step holds. DistributedSampler's sharding, and
// three samplers that look at modalities.
//
// Every rank computes the same plan from the seed and takes its own part; nothing is communicated.
// Steps run through epochs, and each epoch has its own order (seed + epoch, as with set_epoch). A
// short batch at the end of an epoch is dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/job/scenario.h"

namespace lockstep::runtime {

class Sampler {
 public:
  struct Shard {
    int rank = 0;
    int world_size = 1;
  };
  // `has_image`: for each item. If an epoch has fewer items than one batch for every rank, its
  // order repeats, as DistributedSampler pads. `reshuffle` false: every epoch has the order of the
  // first, as without set_epoch.
  Sampler(std::vector<bool> has_image, Scenario::Data::Sampler kind, int batch_size,
          std::uint64_t seed, Shard shard, bool reshuffle = true);

  // The items of this rank's batch: `batch_size` indices. Steps count from 0. O(1) within an epoch.
  const std::vector<std::int64_t>& batch(std::int64_t step);

 private:
  using Indices = std::vector<std::int64_t>;
  void plan_epoch(std::int64_t epoch);
  std::vector<Indices> random_batches(std::uint64_t seed) const;
  std::vector<Indices> balanced_batches(std::uint64_t seed) const;
  std::vector<Indices> grouped_batches(std::uint64_t seed) const;
  std::vector<Indices> dealt_batches(std::uint64_t seed) const;
  Indices shard_of(const Indices& order) const;

  std::int64_t size() const { return static_cast<std::int64_t>(has_image_.size()); }

  std::vector<bool> has_image_;
  Scenario::Data::Sampler kind_;
  std::size_t batch_size_;
  std::uint64_t seed_;
  Shard shard_;
  bool reshuffle_;
  std::int64_t epoch_ = -1;
  std::vector<Indices> batches_;  // this rank's, in epoch_
};

}  // namespace lockstep::runtime
