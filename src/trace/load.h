// The one door through which recorded runs come in: files and folders of any known form.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "trace/run.h"

namespace lockstep {

// Reads every trace among `paths` (files, or folders whose trace files are taken, not recursively):
// the text form (`*.trace.jsonl`, `*.trace.jsonl.gz`) and ring files (`*.ring`). The order of paths
// never changes the result. Files that cannot be read at all are listed in Run::unreadable; records
// that cannot be used are counted per rank. Where a folder holds both forms of one rank's trace,
// the ring file is the source.
//
// Errors: a path that does not exist, a folder without any trace, or nothing readable at all.
// Memory follows the number of events (about 32 bytes each), not the size of the text.
Result<Run> load_run(const std::vector<std::string>& paths);

// Puts traces that were read into `tables` together as one run, as load_run does: ranks sorted, one
// trace each (of two the one with more events), world size and contradictions from their headers.
// The order of `traces` does not matter.
Run assemble_run(Tables tables, std::vector<RankTrace> traces);

}  // namespace lockstep
