// Files that another job left in the folder of the one that is to be judged.
#pragma once

#include <string>
#include <vector>

#include "trace/pieces.h"
#include "trace/run.h"

namespace lockstep::trace {

// Where files of one kind hold a rank twice, they are of two jobs, or of one job at two times:
// yesterday's dumps beside today's. The files of the newest job stay, all others are removed, so
// that no rank's calls are compared with those of another job. Files belong together by their names
// without the rank, or by the times of their calls. What was done, a sentence for each job that was
// removed; nothing where no rank is there twice, or where it cannot be told which files belong
// together. Dumps of one process at two times stay as they are, and so do logs. O(files · log).
std::vector<std::string> leave_out_other_jobs(std::vector<Piece>& pieces);

// Traces of a job of another size beside all traces of one job: the file of rank 3 that a job of
// four ranks left, beside those of a job of three. They are removed; a sentence says which. Nothing
// where no job is complete: then nothing shows which of the sizes is right. O(memberships).
std::vector<std::string> leave_out_other_sizes(std::vector<RankTrace>& traces,
                                               const Tables& tables);

}  // namespace lockstep::trace
