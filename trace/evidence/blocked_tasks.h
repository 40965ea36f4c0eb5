// Processes that hang inside the kernel, as its log and torchrun tell it:
//
//   INFO: task pt_main_thread:4711 blocked for more than 122 seconds.          kernel/hung_task.c
//         Tainted: P           OE     5.15.0-1049-aws #54
//   task:pt_main_thread  state:D stack:    0 pid: 4711 tgid: 4711 ppid:  4700
//   Call Trace:
//    schedule+0x69/0x110
//    rpc_wait_bit_killable+0x1e/0xa0 [sunrpc]
//   watchdog: BUG: soft lockup - CPU#12 stuck for 23s! [python3:4711]          kernel/watchdog.c
//   [default] Worker pid=4711 stuck in uninterruptible sleep (D-state) for 63.2s (>= 60.0s); …
//
// Such a process waits for a disk, a file server, a driver or a network card. No signal ends it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trace/ids.h"

namespace lockstep::trace {

class BlockedTasks {
 public:
  static constexpr std::string_view kHung = " blocked for more than ";
  static constexpr std::string_view kLockup = "soft lockup - CPU#";
  static constexpr std::string_view kWorker = " stuck in uninterruptible sleep (D-state) for ";

  struct Blocked {
    std::int64_t pid = kNone;  // of the thread, until detail() tells the process
    std::string text;          // "blocked in the kernel for more than 122 seconds"
  };
  // The task of a line, if it may be a rank's: Python's or one that PyTorch or Ray named. Others
  // (kworker, jbd2, sshd) are the node's own. O(line).
  std::optional<Blocked> take(std::string_view line);

  // Whether the next lines may tell more of it.
  bool goes_on() const { return lines_left_ > 0; }
  // What they tell: the process of the thread, or the function in which it waits, once:
  // "rpc_wait_bit_killable [sunrpc]". The functions by which the kernel waits for anything are
  // skipped.
  struct Detail {
    std::optional<std::int64_t> process;
    std::string function;
  };
  std::optional<Detail> detail(std::string_view line);

 private:
  int lines_left_ = 0;
};

}  // namespace lockstep::trace
