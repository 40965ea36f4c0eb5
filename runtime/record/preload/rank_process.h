// What this process is: a rank that a launcher started, or a helper of one, and whether it runs
// Python.
#pragma once

#include <functional>
#include <optional>

#include "base/launcher.h"

namespace lockstep::runtime {

// The rank as which a launcher started this process. Empty: there was no launcher, or the process
// was started by a rank (a loader's worker, a compiler) and only inherited its variables: a process
// above it runs the same program as the same rank.
std::optional<LaunchedRank> started_as_rank();

// Whether this process has Python in it, running or ended.
bool is_python();

// Calls `act` once, on a thread that holds Python's lock, while the program imports torch: when
// Python adds its first operator to LibTorch's dispatcher. May be called only once.
void when_python_imports_torch(std::function<void()> act);

}  // namespace lockstep::runtime
