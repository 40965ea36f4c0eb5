// Whether ranks agree on every channel, whatever each of them chooses among its sequences.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/product/sequence_table.h"

namespace lockstep {

// What all ranks do on a channel, where they agree.
struct ChannelAgreement {
  std::uint32_t channel = 0;
  std::uint32_t shared = 0;  // into SequenceTable::shared_lists
  std::uint32_t size = 0;
};

struct Evaluation {
  std::vector<std::vector<std::uint32_t>> choices;  // by rank: its different sequences
  std::vector<std::string> missing;                 // what a rank does was not recorded; the first
  std::vector<std::uint32_t> disagreeing;           // channels, ascending
  std::vector<ChannelAgreement> agreed;             // the others; ascending, no lonely ones
};

// Fills in `disagreeing` and `agreed` from `choices`. Exact: a channel agrees where every choice of
// every member gives the same calls there. O(choices + their projections + members of the channels
// used + splits).
void compare_choices(const SequenceTable& table, Evaluation& evaluation);

// The different sequences of all ranks, ascending.
std::vector<std::uint32_t> distinct_sequences(const Evaluation& evaluation);

}  // namespace lockstep
