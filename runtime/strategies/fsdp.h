// Fsdp: fully sharded data parallel, as torch.distributed.fsdp does it (Zhao et al., 2023,
// arXiv:2304.11277): every rank keeps one shard of each unit's parameters, of their gradients and
// of the optimizer's state, and has a unit whole only while it computes with it.
//
// A unit is a block of the model (block.h), named as its module: "image.block1". What lies outside
// of blocks forms a root unit for each branch: "image.root", "text.root". Only trained parameters
// are sharded; frozen ones and buffers stay whole, and are rank 0's at the start.
//
//   before_forward              all-gather the roots, which stay until backward is over
//   a block's forward           all-gather it, compute, release it
//   a block's backward          all-gather it, compute, reduce-scatter its gradients, release it
//   the end of backward         reduce-scatter what is left (roots, blocks whose gradients are not
//                               complete; a unit without any gradient is left out), release all
//
// With prefetch, the all-gather of the unit that came next in the pass before is issued before a
// block computes. While gradients accumulate, every backward reduces: the sum is kept in shards.
//
// Hybrid sharding (shard_ranks): groups of so many consecutive ranks hold a copy each ("shard0",
// ...); after the reduce-scatter the ranks that hold the same shard ("replicate0", ...) all-reduce.
#pragma once

#include <algorithm>
#include <cstddef>
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

// UseOrder: in which order units were used in one pass, which foretells the next.

namespace lockstep::runtime {

class UseOrder {
 public:
  // A pass begins; gives the first unit of the one before.
  std::optional<std::size_t> restart() {
    last_ = std::exchange(now_, {});
    place_ = 0;
    return at_place();
  }

  // The unit is used now; gives the one that followed it in the pass before. Where it was not used
  // there, nothing is foretold.
  std::optional<std::size_t> use(std::size_t unit) {
    now_.push_back(unit);
    const auto from = last_.begin() + static_cast<std::ptrdiff_t>(place_);
    const auto found = std::find(from, last_.end(), unit);
    if (found == last_.end()) return std::nullopt;
    place_ = static_cast<std::size_t>(found - last_.begin()) + 1;
    return at_place();
  }

 private:
  std::optional<std::size_t> at_place() const {
    if (place_ == last_.size()) return std::nullopt;
    return last_[place_];
  }

  std::vector<std::size_t> last_, now_;
  std::size_t place_ = 0;  // in last_
};

class Fsdp : public Strategy, private BlockObserver {
 public:
  // Makes the groups: collective. Observes the model's blocks while it lives.
  Fsdp(const Scenario::Strategy& options, StrategyParts parts);
  ~Fsdp() override;
  Fsdp(const Fsdp&) = delete;
  Fsdp& operator=(const Fsdp&) = delete;

  void start() override;
  void before_forward(Pass pass) override;
  void backward(const at::Tensor& loss, Pass pass) override;
  void synchronise() override {}

  // The shards, named as their units.
  NamedTensors optimised(const ContrastiveModel& model) override;
  // Summed over the shard group.
  std::optional<std::uint64_t> shard_begin(const std::string& name) override;
  double norm_squared(double own) override;
  NamedTensors whole(const std::string& name, const at::Tensor& part) override;
  at::Tensor part(const std::string& name, const at::Tensor& optimised,
                  const WholeTensor& whole) override;
  void gather_everything() override;

 private:
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(at::Tensor()));
  struct Unit {
    std::unique_ptr<FlatUnit> flat;
    ModelBlock* block = nullptr;            // null: a root
    std::vector<Accumulator> accumulators;  // of the parameters' gradients; kept for their hooks
    std::size_t missing = 0;                // gradients that this backward has not given yet
  };
  void add_unit(const std::string& name, const NamedTensors& parameters, ModelBlock* block);
  void add_units();
  const FlatUnit& unit(const std::string& name) const;
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
  bool stays_whole_ = false;  // after gather_everything
};

}  // namespace lockstep::runtime
