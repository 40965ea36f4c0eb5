// The calls of a finding's culprit and those of the other ranks of the group, aligned: where both
// are the same, and where one left out, added or replaced a call.
//
// The alignment is a longest common subsequence of the calls around the finding (Hunt and McIlroy,
// "An Algorithm for Differential File Comparison", 1976). Two calls are the same if they can belong
// together and carry the same parameters in the same step (verify/streams/edits.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/run.h"
#include "verify/report.h"
#include "verify/streams/streams.h"

namespace lockstep::reports {

struct DiffSide {
  std::uint32_t rank_index = 0;    // into Run::ranks: one rank that made these calls
  std::vector<trace::Rank> ranks;  // all of them, sorted
  bool ends = false;               // the sequence ends within the window
};

struct DiffRow {
  std::optional<std::uint32_t> usual, deviant;  // indices in the side's RankTrace::calls
  std::uint64_t usual_seq = 0, deviant_seq = 0;
  bool same = false;
};

struct SequenceDiff {
  DiffSide usual, deviant;
  std::vector<DiffRow> rows;
};

// Empty if the finding has no position in a group's sequence, or no culprit whose sequence differs
// there. `groups`: of `run`. O(members of the group) + 48 · 48.
std::optional<SequenceDiff> sequence_diff(const verify::Finding& finding, const trace::Run& run,
                                          const std::vector<verify::GroupStreams>& groups);

}  // namespace lockstep::reports

// A SequenceDiff as a table: the calls of most ranks on the left, the culprits' on the right.

namespace lockstep::reports::html {

std::string diff_table(const SequenceDiff& diff, const trace::Run& run);

}  // namespace lockstep::reports::html
