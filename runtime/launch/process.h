// Process: a child process that cannot outlive us. (Users' own programs are cli/child_process.h's.)
//
// The kernel kills the child when the thread that spawned it ends, for whatever reason; the
// destructor kills and reaps a child that still runs. A process inside a driver may not die of
// SIGKILL: nothing here waits longer than kKillTimeout for one. Each child leads its own process
// group. So Ctrl-C at the terminal reaches only us, and a signal to the child reaches its helpers,
// too.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

inline constexpr std::chrono::seconds kKillTimeout(5);

struct ProcessEnd {
  int exit_status = 0;
  int signal = 0;         // the signal that killed it; 0: it exited
  bool immortal = false;  // it was sent SIGKILL and still runs inside the kernel

  bool success() const { return signal == 0 && exit_status == 0 && !immortal; }
};

// "exited with status 3", "was killed by SIGKILL", "aborted (SIGABRT)".
std::string to_string(const ProcessEnd& end);

struct SpawnOptions {
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours, or replacing it
  bool helpers_end_with_it = false;  // when it ends, kill what is left of its group
};

class Process {
 public:
  // Starts argv[0] (a path; PATH is not searched) with the remaining arguments. Standard output and
  // standard error are appended to `output`, standard input is empty, no signal is blocked. Errors:
  // the output file cannot be created; the program cannot be started.
  static Result<Process> spawn(const std::vector<std::string>& argv, const std::string& output,
                               const SpawnOptions& options = {});

  // A child of this process that was started by other means, and is not waited for elsewhere.
  static Process of_child(pid_t pid, const SpawnOptions& options) {
    return Process(pid, options.helpers_end_with_it);
  }

  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();

  pid_t pid() const { return pid_; }
  bool running() { return !poll(); }
  // How it ended, or nothing while it runs. Never blocks.
  const std::optional<ProcessEnd>& poll();
  // Sends a signal to the process and its group. Does nothing once it has ended.
  void signal(int number);
  // Whether it has ended, or is stopped by SIGSTOP.
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

// Ends all that still run: SIGTERM, up to `grace` for them to exit, then kill_all().
void end_all(std::vector<Process>& processes, std::chrono::milliseconds grace);

// Sends SIGKILL to all that still run. Afterwards none runs, except those whose poll() says
// `immortal`.
void kill_all(std::vector<Process>& processes);

// Stops all that still run (SIGSTOP), but not their children. Waits until they are stopped, at most
// `most`: a process may be inside the kernel for longer. SIGCONT lets them continue.
void stop_all(std::vector<Process>& processes, std::chrono::milliseconds most);

}  // namespace lockstep::runtime
