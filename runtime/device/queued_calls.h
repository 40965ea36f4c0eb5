// Calls that are queued on the CPU as on a GPU. For tests: programs then hang, match and complete
// as on GPUs, without one. CallQueue carries out the calls of one rank, QueuedBackend gives it
// those of a group.
//
// The queue models CUDA's streams as c10d's NCCL backend uses them:
//
//   - calls of one stream (a group's; for messages, a pair's) run one after the other;
//   - a call, whatever its stream, first waits for the rank's own queue (CUDA: the current stream):
//     it runs once everything that was in it when the call was made is complete. A synchronous call
//     joins the own queue at once, an asynchronous one when it is waited for, which does not block
//     the host;
//   - with Order::one_at_a_time all calls of the rank are one stream, as when kernels of different
//     communicators keep each other from running.
//
// Computations are not queued, because this is a CPU. Instead the host blocks when an operation
// uses a tensor that a call in flight reads or writes, and when it reads a value (`item`), which on
// a GPU waits for the whole queue. So results are always correct; and between these points the host
// runs ahead of its calls as on a GPU, though not as far.
//
// A call whose transport fails (a dead peer) never completes, as on a GPU. Errors that the
// transport throws when a call starts are thrown by every later use of the queue.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "runtime/device/device.h"
#include "runtime/groups/forwarding_backend.h"
#include "runtime/record/device_time.h"

namespace lockstep::runtime {

// Carries out the calls of one rank in the background, in the order in which a GPU would carry out
// NCCL's.
class CallQueue {
 public:
  enum class Order { per_stream, one_at_a_time };

  // For the calling thread: observes its operations for as long as it lives. That thread makes all
  // calls, and destroys the queue.
  explicit CallQueue(Order order);
  ~CallQueue();  // calls in flight are abandoned
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  struct Call;
  using CallPtr = std::shared_ptr<Call>;
  // Gives the call to the transport; the queue waits for the returned Work.
  using Start = std::function<c10::intrusive_ptr<c10d::Work>()>;

  // put(), queue_after() and mark() throw earlier errors of the transport. put() appends a call to
  // `stream`, after everything in the rank's own queue. `tensors`: those that it reads or writes.
  CallPtr put(const std::string& stream, std::vector<at::Tensor> tensors, Start start);
  // What is queued next in the rank's own queue runs after the call.
  void queue_after(const CallPtr& call);
  // The end of the rank's own queue.
  std::shared_ptr<const QueueMark> mark() const;

  // Blocks the host until the rank's own queue is empty.
  void synchronise();
  // `scope()` is called before the host blocks; its result lives until the host continues.
  void when_host_blocks(std::function<std::shared_ptr<void>()> scope) { scope_ = std::move(scope); }

  static bool has_begun(const Call& call);
  static bool is_complete(const Call& call);

 private:
  // LibTorch calls it before every operation of the thread.
  static std::unique_ptr<at::ObserverContext> before_operation(const at::RecordFunction& function);
  // Blocks the host until no call in flight uses any of the storages.
  void wait_for_calls_on(const std::vector<const c10::StorageImpl*>& storages);
  void block_until(const std::function<bool()>& done);

  struct State;
  struct Stream;
  class Mark;
  static void carry_out(const std::shared_ptr<State>& state, Stream& stream);

  // Shared with the threads, because a thread stuck in its transport outlives the queue.
  std::shared_ptr<State> state_;
  Order order_;
  std::function<std::shared_ptr<void>()> scope_;
  at::CallbackHandle handle_;
};

// QueuedBackend: Gloo with the behaviour of c10d's NCCL backend.
//
//   - a call with asyncOp false returns no Work: what the rank does next runs after it;
//   - a Work's wait() does not block the host, and its future is complete at once; only a barrier's
//     wait blocks;
//   - messages of a pair of ranks have their own stream, apart from the group's collectives, and
//     match in order;
//   - calls between startCoalescing and endCoalescing are one call.
//
// One thing stays Gloo's: if the sizes of a call differ over the ranks, it ends the process.

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

// The CPU, with the calls of all its groups queued as on a GPU.
//
// For the calling thread, which trains. `order` must not be QueuedCalls::no.
std::unique_ptr<Device> queued_device(QueuedCalls order);

}  // namespace lockstep::runtime
