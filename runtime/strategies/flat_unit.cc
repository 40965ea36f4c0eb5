#include "runtime/strategies/flat_unit.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <ATen/ATen.h>

#include "base/check.h"
#include "runtime/device/counted_memory.h"
#include "runtime/groups/collectives.h"

// Torch 2.15 renames _allgather_base; 2.11 has only this name.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace lockstep::runtime {
namespace {

std::int64_t rounded_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// Gives the tensor `bytes` of memory from the device's allocator; the contents are lost.
void resize(const at::Tensor& flat, std::size_t bytes) {
  // Freeing storage is not an operation, so a queued call could still be filling it. detach() is
  // one, and waits for such calls (runtime/device/queued_calls.h).
  const at::Tensor in_use = flat.detach();
  const MemoryScope whole_memory(MemoryPhase::communication);
  at::StorageImpl* storage = flat.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> out;
  out.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) out.push_back(name);
  return out;
}

bool any_gradient(const NamedTensors& parameters) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const auto& it) { return it.second.grad().defined(); });
}

// Calls `visit` with each parameter's name, itself, and its part of `flat`, in which they follow
// each other.
template <class Visit>
void each_part(const NamedTensors& parameters, const at::Tensor& flat, Visit visit) {
  std::int64_t offset = 0;
  for (const auto& [name, parameter] : parameters) {
    visit(name, parameter, flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
    offset += parameter.numel();
  }
}

}  // namespace

FlatUnit::FlatUnit(std::string name, NamedTensors parameters, ShardGroups groups, ShardBy shard_by,
                   Recorder& recorder, ValueWatch* watch, const std::string& average)
    : name_(std::move(name)),
      parameters_(std::move(parameters)),
      groups_(std::move(groups)),
      recorder_(recorder),
      watch_(watch),
      reduce_tag_("fsdp.reduce_scatter" + average) {
  LOCKSTEP_CHECK(!parameters_.empty(), "a unit has parameters");
  const at::NoGradGuard no_grad;
  if (shard_by == ShardBy::unit) {
    add_range(name_, parameters_);
  } else {
    for (const auto& it : parameters_) add_range(it.first, {it});
  }
  const Range& last = ranges_.back();
  {
    const MemoryScope whole_memory(MemoryPhase::communication);
    flat_ = at::zeros({last.begin + groups_.shard->getSize() * last.shard_size()},
                      last.shard.options().requires_grad(false));
  }
  whole_bytes_ = bytes();
  // Copy each parameter into the flat tensor and make it a view of its part.
  for (const Range& range : ranges_) {
    each_part(range.parameters, by_rank(range).flatten(),
              [&](const std::string&, at::Tensor parameter, const at::Tensor& part) {
                LOCKSTEP_CHECK(parameter.scalar_type() == flat_.scalar_type(),
                               "a unit has one type");
                part.copy_(parameter);
                parameter.set_data(part);
              });
  }
  const std::vector<std::string> names = names_of(parameters_);
  start_note_ = recorder_.note(names, "fsdp.init");
  gather_note_ = recorder_.note(names, "fsdp.gather");
}

void FlatUnit::add_range(std::string name, NamedTensors parameters) {
  const int ranks = groups_.shard->getSize();
  std::int64_t size = 0;
  for (const auto& [parameter_name, parameter] : parameters) size += parameter.numel();
  const auto type = parameters.front().second.options().requires_grad(false);
  const std::int64_t begin =
      ranges_.empty() ? 0 : ranges_.back().begin + ranks * ranges_.back().shard_size();
  ranges_.push_back({std::move(name), std::move(parameters),
                     at::empty({rounded_up(size, ranks) / ranks}, type).set_requires_grad(true),
                     begin});
}

at::Tensor FlatUnit::by_rank(const Range& range) const {
  const int ranks = groups_.shard->getSize();
  return flat_.narrow(0, range.begin, ranks * range.shard_size()).view({ranks, range.shard_size()});
}

NamedTensors FlatUnit::shards() const {
  NamedTensors out;
  for (const Range& range : ranges_) out.emplace_back(range.name, range.shard);
  return out;
}

bool FlatUnit::has_shard(const std::string& name) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const Range& range) { return range.name == name; });
}

const FlatUnit::Range& FlatUnit::range_of(const std::string& name) const {
  const auto found = std::find_if(ranges_.begin(), ranges_.end(),
                                  [&](const Range& range) { return range.name == name; });
  LOCKSTEP_CHECK(found != ranges_.end(), "a shard of this unit");
  return *found;
}

std::uint64_t FlatUnit::shard_begin(const std::string& name) const {
  return static_cast<std::uint64_t>(groups_.shard->getRank() * range_of(name).shard_size());
}

void FlatUnit::start(c10d::ProcessGroup& everyone) {
  const at::NoGradGuard no_grad;
  {
    const NoteScope scope(recorder_, start_note_);
    broadcast(everyone, flat_);
  }
  for (const Range& range : ranges_) range.shard.copy_(by_rank(range)[groups_.shard->getRank()]);
  release();
}

