// A report as SARIF 2.1.0 (OASIS, errata 01), the form that code scanning services take:
// https://docs.oasis-open.org/sarif/sarif/v2.1.0/
//
// One run, every rule of the table in tool.driver.rules, one result per finding:
// - locations: the culprit's place, where one was recorded as "file:line";
// - codeFlows: a threadFlow per rank whose evidence has places;
// - partialFingerprints: the finding's, equal over runs of the same defect;
// - suppressions: with the reason, for findings that a suppression set aside;
// - baselineState: "new" or "unchanged", where the report was compared with a baseline.
// What the traces cannot show and what the filter has to say are notifications of the invocation.
#pragma once

#include <string>
#include <string_view>

#include "reports/filter/filter.h"

namespace lockstep::reports {

// One object and a newline. `root`: as of source_place(). Never fails: bytes that are no UTF-8
// become U+FFFD.
std::string sarif_report(const FilteredReport& filtered, std::string_view root = {});

}  // namespace lockstep::reports
