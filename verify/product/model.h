// ProductModel: a derivation, its sequences and its situations, and what holds in each of these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/derivation.h"
#include "verify/product/evaluation.h"
#include "verify/product/order_graph.h"
#include "verify/product/sequences.h"
#include "verify/product/situations.h"

namespace lockstep::verify {

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
