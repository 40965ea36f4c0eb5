// Runs a job's programs along the longest path: what nothing shares needs no queue of events.
//
// Whatever can advance advances, in any order: an operation's end is the maximum of what it waits
// for, plus what it takes, and so the times do not depend on the order in which they are found. A
// rank is walked until its host waits for something that has no end yet; the last to come to a
// meeting gives it one, and wakes the others. When nobody can go on and some are not done, the job
// is stuck, in every schedule: collectives meet by (group, number), so that the matching is unique.
//
// O(steps of the different ranks + arrivals at meetings).
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "sim/engine/program.h"

namespace lockstep::sim {

struct CallCost {
  Picos time;             // from the arrival of the last member
  std::int64_t hops = 1;  // that it makes, one after the other; where ranks share cores only
};

// What a meeting takes. `group`: into ProgramJob::groups; `call`: of ProgramJob::calls.
using CostOfCall = std::function<CallCost(std::uint32_t group, const ProgramCall& call)>;

// What work and meetings take instead of what the program and the costs say; either may be empty.
// Called from execute() in any order, once for each.
struct DurationVariation {
  // `step`: of the program of the rank that stands for the class.
  std::function<Picos(std::uint32_t rank_class, std::uint32_t step, Picos duration)> work;
  // The `number`-th meeting in a class of groups, from 0.
  std::function<Picos(std::uint32_t group_class, std::uint32_t number, Picos duration)> meeting;
};

struct ExecutionOptions {
  Picos launch;                // the host's overhead for every operation that it puts into a stream
  bool record_issues = false;  // and when steps began
  const DurationVariation* variation = nullptr;  // not owned
};

struct RankOutcome {
  static constexpr Picos kNever{-1};

  Picos end;               // of the last thing that it did
  Picos compute;           // work
  Picos waiting;           // the host waited
  std::uint32_t next = 0;  // the step that the host is in, or steps.size()
  bool done = false;
  // When each step ended, or kNever: of steps that the host did not come to, and of what is stuck.
  std::vector<Picos> ended;
  // Only where asked for: when the host came to each step, and when it began to be carried out:
  // work, and a call once everybody had come.
  std::vector<Picos> issued, began;
};

struct ExecutionResult {
  Picos end;  // the latest of the ranks'; forever(): does not fit
  bool stuck = false;
  std::vector<RankOutcome> classes;  // of the folding's classes
};

ExecutionResult execute(const ProgramJob& job, const Folding& folding, const CostOfCall& cost,
                        const ExecutionOptions& options = {});

// What the calls of a job cost, found once and before any of its programs runs, so that simulating
// it again and again does not price them again.

// Errors: a call that is not simulated.
using PriceOfCall = std::function<Result<CallCost>(std::uint32_t group, const ProgramCall& call)>;

class Prices {
 public:
  // Of every call of every rank. `kinds`: of each group; groups of one kind have equal prices, and
  // one of them is asked for. Empty: each has its own. The first error of `price`. O(steps of ranks
  // with different programs or kinds of groups).
  static Result<Prices> of(const ProgramJob& job, std::vector<std::uint32_t> kinds,
                           const PriceOfCall& price);

  // For the job that these are of, where it lies now or was moved to; valid while this is. May be
  // asked by several threads at once.
  CostOfCall cost_in(const ProgramJob& job) const;

 private:
  std::uint32_t kind_of(std::uint32_t group) const {
    return kinds_.empty() ? group : kinds_[group];
  }

  std::vector<std::uint32_t> kinds_;
  std::unordered_map<std::uint64_t, CallCost> known_;  // by kind, and the call in ProgramJob::calls
};

}  // namespace lockstep::sim
