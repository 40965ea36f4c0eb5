// FlatUnit: the trained parameters of one part of a model as one flat tensor; every rank
// of a group keeps a shard of it (Zhao et al., "PyTorch FSDP", 2023, arXiv:2304.11277, section 4).
//
//  flat:   | parameter 0 | parameter 1 | ... | padding |     [shard size x ranks of the group]
//  shards: |   rank 0    |   rank 1    |    rank 2     |     [shard size] each
//
// Sharded by parameter (PyTorch's FSDP2, fully_shard), there is such a range for each of them:
//
//  flat:   | parameter 0     | padding | parameter 1     | padding | ...
//  shards: | rank 0 | rank 1 | rank 2  | rank 0 | rank 1 | rank 2  | ...
//
// A call carries the shards of all ranges, rank by rank, so after an all-gather they are copied to
// their places. Parameters without a gradient are left out of a reduction, so ranks with other sets
// of gradients reduce tensors of other sizes; or of equal size, and other parameters.
//
// The parameters are views into the flat tensor, whose memory exists only between gather() and
// release(). The optimizer works on the shards. Padding is 0, and so are its gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "runtime/groups/process_groups.h"
#include "runtime/models/contrastive.h"
#include "runtime/record/c10d/value_watch.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

// The groups over which a unit is sharded and replicated.
struct ShardGroups {
  ProcessGroups::Ptr shard;      // ranks that hold one copy of the parameters together
  ProcessGroups::Ptr replicate;  // ranks that hold the same shard of other copies; may be null
  int world_size = 1;            // ranks of all copies: the divisor of gradients
};

class FlatUnit {
 public:
  // Replaces the parameters' memory: they become views into the flat tensor, and the unit is whole.
  // `parameters` (at least one, all of one type) must be the same on all ranks. `recorder` must
  // outlive the unit, and so must `watch`, which sees the gradients of the whole unit (may be
  // null). `average`: appended to the tag of the reduction (StrategyParts::average).
  using ShardBy = Scenario::Strategy::ShardBy;
  FlatUnit(std::string name, NamedTensors parameters, ShardGroups groups, ShardBy shard_by,
           Recorder& recorder, ValueWatch* watch = nullptr, const std::string& average = {});

  const std::string& name() const { return name_; }
  const NamedTensors& parameters() const { return parameters_; }
  // This rank's shards, leaves: [shard size] each. One with the unit's name, or one with the name
  // of each parameter. The same tensors for as long as the unit lives.
  NamedTensors shards() const;
  bool has_shard(const std::string& name) const;
  // The index of the shard's first element in its range.
  std::uint64_t shard_begin(const std::string& name) const;

  // Sends the flat tensor of the group's rank 0 to the others, takes this rank's shards from it,
  // and releases it. Collective over `everyone`; the unit must be whole.
  void start(c10d::ProcessGroup& everyone);

  // Starts an all-gather over the shard group, unless one is in flight or the unit is whole.
  void prefetch();
  // Makes the unit whole: waits for the all-gather in flight, or performs one.
  void gather();
  // Frees the flat tensor's memory, after waiting for an all-gather in flight.
  void release();
  // Bytes that the flat tensor takes now.
  std::size_t bytes() const { return flat_.storage().nbytes(); }

  // The whole parameters under their names, from a `part` of the shape of the shard `name` on each
  // rank. Collective over the shard group. part() is the inverse (Strategy::whole, Strategy::part).
  NamedTensors whole(const std::string& name, const at::Tensor& part) const;
  using WholeTensor = std::function<at::Tensor(const std::string&, const at::Tensor&)>;
  at::Tensor part(const std::string& name, const WholeTensor& whole) const;

  // Reduce-scatters the parameters' gradients, averages over the world, adds the result to the
  // shards' gradients, and resets the parameters' gradients. A range without any gradient is left
  // out, unless `zeros` are wanted for it; within a range a parameter without one counts as 0.
  // Collective over the shard group, then over the replicate group, unless nothing is left.
  void reduce(bool zeros);

 private:
  // Consecutive parameters that are sharded together.
  struct Range {
    std::string name;
    NamedTensors parameters;
    at::Tensor shard;
    std::int64_t begin = 0;  // in the flat tensor; its length is that of the ranks' shards

    std::int64_t shard_size() const { return shard.numel(); }
  };
  void add_range(std::string name, NamedTensors parameters);
  void begin(bool in_background);
  const Range& range_of(const std::string& name) const;
  // The part of the flat tensor: [ranks of the group, shard size].
  at::Tensor by_rank(const Range& range) const;
  at::Tensor gradients_by_rank(Range& range) const;

  std::string name_;
  NamedTensors parameters_;
  ShardGroups groups_;
  Recorder& recorder_;
  ValueWatch* watch_;
  std::string reduce_tag_;
  std::vector<Range> ranges_;
  at::Tensor flat_;
  std::size_t whole_bytes_ = 0;
  CallNote start_note_, gather_note_;
  at::Tensor arriving_;  // what the all-gather in flight fills; undefined: none is
  c10::intrusive_ptr<c10d::Work> in_flight_;
};

}  // namespace lockstep::runtime
