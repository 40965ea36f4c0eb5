// The cores of a node and what wants to work on them: processor sharing
// (sim/engine/shared_cores.h).
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "sim/units.h"

namespace lockstep::sim {

class CorePool {
 public:
  struct Task {
    std::uint32_t rank = 0;
    std::uint32_t step = 0;
  };

  CorePool(std::int64_t cores, double contention) : cores_(cores), contention_(contention) {}

  // Times of calls do not decrease. O(log tasks).
  void begin(Picos now, Picos work, Task task);

  // When the next task ends if none begins before; forever(): there is none.
  Picos next_end() const;

  bool idle() const { return tasks_.empty(); }

  // Takes the tasks that ended by now, by rank and step.
  std::vector<Task> take_ended(Picos now);

 private:
  struct Entry {
    double until = 0;  // of served_
    Task task;
    bool operator>(const Entry& other) const;
  };

  // What every task gets of a core, slowed down by its neighbours.
  double speed() const;
  void serve(Picos now);

  std::int64_t cores_;
  double contention_;
  Picos at_;
  double served_ = 0;  // picoseconds of a core that every task has got since the beginning
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> tasks_;
};

}  // namespace lockstep::sim
