// The ranks of a job on one machine, forked from one process: loading LibTorch takes a core 0.2 s,
// and forking a process that has loaded it 3 ms.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

// Forks a process for each of `ranks`, writes their process ids into `file` (by rank, a line each),
// and ends this process. Returns in each of the new processes, with its rank.
//
// It is then as if this process's parent had started it: that is its parent, which has to be a
// child subreaper (prctl(2)); it leads a process group of its own; its standard output and standard
// error are appended to its log in `folder`. In `arguments`, this program's own, "--fork-ranks
// FILE" becomes "--rank R", which ps(1) shows.
//
// Call it before any thread is started, and before a GPU is used. A rank ends at once where this
// process dies before all are forked. Errors: none can be forked, or `file` or the log cannot be
// written.
Result<int> fork_ranks(int ranks, const std::string& folder, const std::string& file,
                       const std::vector<char*>& arguments);

}  // namespace lockstep::runtime
