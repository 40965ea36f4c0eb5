#include <vector>

#include <gmock/gmock.h>

#include "reports/findings/reports.h"
#include "reports/table.h"
#include "tests/reports/samples.h"

namespace lockstep::reports {
namespace {

using testing::ElementsAre;

// A reader by RFC 4180.
std::vector<std::vector<std::string>> parse(const std::string& csv) {
  std::vector<std::vector<std::string>> rows(1, {""});
  bool quoted = false;
  for (std::size_t i = 0; i < csv.size(); ++i) {
    const char c = csv[i];
    if (c == '"' && quoted && i + 1 < csv.size() && csv[i + 1] == '"') {
      rows.back().back() += csv[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      rows.back().emplace_back();
    } else if (c == '\n' && !quoted) {
      EXPECT_EQ(csv[i - 1], '\r');
      if (i + 1 < csv.size()) rows.push_back({""});
    } else if (c != '\r') {
      rows.back().back() += c;
    }
  }
  EXPECT_FALSE(quoted);
  return rows;
}

TEST(CsvField, QuotesWhatNeedsItAndDisarmsFormulas) {
  EXPECT_EQ(csv_field("plain text"), "plain text");
  EXPECT_EQ(csv_field("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_field("say \"x\""), "\"say \"\"x\"\"\"");
  EXPECT_EQ(csv_field("=1+1"), "\"'=1+1\"");
  for (const char* formula : {"+1", "-1", "@sum"})
    EXPECT_EQ(csv_field(formula), "\"'" + std::string(formula) + "\"");
  EXPECT_EQ(csv_field("a=1"), "a=1");
  EXPECT_EQ(csv_field("a\r\nb"), "a\\x0d\\x0ab") << "one line";
}

TEST(CsvReport, HasARowPerFinding) {
  const auto rows = parse(csv_report(report_of({full_finding()})));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_THAT(rows[0],
              ElementsAre("severity", "rule", "certainty", "status", "group", "seq", "step",
                          "culprits", "ranks", "what", "at", "message", "fix", "consequences",
                          "fingerprint", "group_label", "number", "headline", "next"));
  EXPECT_THAT(rows[1],
              ElementsAre("error", "missing-collective", "proven", "open", "world", "7", "3", "2",
                          "0-2", "image.proj.weight image.proj.bias", "src/skip.cc:57:9",
                          "rank 2 never issued all_reduce", "issue it on every rank", "0",
                          "00c0ffee00c0ffee", "", "", "", ""));
}

TEST(CsvReport, WithoutFindingsIsItsHeader) {
  EXPECT_EQ(parse(csv_report(report_of({}))).size(), 1U);
}

TEST(CsvReport, WhatIsNotKnownIsEmpty) {
  const auto rows =
      parse(csv_report(report_of({finding_of(verify::RuleId::deadlock, verify::Severity::error)})));
  EXPECT_THAT(rows[1], ElementsAre("error", "deadlock", "observed", "open", "", "", "", "", "", "",
                                   "", "it happened", "", "0", "f0f0", "", "", "", ""));
}

TEST(CsvReport, HostileTextKeepsRowsAndColumns) {
  const auto rows = parse(csv_report(crowded_report()));
  ASSERT_EQ(rows.size(), 7U);
  for (const auto& row : rows) EXPECT_EQ(row.size(), 19U);
  EXPECT_EQ(rows[5][3], "suppressed");
  EXPECT_EQ(rows[6][3], "known");
}

}  // namespace
}  // namespace lockstep::reports
