// What the user says of what counts, by the options that every command that judges has:
//
//   --only RULE,…  --disable RULE,…      rules that count, rules that do not
//   --suppressions FILE                  accepted findings (filter.h)
//   --baseline FILE                      findings that were there before (filter.h)
//   --write-baseline FILE                writes that file
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "reports/filter/filter.h"

namespace lockstep::reports {

struct FilterOptions {
  std::vector<std::string> only, disable;              // as given: rule ids
  std::string suppressions, baseline, write_baseline;  // paths; empty: not given

  // Whether anything that was given changes what counts.
  bool any() const {
    return !only.empty() || !disable.empty() || !suppressions.empty() || !baseline.empty();
  }
};

// Reads the files. Errors: an unknown rule (with the nearest ids), a rule both wanted and not, a
// file that cannot be read or is not what it should be.
Result<Filter> load_filter(const FilterOptions& options);

// --write-baseline, where it was given. Errors: the file cannot be written.
Status write_baseline(const FilteredReport& filtered, const FilterOptions& options);

}  // namespace lockstep::reports
