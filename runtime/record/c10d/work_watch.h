// WorkWatch: records when calls begin and complete, for transports that must be polled.
//
// NCCL's futures are complete as soon as a call is in the device's queue; its events say whether
// the device has begun or finished it. A call without a Work runs in the caller's own queue, and
// marks before and after it show the same. A thread polls the calls in flight every 200 us and
// records what changed, so times are late by at most that. If a backend announces completions, the
// thread polls at once.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "runtime/record/device_time.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

class WorkWatch {
 public:
  // Whether the device has begun a call; empty: unknown.
  using Begun = std::function<bool(c10d::Work&)>;

  // `recorder` must outlive the watch.
  WorkWatch(Recorder& recorder, Begun begun,
            std::chrono::microseconds every = std::chrono::microseconds(200));
  ~WorkWatch();  // stops polling; calls in flight stay open in the trace
  WorkWatch(const WorkWatch&) = delete;
  WorkWatch& operator=(const WorkWatch&) = delete;

  // Follows the call until it is complete, and keeps the work alive until then. From any thread.
  void follow(c10::intrusive_ptr<c10d::Work> work, std::uint32_t call);
  // The same for a call without a work, with marks in the queue that it runs in: it begins when
  // `before` is reached, and is complete when `after` is.
  void follow(std::shared_ptr<const QueueMark> before, std::shared_ptr<const QueueMark> after,
              std::uint32_t call);

  // Polls all calls in flight at once. From any thread; does not wait, and takes no other lock.
  void look_soon();
  // The same, and returns when it is done, or after `most`.
  void look_now(std::chrono::milliseconds most);

 private:
  struct Followed {
    c10::intrusive_ptr<c10d::Work> work;  // null: use the marks
    std::shared_ptr<const QueueMark> before, after;
    std::uint32_t call = 0;
    bool begun = false;
  };
  void follow(Followed followed);
  void watch();
  bool has_begun(const Followed& followed) const;
  // Records changes; true if it is complete.
  bool look(Followed& followed);

  Recorder& recorder_;
  Begun begun_;
  std::chrono::microseconds every_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Followed> coming_;
  bool stop_ = false;
  std::uint64_t looks_asked_ = 0, looks_done_ = 0;
  std::condition_variable looked_;
  std::thread thread_;
};

// Hooks of a backend, from torch 2.15 on (c10d/Hooks.hpp): a call has completed, or the backend is
// about to abort because one failed or timed out.

// Whether the backend has any of these hooks; false for older torch.
bool reports_completion(const c10d::Backend& backend);

// Makes `watch` poll when the backend announces a completion, and once more before it aborts, so
// that the trace is up to date. True if the backend announces completions. `watch` must outlive the
// backend. Call once per backend.
bool hook_into(c10d::Backend& backend, WorkWatch& watch);

}  // namespace lockstep::runtime
