// EndsAtOnce: for a long computation that owns no processes, which Ctrl-C should end at once, not
// at the next of the points where Interrupts are polled. Reading, folding, simulating and judging a
// large job take seconds each; they are not interrupted by values that every loop would hand on.
//
//   Interrupts interrupts;
//   …                                        // workers run, and are ended by the code that polls
//   const EndsAtOnce ends([&] { remove(folder); });
//   …                                        // computes for a minute
#pragma once

#include <functional>
#include <thread>

namespace lockstep {

class EndsAtOnce {
 public:
  // While an object lives, the first SIGINT, SIGTERM or SIGHUP ends the program with the status 128
  // and its number, after `clean_up` in a thread of its own. An Interrupts must live longer: it
  // blocks these signals, and gets those that come later.
  explicit EndsAtOnce(std::function<void()> clean_up);
  ~EndsAtOnce();
  EndsAtOnce(const EndsAtOnce&) = delete;
  EndsAtOnce& operator=(const EndsAtOnce&) = delete;

 private:
  int signals_ = -1, over_ = -1;
  std::thread watcher_;
};

}  // namespace lockstep
