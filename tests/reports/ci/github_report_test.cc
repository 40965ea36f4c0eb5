#include <sstream>

#include <gmock/gmock.h>

#include "reports/ci/ci_reports.h"
#include "tests/reports/samples.h"

namespace lockstep::reports {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

TEST(GithubReport, AnnotatesTheCulpritsLocation) {
  EXPECT_EQ(github_report(report_of({full_finding()})),
            "::error file=src/skip.cc,line=57,col=9,title=lockstep missing-collective::"
            "rank 2 never issued all_reduce%0Awho: rank 2; concerns ranks 0,1 too%0A"
            "where: group world, seq 7, step 3%0A"
            "what to do: issue it on every rank\n");
}

TEST(GithubReport, NamesFilesRelativeToTheCheckout) {
  verify::Finding finding = full_finding();
  finding.evidence = {{trace::Rank(2), 1, "/home/runner/work/a,b/c:d/train.py:7", ""}};
  EXPECT_THAT(
      github_report(report_of({finding}), Locator(Repository{"/home/runner/work/", "", {}, {}})),
      StartsWith("::error file=a%2Cb/c%3Ad/train.py,line=7,title="));
}

TEST(GithubReport, ACleanRunSaysNothing) { EXPECT_EQ(github_report(report_of({})), ""); }

TEST(GithubReport, SeverityDecidesTheCommand) {
  const auto lines = lines_of(github_report(report_of(
      {finding_of(verify::RuleId::never_waited, verify::Severity::warning, "100% of\r\nit"),
       finding_of(verify::RuleId::damaged_trace, verify::Severity::note)})));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0],
            "::warning file=unknown,line=1,title=lockstep never-waited::100%25 of\\x0d\\x0ait");
  EXPECT_THAT(lines[1], StartsWith("::notice "));
}

TEST(GithubReport, ElevenFindingsAreNineAndALineThatSaysSo) {
  std::vector<verify::Finding> findings(
      10, finding_of(verify::RuleId::never_waited, verify::Severity::warning));
  EXPECT_EQ(lines_of(github_report(report_of(findings))).size(), 10U);
  findings.push_back(full_finding());
  const auto lines = lines_of(github_report(report_of(findings)));
  ASSERT_EQ(lines.size(), 10U);
  EXPECT_THAT(lines[0], StartsWith("::error ")) << "the most severe comes first";
  EXPECT_THAT(lines[9], HasSubstr("::and 2 more findings;"));
}

TEST(GithubReport, TextCannotMakeACommandOfItsOwn) {
  for (const std::string& line : lines_of(github_report(crowded_report()))) {
    EXPECT_THAT(line, testing::ContainsRegex("^::(error|warning|notice) [^\r]*::"));
    EXPECT_EQ(line.find('\x1b'), std::string::npos);
  }
  EXPECT_EQ(lines_of(github_report(report_of({hostile_finding()}))).size(), 1U);
}

TEST(GithubReport, AnInconclusiveRunIsAWarning) {
  EXPECT_THAT(github_report(inconclusive_report()),
              StartsWith("::warning title=lockstep::inconclusive: no error seen"));
}

}  // namespace
}  // namespace lockstep::reports
