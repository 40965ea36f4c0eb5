// WorkWatch: tells when calls begin and complete whose transport only answers when it is asked.
//
// NCCL's futures are complete as soon as a call is in the device's queue; whether the device has
// begun or finished it is told by its events. A thread asks for the calls in flight every 200 us,
// and records what changed: times are late by that at most.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "runtime/record/recorder.h"

namespace lockstep {

class WorkWatch {
 public:
  // Whether the device has begun a call; empty: nobody can tell.
  using Begun = std::function<bool(c10d::Work&)>;

  // `recorder` must outlive the watch.
  WorkWatch(Recorder& recorder, Begun begun);
  ~WorkWatch();  // asks no more; what is in flight stays open in the trace
  WorkWatch(const WorkWatch&) = delete;
  WorkWatch& operator=(const WorkWatch&) = delete;

  // From any thread. Keeps the work until it is complete.
  void follow(c10::intrusive_ptr<c10d::Work> work, std::uint32_t call);

 private:
  struct Followed {
    c10::intrusive_ptr<c10d::Work> work;
    std::uint32_t call = 0;
    bool begun = false;
  };
  void watch();
  // Records what is new of it; true where it is complete.
  bool look(Followed& followed);

  Recorder& recorder_;
  Begun begun_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Followed> coming_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lockstep
