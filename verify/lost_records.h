// Findings that lost records may explain. A line that cannot be read may have been a call, and a
// trace that was cut off looks like a rank that stopped: neither may accuse anybody.
#pragma once

#include <functional>

#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::verify {

// Verifies the run again without the ranks whose traces lost records, and compares:
//
// - A finding about calls or waits stays if those ranks are not at fault in it and it is found
//   without them, too; or if it holds whatever was lost: an exception or an end that the rank's own
//   trace records, ranks that disagree about a group's members, two calls with the same parameters
//   that were both read and differ.
// - Any other of them becomes a question at the beginning of `report.unknown`.
// - What is found only without those ranks is added: a shifted sequence may hide it.
//
// Takes back the verdict `findings` if none is left. A trace lost records if one within it cannot
// be used, or if it has no end mark and its last record is cut off, or others completed calls that
// its rank must have issued after it. `verify_others`: verifies such a run, as `run` was verified.
// Without lost records, or without such findings, it does nothing. O(calls), and a second
// verification.
void doubt_findings_of_lost_records(const trace::Run& run, Report& report,
                                    const std::function<Report(const trace::Run&)>& verify_others);

}  // namespace lockstep::verify
