#include "runtime/record/c10d/work_watch.h"

#include <chrono>
#include <cstdint>
#include <iterator>

#include "runtime/record/c10d/recording_work.h"

namespace lockstep::runtime {
namespace {

std::string words_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return message_of(error);
  } catch (...) {
    return "an exception of an unknown type";
  }
}

// Why a completed call failed; empty: it did not.
std::string failure_of(const c10d::Work& work) {
  const std::exception_ptr failure = work.exception();
  return failure == nullptr ? std::string() : words_of(failure);
}

}  // namespace

WorkWatch::WorkWatch(Recorder& recorder, Begun begun, std::chrono::microseconds every)
    : recorder_(recorder), begun_(std::move(begun)), every_(every), thread_([this] { watch(); }) {}

WorkWatch::~WorkWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void WorkWatch::follow(c10::intrusive_ptr<c10d::Work> work, std::uint32_t call) {
  follow({std::move(work), nullptr, nullptr, call});
}

void WorkWatch::follow(std::shared_ptr<const QueueMark> before,
                       std::shared_ptr<const QueueMark> after, std::uint32_t call) {
  follow({{}, std::move(before), std::move(after), call});
}

void WorkWatch::follow(Followed followed) {
  {
    const std::lock_guard lock(mutex_);
    coming_.push_back(std::move(followed));
  }
  changed_.notify_one();
}

void WorkWatch::look_soon() {
  {
    const std::lock_guard lock(mutex_);
    ++looks_asked_;
  }
  changed_.notify_one();
}

void WorkWatch::look_now(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  const std::uint64_t mine = ++looks_asked_;
  changed_.notify_one();
  looked_.wait_for(lock, most, [&] { return stop_ || looks_done_ >= mine; });
}

void WorkWatch::watch() {
  std::vector<Followed> in_flight;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (in_flight.empty()) {
      changed_.wait(lock, [&] { return stop_ || !coming_.empty() || looks_asked_ > looks_done_; });
    } else {
      changed_.wait_for(lock, every_, [&] { return stop_ || looks_asked_ > looks_done_; });
    }
    const std::uint64_t asked = looks_asked_;
    in_flight.insert(in_flight.end(), std::make_move_iterator(coming_.begin()),
                     std::make_move_iterator(coming_.end()));
    coming_.clear();
    lock.unlock();
    std::erase_if(in_flight, [&](Followed& followed) { return look(followed); });
    lock.lock();
    looks_done_ = asked;
    looked_.notify_all();
  }
}

bool WorkWatch::has_begun(const Followed& followed) const {
  if (!followed.work) return followed.before->reached();
  return begun_ && begun_(*followed.work);
}

bool WorkWatch::look(Followed& followed) {
  std::string failure;
  try {
    // Ask for completion first: a call that completes in between has begun, too.
    const bool complete = followed.work ? followed.work->isCompleted() : followed.after->reached();
    if (!followed.begun && has_begun(followed)) {
      followed.begun = true;
      recorder_.ring().start(followed.call);
    }
    if (!complete) return false;
    if (followed.work) failure = failure_of(*followed.work);
  } catch (...) {
    // After a device fault every query throws. The program's own next call does, too, and ends the
    // rank in order; an exception that left this thread would abort the process.
    failure = words_of(std::current_exception());
  }
  const Recorder::Timed timed(recorder_);
  recorder_.complete(followed.call, failure);
  return true;
}

#ifdef C10D_BACKEND_HAS_HOOKS

namespace {

constexpr std::int64_t kHook = 0x6c6f636b73746570;  // our hook's id: "lockstep"
// The backend holds locks that a poll may need, so do not wait longer than this.
constexpr std::chrono::milliseconds kLastLook(200);

}  // namespace

bool reports_completion(const c10d::Backend& backend) {
  return backend.supportsAbortHooks() || backend.supportsCompletionHooks();
}

bool hook_into(c10d::Backend& backend, WorkWatch& watch) {
  if (backend.supportsAbortHooks())
    backend.registerAbortHook(kHook, [&watch] { watch.look_now(kLastLook); });
  if (!backend.supportsCompletionHooks()) return false;
  backend.registerCompletionHook(kHook,
                                 [&watch](const c10d::CompletionHookArgs&) { watch.look_soon(); });
  return true;
}

#else

bool reports_completion(const c10d::Backend&) { return false; }

bool hook_into(c10d::Backend&, WorkWatch&) { return false; }

#endif

}  // namespace lockstep::runtime
