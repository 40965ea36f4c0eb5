// What is to be looked at to know every sequence of calls that a scenario's job can make: the
// conditions that its program branches on in a step, and which of them its ranks may meet.
//
// A condition is what a step's batch holds, and what the ranks were told when they asked each other
// (a vote, an overflow). What a rank calls in a step is taken to depend on the step's condition, on
// that of the first step (LibTorch's DDP orders its buckets by it), and on nothing else; looking at
// each condition twice shows where that is not so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/job/scenario.h"

namespace lockstep::runtime {

struct Condition {
  std::string name;           // "image+text", "text; another rank has images"
  std::string phase;          // conditions of different phases never meet in one step
  std::vector<Modality> has;  // of the batch; sorted
  bool dissent = false;       // another rank dissents: in the vote, or by an overflow
  bool overflow = false;      // the rank's own gradients overflow

  friend bool operator==(const Condition&, const Condition&) = default;
};

struct DerivationPlan {
  std::vector<Condition> conditions;
  bool agreed = false;  // all ranks meet the same condition in a step
  // Ranks that train on one batch, and so meet the same condition: the stages of a pipeline's
  // replicas. What one of them calls depends on the messages of the others. Empty: each rank has a
  // batch of its own. Else every rank is in one.
  std::vector<std::vector<int>> together;
  // Which conditions (by place in `conditions`) a rank may meet at a step: the first that fits;
  // where none fits: all.
  struct Allowed {
    std::vector<int> ranks;           // empty: every rank
    std::vector<std::int64_t> steps;  // empty: every step
    std::vector<std::size_t> conditions;
  };
  std::vector<Allowed> allowed;
  // That never have an image, by the modality rules; of a replica the first stands for all.
  std::vector<int> text_ranks;
  std::vector<std::string> assumptions;  // sentences for people

  // The conditions of steps 1, 2, … of every history: each twice.
  std::vector<std::size_t> later_steps() const;
};

// Errors: jobs that cannot be looked at rank by rank (batches that are shared out by measured
// time).
Result<DerivationPlan> derivation_plan(const Scenario& scenario);

// The ranks in the teams that are to be looked at together: together's, or each alone.
std::vector<std::vector<int>> teams(const Scenario& scenario);

// What of a job needs the values of tensors, so that it cannot be derived on LibTorch's meta
// device, where there are none; nothing: it can.
std::optional<std::string> needs_values(const Scenario& scenario);

// The scenario, as text, of the history whose first step meets `first` and whose later steps are
// the plan's: nothing is watched, evaluated or expected; checkpoints, where the job makes any, are
// saved in every step, beside `file`. `text`: the scenario's own.
// Errors: as parse_scenario.
Result<std::string> history_scenario(const std::string& text, const std::string& file,
                                     const DerivationPlan& plan, std::size_t first);
// The steps of that history in which another rank dissents.
std::vector<std::int64_t> history_dissent(const DerivationPlan& plan, std::size_t first);

// The scenario in which each rank meets, in each step, the condition that `conditions` says (by
// step, then by rank): what `lockstep run` shows a counterexample with. Errors: as parse_scenario.
Result<std::string> assignment_scenario(const std::string& text, const std::string& file,
                                        const DerivationPlan& plan,
                                        const std::vector<std::vector<std::size_t>>& conditions);

// Of the job itself: the steps in which some rank other than this one dissents, as far as its
// `modality` and `outliers` tell.
std::vector<std::int64_t> dissent_steps(const Scenario& scenario, int rank);

// Ranks that a job does not tell apart: of each such class one stands for all when it is asked what
// they call (docs/derive.md).

// Classes by their first rank; in each the ranks, ascending. Every rank is in one. A rank's number
// decides only whether it is a root (rank 0), whether it is among the ranks with images where these
// have a group of their own, and how many micro-batches it takes; what it may meet in a step is no
// part of this.
// Errors: jobs whose groups differ from rank to rank (HSDP, pipelines).
Result<std::vector<std::vector<int>>> rank_classes(const Scenario& scenario);

}  // namespace lockstep::runtime
