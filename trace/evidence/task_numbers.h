// The numbers that launchers put before the lines of their tasks. They are ranks, unless each task
// is itself a launcher of several (torchrun).
#pragma once

#include <set>
#include <string_view>

#include "trace/ids.h"

namespace lockstep::trace {

class TaskNumbers {
 public:
  void saw(Rank task) { tasks_.insert(task); }
  // PyTorch's own prefix on a line of a task was another rank.
  void saw_another_rank() { start_ranks_ = true; }

  // Whether the tasks were ranks, by all that was seen and by the whole output. O(output).
  bool are_ranks(std::string_view output) const;

 private:
  std::set<Rank> tasks_;
  bool start_ranks_ = false;
};

}  // namespace lockstep::trace
