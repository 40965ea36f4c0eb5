
#include <gmock/gmock.h>

#include "base/text.h"
#include "reports/findings/reports.h"
#include "tests/reports/samples.h"
#include "verify/verify.h"

namespace lockstep::reports {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Braces and brackets outside of strings fit together, and every string is closed.
void expect_balanced(const std::string& dot) {
  std::string open;
  bool quoted = false;
  for (std::size_t i = 0; i < dot.size(); ++i) {
    const char c = dot[i];
    if (quoted && c == '\\')
      ++i;
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && (c == '{' || c == '['))
      open += c;
    else if (!quoted && (c == '}' || c == ']')) {
      ASSERT_FALSE(open.empty());
      open.pop_back();
    }
  }
  EXPECT_FALSE(quoted);
  EXPECT_EQ(open, "");
}

TEST(DotString, HoldsAnyText) {
  EXPECT_EQ(dot_string("a\nb"), "\"a\\nb\"");
  EXPECT_EQ(dot_string("\"];\\"), "\"\\\"];\\\\\"");
}

TEST(DotReport, DrawsWhoWaitsForWhom) {
  const std::string waits = all_reduce(0, "w", 8) + "{\"end\":\"hung\"}\n";
  const trace::Run run = inline_run({waits, "{\"end\":\"clean\"}\n", waits});
  const std::string dot = dot_report(verify::verify(run), run);
  expect_balanced(dot);
  EXPECT_THAT(dot, StartsWith("digraph waits {\n"));
  EXPECT_THAT(dot, HasSubstr("  n0 [label=\"ranks 0,2\\nwaits in all_reduce(w)\\n"
                             "group world, seq 0\"];\n"));
  EXPECT_THAT(dot, HasSubstr("  n1 [label=\"rank 1\\nfinished\", color=\"#b42318\""));
  EXPECT_THAT(dot, HasSubstr("  n0 -> n1;\n"));
  EXPECT_THAT(dot, HasSubstr("  f0 [shape=note"));
  EXPECT_THAT(dot, HasSubstr("  f0 -> n1 ["));
}

TEST(DotReport, OfACleanRunSaysThatNobodyWaits) {
  const std::string rank = all_reduce(0, "w", 8) + complete(0) + "{\"end\":\"clean\"}\n";
  const trace::Run run = inline_run({rank, rank});
  const std::string dot = dot_report(verify::verify(run), run);
  expect_balanced(dot);
  EXPECT_THAT(dot, HasSubstr("no rank waits for another"));
  EXPECT_THAT(dot, Not(HasSubstr("->")));
}

TEST(DotReport, HostileNamesStayText) {
  const std::string waits = R"({"ev":"issue","id":0,"g":"\"]; x -> y [a=\"","op":"barrier"})"
                            "\n{\"end\":\"hung\"}\n";
  const std::string group = R"({"group":"\"]; x -> y [a=\"","ranks":[0,1]})"
                            "\n";
  const trace::Run run = inline_run({group + waits, group + "{\"end\":\"clean\"}\n"});
  FilteredReport report = verify::verify(run);
  report.report.findings.push_back(hostile_finding());
  const std::string dot = dot_report(report, run);
  expect_balanced(dot);
  EXPECT_EQ(dot, to_utf8(dot));
  EXPECT_EQ(dot.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace lockstep::reports
