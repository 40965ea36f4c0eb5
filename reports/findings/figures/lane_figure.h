// The calls around a finding's difference: a lane for each kind of rank, a box for each call, lines
// between the calls that meet, and below it a table of the same calls in full.
#pragma once

#include <cstddef>
#include <string>

#include "reports/findings/figures/matched_calls.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports::html {

// Markup; empty where there is nothing to draw. `matched`: of `run`. `id`: the finding's, the front
// of the names that the boxes' links lead to. O(calls of the concerned ranks).
std::string lane_figure(const verify::Finding& finding, const trace::Run& run,
                        const MatchedCalls& matched, const std::string& id);

}  // namespace lockstep::reports::html
