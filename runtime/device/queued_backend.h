// QueuedBackend: Gloo with the manners of c10d's NCCL backend. For tests (call_queue.h).
//
//   - a call with asyncOp false returns no Work: what the rank does next comes behind it;
//   - a Work's wait() does not block the host, and its future is complete at once; only a barrier's
//     wait does block;
//   - messages of a pair of ranks have a stream of their own, beside that of the group's
//     collectives, and are matched in their order;
//   - calls between startCoalescing and endCoalescing are one.
//
// One thing is Gloo's: where the sizes of a call differ over the ranks, it ends the process.
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
  // `gloo` carries the calls of the group of that name; `queue`: this rank's, of all its groups.
  QueuedBackend(c10::intrusive_ptr<c10d::Backend> gloo, std::string group,
                std::shared_ptr<CallQueue> queue);

  const std::string getBackendName() const override { return gloo_->getBackendName(); }
  void setTimeout(std::chrono::milliseconds timeout) override { gloo_->setTimeout(timeout); }
  bool supportsCoalescing() const override { return true; }

  void startCoalescing() override;
  WorkPtr endCoalescing() override;

 private:
  WorkPtr make(const BackendCall& call, const Forward& forward) override;
  // `stream`: beside the group's own; empty: that one. Null where the call is synchronous.
  WorkPtr queue(c10d::OpType op, bool is_async, Tensors tensors, CallQueue::Start start,
                const std::string& stream = {});
  std::string pair_with(int peer) const;

  c10::intrusive_ptr<c10d::Backend> gloo_;
  const std::string group_;
  std::shared_ptr<CallQueue> queue_;
  std::optional<QueuedBatch> batch_;  // since startCoalescing
};

// Whether the queue has begun the call of a work that a QueuedBackend gave.
bool queue_has_begun(c10d::Work& work);

// The CPU, with the calls of all its groups queued as on a GPU (call_queue.h). For tests.

// For the calling thread, which trains. `order`: not QueuedCalls::no.
std::unique_ptr<Device> queued_device(QueuedCalls order);

}  // namespace lockstep::runtime
