#include "runtime/device/queued_calls.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include "base/check.h"
#include "base/clock.h"
#include "runtime/record/c10d/recording_work.h"

namespace lockstep::runtime {

struct CallQueue::Call {
  Start start;
  std::vector<at::Tensor> tensors;    // kept alive until it is complete
  std::vector<CallPtr> predecessors;  // calls that must be complete before it runs
  std::atomic<bool> begun{false}, complete{false};
  trace::Nanos completed = 0;  // once it is

  bool uses(const c10::StorageImpl* storage) const {
    return std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
      return tensor.storage().unsafeGetStorageImpl() == storage;
    });
  }
};

struct CallQueue::Stream {
  std::deque<CallPtr> calls;
  std::thread thread;
  bool busy = false;  // in the transport, which may never return
};

struct CallQueue::State {
  std::mutex mutex;  // guards what follows, and the calls except their atomics
  std::condition_variable changed;
  bool stop = false;
  std::map<std::string, std::shared_ptr<Stream>> streams;
  std::vector<CallPtr> in_flight;
  std::vector<CallPtr> own;  // the rank's own queue: its last calls
  std::exception_ptr refused;
  std::atomic<std::size_t> count{0};  // of in_flight

  void throw_if_refused() {
    if (refused) std::rethrow_exception(refused);
  }
  void prune() {
    std::erase_if(own, [](const CallPtr& call) { return call->complete.load(); });
  }
};

namespace {

// The queue of the training thread, for the callback, which has no user argument.
thread_local CallQueue* queue_of_thread = nullptr;

void add_storages(const c10::IValue& value, std::vector<const c10::StorageImpl*>& out) {
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage()) {
      out.push_back(tensor.storage().unsafeGetStorageImpl());
    }
  };
  if (value.isTensor()) {
    add(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      if (tensor) add(*tensor);
    }
  }
}

}  // namespace

class CallQueue::Mark final : public QueueMark {
 public:
  Mark(std::shared_ptr<State> state, std::vector<CallPtr> before)
      : state_(std::move(state)), before_(std::move(before)) {}

  bool reached() const override {
    return std::all_of(before_.begin(), before_.end(),
                       [](const CallPtr& call) { return call->complete.load(); });
  }
  trace::Nanos since(const QueueMark& earlier) const override {
    return when() - dynamic_cast<const Mark&>(earlier).when();
  }

 private:
  trace::Nanos when() const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return reached(); });
    trace::Nanos last = made_;
    for (const CallPtr& call : before_) last = std::max(last, call->completed);
    return last;
  }

  std::shared_ptr<State> state_;
  std::vector<CallPtr> before_;
  trace::Nanos made_ = monotonic_nanos();
};

// Runs before every operation of the training thread. c10d's operators are skipped: put() orders
// them.
std::unique_ptr<at::ObserverContext> CallQueue::before_operation(
    const at::RecordFunction& function) {
  if (queue_of_thread == nullptr || queue_of_thread->state_->count == 0) return nullptr;
  const std::string_view name = function.name();
  if (name.starts_with("c10d::")) return nullptr;
  // item(): on a GPU it waits for the whole queue.
  if (name == "aten::_local_scalar_dense") queue_of_thread->synchronise();
  std::vector<const c10::StorageImpl*> storages;
  for (const c10::IValue& input : function.inputs()) add_storages(input, storages);
  queue_of_thread->wait_for_calls_on(storages);
  return nullptr;
}

CallQueue::CallQueue(Order order)
    : state_(std::make_shared<State>()),
      order_(order),
      handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(before_operation)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}))) {
  LOCKSTEP_CHECK(queue_of_thread == nullptr, "a thread has one queue");
  queue_of_thread = this;
}

CallQueue::~CallQueue() {
  at::removeCallback(handle_);
  queue_of_thread = nullptr;
  // A thread whose transport never returns cannot be joined: it is detached, and keeps the state.
  std::vector<std::thread> idle;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
    for (auto& [name, stream] : state_->streams) {
      if (stream->busy) {
        stream->thread.detach();
      } else {
        idle.push_back(std::move(stream->thread));
      }
    }
    state_->changed.notify_all();
  }
  for (std::thread& thread : idle) thread.join();
}

