// Findings as comma-separated values (RFC 4180), for spreadsheets and data frames: a header, then
// one row per finding, the worst first.
//
//   severity      error, warning or note
//   rule          the rule's id
//   certainty     proven, observed or possible
//   status        open (it counts), suppressed, or known (in the baseline)
//   group         process group; empty: none
//   seq           index in the group's sequence, from 0; empty: not known
//   step          training step; empty: not known
//   culprits      ranks, "0-3,7"; empty: none can be singled out
//   ranks         all concerned ranks
//   what          parameters, separated by blanks
//   at            source location, the culprit's if it has one
//   message       what happened
//   fix           what to do
//   consequences  how many findings follow from this one
//   fingerprint   equal for the same defect in different runs
//   group_label   the group as people call it
//   number        of the call as the source counts it: PyTorch's SeqNum
//   headline      who stopped, where, how long ago and who waits; empty for other findings
//   next          the command to run next
#pragma once

#include <string>

#include "reports/filter/filter.h"

namespace lockstep::reports {

// Rows end in CR LF, as the RFC requires.
std::string csv_report(const FilteredReport& filtered);

}  // namespace lockstep::reports
