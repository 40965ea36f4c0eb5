// WorkWatch: tells when calls begin and complete whose transport only answers when it is asked.
//
// NCCL's futures are complete as soon as a call is in the device's queue; whether the device has
// begun or finished it is told by its events. A call that comes back without a Work runs in the
// caller's own queue; marks before and behind it tell as much. A thread asks for the calls in
// flight every 200 us, and records what changed: times are late by that at most. Backends that say
// so by themselves make it ask at once.
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
  // Whether the device has begun a call; empty: nobody can tell.
  using Begun = std::function<bool(c10d::Work&)>;

  // `recorder` must outlive the watch.
  WorkWatch(Recorder& recorder, Begun begun,
            std::chrono::microseconds every = std::chrono::microseconds(200));
  ~WorkWatch();  // asks no more; what is in flight stays open in the trace
  WorkWatch(const WorkWatch&) = delete;
  WorkWatch& operator=(const WorkWatch&) = delete;

  // From any thread. Keeps the work until it is complete.
  void follow(c10::intrusive_ptr<c10d::Work> work, std::uint32_t call);
  // The same of a call that has no work, but marks in the queue it runs in: it begins where
  // `before` is reached, and is complete where `behind` is.
  void follow(std::shared_ptr<const QueueMark> before, std::shared_ptr<const QueueMark> behind,
              std::uint32_t call);

  // Asks for all calls in flight now, and not only when the time has come. From any thread; does
  // not wait, and takes no other lock.
  void look_soon();
  // … and returns when that is done, or after `most`.
  void look_now(std::chrono::milliseconds most);

 private:
  struct Followed {
    c10::intrusive_ptr<c10d::Work> work;  // null: the marks tell
    std::shared_ptr<const QueueMark> before, behind;
    std::uint32_t call = 0;
    bool begun = false;
  };
  void follow(Followed followed);
  void watch();
  bool has_begun(const Followed& followed) const;
  // Records what is new of it; true where it is complete.
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

// What a backend says by itself, from torch 2.15 on (c10d/Hooks.hpp): that a call has completed,
// and that it is about to abort because one failed or took too long.

// Whether it says any of that; never where torch is older.
bool can_tell(const c10d::Backend& backend);

// From now on `watch` looks as soon as the backend says that a call has completed, and once more
// before it aborts, so that what is in the trace is what there was. True where the backend tells
// completions. `watch` must outlive the backend. Once for a backend.
bool hook_into(c10d::Backend& backend, WorkWatch& watch);

}  // namespace lockstep::runtime
