// Ranks as processes, and what their ring files say.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "verify/report.h"

namespace lockstep::runtime {

using Variables = std::map<std::string, std::string>;

// Runs `body` in a process of its own with `variables` besides what torchrun would set, and without
// a launcher's otherwise. Gives its exit status, or 128 + the signal that ended it; 99 after an
// exception. Whatever takes longer than a minute is ended.
int run_process(const Variables& variables, const std::function<int()>& body);

// The same for `ranks` processes at once, with RANK, WORLD_SIZE and LOCKSTEP_RECORD_DIR set.
std::vector<int> run_ranks(int ranks, const std::string& folder,
                           const std::function<int(int rank)>& body);

// What `lockstep verify FOLDER` finds, a line each: "missing-collective observed: 1".
std::vector<std::string> findings(const std::string& folder);

// The calls of a rank, a line each: "all_reduce world float32 8>8 done". A send or receive names
// its peer, a rooted call its root.
std::vector<std::string> calls(const std::string& folder, int rank);

// The index of the rank's GPU; -1: not recorded.
int gpu(const std::string& folder, int rank);

// "world 0 1 2", a line for each group that the rank knows, in the order of creation.
std::vector<std::string> groups(const std::string& folder, int rank);

// How the rank's trace ends, and the texts of its exceptions.
std::string ending(const std::string& folder, int rank);

}  // namespace lockstep::runtime
