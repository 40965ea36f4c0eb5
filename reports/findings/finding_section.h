// One finding in full: what happened, what to do, who, where and why, the calls around it, both
// sequences call by call, its consequences and the evidence.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reports/findings/figures/matched_calls.h"
#include "trace/run.h"
#include "verify/report.h"
#include "verify/streams/streams.h"

namespace lockstep::reports::html {

// Shared by all findings of a run. Not owned.
struct FindingSource {
  const trace::Run& run;
  const MatchedCalls& matched;
  const std::vector<verify::GroupStreams>& groups;
};

// Markup. `id`: of the section, unique in the page.
std::string finding_section(const verify::Finding& finding, const FindingSource& source,
                            const std::string& id);

// A page has no more findings than this in full.
inline constexpr std::size_t kFindingsInFull = 12;
// The section of each of the report's findings, up to kFindingsInFull, with the ids of
// finding_id().
std::string finding_sections(const verify::Report& report, const FindingSource& source);
// The same for a page that is not the report's own: the result of a simulation. Says how many are
// left out.
std::string finding_sections(const verify::Report& report, const trace::Run& run);
// "finding-1" for the first one, 0.
std::string finding_id(std::size_t finding);

}  // namespace lockstep::reports::html
