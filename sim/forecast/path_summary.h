// A critical path (sim/engine/critical_path.h) of training steps, summarised: how much of it is
// whose work, which calls and which links, and its longest items. Once by ids, and once with names.
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

// Equal parts of a path, merged: work of one class of ranks before the same call, or the same call.
// Calls are the same if signature, parameters and group are.
struct PathItem {
  PathPart::Kind kind = PathPart::Kind::work;
  std::uint32_t rank_class = 0;  // whose work; for a call, the last to arrive, the first time
  // The call, or the call that the work or launch comes before; an index in the trace of the
  // class's first rank. Empty: the end of a step.
  std::optional<std::uint32_t> call;
  bool between_nodes = false;  // of a call
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

// Summarises `path` from `begin` to `end`; without gaps in the path, the items sum up to the
// difference. `run` is the one that `program` was made from; `layouts`: of the job's groups. O(path
// · log).
PathSummary path_summary(const std::vector<PathPart>& path, const trace::Run& run,
                         const RunProgram& program, const Folding& folding,
                         const std::vector<GroupLayout>& layouts, Picos begin, Picos end);

// The path of the measured steps (sim/forecast/training_steps.h), with names.
struct ForecastPath {
  Picos begin, end;
  std::size_t steps = 0;
  bool checkpoints = false;  // there are some between the steps, and they take time
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
    std::uint32_t rank_class = 0;  // whose work; of a call: who came last, the first time
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
