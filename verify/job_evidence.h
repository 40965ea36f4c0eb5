// Adds what the job's other sources (Run::notes) say to a report on the calls: log lines that
// support a finding, ends of ranks that no call shows, and contradictions. Notes never change who
// deviated in the calls, and never improve a verdict.
#pragma once

#include "verify/report.h"

namespace lockstep::trace {
struct Run;
}  // namespace lockstep::trace

namespace lockstep::verify {

// Adds to `report`, whose findings are not sorted yet:
//  - to each finding, the notes about its culprits (without culprits, its ranks) as evidence;
//  - a finding for ranks that ended by themselves (RankNote::ends), if no finding names them;
//  - a note with the rest: other ranks, contradictions.
// O(notes log notes + findings).
void add_job_evidence(const trace::Run& run, Report& report);

}  // namespace lockstep::verify
