// The launcher's half of runtime/worker/fork_ranks.h: takes over the ranks that a worker forked.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/launch/process.h"

namespace lockstep::runtime {

// While it lives, a process whose parent ends becomes a child of this one.
class Subreaper {
 public:
  Subreaper();
  ~Subreaper();
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;
};

// The processes of a file with `ranks` process ids, which the ended process that forked them wrote
// while a Subreaper lived here. Removes the file. Error: it is absent or holds something else.
Result<std::vector<Process>> take_forked_ranks(const std::string& file, int ranks);

}  // namespace lockstep::runtime
