// What the job's other sources (Run::notes) add to a report that the analyses of the calls made:
// the lines of a log that stand behind a finding, the ends of ranks that no call shows, and what
// contradicts what. Notes never change who deviated in the calls, and never make a verdict better.
#pragma once

#include "verify/report.h"

namespace lockstep::trace {
struct Run;
}  // namespace lockstep::trace

namespace lockstep::verify {

// Adds to `report`, whose findings are not sorted yet:
//  - to each finding, what is said of its culprits (of its ranks, where nobody is one), as
//  evidence;
//  - a finding for ranks that ended by themselves (RankNote::ends) where no finding names them;
//  - a note with what is left: other ranks, contradictions.
// O(notes log notes + findings).
void add_job_evidence(const trace::Run& run, Report& report);

}  // namespace lockstep::verify
