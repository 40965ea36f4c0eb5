// The figures of the HTML report that are about a whole run, or about both sides of a difference:
// what each shows, then its markup. The picture of a finding's calls is in lanes.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/findings/figures/wait_picture.h"
#include "reports/html/svg.h"
#include "trace/run.h"
#include "verify/report.h"
#include "verify/streams/streams.h"

namespace lockstep::reports {

// The calls of a finding's culprit and those of the other ranks of the group, aligned: where both
// are the same, and where one left out, added or replaced a call.
//
// The alignment is a longest common subsequence of the calls around the finding (Hunt and McIlroy,
// "An Algorithm for Differential File Comparison", 1976). Two calls are the same if they can belong
// together and carry the same parameters in the same step (verify/streams/edits.h).

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

// The recorded numbers of a run as curves over its training steps: the loss, and the norms of the
// most relevant tensors, with the steps in which ranks differed.

struct CurvePoint {
  std::int64_t n = 0;  // step
  double value = 0;    // finite
};

struct Curve {
  std::string label;               // empty: the ranks
  std::vector<trace::Rank> ranks;  // that recorded exactly these values, sorted
  std::vector<CurvePoint> points;
};

struct ValueCurves {
  std::string name;           // the tensor's, or "loss"
  std::string kind;           // "parameter", "gradient after synchronisation" …
  std::vector<Curve> curves;  // those of most ranks first
  std::size_t curves_left_out = 0;
  // For each step that at least two ranks recorded: whether they agree, by hash, else by norm.
  // Empty where ranks may differ (sharded values, gradients before synchronisation, loss).
  struct Agreement {
    std::int64_t n = 0;
    bool agree = true;
  };
  std::vector<Agreement> agreement;
  std::optional<std::int64_t> first_difference;  // the first step in which they do not agree
};

// The mean loss over the ranks, then at most `most` tensors: those that a finding names, then those
// that differ earliest, then those recorded first. For a gradient that a finding names, shows the
// result of the synchronisation beside the mean that it should be, by their sketches. Empty if
// neither was recorded. O(marks log marks).
std::vector<ValueCurves> value_curves(const verify::Report& report, const trace::Run& run,
                                      std::size_t most);

}  // namespace lockstep::reports

namespace lockstep::reports::html {

// Every rank at a glance: a cell per rank in the rows of its group, and a table with its host, its
// last call and what it waits for.

// For larger jobs the page shows kinds of ranks only: it grows by 250 bytes per rank.
inline constexpr std::size_t kMaxRanksShown = 4096;

// Markup; empty for no or too many ranks. The cells stand in the groups that the first finding is
// about, TENSOR_PARALLEL say, else by host. A cell links to its row; the table is folded away. Both
// are left out where nothing is wrong, or nothing sets a rank apart. O(ranks · groups).
std::string rank_overview(const verify::Report& report, const trace::Run& run,
                          const WaitPicture& waits);

// A SequenceDiff as a table: the calls of most ranks on the left, the culprits' on the right.
std::string diff_table(const SequenceDiff& diff, const trace::Run& run);

// Small charts of ValueCurves: a line for each kind of rank, and below it a strip that shows in
// which steps the ranks agreed.
//
// Markup; empty for no curves. Long curves are reduced to as many points as can be seen.
std::string value_charts(const std::vector<ValueCurves>& all);

// The wait-for graph of a run as inline SVG. Ranks that wait for nobody, the culprits, are on the
// left, and a rank that waits is right of those that it waits for. A cycle is drawn as a ring. In a
// narrow window, lines of text show the same.
//
// Markup; empty if nobody waits. A chain of ranks, each waiting for the next, is one node. If the
// graph is larger, only the culprits and their neighbours are drawn, and the caption says how many
// are not. O(nodes + edges).
std::string wait_figure(const WaitPicture& picture);

// The layout of a small wait-for graph: a node is left of those that it waits for. The nodes of a
// cycle form a ring; a node that waits for one of them is on that one's side, so that no arrow
// crosses the ring.

struct WaitLayout {
  std::vector<Box> boxes;  // by node
  double width = 0, height = 0;
  bool has_ring = false;
};

// Edges of mismatched calls do not affect the layout. For a few dozen nodes: O(nodes³ + nodes ·
// edges).
WaitLayout lay_out(std::size_t nodes, const std::vector<WaitEdge>& edges);

}  // namespace lockstep::reports::html