void FlatUnit::begin(bool in_background) {
  const at::NoGradGuard no_grad;
  resize(flat_, whole_bytes_);
  at::Tensor own = ranges_.front().shard.detach();
  arriving_ = flat_;
  if (ranges_.size() > 1) {
    std::vector<at::Tensor> shards;
    for (const Range& range : ranges_) shards.push_back(range.shard);
    const MemoryScope whole_memory(MemoryPhase::communication);
    own = at::cat(shards);
    arriving_ = at::empty_like(flat_);
  }
  c10d::AllgatherOptions options;
  options.asyncOp = in_background;
  const NoteScope scope(recorder_, gather_note_);
  in_flight_ = groups_.shard->_allgather_base(arriving_, own, options);
}

void FlatUnit::prefetch() {
  if (!arriving_.defined() && bytes() == 0) begin(true);
}

void FlatUnit::gather() {
  if (!arriving_.defined() && bytes() == 0) begin(false);
  if (!arriving_.defined()) return;
  // A device that queues calls gives no Work for a synchronous one.
  if (in_flight_) in_flight_->wait();
  in_flight_.reset();
  const at::Tensor arrived = std::exchange(arriving_, {});
  if (ranges_.size() == 1) return;
  const at::NoGradGuard no_grad;
  const int ranks = groups_.shard->getSize();
  for (const Range& range : ranges_) {
    by_rank(range).copy_(
        arrived.view({ranks, -1}).narrow(1, range.begin / ranks, range.shard_size()));
  }
}

void FlatUnit::release() {
  if (arriving_.defined()) gather();
  resize(flat_, 0);
}

NamedTensors FlatUnit::whole(const std::string& name, const at::Tensor& part) const {
  const at::NoGradGuard no_grad;
  const Range& of = range_of(name);
  at::Tensor flat;
  {
    const MemoryScope whole_memory(MemoryPhase::communication);
    const NoteScope scope(recorder_, recorder_.note(names_of(of.parameters), "fsdp.checkpoint"));
    flat = all_gather(*groups_.shard, part.detach().contiguous());
  }
  NamedTensors out;
  each_part(of.parameters, flat,
            [&](const std::string& parameter, const at::Tensor&, const at::Tensor& segment) {
              out.emplace_back(parameter, segment);
            });
  return out;
}

at::Tensor FlatUnit::part(const std::string& name, const WholeTensor& whole) const {
  const at::NoGradGuard no_grad;
  const Range& of = range_of(name);
  const at::Tensor flat = at::zeros({groups_.shard->getSize() * of.shard_size()}, flat_.options());
  each_part(of.parameters, flat,
            [&](const std::string& parameter_name, const at::Tensor& parameter,
                const at::Tensor& part) { part.copy_(whole(parameter_name, parameter)); });
  return flat.narrow(0, groups_.shard->getRank() * of.shard_size(), of.shard_size()).clone();
}

// Takes the parameters' gradients: [ranks of the group, shard size].
at::Tensor FlatUnit::gradients_by_rank(Range& range) const {
  const int ranks = groups_.shard->getSize();
  const at::Tensor flat = at::zeros({ranks * range.shard_size()}, flat_.options());
  each_part(range.parameters, flat,
            [](const std::string&, at::Tensor parameter, const at::Tensor& part) {
              at::Tensor& gradient = parameter.mutable_grad();
              if (gradient.defined()) part.copy_(gradient);
              gradient.reset();
            });
  // Only record gradients that are complete: with accumulation a backward has a part of the sum,
  // and with several copies a shard group has the gradients of one copy.
  if (watch_ != nullptr && !watch_->accumulates() && !groups_.replicate)
    watch_->local_gradient(range.name, flat);
  return flat.view({ranks, range.shard_size()});
}

void FlatUnit::reduce(bool zeros) {
  const at::NoGradGuard no_grad;
  mark_gradients(parameters_);
  const MemoryScope flat_memory(MemoryPhase::communication);
  std::vector<Range*> reduced;
  std::vector<std::string> names;
  std::vector<at::Tensor> gradients;
  for (Range& range : ranges_) {
    if (!zeros && !any_gradient(range.parameters)) continue;
    reduced.push_back(&range);
    for (std::string& name : names_of(range.parameters)) names.push_back(std::move(name));
    gradients.push_back(gradients_by_rank(range));
  }
  if (reduced.empty()) return;
  at::Tensor part;
  {
    const NoteScope scope(recorder_, recorder_.note(names, reduce_tag_));
    const at::Tensor all = gradients.size() == 1 ? gradients.front() : at::cat(gradients, 1);
    part = reduce_scatter(*groups_.shard, all.flatten());
  }
  if (groups_.replicate) {
    const NoteScope scope(recorder_, recorder_.note(names, "fsdp.all_reduce"));
    all_reduce(*groups_.replicate, part);
  }
  part.div_(groups_.world_size);
  std::int64_t offset = 0;
  for (Range* range : reduced) {
    // No view: the optimizer detaches gradients in place.
    const at::Tensor own =
        reduced.size() == 1 ? part : part.narrow(0, offset, range->shard_size()).clone();
    offset += range->shard_size();
    at::Tensor& sum = range->shard.mutable_grad();
    if (sum.defined()) {
      sum.add_(own);
    } else {
      sum = own;
    }
  }
}

}  // namespace lockstep::runtime
