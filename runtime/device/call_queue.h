// CallQueue: carries out the calls of one rank in the background, in the order in which a GPU would
// carry out NCCL's. For tests: programs then hang, match and complete as on GPUs, without one.
//
// It models CUDA's streams as c10d's NCCL backend uses them:
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

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "runtime/record/device_time.h"

namespace lockstep::runtime {

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
  static std::unique_ptr<at::ObserverContext> look(const at::RecordFunction& function);
  // Blocks the host until no call in flight uses any of the storages.
  void settle(const std::vector<const c10::StorageImpl*>& storages);
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

}  // namespace lockstep::runtime
