// What the ranks of a scenario's job call and compute, step by step: derived, rank by rank, as
// `lockstep derive --against` does it, with the costs of the work between the calls.
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

// Up to kRanksLookedAt (runtime/derive/all_ranks.h) ranks each is looked at; of more, one of those
// that the job does not tell apart and that meet the same batches, and no more than so many.
inline constexpr std::size_t kMostLookedAt = 256;

struct DeriveRanksOptions {
  std::string worker;           // the worker program
  std::string folder;           // exists
  std::optional<bool> on_meta;  // nothing: as it suits the job
  LoneRanks::Costs costs = LoneRanks::Costs::counts;
  bool quiet = false;
};

// Which ranks a worker has to look at, and how.
struct RanksToDerive {
  std::vector<LoneRanks> ranks;
  std::vector<std::int32_t> traced;  // by rank of the job: who stands for it
  bool on_meta = false;
};

// `scenario` lies in a file of its own (runtime/job/scenario_variants.h). Errors: a job that cannot
// be derived, or not on so many ranks.
Result<RanksToDerive> ranks_to_derive(const Scenario& scenario, const DeriveRanksOptions& options);

// Ranks that a worker is looking at, while this program does something else; killed with this
// object.
class RankDerivation {
 public:
  // Errors: a file that cannot be written, a worker that cannot be started.
  static Result<RankDerivation> start(RanksToDerive ranks, const DeriveRanksOptions& options);

  std::size_t finished() const { return worker_.finished(); }
  std::size_t teams() const { return teams_; }  // of ranks: a team is looked at together
  // Nothing while it goes on; never blocks. Call it no more once it gave something. Errors: a
  // worker that fails, a rank that raises an exception.
  std::optional<Result<sim::DerivedRanks>> poll();
  // Whether poll()'s error is the job's: asked again, the answer would be the same. Not so where
  // the worker was killed, or its files could not be read.
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

// Reads once more what was derived in `folder`, of which `known` says the rest: a Run has no
// copies, and timing it takes it. Errors: files that cannot be read, or are none of this
// derivation.
Result<sim::DerivedRanks> read_derived_ranks(const std::string& folder,
                                             const sim::DerivedRanks& known);

// All of it to its end, with progress. Errors: those of each; the user's signal.
Result<sim::DerivedRanks> derive_ranks(const Scenario& scenario, const DeriveRanksOptions& options,
                                       Interrupts& interrupts);

// By rank: whose calls are its own too, where no more than kRanksLookedAt are looked at. Errors:
// as derive_ranks'. O(ranks · steps · rules).
Result<std::vector<std::int32_t>> ranks_that_stand_for(const Scenario& scenario);

// The times that ranks' work takes on this machine, beside what is counted of it.

// How often work is timed: of each stretch the shortest time counts, since all else is the
// machine's.
inline constexpr int kWorkLooks = 3;

// Looks once more at the ranks of `scenario`, one after the other, now timing their work by the
// clock of the thread, and keeps the times that are shorter than those in `counted`, which
// derive_ranks() gave. `options`: of the folder for this look, which is made; what is counted, and
// where, is not read. Errors: derive_ranks', a job that did something else when it was counted.
Status time_work(const Scenario& scenario, DeriveRanksOptions options,
                 std::vector<trace::RankCosts>& counted, Interrupts& interrupts);

// Gives what was counted the times of `timed` where these are shorter than those that it has, or it
// has none. Errors: they are not of one program.
Status keep_shortest(const trace::RankCosts& timed, trace::RankCosts& counted);

}  // namespace lockstep::runtime
