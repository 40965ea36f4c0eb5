// Which of the pieces that were read make up the run. A folder also holds second forms of a trace,
// files of earlier runs, digests and strangers. Internal to loading (trace/load.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/evidence/evidence.h"
#include "trace/pieces.h"
#include "trace/run.h"

namespace lockstep::trace {

// Drops text forms next to the ring file of the same rank (rank_3.ring, rank_3.trace.jsonl): the
// text was made from it, and both would be two traces of one rank.
void drop_text_copies(std::vector<Piece>& pieces, bool evidence);

// If several runs of a job recorded into one folder, keeps the newest: a rank that recorded nothing
// in it has the file of an earlier run there. Files of ranks that failed before they agreed on a
// mark are kept, too, if they are of the launcher's newest attempt. Returns the names of those
// dropped.
std::vector<std::string> drop_earlier_runs(std::vector<Piece>& pieces);

// Drops digests that are in a folder with traces: they were made from these.
void drop_digests_of_others(std::vector<Piece>& pieces);

// Drops files that are in a folder by chance (configs, checkpoints), but keeps the errors of files
// that should have been traces: those that the user named, those with lockstep's endings, and those
// whose name has the shape of a trace that was read.
void drop_unrelated_files(std::vector<Piece>& pieces);

// The error for folders in a folder that hold a trace of the same rank: the files of two runs, or
// of two attempts, would make one run that never was.
std::optional<Error> several_runs(const std::vector<Piece>& pieces,
                                  const std::vector<std::string>& paths);

// The error for files of several formats: one job recorded twice, or two jobs in one folder.
std::optional<Error> mixed_formats(const std::vector<Piece>& pieces);

// Keeps the traces of one format, and makes notes of everything else.
JobEvidence gather_evidence(std::vector<Piece>& pieces, const Tables& tables);

}  // namespace lockstep::trace
