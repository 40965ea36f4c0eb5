#include "runtime/strategies/flat_unit.h"

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

}  // namespace

FlatUnit::FlatUnit(std::string name, NamedTensors parameters, ShardGroups groups,
                   Recorder& recorder, ValueWatch* watch, const std::string& average)
    : name_(std::move(name)),
      parameters_(std::move(parameters)),
      groups_(std::move(groups)),
      recorder_(recorder),
      watch_(watch) {
  LOCKSTEP_CHECK(!parameters_.empty(), "a unit has parameters");
  const at::NoGradGuard no_grad;
  std::int64_t size = 0;
  std::vector<std::string> names;
  for (const auto& [parameter_name, parameter] : parameters_) {
    size += parameter.numel();
    names.push_back(parameter_name);
  }
  const int ranks = groups_.shard->getSize();
  const auto type = parameters_.front().second.options().requires_grad(false);
  {
    const MemoryScope whole_memory(MemoryPhase::communication);
    flat_ = at::zeros({rounded_up(size, ranks)}, type);
  }
  whole_bytes_ = bytes();
  // Copy each parameter into the flat tensor and make it a view of its range.
  std::int64_t offset = 0;
  for (auto& [parameter_name, parameter] : parameters_) {
    LOCKSTEP_CHECK(parameter.scalar_type() == flat_.scalar_type(), "a unit has one type");
    const at::Tensor view = flat_.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    view.copy_(parameter);
    parameter.set_data(view);
    offset += parameter.numel();
  }
  shard_ = at::empty({flat_.numel() / ranks}, type).set_requires_grad(true);
  start_note_ = recorder_.note(names, "fsdp.init");
  gather_note_ = recorder_.note(names, "fsdp.gather");
  reduce_note_ = recorder_.note(names, "fsdp.reduce_scatter" + average);
  whole_note_ = recorder_.note(names, "fsdp.checkpoint");
  replicate_note_ = recorder_.note(names, "fsdp.all_reduce");
}

void FlatUnit::start(c10d::ProcessGroup& everyone) {
  const at::NoGradGuard no_grad;
  {
    const NoteScope scope(recorder_, start_note_);
    broadcast(everyone, flat_);
  }
  shard_.copy_(flat_.narrow(0, groups_.shard->getRank() * shard_size(), shard_size()));
  release();
}

void FlatUnit::begin(bool in_background) {
  resize(flat_, whole_bytes_);
  at::Tensor own = shard_.detach();
  c10d::AllgatherOptions options;
  options.asyncOp = in_background;
  const NoteScope scope(recorder_, gather_note_);
  in_flight_ = groups_.shard->_allgather_base(flat_, own, options);
}

void FlatUnit::prefetch() {
  if (!in_flight_ && bytes() == 0) begin(true);
}

void FlatUnit::gather() {
  if (!in_flight_ && bytes() == 0) begin(false);
  if (!in_flight_) return;
  in_flight_->wait();
  in_flight_.reset();
}

void FlatUnit::release() {
  if (in_flight_) gather();
  resize(flat_, 0);
}

NamedTensors FlatUnit::whole(const at::Tensor& part) const {
  const at::NoGradGuard no_grad;
  at::Tensor flat;
  {
    const MemoryScope whole_memory(MemoryPhase::communication);
    const NoteScope scope(recorder_, whole_note_);
    flat = all_gather(*groups_.shard, part.detach().contiguous());
  }
  NamedTensors out;
  std::int64_t offset = 0;
  for (const auto& [name, parameter] : parameters_) {
    out.emplace_back(name, flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
    offset += parameter.numel();
  }
  return out;
}

at::Tensor FlatUnit::part(const WholeTensor& whole) const {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = at::zeros({flat_.numel()}, flat_.options());
  std::int64_t offset = 0;
  for (const auto& [name, parameter] : parameters_) {
    flat.narrow(0, offset, parameter.numel()).copy_(whole(name, parameter).flatten());
    offset += parameter.numel();
  }
  return flat.narrow(0, groups_.shard->getRank() * shard_size(), shard_size()).clone();
}

bool FlatUnit::has_gradients() const {
  for (const auto& [name, parameter] : parameters_) {
    if (parameter.grad().defined()) return true;
  }
  return false;
}

void FlatUnit::reduce() {
  const at::NoGradGuard no_grad;
  mark_gradients(parameters_);
  const MemoryScope flat_memory(MemoryPhase::communication);
  const at::Tensor gradients = at::zeros({flat_.numel()}, flat_.options());
  std::int64_t offset = 0;
  for (auto& [name, parameter] : parameters_) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (gradient.defined()) {
      gradients.narrow(0, offset, parameter.numel()).copy_(gradient.flatten());
      gradient.reset();
    }
    offset += parameter.numel();
  }
  // Only record gradients that are complete: with accumulation a backward has a part of the sum,
  // and with several copies a shard group has the gradients of one copy.
  if (watch_ != nullptr && !watch_->accumulates() && !groups_.replicate) {
    watch_->local_gradient(name_, gradients);
  }
  at::Tensor part;
  {
    const NoteScope scope(recorder_, reduce_note_);
    part = reduce_scatter(*groups_.shard, gradients);
  }
  if (groups_.replicate) {
    const NoteScope scope(recorder_, replicate_note_);
    all_reduce(*groups_.replicate, part);
  }
  part.div_(groups_.world_size);
  at::Tensor& sum = shard_.mutable_grad();
  if (sum.defined()) {
    sum.add_(part);
  } else {
    sum = part;
  }
}

}  // namespace lockstep::runtime
