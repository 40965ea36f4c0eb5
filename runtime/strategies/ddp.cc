#include "runtime/strategies/ddp.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "runtime/device/counted_memory.h"
#include "runtime/record/c10d/recording_work.h"
#include "runtime/strategies/bucket_reducer.h"

namespace lockstep::runtime {
namespace {

// DistributedDataParallel's broadcast_bucket_size: at most 250 MiB per broadcast.
constexpr std::size_t kBroadcastBytes = std::size_t{250} << 20U;

std::int64_t bytes_of_mebibytes(double mebibytes) {
  return static_cast<std::int64_t>(mebibytes * 1024 * 1024);
}

std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& entry : named) tensors.push_back(entry.second);
  return tensors;
}

// verify_params_across_processes() compares sizes only, and does not take meta tensors. Give it
// tensors of the same sizes that take one element of memory.
std::vector<at::Tensor> shapes_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors = tensors_of(named);
  for (at::Tensor& tensor : tensors) {
    if (tensor.is_meta()) tensor = at::zeros({1}).expand(tensor.sizes());
  }
  return tensors;
}

// The message of the exception that the Reducer will throw for this future.
std::string error_of(const c10::ivalue::Future& future) {
  try {
    std::rethrow_exception(future.exception_ptr());
  } catch (const std::exception& error) {
    return message_of(error);
  }
}

}  // namespace

Ddp::Ddp(const Scenario::Strategy& options, StrategyParts parts)
    : options_(options),
      parts_(std::move(parts)),
      world_(parts_.groups.world()),
      rebuild_note_(parts_.recorder.note({}, "ddp.rebuild")),
      used_parameters_note_(parts_.recorder.note({}, "ddp.used_parameters")) {
  for (const auto& [name, parameter] : trained_parameters(*parts_.model)) {
    names_.emplace(parameter.unsafeGetTensorImpl(), name);
  }
}

void Ddp::start() {
  {
    const NoteScope scope(parts_.recorder, parts_.recorder.note({}, "ddp.verify_params"));
    c10d::verify_params_across_processes(world_, shapes_of(trained_parameters(*parts_.model)),
                                         std::nullopt);
  }
  // Verify, broadcast everything once, and prepare the broadcast of buffers that every forward
  // needs.
  NamedTensors state = named_parameters(*parts_.model);
  for (auto& buffer : named_buffers(*parts_.model)) state.push_back(std::move(buffer));
  broadcast(prepare_broadcast(state, "ddp.init"));
  buffers_ = prepare_broadcast(named_buffers(*parts_.model), "ddp.buffers");
  make_reducer();
}

void Ddp::make_reducer() {
  const NamedTensors named = trained_parameters(*parts_.model);
  const BucketLimits limits = {bytes_of_mebibytes(options_.first_bucket_mb),
                               bytes_of_mebibytes(options_.bucket_cap_mb)};
  // The first iteration: one bucket of any size; see the header.
  std::vector<std::size_t> sizes = {
      static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())};
  if (options_.find_unused_parameters) {
    sizes = {static_cast<std::size_t>(limits.first), static_cast<std::size_t>(limits.other)};
  }
  const std::vector<bool> not_sparse(named.size(), false);
  auto buckets =
      std::get<0>(c10d::compute_bucket_assignment_by_size(tensors_of(named), sizes, not_sparse));
  // Gradients arrive in about the reverse order of the parameters.
  std::reverse(buckets.begin(), buckets.end());
  const auto hook = [this](c10d::GradBucket& bucket) { return reduce(bucket); };
  const MemoryScope buckets_memory(MemoryPhase::communication);
  const auto make = named.front().second.is_meta() ? make_meta_reducer : make_real_reducer;
  reducer_ = make(options_, named, std::move(buckets), limits, world_, hook);
}

void Ddp::before_forward(Pass pass) {
  launched_.clear();
  if (reduces(pass)) reducer_->prepare_for_forward();
  {
    // The order of the gradients of the previous step caused this rebuild, so it is recorded as a
    // call of that step: the current batch has nothing to do with it.
    std::int32_t& step = parts_.recorder.context().step;
    const std::int32_t now = std::exchange(step, std::max(step - 1, 0));
    const NoteScope scope(parts_.recorder, rebuild_note_);
    const MemoryScope buckets_memory(MemoryPhase::communication);
    if (reducer_->rebuild_buckets()) bucket_notes_.clear();
    step = now;
  }
  if (buffers_are_due_ && options_.broadcast_buffers) broadcast(buffers_);
  buffers_are_due_ = reduces(pass);
}

Ddp::Broadcast Ddp::prepare_broadcast(const NamedTensors& tensors, const char* tag) {
  Broadcast broadcast;
  for (const auto& entry : tensors) broadcast.values.push_back(entry.second.detach());
  // broadcast_coalesced splits the list with this same function and makes one call per part.
  const auto parts =
      std::get<0>(c10d::compute_bucket_assignment_by_size(broadcast.values, {kBroadcastBytes}));
  for (const auto& part : parts) {
    std::vector<std::string> names;
    for (const std::size_t i : part) names.push_back(tensors[i].first);
    broadcast.notes.push_back(parts_.recorder.note(names, tag));
  }
  return broadcast;
}

