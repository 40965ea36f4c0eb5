#include "runtime/record/nccl/device_calls.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace lockstep::runtime::cuda {
namespace {

template <class Function>
bool find(void* library, const char* name, Function*& out) {
  out = reinterpret_cast<Function*>(::dlsym(library, name));
  return out != nullptr;
}

// Nothing where the process has not loaded the driver, or one without these functions. Loads none.
std::optional<Driver> find_driver() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return std::nullopt;
  Driver out{};
  const bool all = find(library, "cuStreamGetCtx", out.context_of) &&
                   find(library, "cuCtxPushCurrent_v2", out.push) &&
                   find(library, "cuCtxPopCurrent_v2", out.pop) &&
                   find(library, "cuStreamIsCapturing", out.is_capturing) &&
                   find(library, "cuThreadExchangeStreamCaptureMode", out.exchange_capture_mode) &&
                   find(library, "cuEventCreate", out.make_event) &&
                   find(library, "cuEventRecord", out.record) &&
                   find(library, "cuEventQuery", out.query);
  return all ? std::optional(out) : std::nullopt;
}

}  // namespace

std::optional<int> current_device() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return std::nullopt;
  Code (*device_of_context)(int* out) = nullptr;
  int device = 0;
  if (!find(library, "cuCtxGetDevice", device_of_context) || device_of_context(&device) != kSuccess)
    return std::nullopt;
  return device;
}

}  // namespace lockstep::runtime::cuda

namespace lockstep::runtime {
namespace {

std::optional<cuda::Driver> find_none() { return std::nullopt; }

// Makes the context current on this thread while it lives.
class Current {
 public:
  Current(const cuda::Driver& driver, cuda::Context context)
      : driver_(driver), is_(driver.push(context) == cuda::kSuccess) {}
  ~Current() {
    cuda::Context popped = nullptr;
    if (is_) driver_.pop(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  explicit operator bool() const { return is_; }

 private:
  const cuda::Driver& driver_;
  const bool is_;
};

}  // namespace

DeviceCalls& DeviceCalls::of_process() {
  static DeviceCalls* const calls = [] {
    const char* const completions = ::getenv("LOCKSTEP_RECORD_COMPLETION");
    const bool wanted = completions == nullptr || std::string_view(completions) != "0";
    auto* const made = new DeviceCalls(wanted ? cuda::find_driver : find_none);
    made->has_watcher_ = true;
    // A forked child leaves the device to its parent.
    static const pid_t own = ::getpid();
    std::atexit([] {
      if (::getpid() == own) of_process().stop();
    });
    return made;
  }();
  return *calls;
}

void DeviceCalls::follow(std::span<const Call> calls) {
  const std::lock_guard lock(mutex_);
  for (std::size_t begin = 0; begin < calls.size();) {
    std::size_t end = begin + 1;
    while (end < calls.size() && calls[end].stream == calls[begin].stream) ++end;
    const std::span<const Call> of_stream = calls.subspan(begin, end - begin);
    if (!put_event(of_stream)) std::for_each(of_stream.begin(), of_stream.end(), leave);
    begin = end;
  }
}

bool DeviceCalls::put_event(std::span<const Call> calls) {
  if (!looked_for_) driver_ = find_();
  looked_for_ = true;
  if (!driver_ || stopped_ || in_flight_ >= kMaxInFlight) return false;
  const cuda::Stream stream = calls.front().stream;
  Followed followed;
  // An event recorded in a stream under capture would become part of the graph.
  int capturing = 0;
  if (driver_->is_capturing(stream, &capturing) != cuda::kSuccess || capturing != 0 ||
      driver_->context_of(stream, &followed.context) != cuda::kSuccess)
    return false;
  const Current current(*driver_, followed.context);
  if (!current) return false;
  std::vector<cuda::Event>& free = free_[followed.context];
  if (free.empty()) {
    if (driver_->make_event(&followed.event, cuda::kDisableTiming) != cuda::kSuccess) return false;
  } else {
    followed.event = free.back();
    free.pop_back();
  }
  if (driver_->record(followed.event, stream) != cuda::kSuccess) {
    free.push_back(followed.event);
    return false;
  }
  followed.calls.assign(calls.begin(), calls.end());
  streams_[stream].push_back(std::move(followed));
  if (in_flight_++ > 0) return true;
  if (has_watcher_) {
    has_watcher_ = false;
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    // The thread must not take the program's signals.
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([this] { watch(*this); }).detach();
    } catch (const std::system_error&) {
      driver_.reset();  // no thread would poll: do not follow further calls
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  some_.notify_one();
  return true;
}

void DeviceCalls::complete(Followed& followed, bool well) {
  for (const Call& call : followed.calls) {
    if (well) call.rank->ring->complete(call.id);
    leave(call);
  }
  // After an error nothing more is known about the event: do not reuse it.
  if (well) free_[followed.context].push_back(followed.event);
  --in_flight_;
}

void DeviceCalls::look_locked() {
  if (!driver_ || stopped_) return;
  for (auto& [stream, queue] : streams_) {
    while (!queue.empty()) {
      const Current current(*driver_, queue.front().context);
      const cuda::Code code = driver_->query(queue.front().event);
      if (code == cuda::kNotReady) break;
      complete(queue.front(), code == cuda::kSuccess);
      queue.pop_front();
    }
  }
  std::erase_if(streams_, [](const auto& stream) { return stream.second.empty(); });
}

void DeviceCalls::look() {
  const std::lock_guard lock(mutex_);
  look_locked();
}

void DeviceCalls::stop() {
  const std::lock_guard lock(mutex_);
  look_locked();
  stopped_ = true;
}

void DeviceCalls::watch(DeviceCalls& self) {
  constexpr std::chrono::milliseconds kEvery{1};
  std::unique_lock lock(self.mutex_);
  // In the global capture mode, a query from this thread would invalidate another thread's capture.
  int mode = cuda::kRelaxed;
  self.driver_->exchange_capture_mode(&mode);
  for (;;) {
    self.some_.wait(lock, [&] { return self.in_flight_ > 0 && !self.stopped_; });
    self.look_locked();
    lock.unlock();
    std::this_thread::sleep_for(kEvery);
    lock.lock();
  }
}

}  // namespace lockstep::runtime
