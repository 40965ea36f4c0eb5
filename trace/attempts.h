// The attempts of a job that its launcher started again, as torchrun --max-restarts does.
#pragma once

#include <string>
#include <vector>

namespace lockstep::trace {

struct Attempt {
  int number = 0;                  // from 0
  std::vector<std::string> paths;  // what it left, as load_run takes it
};

// The attempts before the one that load_run(paths) reads, ascending: torchrun's folders of logs
// (attempt_0, also below the folder of a run), and those into which the recorder moves the files of
// a rank that is started again, with the files that ranks left in place because they made no new
// ones. Empty where there was one attempt, or where `paths` are several folders of jobs.
std::vector<Attempt> earlier_attempts(const std::vector<std::string>& paths);

}  // namespace lockstep::trace
