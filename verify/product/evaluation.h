// Whether ranks agree on every channel, whatever each of them chooses among its sequences.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "verify/product/sequence_table.h"

namespace lockstep::verify {

// The calls of all ranks on a channel on which they agree.
struct ChannelAgreement {
  ChannelId channel;
  std::uint32_t shared = 0;  // into SequenceTable::shared_lists
  std::uint32_t size = 0;
};

// For a rank of a team, whose ranks choose together: the options that lead to each of its
// sequences. Sequences of two members go together where they have an option in common.
struct TeamChoice {
  std::int32_t team = 0;  // its first rank
  // By the index of a sequence in the rank's choices: the team's options that lead to it;
  // ascending.
  std::vector<std::vector<std::uint32_t>> under;
};

struct Evaluation {
  std::vector<std::vector<SequenceId>> choices;  // by rank: its different sequences
  std::map<std::int32_t, TeamChoice> teams;      // of the ranks that do not choose by themselves
  std::vector<std::string> missing;              // the first option that was not recorded
  std::vector<ChannelId> disagreeing;            // ascending
  // Channels within a team that agree under each option, but differ between options.
  std::vector<ChannelId> varying;
  std::vector<ChannelAgreement> agreed;  // all others with several members; ascending
};

// Fills in `disagreeing` and `agreed` from `choices`, ignoring teams. Exact: a channel
// agrees where every choice of every member gives the same calls there. O(choices + their
// projections + members of the channels used + splits).
void compare_choices(const SequenceTable& table, Evaluation& evaluation);

// The different sequences of all ranks, ascending.
std::vector<SequenceId> distinct_sequences(const Evaluation& evaluation);

}  // namespace lockstep::verify