CallQueue::CallPtr CallQueue::put(const std::string& stream, std::vector<at::Tensor> tensors,
                                  Start start) {
  const auto call = std::make_shared<Call>();
  call->start = std::move(start);
  call->tensors = std::move(tensors);
  const std::lock_guard lock(state_->mutex);
  state_->throw_if_refused();
  state_->prune();
  // As a CUDA event on the current stream: what joins that queue later does not hold the call up.
  call->predecessors = state_->own;
  state_->in_flight.push_back(call);
  state_->count = state_->in_flight.size();
  auto& stream_of = state_->streams[order_ == Order::one_at_a_time ? std::string() : stream];
  if (!stream_of) {
    stream_of = std::make_shared<Stream>();
    stream_of->thread = std::thread([state = state_, own = stream_of] { carry_out(state, *own); });
  }
  stream_of->calls.push_back(call);
  state_->changed.notify_all();
  return call;
}

void CallQueue::carry_out(const std::shared_ptr<State>& state, Stream& stream) {
  // As on a device: autograd does not see what a call writes.
  const at::NoGradGuard no_grad;
  std::unique_lock lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return state->stop || !stream.calls.empty(); });
    if (state->stop) return;
    const CallPtr call = stream.calls.front();
    state->changed.wait(lock, [&] {
      return state->stop ||
             std::all_of(call->predecessors.begin(), call->predecessors.end(),
                         [](const CallPtr& other) { return other->complete.load(); });
    });
    if (state->stop) return;
    call->begun = true;
    stream.busy = true;
    // The transport may block, so it is called without the mutex.
    lock.unlock();
    std::exception_ptr refused;
    bool lost = false;
    c10::intrusive_ptr<c10d::Work> work;
    try {
      work = call->start();
    } catch (const std::exception&) {
      refused = std::current_exception();
    }
    try {
      if (work) work->wait();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "queued calls: one never completes: %s\n", message_of(error).c_str());
      lost = true;
    }
    work.reset();
    lock.lock();
    stream.busy = false;
    // A call without its peer never completes, and blocks its stream, until the queue ends.
    if (lost) {
      state->changed.wait(lock, [&] { return state->stop; });
      return;
    }
    if (refused) state->refused = refused;
    stream.calls.pop_front();
    std::erase(state->in_flight, call);
    state->count = state->in_flight.size();
    // Handles to the call outlive it; its tensors need not.
    call->start = nullptr;
    call->tensors.clear();
    call->predecessors.clear();
    call->completed = monotonic_nanos();
    call->complete = true;
    state->changed.notify_all();
  }
}

void CallQueue::queue_after(const CallPtr& call) {
  const std::lock_guard lock(state_->mutex);
  state_->throw_if_refused();
  state_->prune();
  if (!call->complete) state_->own.push_back(call);
}

std::shared_ptr<const QueueMark> CallQueue::mark() const {
  const std::lock_guard lock(state_->mutex);
  state_->throw_if_refused();
  state_->prune();
  return std::make_shared<Mark>(state_, state_->own);
}

// `done` is asked with the mutex held.
void CallQueue::block_until(const std::function<bool()>& done) {
  // The host blocks often here, mostly for a very short time. Only a longer wait is worth a record.
  constexpr std::chrono::milliseconds kTimeout(20);
  std::unique_lock lock(state_->mutex);
  if (state_->changed.wait_for(lock, kTimeout, done)) return;
  lock.unlock();
  const std::shared_ptr<void> scope = scope_ ? scope_() : nullptr;
  lock.lock();
  state_->changed.wait(lock, done);
}

void CallQueue::synchronise() {
  block_until([&] {
    state_->prune();
    return state_->own.empty();
  });
}

void CallQueue::wait_for_calls_on(const std::vector<const c10::StorageImpl*>& storages) {
  block_until([&] {
    return std::none_of(
        state_->in_flight.begin(), state_->in_flight.end(), [&](const CallPtr& call) {
          return std::any_of(storages.begin(), storages.end(),
                             [&](const c10::StorageImpl* storage) { return call->uses(storage); });
        });
  });
}

bool CallQueue::has_begun(const Call& call) { return call.begun; }
bool CallQueue::is_complete(const Call& call) { return call.complete; }

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
  return c10::str("/", low, ":", high);
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

namespace {

// Whether the queue has begun the call of a Work that came from a QueuedBackend.
bool queue_has_begun(c10d::Work& work) {
  const auto* queued = dynamic_cast<const QueuedWork*>(&work);
  return queued != nullptr && queued->has_begun();
}

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
