// Command lines of the release before this one: they still work, and say what to write now.
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> now(std::vector<std::string> arguments) {
  Renamed renamed = with_new_names(std::move(arguments));
  EXPECT_THAT(renamed.note, HasSubstr("lockstep"));
  return renamed.arguments;
}

void expect_unchanged(const std::vector<std::string>& arguments) {
  const Renamed renamed = with_new_names(arguments);
  EXPECT_EQ(renamed.arguments, arguments);
  EXPECT_THAT(renamed.note, IsEmpty());
}

TEST(Renamed, CommandsThatBecameOptions) {
  EXPECT_THAT(now({"gate", "traces", "-q"}), ElementsAre("verify", "--ci", "traces", "-q"));
  EXPECT_THAT(now({"gate", "--service", "github", "traces"}),
              ElementsAre("verify", "--ci=github", "traces"));
  EXPECT_THAT(now({"gate", "traces", "--service=junit"}),
              ElementsAre("verify", "--ci=junit", "traces"));
  EXPECT_THAT(now({"verify", "--product", "derived"}), ElementsAre("verify", "derived"));
  EXPECT_THAT(now({"rules", "--json"}), ElementsAre("explain", "--json"));
  EXPECT_THAT(now({"digest", "a", "-o", "d"}),
              ElementsAre("convert", "--to", "digest", "a", "-o", "d"));
  EXPECT_THAT(now({"trace-to-scenario", "a", "--last", "9"}),
              ElementsAre("convert", "--to", "scenario", "a", "--last", "9", "-o", "replay.yaml"));
  EXPECT_THAT(now({"trace-to-scenario", "a", "-o", "b.yaml"}),
              ElementsAre("convert", "--to", "scenario", "a", "-o", "b.yaml"));
  EXPECT_THAT(now({"simulate", "table", "t"}), ElementsAre("calibrate", "check", "t"));
}

TEST(Renamed, TheFolderThatConvertWritesTo) {
  EXPECT_THAT(now({"convert", "a", "b", "out", "--gzip"}),
              ElementsAre("convert", "a", "b", "--gzip", "-o", "out"));
  expect_unchanged({"convert", "a", "-o", "out"});
  expect_unchanged({"convert", "a", "--output=out"});
  expect_unchanged({"convert", "a"});
  expect_unchanged({"convert", "--help"});
}

TEST(Renamed, NothingElseChanges) {
  expect_unchanged({});
  expect_unchanged({"--help"});
  expect_unchanged({"verify", "gate"});
  expect_unchanged({"simulate", "job.yaml"});
  expect_unchanged({"simulate"});
}

TEST(Renamed, TheOldFormRunsWithANote) {
  const TempDir folder, out;
  folder.write("rank_0.trace.jsonl",
               "{\"header\":1,\"rank\":0,\"world_size\":1}\n{\"end\":\"clean\"}\n");
  const Outcome outcome = run_lockstep({"convert", folder.path(), out.file("text")});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("note: `lockstep convert IN... OUT_DIR` is now"));
  EXPECT_THAT(outcome.out, HasSubstr("wrote 1 rank"));
}

}  // namespace
}  // namespace lockstep::cli
