// QueuedBackend: Gloo with the behaviour of c10d's NCCL backend. For tests (call_queue.h).
//
//   - a call with asyncOp false returns no Work: what the rank does next runs after it;
//   - a Work's wait() does not block the host, and its future is complete at once; only a barrier's
//     wait blocks;
//   - messages of a pair of ranks have their own stream, apart from the group's collectives, and
//     match in order;
//   - calls between startCoalescing and endCoalescing are one call.
//
// One thing stays Gloo's: if the sizes of a call differ over the ranks, it ends the process.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device/call_queue.h"
#include "runtime/device/device.h"
#include "runtime/groups/forwarding_backend.h"

namespace lockstep::runtime {

// Calls between startCoalescing and endCoalescing.
struct QueuedBatch {
  std::vector<CallQueue::Start> starts;
  std::vector<at::Tensor> tensors;
  bool is_async = false;
};

class QueuedBackend : public ForwardingBackend {
 public:
  // `gloo` carries the calls of the group of that name; `queue` is this rank's, for all its groups.
  QueuedBackend(c10::intrusive_ptr<c10d::Backend> gloo, std::string group,
                std::shared_ptr<CallQueue> queue);

  const std::string getBackendName() const override { return gloo_->getBackendName(); }
  void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }
  bool supportsCoalescing() const override { return true; }

  void startCoalescing() override;
  WorkPtr endCoalescing() override;

 private:
  WorkPtr make(const BackendCall& call, const Forward& forward) override;
  // `stream`: empty for the group's own. Returns null for a synchronous call.
  WorkPtr queue(c10d::OpType op, bool is_async, Tensors tensors, CallQueue::Start start,
                const std::string& stream = {});
  std::string pair_with(int peer) const;

  c10::intrusive_ptr<c10d::Backend> gloo_;
  const std::string group_;
  std::shared_ptr<CallQueue> queue_;
  std::optional<QueuedBatch> batch_;  // since startCoalescing
};

// Whether the queue has begun the call of a Work that came from a QueuedBackend.
bool queue_has_begun(c10d::Work& work);

// The CPU, with the calls of all its groups queued as on a GPU (call_queue.h). For tests.

// For the calling thread, which trains. `order` must not be QueuedCalls::no.
std::unique_ptr<Device> queued_device(QueuedCalls order);

}  // namespace lockstep::runtime
