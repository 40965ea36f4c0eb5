// Findings as comma-separated values (RFC 4180), for spreadsheets and data frames: a header, and a
// row per finding, worst first.
//
//   severity      error, warning or note
//   rule          the rule's id
//   certainty     proven, observed or possible
//   status        open (it counts), suppressed, or known (by the baseline)
//   group         process group; empty: none concerned
//   seq           0-based place in the group's sequence; empty: not known
//   step          training step; empty: not known
//   culprits      ranks, "0-3,7"; empty: none can be singled out
//   ranks         all ranks that are concerned
//   what          parameters, separated by blanks
//   at            source place, the culprit's if it has one
//   message       what happened
//   fix           what to do
//   consequences  how many findings follow from this one
//   fingerprint   equal over runs of the same defect
#pragma once

#include <string>

#include "reports/filter/filter.h"

namespace lockstep::reports {

// Rows end in CR LF, as the RFC has it.
std::string csv_report(const FilteredReport& filtered);

}  // namespace lockstep::reports
