#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "reports/ci/ci_reports.h"
#include "tests/reports/against_schema.h"
#include "tests/reports/samples.h"

namespace lockstep::reports {
namespace {

using nlohmann::json;

TEST(GitlabReport, IsValidWhateverIsInIt) {
  for (const FilteredReport& report :
       {report_of({}), report_of({full_finding()}), crowded_report(), inconclusive_report()})
    EXPECT_EQ(schema_errors(gitlab_report(report), "gitlab-code-quality.schema.json"), "");
}

TEST(GitlabReport, HasWhatGitlabShows) {
  EXPECT_EQ(
      json::parse(gitlab_report(report_of({full_finding()}))),
      json::parse(
          R"json([{"description":"rank 2 never issued all_reduce (rank 2; concerns ranks 0,1 too; group world, seq 7, step 3)",
                             "check_name":"missing-collective","fingerprint":"00c0ffee00c0ffee",
                             "severity":"critical",
                             "location":{"path":"src/skip.cc","lines":{"begin":57}}}])json"));
}

TEST(GitlabReport, FingerprintsAreUniqueAndLeaveOutWhatIsSetAside) {
  const json all = json::parse(gitlab_report(crowded_report()));
  ASSERT_EQ(all.size(), 4U);
  std::set<std::string> fingerprints;
  for (const json& one : all) fingerprints.insert(one["fingerprint"].get<std::string>());
  EXPECT_EQ(fingerprints.size(), 4U);
}

// GitLab shows an issue only at a file, and a path relative to the project.
TEST(GitlabReport, WithoutASourceLineTheFileIsTheTrace) {
  trace::Run run = inline_run({kHung, kClean});
  run.ranks[0].source = "/builds/job/traces/rank_0.trace.jsonl";
  const Locator locator(Repository{"/builds/job", "/builds/job", {}, {}}, &run);
  const json one = json::parse(gitlab_report(
      report_of({finding_of(verify::RuleId::deadlock, verify::Severity::error)}), locator))[0];
  EXPECT_EQ(one["location"], json::parse(R"({"path":"traces/rank_0.trace.jsonl",
                                             "lines":{"begin":1}})"));
}

TEST(GitlabReport, TheOneLineSaysWhoStoppedAndWhatToRunNext) {
  verify::Finding finding = full_finding();
  finding.headline = "rank 2 (node4) stopped 10 min ago";
  finding.next = "py-spy dump --pid 7";
  const json one = json::parse(gitlab_report(report_of({finding})))[0];
  EXPECT_EQ(one["description"],
            "rank 2 (node4) stopped 10 min ago (rank 2; concerns ranks 0,1 too; group world, seq "
            "7, step 3); next: py-spy dump --pid 7");
}

}  // namespace
}  // namespace lockstep::reports
