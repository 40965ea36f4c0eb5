// The options that decide what counts; every command that judges has them:
//
//   --only RULE,…  --disable RULE,…      rules that count, rules that do not
//   --suppressions FILE                  accepted findings (filter.h)
//   --baseline FILE                      findings that existed before (filter.h)
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

  // True if any option changes what counts.
  bool any() const {
    return !only.empty() || !disable.empty() || !suppressions.empty() || !baseline.empty();
  }
};

// Reads the files. Errors: an unknown rule (with similar ids), a rule in both lists, a file that
// cannot be read or parsed.
Result<Filter> load_filter(const FilterOptions& options);

// Writes the baseline if --write-baseline was given. Errors: the file cannot be written.
Status write_baseline(const FilteredReport& filtered, const FilterOptions& options);

}  // namespace lockstep::reports
