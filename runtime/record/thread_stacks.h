// Where the threads that run the program are, for a rank that is about to be ended.
//
// A thread that hangs cannot be asked, so it is interrupted: a signal makes it take its own stack,
// into memory that was there before, and stay in the handler for good. So it neither goes on when
// what it waits for is torn down, nor records anything behind the end of the trace.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace lockstep::runtime {

struct StoppedThread {
  pid_t id = 0;
  std::string name;
  std::vector<std::string> frames;  // innermost first: "poll () from /lib/libc.so.6"
  std::string instead;              // of frames: why there are none, "state D, in nv_wait"
};

// Installs the handler and loads what taking a stack needs: afterwards neither opens a file nor
// allocates. Once, before stop_program().
void prepare_to_stop_program();

// Stops the main thread and those in which LibTorch runs backward passes, but the calling one, and
// gives their stacks. A thread that does not answer before `most` is over (it is inside the kernel)
// is told by what the kernel says of it. The threads never go on: end the process.
std::vector<StoppedThread> stop_program(std::chrono::milliseconds most);

// As gdb's "thread apply all backtrace" prints it, which people and tools read.
std::string to_text(const std::vector<StoppedThread>& threads);

}  // namespace lockstep::runtime
