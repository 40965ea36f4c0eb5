// Reads one rank's Flight Recorder dump, parsed to plain data, as a trace.
#pragma once

#include "base/result.h"
#include "trace/formats/flight_recorder/data_tree.h"
#include "trace/formats/format.h"
#include "trace/run.h"

namespace lockstep::trace {

// `file.rank` is set. What is unusable counts as damage of the trace. World size and, without
// pg_config, the members of groups follow from all dumps together (link_dumps). O(bytes).
// Errors: no dump, but other data.
Result<RankTrace> read_dump_tree(const DataTree& tree, const TraceFile& file, Tables& tables);

}  // namespace lockstep::trace
