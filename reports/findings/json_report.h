// A Report as JSON, for other programs: the report contract, version 1 (docs/verify.md).
#pragma once

#include <string>

#include "reports/filter/filter.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports {

// One object and a line break; keys in the order of the contract. Keys whose values are not known
// (group, seq, step, an evidence's id and location) are absent. `consequences`, if there are any,
// holds findings of the same form. Never fails: bytes that are not UTF-8 become U+FFFD.
std::string json_report(const verify::Report& report);

// The same, with what the filter did, in keys that are absent if empty: `suppressed` (findings that
// do not count, each with `status` "suppressed" or "known" and, if given, `reason` and `expires`)
// and `notes`.
//
// With `run`, what the report judges, evidence has the `stack` of its call where one was recorded:
// all frames, innermost first.
std::string json_report(const FilteredReport& filtered, const trace::Run* run = nullptr);

}  // namespace lockstep::reports
