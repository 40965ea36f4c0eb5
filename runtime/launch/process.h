// Process: a child of ours that cannot outlive us.
//
// The kernel kills the child when the thread that spawned it ends, however it ends; the destructor
// kills and reaps what still runs. A process inside a driver may not die of SIGKILL: nothing here
// waits for one longer than kKillPatience. Each child leads a process group of its own, so that a
// Ctrl-C at the terminal reaches us alone and its helpers are signalled with it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

inline constexpr std::chrono::seconds kKillPatience(5);

struct ProcessEnd {
  int exit_status = 0;
  int signal = 0;         // that killed it; 0: it exited
  bool immortal = false;  // it was killed, and still runs: the kernel does not let it go

  bool success() const { return signal == 0 && exit_status == 0 && !immortal; }
};

// "exited with status 3", "was killed by SIGKILL", "aborted (SIGABRT)".
std::string to_string(const ProcessEnd& end);

struct SpawnOptions {
  std::vector<std::pair<std::string, std::string>> environment;  // beside ours, or instead
  bool helpers_end_with_it = false;  // what it has started and left is killed when it ends
};

class Process {
 public:
  // Starts argv[0] (a path; PATH is not searched) with the rest as arguments, standard output and
  // standard error appended to `output`, standard input empty, and no signal blocked.
  // Errors: the output file cannot be made; the program cannot be started.
  static Result<Process> spawn(const std::vector<std::string>& argv, const std::string& output,
                               const SpawnOptions& options = {});

  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();

  pid_t pid() const { return pid_; }
  bool running() { return !poll(); }
  // How it ended, as soon as it has; never blocks.
  const std::optional<ProcessEnd>& poll();
  // Sends a signal to the process and those it started; does nothing once it has ended.
  void signal(int number);
  // Whether it has ended or stands still after SIGSTOP.
  bool stopped();

 private:
  Process(pid_t pid, bool helpers_end_with_it)
      : pid_(pid), helpers_end_with_it_(helpers_end_with_it) {}
  friend void kill_all(std::vector<Process>& processes);
  void reap();

  pid_t pid_ = -1;
  bool helpers_end_with_it_ = false;
  std::optional<ProcessEnd> end_;
};

// Ends all that still run: SIGTERM, up to `grace` for them to leave in order, then kill_all().
void end_all(std::vector<Process>& processes, std::chrono::milliseconds grace);

// SIGKILL to all that still run. Afterwards none runs, but those of which poll() says `immortal`.
void kill_all(std::vector<Process>& processes);

// Makes all that still run stand still (SIGSTOP), each where it is; not those that they started.
// Waits for it, but not for one that is inside the kernel longer than `most`. SIGCONT lets them go
// on.
void stop_all(std::vector<Process>& processes, std::chrono::milliseconds most);

}  // namespace lockstep::runtime
