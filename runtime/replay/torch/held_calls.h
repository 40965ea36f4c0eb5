// HeldCalls: calls that the trace has and Gloo does not, yet.
//
// Gloo may abort the process as soon as two ranks' calls do not fit, and a rank that is ahead would
// take away from the others what they were about to record. So from the first call on that does not
// fit (replay/disputes.h), a rank's calls are held until it waits for something or its program
// ends, which is as far as it would have come in any case. NCCL aborts nothing, and nothing is held
// over it.
//
// For the thread that plays the rank; a held call may be asked from any thread whether it is
// complete.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <utility>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace lockstep {

class HeldCalls {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Start = std::function<WorkPtr()>;

  // Holds the calls that come, unless they were released before.
  void hold() { holding_ = !released_; }
  bool any() const { return !held_.empty(); }
  // Whether start() would keep a call now.
  bool holding() const { return holding_; }

  // Starts the call now, or keeps it; what comes back is waited for after release() alone.
  WorkPtr start(Start call);
  // Starts what is held, in order, and holds nothing from now on. What a start throws is thrown by
  // the wait for its call.
  void release();

 private:
  // Has no future of its own, so that its completion is seen by the wait for it.
  class HeldWork : public c10d::Work {
   public:
    explicit HeldWork(Start call) : call_(std::move(call)) {}
    void start();
    bool isCompleted() override { return started_ && inner_ && inner_->isCompleted(); }
    bool isSuccess() const override { return started_ && inner_ && inner_->isSuccess(); }
    bool wait(std::chrono::milliseconds timeout) override;

   private:
    Start call_;
    WorkPtr inner_;
    std::exception_ptr failed_;
    std::atomic<bool> started_{false};  // `inner_` is what it will be
  };

  bool holding_ = false, released_ = false;
  std::deque<c10::intrusive_ptr<HeldWork>> held_;
};

}  // namespace lockstep
