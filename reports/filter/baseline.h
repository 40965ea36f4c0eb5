// The baseline: which findings were there before, so that a CI gate fails on new ones only.
//
//   {"lockstep_baseline":1,"tool":"lockstep 0.1.0","findings":[
//     {"fingerprint":"9f…","rule":"never-waited","message":"…"}]}
//
// Only the fingerprint counts: it says rule, group, operation and parameters, no ranks or times.
// The rest is for the person who reads the file. Sorted, a line per finding, so that a version
// control system shows well what changed.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "base/result.h"
#include "reports/filter/filter.h"

namespace lockstep::reports {

// All that the filtered report has found, apart from what is suppressed: known findings stay known.
std::string baseline_text(const FilteredReport& filtered);

// The fingerprints in `text`, the contents of `file`. Errors: no JSON (with line and column),
// another kind of file, a later version, a finding without a fingerprint.
Result<std::set<std::string, std::less<>>> parse_baseline(const std::string& text,
                                                          const std::string& file);

}  // namespace lockstep::reports
