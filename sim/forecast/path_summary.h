// A critical path (sim/engine/critical_path.h) of training steps in few lines: what it spends on
// whose work, on which calls and on which links; and the places that take most of it. By ids, and
// with the names that people know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/engine/critical_path.h"
#include "sim/engine/from_run.h"
#include "sim/forecast/training_steps.h"
#include "sim/machine/simulated_job.h"
#include "sim/machine/work_time.h"
#include "trace/run.h"

namespace lockstep::sim {

// Parts of a path that are alike: work of one class of ranks before the same call, or the same
// call; alike are calls with one signature and one list of names in one group.
struct PathItem {
  PathPart::Kind kind = PathPart::Kind::work;
  std::uint32_t rank_class = 0;  // whose work; of a call: who came last, the first time
  // The call; of work and launches the one that they come before. Into the calls of the trace of
  // the class's first rank. Nothing: the end of a step.
  std::optional<std::uint32_t> call;
  bool between_nodes = false;  // of a call
  Picos time;
  std::uint64_t count = 0;  // parts
};

struct PathSummary {
  Picos begin, end;
  std::vector<Picos> work;  // by class of ranks
  struct Calls {
    trace::GroupId group;
    bool between_nodes = false;
    Picos time;
  };
  std::vector<Calls> calls;  // the longest first
  Picos launches;
  std::vector<PathItem> items;  // the longest first
};

// `path` from `begin` to `end`; the sum of the items is their difference, where the path has no
// gaps. `run` is the one that `program` was made of; `places`: of the job's groups.
// O(path · log).
PathSummary path_summary(const std::vector<PathPart>& path, const trace::Run& run,
                         const RunProgram& program, const Folding& folding,
                         const std::vector<GroupPlace>& places, Picos begin, Picos end);

// Of the measured steps (sim/forecast/training_steps.h).
struct ForecastPath {
  Picos begin, end;
  std::size_t steps = 0;
  bool checkpoints = false;  // are between them, and take time
  // What the path is made of: the work of a class of ranks, or the calls of a group.
  struct Sum {
    std::optional<std::uint32_t> rank_class;
    std::string group;
    bool between_nodes = false;
    Picos time;
  };
  std::vector<Sum> sums;  // the longest first
  struct Item {
    bool is_call = false;
    std::uint32_t rank_class = 0;  // whose work; of a call: who came last, the first time
    // The call, or the one that the work comes before: "all_reduce(w)"; empty: the step's end.
    std::string call, group;
    bool between_nodes = false;
    Picos time;
    std::uint64_t count = 0;
  };
  std::vector<Item> items;  // the longest first

  double share(Picos time) const;
  // "5 steps and the checkpoints between them".
  std::string of_what() const;
};

// In words: `run` is the one that was simulated, to its end.
ForecastPath forecast_path(const trace::Run& run, const SimulatedProgram& simulated,
                           const std::vector<GroupPlace>& places, const MeasuredSteps& measured);

}  // namespace lockstep::sim
