// FlatUnit: the trained parameters of one part of a model as one flat tensor, of which every rank
// of a group keeps a shard (Zhao et al., "PyTorch FSDP", 2023, arXiv:2304.11277, section 4).
//
//   flat:   | parameter 0 | parameter 1 | ... | padding |     [shard size x ranks of the group]
//   shards: |   rank 0    |   rank 1    |    rank 2     |     [shard size] each
//
// The parameters are views into the flat tensor, whose memory is there only between gather() and
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

// Where a unit's shards lie.
struct ShardGroups {
  ProcessGroups::Ptr shard;      // its ranks hold one copy of the parameters together
  ProcessGroups::Ptr replicate;  // the ranks that hold this shard of the other copies; may be null
  int world_size = 1;            // ranks of all copies: what gradients are divided by
};

class FlatUnit {
 public:
  // Takes the parameters' memory over: they are views from now on, and the unit is whole.
  // `parameters` (at least one, all of one type) must be the same on all ranks; `recorder` must
  // outlive the unit, and `watch` too, which takes the gradients of the whole unit (may be null).
  // `average`: what the tag of their reduction adds (StrategyParts::average).
  FlatUnit(std::string name, NamedTensors parameters, ShardGroups groups, Recorder& recorder,
           ValueWatch* watch = nullptr, const std::string& average = {});

  const std::string& name() const { return name_; }
  const NamedTensors& parameters() const { return parameters_; }
  // This rank's part, a leaf: [shard size]. The same tensor for as long as the unit lives.
  const at::Tensor& shard() const { return shard_; }
  // The place of its first element in the whole.
  std::uint64_t shard_begin() const {
    return static_cast<std::uint64_t>(groups_.shard->getRank() * shard_size());
  }

  // Sends the flat tensor of the group's rank 0 to the others, takes this rank's shard from it, and
  // releases it. Collective over `everyone`; the unit must be whole.
  void start(c10d::ProcessGroup& everyone);

  // Begins an all-gather over the shard group, unless one is begun or the unit is whole.
  void prefetch();
  // The unit is whole: waits for the gather that was begun, or gathers.
  void gather();
  // Gives the flat tensor's memory back; waits for a gather in flight.
  void release();
  // Memory that the flat tensor takes now.
  std::size_t bytes() const { return flat_.storage().nbytes(); }

  // The whole parameters, under their names, of which each rank has a `part` of the shard's shape.
  // Collective over the shard group. And the other way (Strategy::whole, Strategy::part).
  NamedTensors whole(const at::Tensor& part) const;
  using WholeTensor = std::function<at::Tensor(const std::string&, const at::Tensor&)>;
  at::Tensor part(const WholeTensor& whole) const;

  bool has_gradients() const;
  // Reduce-scatters the parameters' gradients (0 where there is none), averages over the world,
  // adds the result to the shard's gradient, and takes the parameters' away. Collective over the
  // shard group, then over the replicate group.
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
