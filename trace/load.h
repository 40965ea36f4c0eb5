// The one door through which recorded runs come in: files and folders of any known form.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "trace/evidence/evidence.h"
#include "trace/run.h"

namespace lockstep::trace {

struct Format;

struct LoadOptions {
  std::string format;        // one of all_formats(); empty: by content
  std::string rank_pattern;  // regular expression (ECMAScript) whose first group is the rank in a
                             // file's name; empty: the usual names (rank_in_name)
  unsigned threads = 0;      // 0: one per core
  // Whether to join all that is there of a job: of several formats one is read as the calls, and
  // the others, logs, stacks and RAS become Run::notes (trace/evidence). Else several formats are
  // an error, and what is no trace is passed over.
  bool evidence = false;
  std::int32_t expect_ranks = 0;  // the size of the job, where the user says it; 0: as recorded
};

// Reads every trace among `paths` (files, or folders whose files are taken, not recursively),
// plain, gzipped or in a tar archive. The format of a file is known by its content (trace/formats);
// all files must be of one (lockstep's own two forms count as one, a digest as what it was made
// from). The order of paths never changes the result. In a folder, files of no known format are
// passed over, unless their name is that of a trace but for its number; those, and named files that
// cannot be read, are listed in Run::unreadable. Records that cannot be used are counted per rank.
// Where a folder holds both own forms of one rank's trace, the ring file is the source; where it
// holds traces, digests beside them are passed over.
//
// Errors: a path that does not exist, a folder without any trace (or evidence), files of several
// formats, an unknown format or a bad pattern, or nothing readable at all.
// Memory follows the number of events (about 32 bytes each), not the size of the text.
Result<Run> load_run(const std::vector<std::string>& paths, const LoadOptions& options = {});

// What load_run reads, before it is put together: as it stands in the files.
struct LoadedTraces {
  Tables tables;
  std::vector<RankTrace> traces;  // in the order of the files' names; at least one, or a note
  const Format* format =
      nullptr;  // of all of them; "text" for lockstep's own forms; null: no trace
  std::vector<Run::Unreadable> unreadable;
  JobEvidence evidence;           // with LoadOptions::evidence
  std::int32_t expect_ranks = 0;  // as LoadOptions::expect_ranks
};
// Errors: as load_run.
Result<LoadedTraces> load_traces(const std::vector<std::string>& paths,
                                 const LoadOptions& options = {});
// Links them and puts them together: load_run is this behind load_traces.
Run complete_run(LoadedTraces loaded);

// Puts traces that were read into `tables` together as one run, as load_run does: ranks sorted, one
// trace each (of two the one with more events), world size and contradictions from their headers.
// The order of `traces` does not matter.
Run assemble_run(Tables tables, std::vector<RankTrace> traces);

}  // namespace lockstep::trace
