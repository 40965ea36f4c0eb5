// ProductModel: a derivation, its sequences and its situations, and what holds in each of these.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trace/derivation.h"
#include "verify/product/evaluation.h"
#include "verify/product/order_graph.h"
#include "verify/product/sequences.h"

namespace lockstep::verify {

// Situations: the cases into which all assignments of conditions to ranks fall.
//
// A situation has three parts:
//   - a kind of step: the start, step 0, a step that `allowed` names, any other step, or the end;
//   - the set of conditions that ranks may be in at the same time: those of one phase, or a single
//     one where all ranks agree on it;
//   - the set of step 0, because later steps depend on how the first one went; and one more: that
//   of
//     the step before, where the program looks back (ProductSpec::looks_back); or that of step 1,
//     where histories go on to it (ProductSpec::History::second).
// Within a situation every rank chooses freely among its options, whatever the others choose. Ranks
// that share a batch (ProductSpec::together) form a *team* and choose as one.
//
// A derivation whose situations would take more than a few minutes to examine is refused: see
// problems().

// What a rank may choose: a condition, and the history that it follows (its condition in step 0,
// and in step 1 where histories go on to it). `previous`: its condition in the step before, of
// steps after 0 of a program that looks back.
struct ProductOption {
  HistoryId history;
  ConditionId condition;
  ConditionId previous = {};
  friend auto operator<=>(const ProductOption&, const ProductOption&) = default;
};

struct Situation {
  enum class Kind : std::uint8_t { start, first, later, end } kind = Kind::start;
  std::int64_t step = 0;             // the earliest of this kind, of `first` and `later`
  bool any_other = false;            // all steps after 0 that `allowed` does not name
  std::uint32_t condition_set = 0;   // index in Situations::condition_sets()
  std::uint32_t past_set = 0;        // of `later`: the index of step 0's set
  std::uint32_t other_past_set = 0;  // of `later` from step 2 on: of the other step that counts
};

class Situations {
 public:
  // Keeps a reference to `spec`. `second_alone`: step 1 has calls of step 0, so it is a kind of
  // step of its own.
  Situations(const trace::ProductSpec& spec, bool second_alone);

  // The sets of conditions that ranks may be in in the same step; each ascending.
  const std::vector<std::vector<ConditionId>>& condition_sets() const { return condition_sets_; }
  // In the order of their steps.
  const std::vector<Situation>& all() const { return all_; }
  // Why the derivation cannot be decided: a step without any allowed assignment, a first condition
  // without a history, too much work. Empty: it can be.
  const std::vector<std::string>& problems() const { return problems_; }

  // A rank's options, at least one. For start and end: one, whose condition means nothing.
  std::vector<ProductOption> options(const Situation& situation, std::int32_t rank) const;

  // The rank's team, itself included; ascending.
  const std::vector<std::int32_t>& team_of(std::int32_t rank) const {
    return teams_[static_cast<std::size_t>(rank)];
  }
  // The conditions of `condition_set` that the rank, and all of its team, may be in at the step;
  // ascending.
  std::vector<ConditionId> conditions(std::uint32_t condition_set, std::int32_t rank,
                                      std::int64_t step) const;
  // Whether every rank has such a condition.
  bool possible(std::uint32_t condition_set, std::int64_t step) const;
  // The history that begins with the condition and, where histories go on to step 1, has `second`
  // there; or kNoHistory.
  HistoryId history_of(ConditionId first, ConditionId second) const;
  // From step 2 on, a situation has an `other_past_set`, of this step.
  std::optional<std::int64_t> other_past(std::int64_t step) const {
    if (step < 2 || (!spec_.looks_back && !spec_.has_seconds())) return std::nullopt;
    return spec_.looks_back ? step - 1 : 1;
  }

 private:
  const std::vector<ConditionId>* allowed(std::int32_t rank, std::int64_t step) const;
  void find_condition_sets();
  void list_steps(bool second_alone);
  void add_later(std::int64_t step, bool any_other, const std::vector<std::uint32_t>& pasts);
  void check_size();
  void check_histories();

  const trace::ProductSpec& spec_;
  std::vector<std::vector<std::int32_t>> teams_;  // by rank
  // By the conditions of step 0, and of step 1 where histories go on to it.
  std::map<std::pair<ConditionId, ConditionId>, HistoryId> history_of_;
  std::vector<std::vector<ConditionId>> condition_sets_;
  std::vector<Situation> all_;
  std::vector<std::string> problems_;
};

class ProductModel {
 public:
  // Keeps a reference to `derivation`.
  explicit ProductModel(const trace::Derivation& derivation);

  const trace::Derivation& derivation() const { return derivation_; }
  const trace::ProductSpec& spec() const { return derivation_.spec; }
  const ProductSequences& sequences() const { return sequences_; }
  const Situations& situations() const { return situations_; }
  bool nccl() const { return nccl_; }
  std::int32_t ranks() const { return derivation_.spec.world_size; }

  // What a rank does in a situation under an option. Start and end are the same in all histories:
  // the first that recorded them counts.
  const RecordedPart& recorded(const Situation& situation, std::int32_t rank,
                               const ProductOption& option) const;

  // What it does in a step. Step 1 may be a part of its own (sequences.h); then it is recorded
  // under one condition per history.
  const RecordedPart& at_step(std::int32_t rank, std::int64_t step,
                              const ProductOption& option) const;
  // The condition under which a step of a history was recorded.
  ConditionId recorded_condition(HistoryId history, std::int64_t step) const {
    return spec().recorded_condition(history, step);
  }

  // O(options of all ranks + their projections + members of the channels used).
  Evaluation evaluate(const Situation& situation) const;
  // The channels that disagree where each rank has one sequence; kNoSequence leaves a rank out.
  std::vector<ChannelId> disagreeing(const std::vector<SequenceId>& sequences) const;

  // Whether all members of the channel are in one team.
  bool within_team(ChannelId channel) const;
  // By rank: what the members of the rank's team do under an option; kNoSequence for all other
  // ranks, and where nothing was recorded.
  std::vector<SequenceId> team_sequences(const Situation& situation, std::int32_t rank,
                                         const ProductOption& option) const;
  // Whether the derivation recorded what the rank and its team do under the option.
  bool was_recorded(const Situation& situation, std::int32_t rank,
                    const ProductOption& option) const;

 private:
  void add_team_choices(const Situation& situation, Evaluation& out) const;
  void accept_differences_within_teams(const Situation& situation, Evaluation& out) const;

  const trace::Derivation& derivation_;
  ProductSequences sequences_;
  Situations situations_;
  bool nccl_ = false;
};

}  // namespace lockstep::verify
