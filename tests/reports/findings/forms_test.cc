#include "reports/findings/forms.h"

#include <set>

#include <gtest/gtest.h>

#include "base/terminal.h"
#include "reports/exit_status.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_text.h"
#include "verify/verify.h"

namespace lockstep::reports {
namespace {

verify::Report judged_as(verify::Verdict verdict, const std::vector<verify::Severity>& severities) {
  verify::Report report;
  report.verdict = verdict;
  for (const verify::Severity severity : severities) {
    report.findings.emplace_back();
    report.findings.back().severity = severity;
  }
  return report;
}

TEST(ReportForms, EveryKindIsTakenAndNoOther) {
  for (const char* kind : {"text", "json", "html", "markdown", "csv", "timeline", "dot", "sarif",
                           "junit", "github", "gitlab"})
    EXPECT_TRUE(check_outputs({.outputs = {std::string(kind) + "=x"}})) << kind;
  for (const char* bad : {"", "json", "json=", "=x", "xml=x", "JSON=x"})
    EXPECT_FALSE(check_outputs({.outputs = {bad}})) << bad;
  EXPECT_EQ(check_outputs({.outputs = {"sarfi=x"}}).error().fix,
            "did you mean sarif? kinds: text, json, html, markdown, csv, timeline,\n"
            "       dot, sarif, junit, github and gitlab");
}

TEST(WriteReports, WritesEveryKind) {
  const TempDir folder;
  const trace::Run run = run_from_text({R"({"header":1,"rank":0,"world_size":1}
{"ev":"issue","id":0,"g":"world","op":"all_reduce","in":[[8]],"what":["w"]}
{"end":"hung"})"});
  ReportOptions options;
  options.quiet = true;
  for (const std::string& kind : report_forms().kinds)
    options.outputs.push_back(kind + "=" + folder.file(kind));
  ASSERT_TRUE(write_reports(verify::verify(run), run, options));
  std::set<std::string> contents;
  for (const std::string& kind : report_forms().kinds) {
    const std::string content = TempDir::read(folder.file(kind));
    EXPECT_TRUE(content.ends_with("\n")) << kind;
    EXPECT_TRUE(contents.insert(content).second) << kind << " is another kind's content";
  }
}

TEST(WriteReports, APageHasTheSupplementLineByLine) {
  const TempDir folder;
  const trace::Run run = run_from_text({R"({"header":1,"rank":0,"world_size":1}
{"end":"clean"})"});
  ReportOptions options;
  options.quiet = true;
  options.outputs = {"html=" + folder.file("page")};
  for (const bool alone : {false, true}) {
    options.supplement = Supplement{.title = "Every mix",
                                    .text = "SAFE: <all>\n  assumed: x\n",
                                    .key = "all",
                                    .json = "{}",
                                    .alone = alone};
    ASSERT_TRUE(write_reports(verify::verify(run), run, options));
    const std::string page = TempDir::read(folder.file("page"));
    EXPECT_NE(page.find("<h2>Every mix</h2>"), std::string::npos);
    EXPECT_NE(page.find("<pre>SAFE: &lt;all&gt;\n  assumed: x\n</pre>"), std::string::npos) << page;
  }
}

TEST(CheckOutputs, OnlyOneMayTakeStandardOutput) {
  EXPECT_TRUE(check_outputs({.outputs = {"json=-", "text=a"}}));
  EXPECT_FALSE(check_outputs({.outputs = {"json=-", "text=-"}}));
}

TEST(ExitStatus, FollowsTheContract) {
  const verify::Report clean = judged_as(verify::Verdict::clean, {verify::Severity::note});
  EXPECT_EQ(exit_status(clean, "error"), ExitStatus::clean);
  EXPECT_EQ(exit_status(clean, "note"), ExitStatus::findings);

  const verify::Report warned = judged_as(verify::Verdict::findings, {verify::Severity::warning});
  EXPECT_EQ(exit_status(warned, "error"), ExitStatus::clean);
  EXPECT_EQ(exit_status(warned, "warning"), ExitStatus::findings);

  const verify::Report wrong =
      judged_as(verify::Verdict::findings, {verify::Severity::error, verify::Severity::note});
  EXPECT_EQ(exit_status(wrong, "error"), ExitStatus::findings);
  EXPECT_EQ(exit_status(wrong, "never"), ExitStatus::clean);

  const verify::Report cut = judged_as(verify::Verdict::inconclusive, {verify::Severity::note});
  EXPECT_EQ(exit_status(cut, "error"), ExitStatus::inconclusive);
  EXPECT_EQ(exit_status(cut, "never"), ExitStatus::inconclusive);
}

TEST(Color, OnlyOnATerminalThatWantsIt) {
  EXPECT_TRUE(wants_color(true, nullptr, "xterm-256color"));
  EXPECT_TRUE(wants_color(true, "", "xterm")) << "an empty NO_COLOR does not count";
  EXPECT_FALSE(wants_color(true, "1", "xterm"));
  EXPECT_FALSE(wants_color(true, nullptr, "dumb"));
  EXPECT_FALSE(wants_color(true, nullptr, nullptr));
  EXPECT_FALSE(wants_color(false, nullptr, "xterm"));
}

}  // namespace
}  // namespace lockstep::reports
