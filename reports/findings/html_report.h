// A report as one HTML page that needs nothing else: no network, no script. The verdict and its
// cause first; then each finding with a picture of the calls around it, who waits for whom, what
// the batches held, the numbers that were recorded, and what is not known.
//
// It reads well on a phone, in print, in light and in dark, with a keyboard and read aloud. The
// page's policy lets nothing run or load (reports/html/page.h), and all text from traces is escaped
// (reports/html/markup.h).
#pragma once

#include <optional>
#include <string>

#include "reports/filter/filter.h"
#include "trace/run.h"
#include "verify/replay/semantics.h"

namespace lockstep::reports {

// A document. `run` is what the report judges. `semantics`: as given to verify(). The size follows
// the number of findings and of *different* ranks; O(events) and a replay.
std::string html_report(const FilteredReport& filtered, const trace::Run& run,
                        std::optional<verify::CallSemantics> semantics = std::nullopt);

}  // namespace lockstep::reports
