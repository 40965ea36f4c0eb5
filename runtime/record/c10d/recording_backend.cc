#include "runtime/record/c10d/recording_backend.h"

#include <utility>

#include "base/check.h"
#include "runtime/record/c10d/recording_work.h"

namespace lockstep {
namespace {

std::vector<at::Tensor> flattened(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace

RecordingBackend::RecordingBackend(c10::intrusive_ptr<c10d::Backend> inner, Recorder& recorder,
                                   Group group, std::optional<OnDevice> device)
    : Backend(inner->getRank(), inner->getSize()),
      inner_(std::move(inner)),
      recorder_(recorder),
      device_(std::move(device)),
      group_(recorder, group.name, std::move(group.ranks), group.description) {
  LOCKSTEP_CHECK(group_.size() == getSize(), "a group lists all its members");
}

RecordingBackend::WorkPtr RecordingBackend::record(RecordedCall call,
                                                   const std::function<WorkPtr()>& forward) {
  if (device_ && call.op != Op::barrier) call.is_async = true;
  const std::uint32_t id = group_.issue(call);
  if (coalesced_) {
    coalesced_->push_back(id);
    return forward();
  }
  return make({id}, forward);
}

RecordingBackend::WorkPtr RecordingBackend::make(const std::vector<std::uint32_t>& calls,
                                                 const std::function<WorkPtr()>& forward) {
  const auto before = device_ ? device_->mark() : nullptr;
  WorkPtr work;
  try {
    if (device_) {
      device_->time.leave_out([&] { work = forward(); });
    } else {
      work = forward();
    }
  } catch (const std::exception& error) {
    for (const std::uint32_t call : calls) recorder_.complete(call, message_of(error));
    if (!calls.empty()) recorder_.raised(message_of(error), calls.front());
    recorder_.returned();
    throw;
  }
  if (work) {
    // All of a batch complete with its one work.
    for (const std::uint32_t call : calls) {
      work = c10::make_intrusive<RecordingWork>(std::move(work), recorder_, call,
                                                device_ ? &device_->watch : nullptr,
                                                device_ ? &device_->time : nullptr);
    }
  } else {
    LOCKSTEP_CHECK(device_.has_value(), "a call without a Work on a backend that queues nothing");
    const auto behind = device_->mark();
    for (const std::uint32_t call : calls) device_->watch.follow(before, behind, call);
  }
  recorder_.returned();
  return work;
}

void RecordingBackend::startCoalescing() {
  inner_->startCoalescing();
  coalesced_.emplace();
}

RecordingBackend::WorkPtr RecordingBackend::endCoalescing() {
  const std::vector<std::uint32_t> calls = *std::exchange(coalesced_, std::nullopt);
  return make(calls, [&] { return inner_->endCoalescing(); });
}

RecordingBackend::WorkPtr RecordingBackend::broadcast(Tensors& tensors,
                                                      const c10d::BroadcastOptions& opts) {
  return record({.op = Op::broadcast,
                 .in = tensors,
                 .out = tensors,
                 .root = opts.rootRank,
                 .is_async = opts.asyncOp},
                [&] { return inner_->broadcast(tensors, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::allreduce(Tensors& tensors,
                                                      const c10d::AllreduceOptions& opts) {
  return record({.op = Op::all_reduce,
                 .in = tensors,
                 .out = tensors,
                 .reduce = &opts.reduceOp,
                 .is_async = opts.asyncOp},
                [&] { return inner_->allreduce(tensors, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::allreduce_sparse(Tensors& tensors,
                                                             const c10d::AllreduceOptions& opts) {
  return record({.op = Op::all_reduce,
                 .in = tensors,
                 .out = tensors,
                 .reduce = &opts.reduceOp,
                 .is_async = opts.asyncOp},
                [&] { return inner_->allreduce_sparse(tensors, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return record({.op = Op::all_reduce,
                 .in = tensors,
                 .out = tensors,
                 .reduce = &opts.reduceOp,
                 .is_async = opts.asyncOp},
                [&] { return inner_->allreduce_coalesced(tensors, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::reduce(Tensors& tensors,
                                                   const c10d::ReduceOptions& opts) {
  return record({.op = Op::reduce,
                 .in = tensors,
                 .out = tensors,
                 .reduce = &opts.reduceOp,
                 .root = opts.rootRank,
                 .is_async = opts.asyncOp},
                [&] { return inner_->reduce(tensors, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  const Tensors out = flattened(outputs);
  return record({.op = Op::all_gather, .in = inputs, .out = out, .is_async = opts.asyncOp},
                [&] { return inner_->allgather(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::AllgatherOptions& opts) {
  return record(
      {.op = Op::all_gather_into_tensor, .in = input, .out = output, .is_async = opts.asyncOp},
      [&] { return inner_->_allgather_base(output, input, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const Tensors out = flattened(outputs);
  return record({.op = Op::all_gather, .in = inputs, .out = out, .is_async = opts.asyncOp},
                [&] { return inner_->allgather_coalesced(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  return record(
      {.op = Op::all_gather_into_tensor, .in = inputs, .out = outputs, .is_async = opts.asyncOp},
      [&] { return inner_->allgather_into_tensor_coalesced(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::gather(TensorLists& outputs, Tensors& inputs,
                                                   const c10d::GatherOptions& opts) {
  const Tensors out = flattened(outputs);
  return record(
      {.op = Op::gather, .in = inputs, .out = out, .root = opts.rootRank, .is_async = opts.asyncOp},
      [&] { return inner_->gather(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                    const c10d::ScatterOptions& opts) {
  const Tensors in = flattened(inputs);
  return record({.op = Op::scatter,
                 .in = in,
                 .out = outputs,
                 .root = opts.rootRank,
                 .is_async = opts.asyncOp},
                [&] { return inner_->scatter(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                           const c10d::ReduceScatterOptions& opts) {
  const Tensors in = flattened(inputs);
  return record({.op = Op::reduce_scatter,
                 .in = in,
                 .out = outputs,
                 .reduce = &opts.reduceOp,
                 .is_async = opts.asyncOp},
                [&] { return inner_->reduce_scatter(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  return record({.op = Op::reduce_scatter_tensor,
                 .in = input,
                 .out = output,
                 .reduce = &opts.reduceOp,
                 .is_async = opts.asyncOp},
                [&] { return inner_->_reduce_scatter_base(output, input, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  return record({.op = Op::reduce_scatter_tensor,
                 .in = inputs,
                 .out = outputs,
                 .reduce = &opts.reduceOp,
                 .is_async = opts.asyncOp},
                [&] { return inner_->reduce_scatter_tensor_coalesced(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                          std::vector<std::int64_t>& output_splits,
                                                          std::vector<std::int64_t>& input_splits,
                                                          const c10d::AllToAllOptions& opts) {
  return record(
      {.op = Op::all_to_all_single,
       .in = input,
       .out = output,
       .is_async = opts.asyncOp,
       .splits_in = &input_splits,
       .splits_out = &output_splits},
      [&] { return inner_->alltoall_base(output, input, output_splits, input_splits, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                     const c10d::AllToAllOptions& opts) {
  return record({.op = Op::all_to_all, .in = inputs, .out = outputs, .is_async = opts.asyncOp},
                [&] { return inner_->alltoall(outputs, inputs, opts); });
}

RecordingBackend::WorkPtr RecordingBackend::barrier(const c10d::BarrierOptions& opts) {
  return record({.op = Op::barrier, .is_async = opts.asyncOp},
                [&] { return inner_->barrier(opts); });
}

void RecordingBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  const std::uint32_t id = group_.issue({.op = Op::barrier, .is_async = false});
  recorder_.wait(id);
  try {
    inner_->monitoredBarrier(opts, wait_all_ranks);
  } catch (const std::exception& error) {
    recorder_.complete(id, message_of(error));
    recorder_.wait_failed(id, message_of(error));
    throw;
  }
  recorder_.complete(id);
  recorder_.waited(id);
}

RecordingBackend::WorkPtr RecordingBackend::send(Tensors& tensors, int destination, int tag) {
  return record({.op = Op::send, .in = tensors, .peer = destination, .peer_tag = tag},
                [&] { return inner_->send(tensors, destination, tag); });
}

RecordingBackend::WorkPtr RecordingBackend::recv(Tensors& tensors, int source, int tag) {
  return record({.op = Op::recv, .out = tensors, .peer = source, .peer_tag = tag},
                [&] { return inner_->recv(tensors, source, tag); });
}

RecordingBackend::WorkPtr RecordingBackend::recvAnysource(Tensors& tensors, int tag) {
  return record({.op = Op::recv_any, .out = tensors, .peer_tag = tag},
                [&] { return inner_->recvAnysource(tensors, tag); });
}

}  // namespace lockstep
