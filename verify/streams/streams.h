// Streams: the sequences of collectives that the members of each process group issued, and which
// ranks issued the same one.
//
// Ranks with equal streams form a class, so the cost of the later analyses follows the number of
// *different* ranks.
//
// The other files of the folder ask of ranks that differ:
//
//   where, and in what?       deviations.h, which walks the classes side by side (alignment.h) by
//                             agreement.h (may two calls be one collective?) and edits.h
//   which side is right?      reference.h: by number, else by left_out.h, batches.h,
//                             sister_groups.h and a rank's own past: past.h (what came at this
//                             place before), rounds.h (which round it is in), loops.h
//   and over all groups?      programs.h, rank_programs.h: what ranks of one kind do;
//                             odd_programs.h, odd_program_edit.h: whose program diverges, and how
//   and if calls look alike?  by counting: messages and calls of a round (exchanges.h,
//                             uneven_rounds.h), calls of a step (step_counts.h)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/run.h"

namespace lockstep::verify {

// One member's collectives in one group, in order.
struct Stream {
  std::uint32_t rank_index = 0;      // into Run::ranks
  std::vector<std::uint32_t> calls;  // into RankTrace::calls
  // Calls before `calls` that some members' recorders have already dropped. They are not compared.
  std::vector<std::uint32_t> earlier;
  std::uint64_t hash = 0;  // over signature, parameters and step of each of `calls`
};

// Ranks that issued the same sequence.
struct StreamClass {
  std::vector<std::uint32_t> streams;  // into GroupStreams::streams, ascending
};

// Where the members' recorded numbers of a group's calls diverge: a member skipped a number that
// others have, so that its recording lacks a call, or its calls are paired with the wrong ones.
struct DivergentNumbers {
  std::vector<std::uint32_t> deviants;  // the fewer, rank indices, ascending
  std::vector<std::uint32_t> others;
  std::uint32_t call = 0;        // where they diverge, into RankTrace::calls of the first deviant
  std::uint64_t others_seq = 0;  // what the others number the call at the same index
};

struct GroupStreams {
  trace::GroupId group;
  std::string name;
  std::vector<trace::Rank> members;  // as most ranks declare them, in group order
  bool declared = true;              // false: no rank did; `members` are those known to use it
  std::vector<Stream> streams;       // of the members that have a trace, ascending by rank index
  std::vector<trace::Rank> absent;   // members without a trace, ascending
  std::vector<StreamClass> classes;
  std::uint64_t first_seq = 0;  // sequence number of the first call of every stream
  bool comparable = true;       // false: streams start mid-run and nothing aligns them
  std::optional<DivergentNumbers> divergent_numbers;
};

// The stream of a rank (a rank index); null where it is no member, or has no trace. O(log members).
const Stream* stream_of(const GroupStreams& group, std::uint32_t rank);

// Whether a trace knows the size of the job. The watchdog's messages do not. O(ranks).
bool knows_world_size(const trace::Run& run);
// Whether the size is known, and each rank has a trace: of a group that nobody declared, a rank
// without one may be a member.
bool knows_all_ranks(const trace::Run& run);

// All groups that a rank declared or issued a collective in, sorted by name.
// O(calls + members of all groups · log): one pass over memberships and calls serves all groups.
std::vector<GroupStreams> group_streams(const trace::Run& run);

}  // namespace lockstep::verify