void Ddp::broadcast(const Broadcast& what) {
  const NoteScope scope(parts_.recorder, {});
  parts_.recorder.context().coming.assign(what.notes.begin(), what.notes.end());
  c10d::broadcast_coalesced(world_, what.values, kBroadcastBytes, 0);
}

void Ddp::backward(const at::Tensor& loss, Pass pass) {
  // The hook sets the notes of the buckets. The only other call that the Reducer makes during
  // backward is the all-reduce of the map of used parameters.
  const NoteScope scope(parts_.recorder, used_parameters_note_);
  if (reduces(pass)) {
    std::vector<at::Tensor> outputs;
    if (options_.find_unused_parameters) outputs.push_back(loss);
    reducer_->prepare_for_backward(outputs);
  }
  if (options_.static_graph && !std::exchange(graph_is_known_, true)) {
    // Like DistributedDataParallel's _DDPSink: reduces when all gradients have arrived. It does not
    // ask whether this backward reduces at all.
    loss.register_hook([this](const at::Tensor&) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [this] { reducer_->delay_all_reduce(); });
    });
  }
  loss.backward();
}

c10::intrusive_ptr<c10::ivalue::Future> Ddp::reduce(c10d::GradBucket& bucket) {
  const at::Tensor whole = bucket.getBufferRef();
  if (parts_.watch != nullptr && parts_.watch->on()) {
    const std::vector<at::Tensor> parameters = bucket.getParameters();
    const std::vector<at::Tensor> gradients = bucket.getGradients();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parts_.watch->local_gradient(names_.at(parameters[i].unsafeGetTensorImpl()), gradients[i]);
    }
  }
  const MemoryScope narrowed_memory(MemoryPhase::communication);
  // The Reducer's scaling without a hook: multiply by the reciprocal before summing.
  whole.mul_(1.0 / parts_.groups.who().world_size);
  using Compression = Scenario::Strategy::Compression;
  const bool narrow = options_.compression != Compression::none;
  std::vector<at::Tensor> buffer = {
      narrow ? whole.to(options_.compression == Compression::float16 ? at::kHalf : at::kBFloat16)
             : whole};
  c10::intrusive_ptr<c10d::Work> work;
  {
    const NoteScope scope(parts_.recorder, bucket_note(bucket));
    work = world_->allreduce(buffer);
  }
  auto future = work->getFuture();
  if (narrow) {
    future = future->then(
        [whole, narrowed = buffer.front()](c10::ivalue::Future& sent) -> c10::IValue {
          if (sent.hasError()) std::rethrow_exception(sent.exception_ptr());
          whole.copy_(narrowed);
          return std::vector<at::Tensor>{whole};
        },
        c10::ListType::create(c10::TensorType::get()));
  }
  // The Work is null or of another type where calls are not recorded.
  if (const auto* recorded = dynamic_cast<const RecordingWork*>(work.get())) {
    if (const auto call = recorded->call_in(parts_.recorder)) {
      launched_.push_back({*call, work, future});
    }
  }
  if (bucket.isLast()) {
    // Runs before the Reducer's final callback, which it queues after the last bucket.
    torch::autograd::Engine::get_default_engine().queue_callback([this] { wait_for_buckets(); });
  }
  return future;
}

const CallNote& Ddp::bucket_note(const c10d::GradBucket& bucket) {
  const std::size_t index = bucket.getIndex();
  if (const auto known = bucket_notes_.find(index); known != bucket_notes_.end()) {
    return known->second;
  }
  std::vector<std::string> names;
  for (const at::Tensor& parameter : bucket.getParameters()) {
    names.push_back(names_.at(parameter.unsafeGetTensorImpl()));
  }
  const auto note = parts_.recorder.note(names, c10::str("ddp.bucket.", index, parts_.average));
  return bucket_notes_.emplace(index, note).first->second;
}

// The Reducer waits for the buckets' futures, in order, where nothing can observe it. Waiting for
// the same futures just before records when the rank blocks and when it continues. Errors are left
// for the Reducer to throw. On a device that queues calls, the futures are complete at once, and
// the rank's next kernels are queued after the calls (synchronize()).
void Ddp::wait_for_buckets() {
  for (const Launched& bucket : launched_) {
    {
      const Recorder::Timed timed(parts_.recorder);
      parts_.recorder.wait(bucket.call);
    }
    if (parts_.groups.device().queues()) bucket.work->synchronize();
    bucket.future->wait();
    if (bucket.future->hasError()) {
      parts_.recorder.wait_failed(bucket.call, error_of(*bucket.future));
      break;
    }
    const Recorder::Timed timed(parts_.recorder);
    parts_.recorder.waited(bucket.call);
  }
  launched_.clear();
}

}  // namespace lockstep::runtime
