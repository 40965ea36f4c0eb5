// What the ranks of a scenario's job call and compute, step by step: derived, rank by rank, as
// `lockstep derive --against` does it, with the costs of the work between the calls.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "job/scenario.h"
#include "launch/derivation.h"
#include "launch/interrupts.h"
#include "trace/run.h"
#include "trace/work_costs.h"

namespace lockstep {

// Up to kRanksLookedAt (cli/derive_all.h) ranks each is looked at; of more, one of those that the
// job does not tell apart and that meet the same batches, and no more than so many.
inline constexpr std::size_t kMostLookedAt = 256;

struct DerivedRanks {
  Run run;                           // of those that were looked at
  std::vector<RankCosts> costs;      // by place in run.ranks
  std::vector<std::int32_t> traced;  // by rank of the job: who stands for it
  std::string origin;                // the worker's version
  bool on_meta = false;
};

struct DeriveRanksOptions {
  std::string worker;           // the worker program
  std::string folder;           // exists
  std::optional<bool> on_meta;  // nothing: as it suits the job
  LoneRanks::Costs costs = LoneRanks::Costs::counts;
  bool quiet = false;
};

// Ranks that a worker is looking at, while this program does something else; killed with this
// object.
class RankDerivation {
 public:
  // `scenario` lies in a file of its own (job/simulated_scenario.h). Errors: a job that cannot be
  // derived, or not on so many ranks; a worker that cannot be started.
  static Result<RankDerivation> start(const Scenario& scenario, const DeriveRanksOptions& options);

  std::size_t finished() const { return worker_.finished(); }
  std::size_t teams() const { return teams_; }  // of them; a team is looked at together
  // Nothing while it goes on; never blocks. Call it no more once it gave something. Errors: a
  // worker that fails, a rank that raises an exception.
  std::optional<Result<DerivedRanks>> poll();
  // Whether the worker was killed: for want of memory, say, and not because of the job.
  bool killed() const { return worker_.killed(); }

 private:
  RankDerivation(LoneRun worker, DerivedRanks derived, std::string folder, std::size_t teams)
      : worker_(std::move(worker)),
        derived_(std::move(derived)),
        folder_(std::move(folder)),
        teams_(teams) {}

  LoneRun worker_;
  DerivedRanks derived_;
  std::string folder_;
  std::size_t teams_;
};

// The same to its end, with progress. Errors: those of both; the user's signal.
Result<DerivedRanks> derive_ranks(const Scenario& scenario, const DeriveRanksOptions& options,
                                  Interrupts& interrupts);

// By rank: whose calls are its own too, where no more than kRanksLookedAt are looked at. Errors:
// as derive_ranks'. O(ranks · steps · rules).
Result<std::vector<std::int32_t>> ranks_that_stand_for(const Scenario& scenario);

}  // namespace lockstep
