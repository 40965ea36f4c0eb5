#include "runtime/record/preload/future_waits.h"

#include <dlfcn.h>

#include <iterator>
#include <string>
#include <utility>

namespace lockstep::runtime {

FutureWaits& FutureWaits::of_process() {
  static FutureWaits* const waits = new FutureWaits;
  return *waits;
}

void FutureWaits::follow(const c10::intrusive_ptr<c10::ivalue::Future>& future, Recorder& recorder,
                         std::uint32_t call) {
  const c10::ivalue::Future* const address = future.get();
  {
    const std::lock_guard lock(mutex_);
    using Weak = c10::weak_intrusive_ptr<c10::ivalue::Future>;
    if (!futures_.emplace(address, Followed{Weak(future), {&recorder, call, address}}).second)
      return;
    count_.store(futures_.size(), std::memory_order_release);
  }
  // At once, where it is complete already.
  future->addCallback([this, address](c10::ivalue::Future& done) { forget(address, done); });
}

void FutureWaits::forget(const c10::ivalue::Future* future, const c10::ivalue::Future& done) {
  std::optional<Followed> followed;
  {
    const std::lock_guard lock(mutex_);
    const auto found = futures_.find(future);
    if (found == futures_.end()) return;
    followed = std::move(found->second);
    futures_.erase(found);
    count_.store(futures_.size(), std::memory_order_release);
  }
  // A program that finds it complete does not wait on it: it counts as waited for now.
  if (followed->waited_for || done.hasError()) return;
  followed->wait.recorder->wait(followed->wait.call);
  followed->wait.recorder->waited(followed->wait.call);
}

std::optional<FutureWaits::Wait> FutureWaits::begin_wait(const void* condition) {
  if (count_.load(std::memory_order_acquire) == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto after = futures_.upper_bound(static_cast<const c10::ivalue::Future*>(condition));
  if (after == futures_.begin()) return std::nullopt;
  // The condition variable is a member of its future: the address lies within that object.
  auto& [future, followed] = *std::prev(after);
  const auto begin = reinterpret_cast<std::uintptr_t>(future);
  const auto at = reinterpret_cast<std::uintptr_t>(condition);
  if (at >= begin + sizeof(c10::ivalue::Future)) return std::nullopt;
  followed.waited_for = true;
  return followed.wait;
}

c10::intrusive_ptr<c10::ivalue::Future> PreloadedWork::getFuture() {
  auto future = RecordingWork::getFuture();
  if (future && !is_watched_) FutureWaits::of_process().follow(future, recorder_, call_);
  return future;
}

}  // namespace lockstep::runtime

// std::condition_variable::wait(std::unique_lock<std::mutex>&), in front of the C++ library's,
// where this library is preloaded.
extern "C" __attribute__((visibility("default"))) void
_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(void* condition, void* lock) {
  using Wait = void (*)(void*, void*);
  static const auto wait = reinterpret_cast<Wait>(
      ::dlsym(RTLD_NEXT, "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"));
  const auto waiting = lockstep::runtime::FutureWaits::of_process().begin_wait(condition);
  if (!waiting) return wait(condition, lock);
  waiting->recorder->wait(waiting->call);
  wait(condition, lock);
  // A future that is asked takes the lock that its waiter has. Whoever waits may find that others
  // had the lock meanwhile, and holds the future.
  auto& held = *static_cast<std::unique_lock<std::mutex>*>(lock);
  held.unlock();
  const bool failed = waiting->future->hasError();
  const std::string error = failed ? waiting->future->tryRetrieveErrorMessage() : std::string();
  held.lock();
  if (failed) {
    waiting->recorder->wait_failed(waiting->call, error);
  } else {
    waiting->recorder->waited(waiting->call);
  }
}
