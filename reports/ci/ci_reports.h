// Reports in the forms of CI services: GitHub's annotations, GitLab's Code Quality, JUnit, SARIF.
// Each has the whole text of a finding (finding_words.h, lines_of()) and a source line for it
// (locations.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reports/ci/locations.h"
#include "reports/filter/filter.h"

namespace lockstep::reports {

// A report as GitHub Actions workflow commands: printed in a step, each becomes an annotation.
//
//   ::error file=src/train.py,line=57,title=lockstep missing-collective::rank 2 never issued …
//
// GitHub shows ten annotations of a kind per step, so only the ten most severe findings are
// written, and a last line says how many more there are. Nothing is written for a clean run.
// https://docs.github.com/actions/reference/workflow-commands-for-github-actions
//
// Each line is a single command, whatever its text contains: text is %-escaped as the runner
// requires.
std::string github_report(const FilteredReport& filtered, const Locator& locator = {});

// A report as a GitLab Code Quality report (a subset of Code Climate's): an array with an object
// per finding. GitLab compares the fingerprints of two branches to tell new findings from known
// ones, so they are unique within a report and stable across runs.
// https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
//
// Returns an array and a line break. Findings that a filter set aside are left out.
std::string gitlab_report(const FilteredReport& filtered, const Locator& locator = {});

// A report as JUnit XML: a <testsuite> with a <testcase> per finding and one named "verdict".
//
// - errors and warnings are <failure>s, notes pass with their text in <system-out>;
// - what a filter set aside is <skipped>;
// - "verdict" passes if no finding is left, and is an <error> if the run is inconclusive.
//
// JUnit has no schema of its own; this is the part that Jenkins, GitLab, Azure and others share.
// Names of test cases are unique, and stable across runs of the same defect.
//
// Text is escaped; characters that XML cannot contain become U+FFFD.
std::string junit_report(const FilteredReport& filtered);

// A report as SARIF 2.1.0 (OASIS, errata 01), the format of code scanning services:
// https://docs.oasis-open.org/sarif/sarif/v2.1.0/
//
// One run, every rule in tool.driver.rules, one result per finding:
// - locations: one, always (locations.h);
// - codeFlows: a threadFlow per rank whose evidence has locations;
// - partialFingerprints: the finding's, equal for the same defect in different runs;
// - suppressions: with the reason, for suppressed findings;
// - baselineState: "new" or "unchanged", if there is a baseline.
// What the traces cannot show and the filter's notes are notifications of the invocation.
//
// Beyond the schema it keeps GitHub's rules for ingestion: paths relative to the repository, and
// its limits on results.
//
// Returns one object and a line break. Never fails: bytes that are not UTF-8 become U+FFFD.
std::string sarif_report(const FilteredReport& filtered, const Locator& locator = {});

// The reports that a CI service reads from a job, for `lockstep verify --ci`.

enum class CiService {
  github,  // GitHub Actions
  gitlab,  // GitLab CI
  junit,   // any other: all of them read it
};
std::optional<CiService> ci_service_named(std::string_view name);

// Environment variables that the services set in a job; passed in, so that tests need no
// environment.
// https://docs.github.com/actions/reference/variables
// https://docs.gitlab.com/ci/variables/predefined_variables
struct CiEnvironment {
  std::string github_actions;  // GITHUB_ACTIONS: "true"
  std::string gitlab_ci;       // GITLAB_CI: "true"
  std::string step_summary;    // GITHUB_STEP_SUMMARY: the file that becomes the step's summary
};
CiEnvironment ci_environment_of_this_process();

// The service that runs this process; junit where neither of the others does.
CiService ci_service(const CiEnvironment& environment);

// The reports that the service shows, as --output takes them: KIND=PATH.
std::vector<std::string> ci_outputs(CiService service, const CiEnvironment& environment);

}  // namespace lockstep::reports
