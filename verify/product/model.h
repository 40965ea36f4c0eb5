// ProductModel: a derivation, its sequences and its situations, and what holds in each of these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/derivation.h"
#include "verify/product/evaluation.h"
#include "verify/product/order_graph.h"
#include "verify/product/sequences.h"

namespace lockstep::verify {

// Situations: what may meet in a step. All assignments of conditions to ranks fall into these.
//
// A situation is a kind of step (the start, step 0, a step that `allowed` names, any other step,
// the end), the set of conditions that may meet there (those of one phase; a single one where all
// ranks agree on it), and the same of step 0, on which later steps depend. Within a situation every
// rank chooses freely among its options, whatever the others choose; ranks that share a batch
// (ProductSpec::together) choose as one.
//
// Bounded: what would cost more than a few minutes to look at is a problem, and not tried.

// A condition that a rank may be in, with the history that it then follows.
struct ProductOption {
  std::uint32_t history = 0;
  std::uint32_t condition = 0;
  friend auto operator<=>(const ProductOption&, const ProductOption&) = default;
};

struct Situation {
  enum class Kind : std::uint8_t { start, first, later, end } kind = Kind::start;
  std::int64_t step = 0;            // the earliest of this kind, of `first` and `later`
  bool any_other = false;           // all steps after 0 that `allowed` does not name
  std::uint32_t condition_set = 0;  // into Situations::meets
  std::uint32_t past = 0;           // of `later`: into meets, the one of step 0
};

class Situations {
 public:
  // Keeps a reference to `spec`. `second_alone`: step 1 is a kind of step of its own.
  Situations(const trace::ProductSpec& spec, bool second_alone);

  // The sets of conditions that may meet in one step; ascending.
  const std::vector<std::vector<std::uint32_t>>& condition_sets() const { return condition_sets_; }
  // By time.
  const std::vector<Situation>& all() const { return all_; }
  // Why there is no assignment for some step, or no history for a first condition; empty: fine.
  const std::vector<std::string>& problems() const { return problems_; }

  // A rank's options, never none. For start and end: one history, whose condition means nothing.
  std::vector<ProductOption> options(const Situation& situation, std::int32_t rank) const;

  // The ranks that choose as one with this one, itself included; ascending.
  const std::vector<std::int32_t>& team_of(std::int32_t rank) const {
    return teams_[static_cast<std::size_t>(rank)];
  }
  // The conditions of `condition_set` that the rank, and all of its team, may be in at the step;
  // ascending.
  std::vector<std::uint32_t> conditions(std::uint32_t condition_set, std::int32_t rank,
                                        std::int64_t step) const;
  // Whether every rank has such a condition.
  bool possible(std::uint32_t condition_set, std::int64_t step) const;
  // The history that begins with the condition; kNothing: none.
  std::uint32_t history_of(std::uint32_t condition) const { return history_of_[condition]; }

 private:
  const std::vector<std::uint32_t>& allowed(std::int32_t rank, std::int64_t step) const;
  void find_condition_sets();
  void list_steps(bool second_alone);
  void add_later(std::int64_t step, bool any_other, const std::vector<std::uint32_t>& pasts);
  void check_size();
  void check_histories();

  const trace::ProductSpec& spec_;
  std::vector<std::uint32_t> every_;              // condition
  std::vector<std::vector<std::int32_t>> teams_;  // by rank
  std::vector<std::uint32_t> history_of_;
  std::vector<std::vector<std::uint32_t>> condition_sets_;
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

  // What a rank does in a situation under an option; of `end` and `start`, in any history.
  const RecordedPart& recorded(const Situation& situation, std::int32_t rank,
                               const ProductOption& option) const;

  // The same of a step; step 1 may be a part of its own (sequences.h), recorded under one condition
  // a history.
  const RecordedPart& at_step(std::uint32_t history, std::int32_t rank, std::int64_t step,
                              std::uint32_t condition) const;

  // O(options of all ranks + their projections + members of the channels used).
  Evaluation evaluate(const Situation& situation) const;
  // The same where each rank does one thing: by rank, a sequence, or kNothing for ranks that are
  // left out.
  std::vector<std::uint32_t> disagreeing(const std::vector<std::uint32_t>& sequences) const;

  // Whether all members of the channel choose as one.
  bool within_team(std::uint32_t channel) const;
  // What each rank of the team does under an option; kNothing for the others and what was not
  // recorded. By rank.
  std::vector<std::uint32_t> team_sequences(const Situation& situation, std::int32_t rank,
                                            const ProductOption& option) const;
  // Whether it was recorded what the rank and its team do under the option.
  bool was_recorded(const Situation& situation, std::int32_t rank,
                    const ProductOption& option) const;

 private:
  void note_teams(const Situation& situation, Evaluation& out) const;
  void forgive_teams(const Situation& situation, Evaluation& out) const;

  const trace::Derivation& derivation_;
  ProductSequences sequences_;
  Situations situations_;
  bool nccl_ = false;
};

}  // namespace lockstep::verify
