// The calls of a finding's culprit beside those that the other ranks of the group made, aligned:
// where both did the same, where one left something out, added it or did something else.
//
// The alignment is a longest common subsequence of the calls around the finding's place (Hunt and
// McIlroy, "An Algorithm for Differential File Comparison", 1976), where calls are the same that
// may belong together and carry the same parameters in the same step (verify/streams/edits.h).
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
  std::uint32_t rank_index = 0;    // into Run::ranks: one of those that made these calls
  std::vector<trace::Rank> ranks;  // all of them, sorted
  bool ends = false;               // the sequence ends within what is shown
};

struct DiffRow {
  std::optional<std::uint32_t> usual, deviant;  // into the side's RankTrace::calls
  std::uint64_t usual_seq = 0, deviant_seq = 0;
  bool same = false;
};

struct SequenceDiff {
  DiffSide usual, deviant;
  std::vector<DiffRow> rows;
};

// Nothing where the finding has no place in a group's sequence, or no culprit whose sequence
// differs from somebody else's there. `groups`: of `run`. O(members of the group) + 48 · 48.
std::optional<SequenceDiff> sequence_diff(const verify::Finding& finding, const trace::Run& run,
                                          const std::vector<verify::GroupStreams>& groups);

}  // namespace lockstep::reports

// A SequenceDiff as a table: what most ranks called on the left, what the culprits called on the
// right.

namespace lockstep::reports::html {

std::string diff_table(const SequenceDiff& diff, const trace::Run& run);

}  // namespace lockstep::reports::html
