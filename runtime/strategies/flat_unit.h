// FlatUnit: the trained parameters of one part of a model as one flat tensor, of which every rank
// of a group keeps a shard (Zhao et al., "PyTorch FSDP", 2023, arXiv:2304.11277, section 4).
//
//  flat:   | parameter 0 | parameter 1 | ... | padding |     [shard size x ranks of the group]
//  shards: |   rank 0    |   rank 1    |    rank 2     |     [shard size] each
//
// The parameters are views into the flat tensor, whose memory exists only between gather() and
// release(). The optimizer works on the shard. Padding is 0, and so are its gradients.
#pragma once

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
  FlatUnit(std::string name, NamedTensors parameters, ShardGroups groups, Recorder& recorder,
           ValueWatch* watch = nullptr, const std::string& average = {});

  const std::string& name() const { return name_; }
  const NamedTensors& parameters() const { return parameters_; }
  // This rank's shard, a leaf: [shard size]. The same tensor for as long as the unit lives.
  const at::Tensor& shard() const { return shard_; }
  // The index of its first element in the flat tensor.
  std::uint64_t shard_begin() const {
    return static_cast<std::uint64_t>(groups_.shard->getRank() * shard_size());
  }

  // Sends the flat tensor of the group's rank 0 to the others, takes this rank's shard from it, and
  // releases it. Collective over `everyone`; the unit must be whole.
  void start(c10d::ProcessGroup& everyone);

  // Starts an all-gather over the shard group, unless one is in flight or the unit is whole.
  void prefetch();
  // Makes the unit whole: waits for the all-gather in flight, or performs one.
  void gather();
  // Frees the flat tensor's memory, after waiting for an all-gather in flight.
  void release();
  // Bytes that the flat tensor takes now.
  std::size_t bytes() const { return flat_.storage().nbytes(); }

  // The whole parameters under their names, from a `part` of the shard's shape on each rank.
  // Collective over the shard group. part() is the inverse (Strategy::whole, Strategy::part).
  NamedTensors whole(const at::Tensor& part) const;
  using WholeTensor = std::function<at::Tensor(const std::string&, const at::Tensor&)>;
  at::Tensor part(const WholeTensor& whole) const;

  bool has_gradients() const;
  // Reduce-scatters the parameters' gradients (0 where there is none), averages over the world,
  // adds the result to the shard's gradient, and resets the parameters' gradients. Collective over
  // the shard group, then over the replicate group.
  void reduce();

 private:
  void begin(bool in_background);
  std::int64_t shard_size() const { return shard_.numel(); }

  std::string name_;
  NamedTensors parameters_;
  ShardGroups groups_;
  Recorder& recorder_;
  ValueWatch* watch_;
  at::Tensor flat_, shard_;
  std::size_t whole_bytes_ = 0;
  CallNote start_note_, gather_note_, reduce_note_, replicate_note_, whole_note_;
  c10::intrusive_ptr<c10d::Work> in_flight_;
};

}  // namespace lockstep::runtime
