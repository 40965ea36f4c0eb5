// A Report as JSON, for other programs: the report contract, version 1 (docs/verify.md).
#pragma once

#include <string>

#include "reports/filter/filter.h"
#include "verify/report.h"

namespace lockstep::reports {

// One object and a newline; keys in the contract's order. Keys that are not known (group, seq,
// step, an evidence's id and place) are absent. `consequences`, present where there are some, holds
// findings of the same form. Never fails: bytes that are no UTF-8 become U+FFFD.
std::string json_report(const verify::Report& report);

// The same with what a filter did, in keys that are there only where there is something to say:
// `suppressed` (findings that do not count, each with `status` "suppressed" or "known" and, where
// given, `reason` and `expires`) and `notes`.
std::string json_report(const FilteredReport& filtered);

}  // namespace lockstep::reports
