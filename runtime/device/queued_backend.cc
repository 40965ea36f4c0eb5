
#include "runtime/device/queued_backend.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include "base/check.h"
#include "runtime/device/call_queue.h"

// Torch 2.15 has new names for the operations on whole tensors; 2.11 has only these.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace lockstep {
namespace {

class QueuedWork : public c10d::Work {
 public:
  QueuedWork(c10d::OpType op, std::vector<at::Tensor> tensors, std::shared_ptr<CallQueue> queue,
             CallQueue::CallPtr call)
      : Work(-1, op),
        tensors_(std::move(tensors)),
        queue_(std::move(queue)),
        call_(std::move(call)) {}

  bool has_begun() const { return CallQueue::has_begun(*call_); }
  bool isCompleted() override { return CallQueue::is_complete(*call_); }
  bool isSuccess() const override { return CallQueue::is_complete(*call_); }
  std::exception_ptr exception() const override { return nullptr; }
  std::vector<at::Tensor> result() override { return tensors_; }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    if (opType_ == c10d::OpType::BARRIER) queue_->synchronise();
    return true;
  }
  void synchronize() override { queue_->come_behind(call_); }
  void blockCurrentStream() override { synchronize(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(tensors_));
    return future;
  }

 private:
  std::vector<at::Tensor> tensors_;
  std::shared_ptr<CallQueue> queue_;
  CallQueue::CallPtr call_;
};

using Tensors = QueuedBackend::Tensors;

Tensors together(const Tensors& some, const QueuedBackend::TensorLists& lists) {
  Tensors all = some;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace

QueuedBackend::QueuedBackend(c10::intrusive_ptr<c10d::Backend> gloo, std::string group,
                             std::shared_ptr<CallQueue> queue)
    : Backend(gloo->getRank(), gloo->getSize()),
      gloo_(std::move(gloo)),
      group_(std::move(group)),
      queue_(std::move(queue)) {}

std::string QueuedBackend::pair_with(int peer) const {
  const auto [low, high] = std::minmax({getRank(), peer});
  std::string pair = "/";
  pair += std::to_string(low);
  pair += ':';
  pair += std::to_string(high);
  return pair;
}

QueuedBackend::WorkPtr QueuedBackend::queue(c10d::OpType op, bool is_async, Tensors tensors,
                                            CallQueue::Start start, const std::string& stream) {
  if (batch_) {
    batch_->starts.push_back(std::move(start));
    batch_->tensors.insert(batch_->tensors.end(), tensors.begin(), tensors.end());
    batch_->is_async = batch_->is_async || is_async;
    return {};
  }
  const auto call = queue_->put(group_ + stream, tensors, std::move(start));
  if (is_async) return c10::make_intrusive<QueuedWork>(op, std::move(tensors), queue_, call);
  queue_->come_behind(call);
  return {};
}

void QueuedBackend::startCoalescing() { batch_.emplace(); }

QueuedBackend::WorkPtr QueuedBackend::endCoalescing() {
  Batch batch = *std::exchange(batch_, std::nullopt);
  if (batch.starts.empty()) return {};
  // All are begun before one of them is waited for; the last is waited for by the queue.
  auto start = [starts = std::move(batch.starts)]() -> WorkPtr {
    std::vector<WorkPtr> works;
    for (const auto& each : starts) works.push_back(each());
    for (std::size_t i = 0; i + 1 < works.size(); ++i) works[i]->wait();
    return works.back();
  };
  return queue(c10d::OpType::COALESCED, batch.is_async, std::move(batch.tensors), std::move(start));
}

QueuedBackend::WorkPtr QueuedBackend::broadcast(Tensors& tensors,
                                                const c10d::BroadcastOptions& opts) {
  return queue(
      c10d::OpType::BROADCAST, opts.asyncOp, tensors,
      [gloo = gloo_, all = tensors, opts]() mutable { return gloo->broadcast(all, opts); });
}

QueuedBackend::WorkPtr QueuedBackend::allreduce(Tensors& tensors,
                                                const c10d::AllreduceOptions& opts) {
  return queue(
      c10d::OpType::ALLREDUCE, opts.asyncOp, tensors,
      [gloo = gloo_, all = tensors, opts]() mutable { return gloo->allreduce(all, opts); });
}

QueuedBackend::WorkPtr QueuedBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  return queue(c10d::OpType::REDUCE, opts.asyncOp, tensors,
               [gloo = gloo_, all = tensors, opts]() mutable { return gloo->reduce(all, opts); });
}

QueuedBackend::WorkPtr QueuedBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& opts) {
  return queue(c10d::OpType::ALLGATHER, opts.asyncOp, together(inputs, outputs),
               [gloo = gloo_, out = outputs, in = inputs, opts]() mutable {
                 return gloo->allgather(out, in, opts);
               });
}

