// Ranks as processes, for tests: forks, so nothing may have started Torch's threads before.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trace/run.h"

namespace lockstep::runtime {

// How a rank ended: its exit status, or 128 + the signal that ended it.
using ExitStatus = int;

// Runs `body` in `ranks` processes at once and waits for them; a test that takes longer than a
// minute is ended. What `body` returns is the process's exit status; 99 after an exception.
std::vector<ExitStatus> spawn(int ranks, const std::function<ExitStatus(int rank)>& body);

// What a rank recorded in `folder`.
struct Recorded {
  trace::Tables tables;
  trace::RankTrace trace;

  // One line a call: "all_reduce world:3 float32[2,8] sum a.weight,b.bias #tag", without the parts
  // that are not there. `step` < 0: the calls before the first step; INT32_MIN: all.
  std::vector<std::string> calls(std::int32_t step = INT32_MIN) const;
};
Recorded recorded(const std::string& folder, int rank);

}  // namespace lockstep::runtime
