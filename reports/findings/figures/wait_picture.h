// Who waits for whom at the end of a run, as the graph that pictures draw.
//
// Ranks that wait in the same call, or that the same calls miss, share a node, so that a job of
// thousands of ranks has a handful. An edge points from who waits to who is waited for.
//
// It is the wait-for graph by which verify() judges (verify/replay/replay.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "trace/run.h"
#include "verify/replay/replay.h"
#include "verify/replay/semantics.h"
#include "verify/report.h"
#include "verify/streams/agreement.h"
#include "verify/streams/streams.h"

namespace lockstep::reports {

struct WaitNode {
  std::vector<trace::Rank> ranks;  // sorted
  std::string call;                // in which they wait; empty: in none
  std::string place;               // of it: "group world, seq 4"
  std::string state;               // "waits", "finished", "killed", "no trace" …
  bool culprit = false;            // of a finding that is an error or a warning
};

struct WaitEdge {
  std::size_t from = 0, to = 0;  // into nodes
  enum class Kind : unsigned char {
    missing,   // `to` has not come to the call of `from`
    any,       // … and one of these edges is enough: a receive from any source
    mismatch,  // both are there, and their calls do not fit together
    unknown,   // `to` left no trace: it may be there
  } kind = Kind::missing;
};

struct WaitPicture {
  std::vector<WaitNode> nodes;  // those that wait first, then by first rank
  std::vector<WaitEdge> edges;
  std::size_t edges_left_out = 0;  // beyond kMostEdges
  static constexpr std::size_t kMostEdges = 20'000;
};

// `semantics`: as given to verify(). Text is as traces have it: escape it. Costs a replay, and the
// search over receives from any source where there are some.
WaitPicture wait_picture(const verify::Report& report, const trace::Run& run,
                         std::optional<verify::CallSemantics> semantics = std::nullopt);

// Where each rank stands at the end of a run, for pictures of it: what the replay of verify()
// finds, by its rules.

// `groups`: group_streams(run). `semantics`: those by which verify() judged; nothing: the traces'.
// Cost: the replay's, and with receives from any source a bounded search
// (verify/schedules/search.h).
verify::ReplayResult replayed(const trace::Run& run,
                              const std::vector<verify::GroupStreams>& groups,
                              verify::Agreement& agreement,
                              std::optional<verify::CallSemantics> semantics);

}  // namespace lockstep::reports
