// Process: a child of ours that cannot outlive us.
//
// The kernel kills the child when the thread that spawned it ends, however it ends; the destructor
// kills and reaps what still runs. Each child leads a process group of its own, so that a Ctrl-C at
// the terminal reaches us alone and its helpers are signalled with it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep {

struct ProcessEnd {
  int exit_status = 0;
  int signal = 0;  // that killed it; 0: it exited

  bool success() const { return signal == 0 && exit_status == 0; }
};

// "exited with status 3", "was killed by SIGKILL", "aborted (SIGABRT)".
std::string to_string(const ProcessEnd& end);

class Process {
 public:
  // Starts argv[0] (a path; PATH is not searched) with the rest as arguments, standard output and
  // standard error appended to `output`, standard input empty, and no signal blocked.
  // Errors: the output file cannot be made; the program cannot be started.
  static Result<Process> spawn(const std::vector<std::string>& argv, const std::string& output);

  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();

  pid_t pid() const { return pid_; }
  bool running() { return !poll(); }
  // How it ended, as soon as it has; never blocks.
  const std::optional<ProcessEnd>& poll();
  // Sends a signal to the process and those it started; does nothing once it has ended.
  void signal(int number);

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  void reap(bool block);

  pid_t pid_ = -1;
  std::optional<ProcessEnd> end_;
};

// Ends all that still run: SIGTERM, up to `grace` for them to leave in order, then SIGKILL.
// Afterwards none runs.
void end_all(std::vector<Process>& processes, std::chrono::milliseconds grace);

}  // namespace lockstep
