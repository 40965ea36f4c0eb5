// The suppressions file: what it takes and refuses, and what --suppressions does with it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/filter/filter.h"
#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;

constexpr const char* kRedop =
    "- rule: redop-mismatch\n"
    "  group: world\n"
    "  what: image.*\n"
    "  at: ['*/sync.py:*', '*/train.py:*']\n"
    "  ranks: [1, 0]\n"
    "  reason: known, TICKET-12\n";

Error refused(const std::string& text) {
  const auto entries = reports::parse_suppressions(text, "s.yaml");
  EXPECT_FALSE(entries) << text;
  return entries ? Error{} : entries.error();
}

TEST(ParseSuppressions, TakesEveryKey) {
  const auto entries =
      reports::parse_suppressions(kRedop + std::string("  expires: 2030-12-31\n"), "s.yaml");
  ASSERT_TRUE(entries) << entries.error().str();
  ASSERT_EQ(entries->size(), 1U);
  const reports::Suppression& one = entries->front();
  EXPECT_EQ(one.rule, verify::RuleId::redop_mismatch);
  EXPECT_EQ(one.group, "world");
  EXPECT_EQ(one.what, std::vector<std::string>{"image.*"});
  EXPECT_EQ(one.at.size(), 2U);
  EXPECT_EQ(one.ranks, (std::vector<trace::Rank>{trace::Rank(0), trace::Rank(1)}));
  EXPECT_EQ(one.reason, "known, TICKET-12");
  EXPECT_EQ(one.last_day, reports::parse_date("2030-12-31"));
}

TEST(ParseSuppressions, NeverIsADateToo) {
  const auto entries =
      reports::parse_suppressions(kRedop + std::string("  expires: never\n"), "s.yaml");
  ASSERT_TRUE(entries) << entries.error().str();
  EXPECT_FALSE(entries->front().last_day);
}

TEST(ParseSuppressions, RefusesAFileWithoutEntries) {
  for (const char* text : {"", "\n\n", "# nothing yet\n", "---\n# nothing\n", "[]\n"}) {
    const auto entries = reports::parse_suppressions(text, "s.yaml");
    ASSERT_TRUE(entries) << text;
    EXPECT_TRUE(entries->empty());
  }
}

TEST(ParseSuppressions, WrongRulesAreRefusedWithLocationAndTheNearest) {
  const Error error = refused("- rule: never-wated\n  reason: r\n  expires: never\n");
  EXPECT_THAT(error.message, HasSubstr("no rule \"never-wated\""));
  EXPECT_EQ(error.location.line, 1);
  EXPECT_THAT(error.fix, HasSubstr("never-waited"));
}

TEST(ParseSuppressions, DatesThatDoNotExistAreRefused) {
  for (const char* date : {"2027-02-30", "31.12.2027", "tomorrow"}) {
    const Error error =
        refused("- rule: deadlock\n  reason: r\n  expires: " + std::string(date) + "\n");
    EXPECT_THAT(error.message, HasSubstr("is not a date")) << date;
    EXPECT_EQ(error.location.line, 3);
  }
}

TEST(ParseSuppressions, MissingAndUnknownKeysAreRefused) {
  EXPECT_THAT(refused("- rule: deadlock\n  expires: never\n").message, HasSubstr("reason"));
  EXPECT_THAT(refused("- rule: deadlock\n  reason: r\n").message, HasSubstr("expires"));
  EXPECT_THAT(refused("- rule: deadlock\n  reason: r\n  expires: never\n  rank: 1\n").message,
              HasSubstr("rank"));
}

TEST(ParseSuppressions, WhatIsNoListOfEntriesIsRefused) {
  for (const std::string& text :
       {std::string("rule: deadlock\n"), std::string("- deadlock\n"), std::string("just text"),
        std::string("- rule: [\n"), std::string("- {\n\t- x"), std::string("\xff\xfe\x00z", 4),
        std::string(10000, '['), std::string(2 << 20, 'a')}) {
    EXPECT_FALSE(refused(text).message.empty());
  }
}

// Two ranks whose reduce operations differ; the culprit is not known.
struct RedopMismatch {
  RedopMismatch() {
    for (int rank = 0; rank < 2; ++rank)
      folder.write(fmt::format("rank_{}.trace.jsonl", rank),
                   header_line(rank, 2) + world_line(2) +
                       issue_line(0, "world", "all_reduce",
                                  {{"in", {{8}}}, {"redop", rank == 0 ? "sum" : "max"}}) +
                       event_line("complete", 0) + end_line("clean"));
  }
  // With a suppressions file of that text.
  Outcome verify(const std::string& text) const {
    return run_lockstep(
        {"verify", folder.path(), "--suppressions", elsewhere.write("accepted.yaml", text)});
  }
  TempDir folder, elsewhere;
};

TEST(SuppressionsOption, SetsAsideWhatItAcceptsAndSaysSo) {
  const Outcome outcome = RedopMismatch().verify(
      "- rule: redop-mismatch\n  reason: known, TICKET-12\n  expires: never\n");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("TICKET-12"));
}

TEST(SuppressionsOption, WhatMatchesNothingIsMentionedAndTheFindingCounts) {
  const Outcome outcome = RedopMismatch().verify(
      "- rule: redop-mismatch\n  group: dp0\n  reason: r\n  expires: never\n");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out + outcome.err, HasSubstr("accepted.yaml:1"));
}

TEST(SuppressionsOption, AnExpiredOneCountsNoLongerAndIsMentioned) {
  const Outcome outcome =
      RedopMismatch().verify("- rule: redop-mismatch\n  reason: r\n  expires: 2020-01-31\n");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out + outcome.err, HasSubstr("expired on 2020-01-31"));
}

TEST(SuppressionsOption, AMissingFileIsRefused) {
  const RedopMismatch run;
  const Outcome outcome =
      run_lockstep({"verify", run.folder.path(), "--suppressions", "/nonexistent.yaml"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("/nonexistent.yaml"));
}

TEST(SuppressionsOption, AMalformedFileIsRefusedWithItsLocation) {
  const Outcome outcome = RedopMismatch().verify("- rule: redop-mismatch\n  reason: [\n");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("accepted.yaml:"));
  EXPECT_THAT(outcome.err, HasSubstr("fix:"));
  EXPECT_EQ(outcome.out, "");
}

}  // namespace
}  // namespace lockstep::cli
