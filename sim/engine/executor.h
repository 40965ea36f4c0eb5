// Runs a job's programs when ranks share no core: no queue of events is needed, only the longest
// path through the operations; and where calls share links, a queue of those calls alone.
//
// Whatever can advance advances, in any order. The end of an operation is the maximum of the times
// that it waits for, plus its duration, so the times do not depend on the order in which they are
// found. A rank is walked until its host waits for an operation whose end is not known yet. The
// last member to arrive at a collective fixes its end and wakes the others. When nobody can go on
// and some ranks are not done, the job is stuck in every schedule: collectives match by (group,
// number), so the matching is unique.
//
// Calls that share links (ExecutionOptions::links) end when the links let them. Whatever can
// advance does so first; then the clock of the links moves to the next begin or end of a call. That
// is safe: what a call's end sets free, and so every call that is not complete yet, begins no
// earlier than that end.
//
// O(steps of the different ranks + arrivals at collectives), and what sim/engine/shared_links.h
// says.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "sim/engine/program.h"
#include "sim/engine/shared_links.h"

namespace lockstep::sim {

struct CallCost {
  Picos time;             // from the arrival of the last member
  std::int64_t hops = 1;  // sequential hops in it; used only where ranks share cores
};

// The cost of a collective. `group` indexes ProgramJob::groups; `call` is an element of
// ProgramJob::calls (Prices finds it by its address).
using CostOfCall = std::function<CallCost(std::uint32_t group, const ProgramCall& call)>;

// Replaces the durations of work and collectives; either function may be empty. execute() calls
// them in any order, once for each.
struct DurationVariation {
  // `step` indexes the program of the rank that represents the class.
  std::function<Picos(std::uint32_t rank_class, std::uint32_t step, Picos duration)> work;
  // The collective with sequence number `number`, from 0, in a class of groups.
  std::function<Picos(std::uint32_t group_class, std::uint32_t number, Picos duration)>
      call_duration;
};

struct ExecutionOptions {
  Picos launch;                // overhead of the host for each operation that it puts into a stream
  bool record_issues = false;  // also fill RankOutcome::issued and ::began
  const DurationVariation* variation = nullptr;  // not owned
  const SharedLinks* links = nullptr;            // not owned; null: no call slows another down
};

struct RankOutcome {
  static constexpr Picos kNever{-1};

  Picos end;               // of its last operation
  Picos compute;           // total work
  Picos waiting;           // how long the host was blocked on calls
  std::uint32_t next = 0;  // the step that the host is at, or steps.size()
  bool done = false;
  // When each step ended; kNever for steps that the host did not reach or that are stuck.
  std::vector<Picos> ended;
  // Filled only with record_issues: when the host reached each step, and when the step began to run
  // (a call: when its last member arrived).
  std::vector<Picos> issued, began;
};

struct ExecutionResult {
  Picos end;  // the latest end of any rank; forever(): beyond the range of the clock
  bool stuck = false;
  std::vector<RankOutcome> classes;  // one for each class of the folding
  // Calls that links which they share, or which are too narrow, slowed down, and the most that one
  // took over what it takes alone.
  std::uint64_t slowed_calls = 0;
  double most_slowed = 1;
};

// `folding` is of `job`: fold() or unfolded(). Nothing is kept after the return.
ExecutionResult execute(const ProgramJob& job, const Folding& folding, const CostOfCall& cost,
                        const ExecutionOptions& options = {});

// The costs of a job's calls, found once before its programs run, so that simulating the job many
// times does not price them again.

// Errors: a call that is not modelled.
using PriceOfCall = std::function<Result<CallCost>(std::uint32_t group, const ProgramCall& call)>;

class Prices {
 public:
  // The costs of every call of every rank. `kinds`: for each group; groups of one kind have equal
  // costs, and `price` is asked for one of them. Empty: each group has its own. Errors: the first
  // of `price`. O(steps of ranks with different programs or kinds of groups).
  static Result<Prices> of(const ProgramJob& job, std::vector<std::uint32_t> kinds,
                           const PriceOfCall& price);

  // A cost function for the job that was priced (or moved since: calls are found by their index);
  // valid while this object is. Several threads may use it at once.
  CostOfCall cost_in(const ProgramJob& job) const;

 private:
  std::uint32_t kind_of(std::uint32_t group) const {
    return kinds_.empty() ? group : kinds_[group];
  }

  std::vector<std::uint32_t> kinds_;
  std::unordered_map<std::uint64_t, CallCost>
      known_;  // by kind of group, and index in ProgramJob::calls
};

}  // namespace lockstep::sim
