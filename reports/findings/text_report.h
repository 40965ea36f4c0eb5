// A Report as text for a terminal: the verdict in the first line, then every finding with who,
// what, where, why and what to do, and a picture of the calls around the difference.
#pragma once

#include <cstddef>
#include <string>

#include "reports/filter/filter.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports {

struct TextOptions {
  std::size_t width = 80;         // columns; only a single word may be wider
  bool color = false;             // the caller knows whether this goes to a terminal
  std::size_t max_findings = 10;  // errors and warnings in full; the JSON report has all
  bool stacks = false;  // all frames of the calls in the evidence, where they were recorded
};

// `run` is what the report judges; the pictures are drawn from it. Text from files is made safe to
// print.
std::string text_report(const verify::Report& report, const trace::Run& run,
                        const TextOptions& options = {});

// The same, followed by what the filter set aside and its notes.
std::string text_report(const FilteredReport& filtered, const trace::Run& run,
                        const TextOptions& options = {});

}  // namespace lockstep::reports
