// Where each rank stands at the end of a run, for pictures of it: what the replay of verify()
// finds, by its rules.
#pragma once

#include <optional>
#include <vector>

#include "trace/run.h"
#include "verify/replay/replay.h"
#include "verify/replay/semantics.h"
#include "verify/streams/agreement.h"
#include "verify/streams/streams.h"

namespace lockstep {

// `groups`: group_streams(run). `semantics`: those by which verify() judged; nothing: the traces'.
// Cost: the replay's, and with receives from any source a bounded search (schedule_search.h).
ReplayResult replayed(const Run& run, const std::vector<GroupStreams>& groups, Agreement& agreement,
                      std::optional<CallSemantics> semantics);

}  // namespace lockstep
