// A report as JUnit XML, as CI services read it: a <testsuite> with a <testcase> per finding and
// one named "verdict".
//
// - errors and warnings are <failure>s, notes pass with their text in <system-out>;
// - what a filter set aside is <skipped>;
// - "verdict" passes where nothing is left to complain of, and is an <error> where the run is
//   inconclusive.
//
// JUnit has no schema of its own; the form is the part that Jenkins, GitLab, Azure and others
// share. Names of test cases are stable over runs of the same defect and unique.
#pragma once

#include <string>

#include "reports/filter/filter.h"

namespace lockstep::reports {

// A document. Text is escaped; what XML cannot hold becomes U+FFFD.
std::string junit_report(const FilteredReport& filtered);

}  // namespace lockstep::reports
