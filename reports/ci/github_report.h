// A report as GitHub Actions workflow commands: printed in a step, each becomes an annotation.
//
//   ::error file=src/train.py,line=57,title=lockstep missing-collective::rank 2 never issued …
//
// GitHub shows ten annotations of a kind per step, so that the ten most severe findings are written
// and a last line says how many more there are. Nothing is written of a clean run.
// https://docs.github.com/actions/reference/workflow-commands-for-github-actions
#pragma once

#include <string>
#include <string_view>

#include "reports/filter/filter.h"

namespace lockstep::reports {

// Lines, each a command of its own whatever the text in it: it is %-escaped as the runner wants it.
// `root`: as of source_place(), the folder that was checked out.
std::string github_report(const FilteredReport& filtered, std::string_view root = {});

}  // namespace lockstep::reports
