// A report as GitHub-flavoured Markdown, for job summaries ($GITHUB_STEP_SUMMARY) and comments: the
// headline and the verdict, a table of the findings, the first finding in full with its picture,
// its evidence in a collapsed section, what was set aside, and what is not known.
#pragma once

#include <string>
#include <string_view>

#include "reports/filter/filter.h"
#include "trace/run.h"

namespace lockstep::reports {

// `run` is what the report judges; the picture is drawn from it. Text from traces stays text: names
// in them cannot become markup, HTML, links or mentions.
std::string markdown_report(const FilteredReport& filtered, const trace::Run& run);

// `text` for inline Markdown, including table cells: a character that has a meaning where it
// stands, in Markdown or HTML, becomes a character reference. One line; safe to print.
std::string markdown_text(std::string_view text);

// The same in a fixed-width font.
std::string markdown_code(std::string_view text);

}  // namespace lockstep::reports
