// EndlessWork: a call that never completes, because nothing carries it. The watchdog ends a rank
// that waits for it.
#pragma once

#include <chrono>
#include <thread>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace lockstep::runtime {

class EndlessWork : public c10d::Work {
 public:
  bool isCompleted() override { return false; }
  bool isSuccess() const override { return false; }
  bool wait(std::chrono::milliseconds) override {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
};

}  // namespace lockstep::runtime
