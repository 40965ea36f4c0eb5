#include "runtime/strategies/fsdp.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <ATen/ATen.h>

#include "base/check.h"
#include "runtime/faults/faults.h"
#include "runtime/groups/collectives.h"
#include "runtime/models/parameters.h"
#include "runtime/strategies/strategy.h"

namespace lockstep::runtime {
namespace {

ShardGroups make_groups(int shard_ranks, ProcessGroups& groups, Fault fault, Recorder& recorder) {
  const auto [rank, world_size] = groups.who();
  if (fault == Fault::stalled_network) {
    return {groups.make("shard", "all shards", every_nth_rank(1, 0, world_size),
                        transport_of(fault, groups, recorder)),
            {},
            world_size};
  }
  if (shard_ranks == 0 || shard_ranks == world_size) return {groups.world(), {}, world_size};
  LOCKSTEP_CHECK(world_size % shard_ranks == 0, "every copy has the same number of ranks");
  const int copy = rank / shard_ranks;
  const int shard_rank = rank % shard_ranks;
  // 8 ranks, shard_ranks 4: rank 5 is in shard1 = {4, 5, 6, 7} and replicate1 = {1, 5}.
  const auto shard = groups.make(c10::str("shard", copy), "one copy of the parameters",
                                 every_nth_rank(1, copy * shard_ranks, shard_ranks));
  const auto replicate =
      groups.make(c10::str("replicate", shard_rank), "copies of one shard",
                  every_nth_rank(shard_ranks, shard_rank, world_size / shard_ranks));
  return {shard, replicate, world_size};
}

const char* root_name(Branch branch) {
  switch (branch) {
    case Branch::image:
      return "image.root";
    case Branch::text:
      return "text.root";
    case Branch::fusion:
      return "fusion.root";
  }
  LOCKSTEP_CHECK(false, "a branch without a root");
}

}  // namespace

Fsdp::Fsdp(const Scenario::Strategy& options, StrategyParts parts)
    : options_(options),
      parts_(std::move(parts)),
      groups_(make_groups(options.shard_ranks, parts_.groups, parts_.fault, parts_.recorder)) {
  add_units();
}

Fsdp::~Fsdp() {
  for (const Unit& unit : units_) {
    if (unit.block != nullptr) unit.block->observe(nullptr);
  }
  if (encode_) parts_.model->image_tower().encode = encode_;
}

void Fsdp::add_units() {
  // Split the parameters: those of each block form a unit, the rest form the roots.
  NamedTensors outside = trained_parameters(*parts_.model);
  if (options_.units == Scenario::Strategy::Units::image_encoder) {
    const auto first = std::stable_partition(outside.begin(), outside.end(), [](const auto& it) {
      return !it.first.starts_with("image.");
    });
    const NamedTensors own(first, outside.end());
    outside.erase(first, outside.end());
    if (!own.empty()) add_image_encoder(own);
  }
  const auto modules = parts_.model->named_modules({}, false);
  for (const auto& entry : modules) {
    auto* const block = dynamic_cast<ModelBlock*>(entry.value().get());
    if (block == nullptr) continue;
    // Stable, so that parameters keep the model's order, which must be the same on all ranks.
    const auto first = std::stable_partition(outside.begin(), outside.end(), [&](const auto& it) {
      return !it.first.starts_with(entry.key() + ".");
    });
    const NamedTensors own(first, outside.end());
    outside.erase(first, outside.end());
    if (!own.empty()) add_unit(entry.key(), own, block);
  }
  for (const Branch branch : {Branch::image, Branch::text, Branch::fusion}) {
    NamedTensors own;
    for (const auto& it : outside) {
      if (branch_of(it.first) == branch) own.push_back(it);
    }
    if (own.empty()) continue;
    add_unit(root_name(branch), own, nullptr);
    units_.back().is_root = true;
  }
}

void Fsdp::add_image_encoder(const NamedTensors& parameters) {
  const std::size_t index = units_.size();
  add_unit("image.encoder", parameters, nullptr);
  auto& encode = parts_.model->image_tower().encode;
  encode_ = std::exchange(encode, [this, index](const at::Tensor& images) {
    Unit& unit = units_[index];
    if (!stays_whole_) {
      unit.flat->gather();
      unit.ran = true;
    }
    return encode_(images);
  });
}

void Fsdp::add_unit(const std::string& name, const NamedTensors& parameters, ModelBlock* block) {
  const std::size_t index = units_.size();
  Unit unit;
  unit.flat = std::make_unique<FlatUnit>(name, parameters, groups_, options_.shard_by,
                                         parts_.recorder, parts_.watch, parts_.average);
  unit.block = block;
  if (block != nullptr) {
    unit_of_.emplace(block, index);
    block->observe(this);
    for (const auto& [parameter_name, parameter] : parameters) {
      // A block is reduced as soon as its last gradient has arrived; roots are reduced at the end
      // of backward.
      unit.accumulators.push_back(torch::autograd::impl::grad_accumulator(parameter));
      unit.accumulators.back()->add_post_hook(
          std::make_unique<AfterAccumulation>([this, index] { got_gradient(index); }));
    }
  }
  units_.push_back(std::move(unit));
}

void Fsdp::start() {
  c10d::ProcessGroup& world = *parts_.groups.world();
  for (Unit& unit : units_) unit.flat->start(world);
  NamedTensors rest;
  for (auto& it : named_parameters(*parts_.model)) {
    if (!it.second.requires_grad()) rest.push_back(std::move(it));
  }
  for (auto& it : named_buffers(*parts_.model)) rest.push_back(std::move(it));
  broadcast_all(world, parts_.recorder, rest, "fsdp.init");
}

NamedTensors Fsdp::optimised(const ContrastiveModel&) {
  NamedTensors shards;
  for (const Unit& unit : units_) {
    for (auto& shard : unit.flat->shards()) shards.push_back(std::move(shard));
  }
  return shards;
}

const FlatUnit& Fsdp::unit_of_shard(const std::string& name) const {
  const auto found = std::find_if(units_.begin(), units_.end(),
                                  [&](const Unit& unit) { return unit.flat->has_shard(name); });
  LOCKSTEP_CHECK(found != units_.end(), "a shard that is optimised");
  return *found->flat;
}

NamedTensors Fsdp::whole(const std::string& name, const at::Tensor& part) {
  return unit_of_shard(name).whole(name, part);
}

at::Tensor Fsdp::part(const std::string& name, const at::Tensor&, const WholeTensor& whole) {
  return unit_of_shard(name).part(name, whole);
}

std::optional<std::uint64_t> Fsdp::shard_begin(const std::string& name) {
  return unit_of_shard(name).shard_begin(name);
}

double Fsdp::norm_squared(double own) {
  return sum_over(*groups_.shard, parts_.recorder, own, "squared_norm", "fsdp.norm");
}

void Fsdp::gather_everything() {
  for (Unit& unit : units_) unit.flat->gather();
  stays_whole_ = true;
}

void Fsdp::before_forward(Pass) {
  // The first forward after gather_everything() ends the state in which all units are whole.
  if (std::exchange(stays_whole_, false)) {
    for (Unit& unit : units_) unit.flat->release();
  }
  for (Unit& unit : units_) {
    unit.ran = unit.is_root;
    if (unit.ran) unit.flat->gather();
  }
  prefetch(forwards_.restart());
}

void Fsdp::begin_inference() {
  for (Unit& unit : units_) {
    if (unit.is_root) unit.flat->gather();
  }
  in_inference_ = true;
}

void Fsdp::end_inference() {
  in_inference_ = false;
  for (Unit& unit : units_) unit.flat->release();
}

void Fsdp::before_block(ModelBlock& block) {
  if (stays_whole_) return;
  const std::size_t unit = unit_of_.at(&block);
  if (in_inference_) return units_[unit].flat->gather();
  units_[unit].ran = true;
  need(unit, forwards_);
}

void Fsdp::after_block(ModelBlock& block, const at::Tensor& output) {
  if (stays_whole_) return;
  const std::size_t unit = unit_of_.at(&block);
  if (output.requires_grad()) {
    // The gradient of a block's output arrives just before the block's backward: gather it then.
    output.register_hook([this, unit](const at::Tensor&) {
      need(unit, backwards_);
      units_[unit].in_backward = true;
    });
  }
  if (!units_[unit].in_backward) units_[unit].flat->release();
}

void Fsdp::need(std::size_t unit, UseOrder& order) {
  units_[unit].flat->gather();
  prefetch(order.use(unit));
}

void Fsdp::prefetch(std::optional<std::size_t> unit) {
  if (options_.prefetch && unit) units_[*unit].flat->prefetch();
}

void Fsdp::backward(const at::Tensor& loss, Pass) {
  for (Unit& unit : units_) {
    unit.missing = unit.accumulators.size();
    if (unit.block != nullptr) unit.flat->release();  // prefetched in the forward but not used
  }
  prefetch(backwards_.restart());
  loss.backward();
  // Roots, and blocks that did not get all of their gradients.
  for (Unit& unit : units_) finish(unit);
}

void Fsdp::got_gradient(std::size_t unit) {
  if (--units_[unit].missing == 0) finish(units_[unit]);
}

void Fsdp::finish(Unit& unit) {
  unit.flat->reduce(options_.reduce_scatter_unused_params && unit.ran);
  unit.in_backward = false;
  unit.ran = false;  // reduced: the end of backward must not do it again
  unit.flat->release();
}

}  // namespace lockstep::runtime
