#include "runtime/device/queued_device.h"

#include <utility>

#include "base/check.h"
#include "runtime/device/call_queue.h"
#include "runtime/device/queued_backend.h"

namespace lockstep {
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
