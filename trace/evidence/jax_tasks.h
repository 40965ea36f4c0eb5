// What JAX's coordination service says of tasks, which are a job's ranks. All tasks write it.
// Source: xla/tsl/distributed_runtime/coordination/coordination_service.cc.
//
//   … DEADLINE_EXCEEDED: Barrier timed out. Id: PjRT_Client_Connect::0. … Some timed out task
//   names: /job:jax_worker/replica:0/task:6 /job:jax_worker/replica:0/task:1
//
//   … UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):
//   /job:jax_worker/replica:0/task:3
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "trace/ids.h"

namespace lockstep::trace {

class JaxTasks {
 public:
  static constexpr std::string_view kAbsent = "imed out task names:";  // "Timed", "Some timed"
  static constexpr std::string_view kUnhealthy = "tasks are unhealthy (stopped sending";
  static constexpr std::string_view kBarrier = "Barrier timed out. ";

  struct Missed {
    Rank rank;
    std::string what;  // "did not come to barrier PjRT_Client_Connect in time"
  };
  // The task that the line names, the first time that it is said of it. O(line).
  std::optional<Missed> take(std::string_view line);
  // Whether the next line may name one, though it holds none of the signs.
  bool goes_on() const { return !what_.empty(); }

 private:
  std::string barrier_;  // the last one that timed out
  std::string what_;     // of the list that is being read; empty: none is
  std::set<std::tuple<Rank, std::string>> told_;
};

}  // namespace lockstep::trace
