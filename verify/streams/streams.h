// Streams: the sequences of collectives that the members of each process group issued, and which
// ranks issued the same one.
//
// Ranks with equal streams form a class, so that everything after this costs what the number of
// *different* ranks costs, however many ranks there are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/run.h"

namespace lockstep::verify {

// One member's collectives in one group, in order.
struct Stream {
  std::uint32_t rank_index = 0;      // into Run::ranks
  std::vector<std::uint32_t> calls;  // into RankTrace::calls
  // Those in front of `calls` that not all members' recorders kept; they are judged by nobody.
  std::vector<std::uint32_t> earlier;
  std::uint64_t hash = 0;  // over signature, parameters and step of each of `calls`
};

// Ranks that issued the same sequence.
struct StreamClass {
  std::vector<std::uint32_t> streams;  // into GroupStreams::streams, ascending
};

struct GroupStreams {
  trace::GroupId group;
  std::string name;
  std::vector<trace::Rank> members;  // what most ranks say, in group order
  std::vector<Stream> streams;       // of the members whose trace is there, by rank
  std::vector<trace::Rank> absent;   // members without a trace
  std::vector<StreamClass> classes;
  std::uint64_t first_seq = 0;  // the number of the first call of every stream
  bool comparable = true;       // false: streams start mid-run and nothing lines them up
};

// All groups in which anything was issued or that a rank declared, by name.
// O(calls + members of all groups · log): memberships and calls are gone through once for all
// groups.
std::vector<GroupStreams> group_streams(const trace::Run& run);

}  // namespace lockstep::verify
