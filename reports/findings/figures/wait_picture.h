// Who waits for whom at the end of a run, as the graph that pictures draw.
//
// Ranks that wait in the same call, or that the same calls wait for, share a node, so a job of
// thousands of ranks has a handful of nodes. An edge points from a waiting node to the one that it
// waits for. This is the wait-for graph by which verify() judges (verify/replay/replay.h).
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
  std::string location;            // of the call: "group world, seq 4"
  std::string state;               // "waits", "finished", "killed", "no trace" …
  bool culprit = false;            // of an error or a warning, or of the headline
};

struct WaitEdge {
  std::size_t from = 0, to = 0;  // into nodes
  enum class Kind : unsigned char {
    missing,   // `to` has not reached the call of `from`
    any,       // … and one such edge is enough: a receive from any source
    mismatch,  // both are there, but their calls do not match
    unknown,   // `to` left no trace: it may be there
  } kind = Kind::missing;
};

struct WaitPicture {
  std::vector<WaitNode> nodes;  // those that wait first, then by first rank
  std::vector<WaitEdge> edges;
  std::size_t edges_left_out = 0;  // beyond kMaxEdges
  static constexpr std::size_t kMaxEdges = 20'000;
};

// `semantics`: as given to verify(). Text is as in the traces: escape it. Costs a replay, and a
// search if there are receives from any source.
WaitPicture wait_picture(const verify::Report& report, const trace::Run& run,
                         std::optional<verify::CallSemantics> semantics = std::nullopt);

// How far each rank gets, for pictures of the end of a run: verify()'s replay, by its rules.

// `groups`: group_streams(run). `semantics`: by which verify() judged; empty: the traces'. `hung`:
// as VerifyOptions. Costs the replay, and with receives from any source a bounded search
// (verify/schedules/search.h).
verify::ReplayResult replayed(const trace::Run& run,
                              const std::vector<verify::GroupStreams>& groups,
                              verify::Agreement& agreement,
                              std::optional<verify::CallSemantics> semantics, bool hung);

}  // namespace lockstep::reports
