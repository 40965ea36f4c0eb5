// The stacks of the threads that run the program, for a rank that is about to be ended.
//
// A thread that hangs cannot be asked, so it is interrupted: a signal handler takes the stack, into
// memory that was allocated before, and never returns. So the thread neither continues when what it
// waits for is torn down, nor records anything after the end of the trace.
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
  std::string instead;              // why there are no frames: "state D, in nv_wait"
};

// Installs the handler and loads what taking a stack needs, so that the handler neither opens files
// nor allocates. Call once, before stop_program().
void prepare_to_stop_program();

// Stops the main thread and LibTorch's backward threads, except the calling one, and returns their
// stacks. For a thread that does not answer within `most` (it is inside the kernel) it returns the
// kernel's description. The threads never continue: end the process.
std::vector<StoppedThread> stop_program(std::chrono::milliseconds most);

// In the form of gdb's "thread apply all backtrace", which people and tools read.
std::string to_text(const std::vector<StoppedThread>& threads);

}  // namespace lockstep::runtime