QueuedBackend::WorkPtr QueuedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::AllgatherOptions& opts) {
  return queue(c10d::OpType::_ALLGATHER_BASE, opts.asyncOp, {output, input},
               [gloo = gloo_, out = output, in = input, opts]() mutable {
                 return gloo->_allgather_base(out, in, opts);
               });
}

QueuedBackend::WorkPtr QueuedBackend::gather(TensorLists& outputs, Tensors& inputs,
                                             const c10d::GatherOptions& opts) {
  return queue(c10d::OpType::GATHER, opts.asyncOp, together(inputs, outputs),
               [gloo = gloo_, out = outputs, in = inputs, opts]() mutable {
                 return gloo->gather(out, in, opts);
               });
}

QueuedBackend::WorkPtr QueuedBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                              const c10d::ScatterOptions& opts) {
  return queue(c10d::OpType::SCATTER, opts.asyncOp, together(outputs, inputs),
               [gloo = gloo_, out = outputs, in = inputs, opts]() mutable {
                 return gloo->scatter(out, in, opts);
               });
}

QueuedBackend::WorkPtr QueuedBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                     const c10d::ReduceScatterOptions& opts) {
  return queue(c10d::OpType::REDUCE_SCATTER, opts.asyncOp, together(outputs, inputs),
               [gloo = gloo_, out = outputs, in = inputs, opts]() mutable {
                 return gloo->reduce_scatter(out, in, opts);
               });
}

QueuedBackend::WorkPtr QueuedBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                           const c10d::ReduceScatterOptions& opts) {
  return queue(c10d::OpType::_REDUCE_SCATTER_BASE, opts.asyncOp, {output, input},
               [gloo = gloo_, out = output, in = input, opts]() mutable {
                 return gloo->_reduce_scatter_base(out, in, opts);
               });
}

QueuedBackend::WorkPtr QueuedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                    std::vector<std::int64_t>& output_splits,
                                                    std::vector<std::int64_t>& input_splits,
                                                    const c10d::AllToAllOptions& opts) {
  return queue(c10d::OpType::ALLTOALL_BASE, opts.asyncOp, {output, input},
               [gloo = gloo_, out = output, in = input, to = output_splits, from = input_splits,
                opts]() mutable { return gloo->alltoall_base(out, in, to, from, opts); });
}

QueuedBackend::WorkPtr QueuedBackend::barrier(const c10d::BarrierOptions& opts) {
  auto work = queue(c10d::OpType::BARRIER, opts.asyncOp, {},
                    [gloo = gloo_, opts] { return gloo->barrier(opts); });
  if (!opts.asyncOp && !batch_) queue_->synchronise();
  return work;
}

QueuedBackend::WorkPtr QueuedBackend::send(Tensors& tensors, int destination, int tag) {
  return queue(
      c10d::OpType::SEND, /*is_async=*/true, tensors,
      [gloo = gloo_, all = tensors, destination, tag]() mutable {
        return gloo->send(all, destination, tag);
      },
      pair_with(destination));
}

QueuedBackend::WorkPtr QueuedBackend::recv(Tensors& tensors, int source, int tag) {
  return queue(
      c10d::OpType::RECV, /*is_async=*/true, tensors,
      [gloo = gloo_, all = tensors, source, tag]() mutable { return gloo->recv(all, source, tag); },
      pair_with(source));
}

bool queue_has_begun(c10d::Work& work) {
  const auto* queued = dynamic_cast<const QueuedWork*>(&work);
  return queued != nullptr && queued->has_begun();
}

namespace {

class QueuedCpu final : public Device {
 public:
  explicit QueuedCpu(CallQueue::Order order) : queue_(std::make_shared<CallQueue>(order)) {}

  c10::Device place() const override { return at::kCPU; }
  at::Tensor bring(const at::Tensor& tensor) const override { return tensor; }

  c10::intrusive_ptr<c10d::Backend> around_gloo(c10::intrusive_ptr<c10d::Backend> gloo,
                                                const std::string& group) const override {
    return c10::make_intrusive<QueuedBackend>(std::move(gloo), group, queue_);
  }
  std::function<bool(c10d::Work&)> begun() const override { return queue_has_begun; }
  bool queues() const override { return true; }
  void when_host_blocks(HostBlocks scope) override { queue_->when_host_blocks(std::move(scope)); }
  std::shared_ptr<const QueueMark> mark() const override { return queue_->mark(); }

 private:
  std::shared_ptr<CallQueue> queue_;
};

}  // namespace

std::unique_ptr<Device> queued_device(QueuedCalls order) {
  LOCKSTEP_CHECK(order != QueuedCalls::no, "a queue without an order");
  return std::make_unique<QueuedCpu>(order == QueuedCalls::one_at_a_time
                                         ? CallQueue::Order::one_at_a_time
                                         : CallQueue::Order::per_stream);
}

}  // namespace lockstep
