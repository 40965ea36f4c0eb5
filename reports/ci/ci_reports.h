// Reports in the forms of CI services: GitHub's annotations, GitLab's Code Quality, JUnit, SARIF.
#pragma once

#include <string>
#include <string_view>

#include "reports/filter/filter.h"

namespace lockstep::reports {

// A report as GitHub Actions workflow commands: printed in a step, each becomes an annotation.
//
//   ::error file=src/train.py,line=57,title=lockstep missing-collective::rank 2 never issued …
//
// GitHub shows ten annotations of a kind per step, so that the ten most severe findings are written
// and a last line says how many more there are. Nothing is written of a clean run.
// https://docs.github.com/actions/reference/workflow-commands-for-github-actions
//
// Lines, each a command of its own whatever the text in it: it is %-escaped as the runner wants it.
// `root`: as of source_place(), the folder that was checked out.
std::string github_report(const FilteredReport& filtered, std::string_view root = {});

// A report as a GitLab Code Quality report (a subset of Code Climate's): an array with an object
// per finding. GitLab compares the fingerprints of two branches to tell new from known, so that
// they are unique within a report and stable over runs.
// https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
//
// An array and a newline; findings that a filter set aside are left out. GitLab requires a place:
// where none was recorded, path is "unknown" and line 1. `root`: as of source_place(), the folder
// that was checked out.
std::string gitlab_report(const FilteredReport& filtered, std::string_view root = {});

// A report as JUnit XML, as CI services read it: a <testsuite> with a <testcase> per finding and
// one named "verdict".
//
// - errors and warnings are <failure>s, notes pass with their text in <system-out>;
// - what a filter set aside is <skipped>;
// - "verdict" passes where nothing is left to complain of, and is an <error> where the run is
//   inconclusive.
//
// JUnit has no schema of its own; the form is the part that Jenkins, GitLab, Azure and others
// share. Names of test cases are stable over runs of the same defect and unique.
//
// A document. Text is escaped; what XML cannot hold becomes U+FFFD.
std::string junit_report(const FilteredReport& filtered);

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
//
// One object and a newline. `root`: as of source_place(). Never fails: bytes that are no UTF-8
// become U+FFFD.
std::string sarif_report(const FilteredReport& filtered, std::string_view root = {});

}  // namespace lockstep::reports
