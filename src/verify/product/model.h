// ProductModel: a derivation, its sequences and its situations, and what holds in each of these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/derivation.h"
#include "verify/product/order_graph.h"
#include "verify/product/sequences.h"
#include "verify/product/situations.h"

namespace lockstep {

// What all ranks do on a channel in a situation, where they agree.
struct ChannelAgreement {
  std::uint32_t channel = 0;
  std::uint32_t shared = 0;  // into ProductSequences::shared_lists
  std::uint32_t size = 0;
};

struct Evaluation {
  std::vector<std::vector<std::uint32_t>> choices;  // by rank: its different sequences
  std::vector<std::string> missing;                 // what a rank does was not recorded; the first
  std::vector<std::uint32_t> disagreeing;           // channels, ascending
  std::vector<ChannelAgreement> agreed;             // the others; ascending, no lonely ones
};

class ProductModel {
 public:
  // Keeps a reference to `derivation`.
  explicit ProductModel(const Derivation& derivation);

  const Derivation& derivation() const { return derivation_; }
  const ProductSpec& spec() const { return derivation_.spec; }
  const ProductSequences& sequences() const { return sequences_; }
  const Situations& situations() const { return situations_; }
  bool nccl() const { return nccl_; }
  std::int32_t ranks() const { return derivation_.spec.world_size; }

  // What a rank does in a situation under an option; of `end` and `start`, in any history.
  const RecordedPart& recorded(const Situation& situation, std::int32_t rank,
                               const ProductOption& option) const;

  // O(options of all ranks + their projections + members of the channels used).
  Evaluation evaluate(const Situation& situation) const;
  // The same where each rank does one thing: by rank, a sequence or kNothing.
  std::vector<std::uint32_t> disagreeing(const std::vector<std::uint32_t>& sequences) const;
  // The different sequences of all ranks.
  static std::vector<std::uint32_t> distinct(const Evaluation& evaluation);

 private:
  void compare(Evaluation& evaluation) const;

  const Derivation& derivation_;
  ProductSequences sequences_;
  Situations situations_;
  bool nccl_ = false;
};

}  // namespace lockstep
