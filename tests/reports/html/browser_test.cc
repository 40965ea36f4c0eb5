// The pages of findings in Chromium: the page's policy must let its style sheet through and refuse
// nothing, nothing is logged, and what the parser makes of hostile names is text.
#include "tests/reports/html/browser.h"

#include <gmock/gmock.h>

#include "reports/findings/reports.h"
#include "reports/html/charts.h"
#include "reports/html/page.h"
#include "tests/reports/samples.h"
#include "tests/support/trace_lines.h"
#include "verify/verify.h"

namespace lockstep::reports {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(Browser, ThePolicyRefusesNothingOfThePage) {
  const std::string waits = all_reduce(0, "w", 8) + "{\"end\":\"hung\"}\n";
  const trace::Run run = inline_run({waits, "{\"end\":\"clean\"}\n", waits});
  const Browsed page = open(html_report(verify::verify(run), run));
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(page.dom, HasSubstr("1 error in 3 ranks"));
  EXPECT_THAT(page.dom, HasSubstr("<svg role=\"group\""));
}

// The test above would see a refusal: here is one.
TEST_F(Browser, AStyleThatThePolicyDoesNotNameIsRefused) {
  std::string page = html_report(report_of({}), {});
  page.insert(page.find("</style>"), "p{}");
  EXPECT_THAT(open(page).console, HasSubstr("Content Security Policy"));
}

TEST_F(Browser, HostileTextMakesNoElements) {
  const trace::Run run = inline_run(
      {R"({"ev":"issue","id":0,"g":"world","op":"all_reduce","in":[[8]],"what":["</title></svg><script>document.title='run'</script><img src=x>"]})"
       "\n{\"end\":\"hung\"}\n",
       "{\"end\":\"clean\"}\n"});
  FilteredReport report = verify::verify(run);
  report.report.findings.push_back(hostile_finding());
  const Browsed page = open(html_report(report, run));
  EXPECT_EQ(page.console, "");
  // One script, the page's own.
  const std::size_t script = page.dom.find("<script");
  EXPECT_NE(script, std::string::npos);
  EXPECT_EQ(page.dom.find("<script", script + 1), std::string::npos);
  EXPECT_THAT(page.dom, Not(HasSubstr("<img")));
  EXPECT_THAT(page.dom, HasSubstr("<title>Lockstep: findings</title>"));
  EXPECT_THAT(page.dom, HasSubstr("&lt;script&gt;"));
}

// The script runs under the policy: what it adds is there, and nothing is logged.
TEST_F(Browser, TablesCanBeFilteredAndSorted) {
  const std::string waits = all_reduce(0, "w", 8) + "{\"end\":\"hung\"}\n";
  const trace::Run run = inline_run({waits, "{\"end\":\"clean\"}\n", waits});
  const std::string markup = html_report(verify::verify(run), run);
  EXPECT_THAT(markup, Not(HasSubstr("<input type")));
  const Browsed page = open(markup);
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(page.dom, HasSubstr("<input type=\"search\""));
  EXPECT_THAT(page.dom, HasSubstr("<button type=\"button\">rank</button>"));
  EXPECT_THAT(page.dom, HasSubstr(">every state</option>"));
  EXPECT_THAT(page.dom, HasSubstr("data-name=\"last call\"")) << "for phones";
}

TEST_F(Browser, AScriptThatThePolicyDoesNotNameIsRefused) {
  const std::string waits = all_reduce(0, "w", 8) + "{\"end\":\"hung\"}\n";
  const trace::Run run = inline_run({waits, "{\"end\":\"clean\"}\n"});
  std::string page = html_report(verify::verify(run), run);
  page.insert(page.find("</body>"), "<script>document.title = 'run'</script>");
  const Browsed browsed = open(page);
  EXPECT_THAT(browsed.console, HasSubstr("Content Security Policy"));
  EXPECT_THAT(browsed.dom, HasSubstr("<title>Lockstep: findings</title>"));
}

TEST_F(Browser, ChartsNeedNothingThatThePolicyRefuses) {
  const std::vector<html::Series> series = {{"one", 0}, {"</svg><script>x</script>", 1}};
  const auto words = [](double value) { return std::to_string(value); };
  const Browsed page = open(html::page(
      "charts",
      html::stacked_bars("bars", series, {{"<img src=x>", {1, 2}}}, 3) +
          html::stacked_columns("columns", series, {{1, 2}, {2, 1}}, words, "0", "1") +
          html::stacked_areas("areas", series, {{0, {1, 2}}, {1, {2, 1}}}, 2, 4, words, words) +
          html::signed_bars("changes", {{"<b>", .5, "-50 %"}})));
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(page.dom, HasSubstr("<polygon"));
  EXPECT_THAT(page.dom, Not(HasSubstr("<script")));
  EXPECT_THAT(page.dom, Not(HasSubstr("<img")));
}

TEST_F(Browser, TenThousandRanksAreASmallPage) {
  constexpr int kRanks = 10'000;
  std::vector<std::string> files;
  for (int rank = 0; rank < kRanks; ++rank) {
    files.push_back(header_line(rank, kRanks) + all_reduce(0, "w", 8) + complete(0) +
                    (rank % 2 == 0 ? all_reduce(1, "image", 8) : "") + all_reduce(2, "head", 8) +
                    kHung);
  }
  const trace::Run run = run_from_text(files);
  const std::string markup = html_report(verify::verify(run), run);
  EXPECT_LT(markup.size(), 100'000U);
  const Browsed page = open(markup);
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(page.dom, HasSubstr("in 10,000 ranks"));
}

}  // namespace
}  // namespace lockstep::reports
