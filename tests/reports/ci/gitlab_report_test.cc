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
  EXPECT_EQ(json::parse(gitlab_report(report_of({full_finding()}), "/builds/job")),
            json::parse(R"([{"description":"rank 2 never issued all_reduce",
                             "check_name":"missing-collective","fingerprint":"00c0ffee00c0ffee",
                             "severity":"critical",
                             "location":{"path":"src/skip.cc","lines":{"begin":57}}}])"));
}

TEST(GitlabReport, FingerprintsAreUniqueAndLeaveOutWhatIsSetAside) {
  const json all = json::parse(gitlab_report(crowded_report()));
  ASSERT_EQ(all.size(), 4U);
  std::set<std::string> fingerprints;
  for (const json& one : all) fingerprints.insert(one["fingerprint"].get<std::string>());
  EXPECT_EQ(fingerprints.size(), 4U);
}

TEST(GitlabReport, WithoutALocationThePathSaysSo) {
  const json one = json::parse(
      gitlab_report(report_of({finding_of(verify::RuleId::deadlock, verify::Severity::error)})))[0];
  EXPECT_EQ(one["location"], json::parse(R"({"path":"unknown","lines":{"begin":1}})"));
}

}  // namespace
}  // namespace lockstep::reports
