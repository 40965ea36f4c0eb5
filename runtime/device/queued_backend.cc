#include "runtime/device/queued_backend.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include "base/check.h"
#include "runtime/device/call_queue.h"

namespace lockstep::runtime {
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
  void synchronize() override { queue_->queue_after(call_); }
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

}  // namespace

QueuedBackend::QueuedBackend(c10::intrusive_ptr<c10d::Backend> gloo, std::string group,
                             std::shared_ptr<CallQueue> queue)
    : ForwardingBackend(gloo->getRank(), gloo->getSize()),
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
  queue_->queue_after(call);
  return {};
}

void QueuedBackend::startCoalescing() { batch_.emplace(); }

QueuedBackend::WorkPtr QueuedBackend::endCoalescing() {
  QueuedBatch batch = *std::exchange(batch_, std::nullopt);
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

QueuedBackend::WorkPtr QueuedBackend::make(const BackendCall& call, const Forward& forward) {
  Tensors tensors = call.in.vec();
  tensors.insert(tensors.end(), call.out.begin(), call.out.end());
  TORCH_CHECK(call.op != trace::Op::recv_any, "NCCL receives from a named rank only");
  // NCCL's messages give a Work whether they are asked for one or not.
  const bool is_message = trace::is_point_to_point(call.op);
  WorkPtr work = queue(call.type, is_message || call.is_async, std::move(tensors),
                       forward.later(gloo_), is_message ? pair_with(call.peer) : std::string());
  if (call.op == trace::Op::barrier && !call.is_async && !batch_) queue_->synchronise();
  return work;
}

bool queue_has_begun(c10d::Work& work) {
  const auto* queued = dynamic_cast<const QueuedWork*>(&work);
  return queued != nullptr && queued->has_begun();
}

namespace {

class QueuedCpu final : public Device {
 public:
  explicit QueuedCpu(CallQueue::Order order) : queue_(std::make_shared<CallQueue>(order)) {}

  c10::Device torch_device() const override { return at::kCPU; }
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

}  // namespace lockstep::runtime
