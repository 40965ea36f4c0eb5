// --only, --disable, --baseline and --write-baseline as users give them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"

namespace lockstep::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// Two ranks: the reduce operations differ (an error), and rank 1 never waits for its broadcast (a
// warning).
struct ErrorAndWarning {
  ErrorAndWarning() {
    for (int rank = 0; rank < 2; ++rank) {
      const std::string waits = event_line("wait", 1) + event_line("waited", 1);
      folder.write(
          fmt::format("rank_{}.trace.jsonl", rank),
          header_line(rank, 2) + world_line(2) +
              issue_line(0, "world", "all_reduce",
                         {{"in", {{8}}}, {"redop", rank == 0 ? "sum" : "max"}}) +
              event_line("complete", 0) +
              issue_line(1, "world", "broadcast", {{"in", {{8}}}, {"root", 0}, {"async", true}}) +
              event_line("complete", 1) + (rank == 0 ? waits : "") + end_line("clean"));
    }
  }
  Outcome verify(std::vector<std::string> options) const {
    options.insert(options.begin(), {"verify", folder.path()});
    return run_lockstep(options);
  }
  TempDir folder;
};

TEST(FilterOptions, WithoutThemEverythingCounts) {
  const Outcome all = ErrorAndWarning().verify({});
  EXPECT_EQ(all.status, 1);
  EXPECT_THAT(all.out, HasSubstr("redop-mismatch"));
  EXPECT_THAT(all.out, HasSubstr("never-waited"));
}

TEST(FilterOptions, OnlyCountsWhatItNames) {
  const ErrorAndWarning run;
  const Outcome warning = run.verify({"--only", "never-waited"});
  EXPECT_EQ(warning.status, 0) << "a warning is below --fail-on error";
  EXPECT_THAT(warning.out, HasSubstr("never-waited"));
  EXPECT_THAT(warning.out, Not(HasSubstr("redop-mismatch")));
  EXPECT_EQ(run.verify({"--only", "never-waited", "--fail-on", "warning"}).status, 1);
  EXPECT_EQ(run.verify({"--only", "never-waited,redop-mismatch"}).status, 1);
  EXPECT_EQ(run.verify({"--only", "never-waited", "--only", "redop-mismatch"}).status, 1);
  EXPECT_EQ(run.verify({"--only", "deadlock"}).status, 0);
}

TEST(FilterOptions, DisableLeavesOutWhatItNames) {
  const ErrorAndWarning run;
  const Outcome left = run.verify({"--disable", "redop-mismatch"});
  EXPECT_EQ(left.status, 0);
  EXPECT_THAT(left.out, HasSubstr("never-waited"));
  EXPECT_EQ(run.verify({"--disable", "redop-mismatch,never-waited", "--fail-on", "warning"}).status,
            0);
}

TEST(FilterOptions, ThePathAfterARuleIsStillAPath) {
  const ErrorAndWarning run;
  EXPECT_EQ(run_lockstep({"verify", "--disable", "redop-mismatch", run.folder.path()}).status, 0);
}

TEST(FilterOptions, WrongRuleNamesAreRefusedWithTheNearest) {
  const ErrorAndWarning run;
  for (const char* option : {"--only", "--disable"}) {
    const Outcome outcome = run.verify({option, "redop-mismtach"});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(std::string(option) + ": no rule \"redop-mismtach\""));
    EXPECT_THAT(outcome.err, HasSubstr("did you mean redop-mismatch"));
    EXPECT_EQ(run.verify({option, "never-waited,nonsense"}).status, 2);
    EXPECT_EQ(run.verify({option, ""}).status, 2);
  }
}

TEST(FilterOptions, ARuleBothWantedAndNotIsRefused) {
  const Outcome outcome =
      ErrorAndWarning().verify({"--only", "never-waited", "--disable", "never-waited"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("never-waited is in --only and in --disable"));
}

TEST(Baseline, WhatItKnowsDoesNotCountAndWhatIsNewDoes) {
  const ErrorAndWarning run;
  const TempDir folder;
  const std::string known = folder.file("known.json");
  EXPECT_EQ(run.verify({"--only", "never-waited", "--write-baseline", known}).status, 0);
  const Outcome news = run.verify({"--baseline", known});
  EXPECT_EQ(news.status, 1) << "the other finding is new";
  EXPECT_EQ(run.verify({"--write-baseline", known}).status, 1) << "written, and judged as ever";
  const Outcome nothing_new = run.verify({"--baseline", known, "--fail-on", "warning"});
  EXPECT_EQ(nothing_new.status, 0) << nothing_new.out;
}

TEST(Baseline, AMissingFileIsRefusedWithTheWayToMakeOne) {
  const Outcome outcome = ErrorAndWarning().verify({"--baseline", "/nonexistent/known.json"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("/nonexistent/known.json"));
  EXPECT_THAT(outcome.err, HasSubstr("--write-baseline"));
}

TEST(Baseline, AMalformedFileIsRefusedWithItsLocation) {
  const ErrorAndWarning run;
  const TempDir folder;
  const Outcome broken = run.verify({"--baseline", folder.write("b.json", "{\n  \"x\": oops\n}")});
  EXPECT_EQ(broken.status, 2);
  EXPECT_THAT(broken.err, HasSubstr("b.json:2:"));
  EXPECT_THAT(broken.err, HasSubstr("is not valid JSON"));
  const Outcome other = run.verify({"--baseline", folder.write("o.json", "{\"report\":1}")});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("this is not a baseline"));
}

TEST(Baseline, AFolderThatCannotBeWrittenIsOurFailure) {
  const Outcome outcome = ErrorAndWarning().verify({"--write-baseline", "/nonexistent/known.json"});
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr("/nonexistent/known.json"));
}

}  // namespace
}  // namespace lockstep::cli
