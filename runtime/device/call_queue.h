// CallQueue: the calls of one rank, carried out in the background in the order in which a GPU would
// carry out NCCL's. For tests: what hangs, pairs and completes on GPUs then does so without one.
//
// The model is that of CUDA's streams, as c10d's NCCL backend uses them:
//
//   - calls of one stream (a group's; of messages, a pair's) run one after the other;
//   - the rank's own queue (CUDA: the current stream) is what a call comes behind when it is put,
//     whatever its stream: it runs once all of that is complete. A synchronous call becomes part of
//     it at once, an asynchronous one when it is waited for, which does not block the host;
//   - with Order::one_at_a_time all calls of the rank are one stream, as when kernels of different
//     communicators keep each other from running.
//
// What the rank computes is not queued: this is a CPU. Instead the host blocks where an operation
// uses a tensor that a call in flight reads or writes, and where it reads a value (`item`), which
// on a GPU waits for the whole queue. So the numbers are always right; and between these places the
// host runs ahead of its calls, as it does on a GPU, if not as far.
//
// A call whose transport fails (a peer that died) never completes, as on a GPU. What the transport
// refuses is thrown by every later use of the queue.
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

  // For the calling thread, whose operations it looks at as long as it lives. That thread makes all
  // calls, and destroys the queue.
  explicit CallQueue(Order order);
  ~CallQueue();  // what is in flight is given up
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  struct Call;
  using CallPtr = std::shared_ptr<Call>;
  // Gives the call to the transport; what comes back is waited for.
  using Start = std::function<c10::intrusive_ptr<c10d::Work>()>;

  // The first three throw what the transport refused before. Puts a call at the end of `stream`,
  // and behind the rank's own queue. `tensors`: what it reads or writes.
  CallPtr put(const std::string& stream, std::vector<at::Tensor> tensors, Start start);
  // What comes next in the rank's own queue comes behind the call.
  void come_behind(const CallPtr& call);
  // The end of the rank's own queue.
  std::shared_ptr<const QueueMark> mark() const;

  // Blocks the host until the rank's own queue is done.
  void synchronise();
  // `scope()` is asked for before the host blocks, and what it gives lives until it goes on.
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

  // Shared with the threads: one that its transport does not let go outlives the queue.
  std::shared_ptr<State> state_;
  Order order_;
  std::function<std::shared_ptr<void>()> scope_;
  at::CallbackHandle handle_;
};

}  // namespace lockstep::runtime
