// A report as one self-contained HTML page: no network, no script. First the verdict and its cause.
// Then each finding with a picture of the calls around it, who waits for whom, what the batches
// contained, the recorded numbers, and what is not known.
//
// It is readable on a phone, in print, in light and dark mode, with a keyboard and with a screen
// reader. The page's policy forbids to run or load anything (reports/html/page.h), and all text
// from traces is escaped (reports/html/markup.h).
#pragma once

#include <optional>
#include <string>

#include "reports/filter/filter.h"
#include "trace/run.h"
#include "verify/replay/semantics.h"

namespace lockstep::reports {

// The page. `run` is what the report judges; `semantics` as given to verify(). Its size depends on
// the number of findings and of *different* ranks. O(events) and a replay.
std::string html_report(const FilteredReport& filtered, const trace::Run& run,
                        std::optional<verify::CallSemantics> semantics = std::nullopt);

}  // namespace lockstep::reports
