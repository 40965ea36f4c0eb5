// Summaries of a critical path (sim/engine/critical_path.h) of training steps: its time by ranks
// that work, by groups and links that carry calls, and its longest items. PathSummary has ids,
// ForecastPath has names.
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

// Parts of a path that are equal, merged: the work of one class of ranks before the same call, or
// the same call. Calls are the same if their signatures, parameters and groups are.
struct PathItem {
  PathPart::Kind kind = PathPart::Kind::work;
  // The class that works; for a call, the one that arrived last when it first occurred.
  std::uint32_t rank_class = 0;
  // The call, or the call that the work or launch comes before; an index in the trace of the
  // class's first rank. Empty: the end of a step.
  std::optional<std::uint32_t> call;
  bool between_nodes = false;  // for a call
  Picos time;
  std::uint64_t count = 0;  // how many parts were merged
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

// Summarises `path` from `begin` to `end`. If the path has no gaps, the items sum up to the
// difference. `program` was made from `run`; `layouts`: of the job's groups. O(path · log).
PathSummary path_summary(const std::vector<PathPart>& path, const trace::Run& run,
                         const RunProgram& program, const Folding& folding,
                         const std::vector<GroupLayout>& layouts, Picos begin, Picos end);

// The path of the measured steps (sim/forecast/training_steps.h), with names.
struct ForecastPath {
  Picos begin, end;
  std::size_t steps = 0;
  bool checkpoints = false;  // checkpoints between the steps take time
  // One share of the path: the work of a class of ranks, or the calls of a group.
  struct Sum {
    std::optional<std::uint32_t> rank_class;
    std::string group;
    bool between_nodes = false;
    Picos time;
  };
  std::vector<Sum> sums;  // the longest first
  struct Item {
    bool is_call = false;
    std::uint32_t rank_class = 0;  // as in PathItem
    // The call, or the one that the work comes before: "all_reduce(w)"; empty: the end of a step.
    std::string call, group;
    bool between_nodes = false;
    Picos time;
    std::uint64_t count = 0;
  };
  std::vector<Item> items;  // the longest first

  double share(Picos time) const;
  // What the path covers: "5 steps and the checkpoints between them".
  std::string covers() const;
};

// `run` is the one that was simulated, to its end.
ForecastPath forecast_path(const trace::Run& run, const SimulatedProgram& simulated,
                           const std::vector<GroupLayout>& layouts, const MeasuredSteps& measured);

}  // namespace lockstep::sim
