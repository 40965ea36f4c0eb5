// Derives the calls and the work of a scenario's ranks, step by step: rank by rank, as `lockstep
// derive --against` does, with the costs of the work between the calls.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/interrupts.h"
#include "base/result.h"
#include "runtime/derive/lone_run.h"
#include "runtime/job/scenario.h"
#include "sim/forecast/scenario.h"
#include "trace/run.h"
#include "trace/work_costs.h"

namespace lockstep::runtime {

// Up to kMaxRanksRun (runtime/derive/all_ranks.h) ranks, each is run. Above, one rank represents
// all that the job does not distinguish and that have the same batches. At most this many are run.
inline constexpr std::size_t kMaxRepresentatives = 256;

struct DeriveRanksOptions {
  std::string worker;           // the worker program
  std::string folder;           // exists
  std::optional<bool> on_meta;  // nothing: decided for the job
  LoneRanks::Costs costs = LoneRanks::Costs::counts;
  bool quiet = false;
};

// Which ranks a worker must run, and how.
struct RanksToDerive {
  std::vector<LoneRanks> ranks;
  std::vector<std::int32_t> traced;  // by rank of the job: the rank that is run for it
  bool on_meta = false;
};

// `scenario` must be in a separate file (runtime/job/scenario_variants.h). Errors: a job that
// cannot be derived, or not with this many ranks; the user's signal.
Result<RanksToDerive> ranks_to_derive(const Scenario& scenario, const DeriveRanksOptions& options,
                                      Interrupts& interrupts);

// A derivation that runs in the background; the worker is killed with this object.
class RankDerivation {
 public:
  // Errors: a file that cannot be written, a worker that cannot be started.
  static Result<RankDerivation> start(RanksToDerive ranks, const DeriveRanksOptions& options);

  std::size_t finished() const { return worker_.finished(); }
  std::size_t teams() const { return teams_; }  // teams of ranks that run together
  // Nothing while it runs; never blocks. Do not call it again after it has returned something.
  // Errors: a worker that fails, a rank that raises an exception.
  std::optional<Result<sim::DerivedRanks>> poll();
  // Whether the job caused poll()'s error, so trying again is useless. False if the worker was
  // killed, or its files could not be read.
  bool refused() const { return refused_; }

 private:
  RankDerivation(LoneRun worker, sim::DerivedRanks derived, std::string folder, std::size_t teams)
      : worker_(std::move(worker)),
        derived_(std::move(derived)),
        folder_(std::move(folder)),
        teams_(teams) {}

  LoneRun worker_;
  sim::DerivedRanks derived_;
  std::string folder_;
  std::size_t teams_;
  bool refused_ = false;
};

// Reads the derivation in `folder` again; `known` has the rest. Needed because timing consumes a
// Run, which cannot be copied. Errors: files that cannot be read, or do not belong to this
// derivation.
Result<sim::DerivedRanks> read_derived_ranks(const std::string& folder,
                                             const sim::DerivedRanks& known);

// Derives to the end, with progress. Errors: those of the functions above; the user's signal.
Result<sim::DerivedRanks> derive_ranks(const Scenario& scenario, const DeriveRanksOptions& options,
                                       Interrupts& interrupts);

// By rank: the rank that represents it. Up to kMaxRanksRun ranks, each itself; above, one with
// equal batches. `drawn`: which ranks draw equal batches, if rules do not say what batches hold. If
// these are more than kMaxRepresentatives, batches are compared more coarsely: by which
// micro-batches have images; in pipelines, then by which steps do. Errors: still more than that.
// O(ranks · steps · rules).
Result<std::vector<std::int32_t>> ranks_that_stand_for(const Scenario& scenario,
                                                       const std::optional<DrawnAlike>& drawn);
// True if ranks_that_stand_for() needs `drawn`: too many ranks to derive each, and they draw their
// batches.
bool needs_draws(const Scenario& scenario);

// Measured times of the ranks' work on this machine, in addition to the counts.

// How often work is timed. The shortest time of each segment counts, because everything above it is
// noise of the machine.
inline constexpr int kTimingRounds = 3;

// Runs the ranks of `scenario` again, one after the other, measures their CPU time, and writes it
// to `counted`, which derive_ranks() returned, where it is shorter. Creates `options.folder`;
// ignores the options' costs and device. Errors: those of derive_ranks; a job that does not do the
// same as when it was counted.
Status time_work(const Scenario& scenario, DeriveRanksOptions options,
                 std::vector<trace::RankCosts>& counted, Interrupts& interrupts);

// Copies times of `timed` to `counted` where they are shorter, or `counted` has none. Errors: they
// are not from the same program.
Status keep_shortest(const trace::RankCosts& timed, trace::RankCosts& counted);

}  // namespace lockstep::runtime
