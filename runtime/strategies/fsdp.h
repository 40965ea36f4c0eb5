// Fsdp: fully sharded data parallel, as torch.distributed.fsdp does it (Zhao et al., 2023,
// arXiv:2304.11277). Every rank keeps one shard of each unit's parameters, gradients and optimizer
// state, and has a unit whole only while it computes with it.
//
// A unit is a block of the model (block.h), named after its module: "image.block1". What is outside
// of blocks forms a root unit per branch: "image.root", "text.root". Only trained parameters are
// sharded. Frozen ones and buffers stay whole; rank 0 broadcasts them at the start.
//
//  before_forward              all-gather the roots, which stay until backward is over
//  a block's forward           all-gather it, compute, release it
//  a block's backward          all-gather it, compute, reduce-scatter its gradients, release it
//  the end of backward         reduce-scatter what is left (roots, blocks whose gradients are not
//                              complete; a unit without any gradient is left out), release all
//
// With prefetch, before a block computes, the all-gather of the unit that came next in the previous
// pass is issued. While gradients accumulate, every backward reduces: the sum is kept in shards.
//
// With `units: image-encoder` all of the image encoder's parameters are one unit, "image.encoder".
// It is gathered when the encoder runs, stays whole, and is reduced at the end of backward: as
// FSDP2 does for a module whose inputs need no gradient, with reshard_after_forward=False.
//
// With `reduce_scatter_unused_params` a unit that ran in the forward and got no gradient reduces
// zeros at the end of backward (FSDP2: set_reduce_scatter_unused_params). A unit that did not run
// is still left out. Within a unit, parameters without a gradient are zeros, as in FSDP1's
// flat parameters. With `shard_by: parameter` they are left out as in FSDP2, unless
// `reduce_scatter_unused_params` wants zeros.
//
// A block that runs again in backward (activation checkpointing) stays whole if its own backward
// has gathered it before (as in FSDP2); otherwise it is gathered and released as in the forward.
//
// In inference the roots stay whole, and each block is gathered where it runs, without prefetch.
//
// Hybrid sharding (shard_ranks): groups of `shard_ranks` consecutive ranks hold a copy each
// ("shard0", ...). After the reduce-scatter, the ranks that hold the same shard all-reduce
// ("replicate0", ...).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "runtime/models/block.h"
#include "runtime/strategies/flat_unit.h"
#include "runtime/strategies/strategy.h"

namespace lockstep::runtime {

// UseOrder: the order in which a pass uses the units, to predict the next pass.
class UseOrder {
 public:
  // Starts a pass. Returns the first unit of the previous one.
  std::optional<std::size_t> restart() {
    last_ = std::exchange(now_, {});
    next_ = 0;
    return at_next();
  }

  // Notes that the unit is used now. Returns the unit that followed it in the previous pass;
  // nothing if it was not used there.
  std::optional<std::size_t> use(std::size_t unit) {
    now_.push_back(unit);
    const auto from = last_.begin() + static_cast<std::ptrdiff_t>(next_);
    const auto found = std::find(from, last_.end(), unit);
    if (found == last_.end()) return std::nullopt;
    next_ = static_cast<std::size_t>(found - last_.begin()) + 1;
    return at_next();
  }

 private:
  std::optional<std::size_t> at_next() const {
    if (next_ == last_.size()) return std::nullopt;
    return last_[next_];
  }

  std::vector<std::size_t> last_, now_;
  std::size_t next_ = 0;  // in last_
};

class Fsdp : public Strategy, private BlockObserver {
 public:
  // Creates the groups: collective. Observes the model's blocks while it lives.
  Fsdp(const Scenario::Strategy& options, StrategyParts parts);
  ~Fsdp() override;
  Fsdp(const Fsdp&) = delete;
  Fsdp& operator=(const Fsdp&) = delete;

  void start() override;
  void before_forward(Pass pass) override;
  void backward(const at::Tensor& loss, Pass pass) override;
  void synchronise() override {}

  // The shards, named after their units; with `shard_by: parameter` after their parameters.
  NamedTensors optimised(const ContrastiveModel& model) override;
  // norm_squared() sums over the shard group.
  std::optional<std::uint64_t> shard_begin(const std::string& name) override;
  double norm_squared(double own) override;
  NamedTensors whole(const std::string& name, const at::Tensor& part) override;
  at::Tensor part(const std::string& name, const at::Tensor& optimised,
                  const WholeTensor& whole) override;
  void begin_inference() override;
  void end_inference() override;
  void gather_everything() override;

 private:
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(at::Tensor()));
  struct Unit {
    std::unique_ptr<FlatUnit> flat;
    ModelBlock* block = nullptr;  // null: a root, or the image encoder
    bool is_root = false;
    std::vector<Accumulator> accumulators;  // of the parameters' gradients; kept for their hooks
    std::size_t missing = 0;                // gradients that this backward has not produced yet
    bool ran = false;                       // in this pass's forward
    bool in_backward = false;               // gathered for its backward, and not yet reduced
  };
  void add_unit(const std::string& name, const NamedTensors& parameters, ModelBlock* block);
  void add_units();
  void add_image_encoder(const NamedTensors& parameters);
  const FlatUnit& unit_of_shard(const std::string& name) const;
  void before_block(ModelBlock& block) override;
  void after_block(ModelBlock& block, const at::Tensor& output) override;
  void need(std::size_t unit, UseOrder& order);
  void got_gradient(std::size_t unit);
  void finish(Unit& unit);
  void prefetch(std::optional<std::size_t> unit);

  Scenario::Strategy options_;
  StrategyParts parts_;
  ShardGroups groups_;
  std::vector<Unit> units_;
  std::unordered_map<const ModelBlock*, std::size_t> unit_of_;
  UseOrder forwards_, backwards_;
  std::function<at::Tensor(const at::Tensor&)> encode_;  // the image tower's own, while it is ours
  bool stays_whole_ = false;                             // after gather_everything
  bool in_inference_ = false;
};

}  // namespace lockstep::runtime
