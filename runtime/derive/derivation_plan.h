// The plan of a derivation: the conditions on which a scenario's program branches in a step, and
// which of them its ranks can be in. Recording these is enough to know every sequence of calls.
//
// A condition is the contents of a step's batch, and the answers that ranks got when they asked
// each other (a vote, an overflow). The assumption: the calls of a rank in a step depend on the
// step's condition and on that of the first step (which orders the buckets of LibTorch's DDP);
// where the strategy has a longer memory (`looks_back`, `second_counts`), on that of the step
// before or of the second step; and on nothing else. Recording each condition, or pair of them,
// twice shows where this does not hold.
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
  std::string phase;          // conditions of different phases never occur in the same step
  std::vector<Modality> has;  // of the batch; sorted
  bool dissent = false;       // another rank dissents, in the vote or by an overflow
  bool overflow = false;      // the rank's own gradients overflow
  // The number of tokens after which the rank's texts end, or those of all ranks if they wait for
  // the last one; nothing: no texts are generated after the step.
  std::optional<int> tokens = {};

  friend bool operator==(const Condition&, const Condition&) = default;
};

struct DerivationPlan {
  std::vector<Condition> conditions;
  bool agreed = false;  // in a step all ranks are in the same condition
  // Nobody clears gradients, so a batch with images leaves its own to later ones without. Then the
  // first round of later_steps() begins with the last conditions, which use less of the model:
  // these come before the others and after them, and the difference shows.
  bool gradients_stay = false;
  // What a step calls depends on the condition of the step before, too: FSDP gathers ahead what the
  // pass before used.
  bool looks_back = false;
  // What later steps call depends on the second step, too: with static_graph, DDP arranges its
  // buckets after it.
  bool second_counts = false;
  // Ranks that train on one batch, so they are in the same condition: the stages of a pipeline's
  // replicas. The calls of one depend on messages of the others. Either every rank is in one of
  // these lists; or there are none, and each rank has its own batch.
  std::vector<std::vector<int>> together;
  // Which conditions (indices in `conditions`) a rank can be in at a step. The first entry that
  // applies decides; if none does, all are possible.
  struct Allowed {
    std::vector<int> ranks;           // empty: every rank
    std::vector<std::int64_t> steps;  // empty: every step
    std::vector<std::size_t> conditions;
  };
  std::vector<Allowed> allowed;
  // What the batches of some ranks may hold at all, by the modality rules; only the first rank of
  // each replica counts. The last kind is of all ranks that the others do not list.
  struct Kind {
    std::vector<int> ranks;
    std::vector<std::vector<Modality>> has;  // not empty
  };
  std::vector<Kind> kinds;
  std::optional<std::int64_t> only_steps;  // the job's steps; nothing: it holds for any number
  std::vector<std::string> assumptions;    // sentences for people

  // How a history begins: with these conditions in step 0 and, where that counts, in step 1.
  struct History {
    std::size_t first = 0;
    std::optional<std::size_t> second = {};
  };
  // Each beginning that there may be.
  std::vector<History> histories() const;
  // The conditions that a first step may have, from 0 on.
  std::size_t first_conditions() const;
  // The conditions of the steps that follow, in every history: each condition at least twice; where
  // the job looks back, each after each other at least twice. If the job generates texts after some
  // steps only, every second one of these steps does.
  std::vector<std::size_t> later_steps() const;
  // The conditions of all its steps.
  std::vector<std::size_t> steps_of(const History& history) const;
};

// Errors: jobs that cannot be run rank by rank (replays; batches that are balanced by measured
// time); texts of more than kMaxLengths different lengths.
inline constexpr std::size_t kMaxLengths = 16;
Result<DerivationPlan> derivation_plan(const Scenario& scenario);

// Whether rank 0 may be in the condition in a step, by what the job of so many ranks allows it and
// the others. O(ranks + ranks that `allowed` names).
bool rank_0_may_be_in(const DerivationPlan& plan, int ranks, std::int64_t step,
                      std::size_t condition);

// The ranks that must run together: those of a replica, or each alone.
std::vector<std::vector<int>> teams(const Scenario& scenario);

// Why a job needs the values of tensors, so that it cannot be derived on LibTorch's meta device;
// nothing: it does not.
std::optional<std::string> needs_values(const Scenario& scenario);

// The steps of the history in which another rank dissents.
std::vector<std::int64_t> history_dissent(const DerivationPlan& plan,
                                          const DerivationPlan::History& history);

// For the job itself: the steps in which another rank dissents, as far as its `modality` and
// `outliers` say.
std::vector<std::int64_t> dissent_steps(const Scenario& scenario, int rank);

// Classes of ranks that a job does not distinguish. One rank of each class is recorded for all
// (docs/derive.md). Returns, by rank, the first rank of its class: its trace is the rank's own once
// it is moved to the rank's copy (trace/spread.h).
//
// A rank's number only decides whether it is a root (rank 0), whether it is in the group of the
// ranks with images, how many micro-batches it takes, and its index in its copy. Ranks of two
// copies are in one class only if all ranks of these copies are. `differs`: by rank, a number for
// everything else in which ranks differ; empty: nothing else. O(ranks · log).
std::vector<std::int32_t> representatives(const Scenario& scenario,
                                          const std::vector<std::uint32_t>& differs = {});

}  // namespace lockstep::runtime
