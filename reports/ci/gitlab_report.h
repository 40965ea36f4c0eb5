// A report as a GitLab Code Quality report (a subset of Code Climate's): an array with an object
// per finding. GitLab compares the fingerprints of two branches to tell new from known, so that
// they are unique within a report and stable over runs.
// https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
#pragma once

#include <string>
#include <string_view>

#include "reports/filter/filter.h"

namespace lockstep::reports {

// An array and a newline; findings that a filter set aside are left out. GitLab requires a place:
// where none was recorded, path is "unknown" and line 1. `root`: as of source_place(), the folder
// that was checked out.
std::string gitlab_report(const FilteredReport& filtered, std::string_view root = {});

}  // namespace lockstep::reports
