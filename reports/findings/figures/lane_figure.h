// Draws a finding's LaneTable in a report page: a lane for each kind of rank, a box for each call,
// lines between calls of the same collective or message, and below it a table of the same calls in
// full.
#pragma once

#include <string>

#include "reports/findings/figures/matched_calls.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports::html {

// Markup; empty if there is nothing to draw. `matched`: of `run`. `id`: the finding's, used as a
// prefix for the targets of links. O(calls of the concerned ranks).
std::string lane_figure(const verify::Finding& finding, const trace::Run& run,
                        const MatchedCalls& matched, const std::string& id);

}  // namespace lockstep::reports::html
