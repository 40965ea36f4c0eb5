// Programs that a command starts as a shell does: found in PATH, with our terminal, and free to
// outlive us, as the program that `lockstep record` starts may. Workers, which may not and which
// write to a file, are runtime/launch/process.h's.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::cli {

struct SpawnOptions {
  std::optional<int> standard_output = std::nullopt;  // its file descriptor; empty: ours
  // With what it starts a process group of its own, so that all can be signalled at once; and it
  // hears the signals that this process blocks (base/interrupts.h).
  bool own_group = false;
};

// Starts `command`: a program, found as by a shell, and its arguments. Errors: the system's.
Result<pid_t> spawn(const std::vector<std::string>& command, const SpawnOptions& options = {});

// Waits for its end. The exit status; nothing if a signal ended it.
std::optional<int> wait_for(pid_t process);

// What the program prints on standard output, without line breaks at the end. Nothing if it fails.
std::optional<std::string> output_of(const std::vector<std::string>& command);

}  // namespace lockstep::cli
