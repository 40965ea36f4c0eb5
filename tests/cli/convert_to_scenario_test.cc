// lockstep convert --to scenario: what it writes, and what it refuses. Replays run in
// tests/scenarios.
#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "runtime/job/scenario.h"
#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

class ConvertToScenario : public ::testing::Test {
 protected:
  // Rank r calls so many all-reduces, of sizes 1000, 1001, …
  void record(int rank, int calls, const std::string& end) {
    std::string text = header_line(rank, 2);
    for (int i = 0; i < calls; ++i) {
      text +=
          issue_line(i, "world", "all_reduce",
                     {{"in", {{1000 + i}}}, {"dtype", "float32"}, {"redop", "sum"}, {"step", i}});
      const bool completes = i < 4;
      if (completes) text += event_line("complete", i);
    }
    std::filesystem::create_directory(folder_.file("run"));
    folder_.write(fmt::format("run/rank_{}.trace.jsonl", rank), text + end_line(end));
  }
  void record_stall() {
    record(0, 5, "hung");
    record(1, 4, "hung");
  }
  Outcome make(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"convert",           "--to", "scenario",
                                          folder_.file("run"), "-o",   folder_.file("job.yaml")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_lockstep(arguments);
  }
  std::string calls(int rank) const {
    return TempDir::read(folder_.file(fmt::format("job.calls/rank_{}.trace.jsonl", rank)));
  }
  TempDir folder_;
};

TEST_F(ConvertToScenario, WritesAScenarioThatExpectsTheVerdict) {
  record_stall();
  const Outcome made = make();
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("2 ranks, 9 calls, at most 5 of one rank"));
  EXPECT_THAT(made.out, HasSubstr("it expects: host-stall of rank 1"));
  const Result<runtime::Scenario> scenario = runtime::load_scenario(folder_.file("job.yaml"));
  ASSERT_TRUE(scenario) << scenario.error().str();
  EXPECT_EQ(scenario->name, "replay of run");
  EXPECT_EQ(scenario->expect->culprits, std::vector<int>{1});
  EXPECT_EQ(run_lockstep({"scenario", "--check", folder_.file("job.yaml")}).status, 0);
}

TEST_F(ConvertToScenario, KeepsTheLastCallsAndTheirSizesApart) {
  record_stall();
  const Outcome made = make({"--last", "2", "--max-elements", "8"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("5 calls, at most 3 of one rank"));
  EXPECT_THAT(calls(0), HasSubstr(R"("in":[[5]],"dtype":"float32","redop":"sum","step":2)"));
  EXPECT_THAT(calls(0), HasSubstr(R"("in":[[7]],"dtype":"float32","redop":"sum","step":4)"));
  EXPECT_THAT(calls(1), HasSubstr(R"("in":[[6]],"dtype":"float32","redop":"sum","step":3)"));
}

TEST_F(ConvertToScenario, ACleanRunIsExpectedToBeClean) {
  record(0, 3, "clean");
  record(1, 3, "clean");
  const Outcome made = make();
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("it expects: clean"));
}

TEST_F(ConvertToScenario, ReplacesNothingUnlessTold) {
  record_stall();
  ASSERT_EQ(make().status, 0);
  const Outcome again = make();
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.err, HasSubstr("exists already"));
  folder_.write("job.calls/rank_7.trace.jsonl", "left over");
  folder_.write("job.calls/notes.txt", "mine");
  EXPECT_EQ(make({"--force"}).status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_.file("job.calls/rank_7.trace.jsonl")));
  EXPECT_TRUE(std::filesystem::exists(folder_.file("job.calls/notes.txt")));
}

TEST_F(ConvertToScenario, WhatHasNothingToShowIsRefused) {
  record(0, 3, "clean");
  const Outcome made = make();
  EXPECT_EQ(made.status, 3);
  EXPECT_THAT(made.err, HasSubstr("do not show whether anything is wrong"));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("job.yaml")));
}

TEST_F(ConvertToScenario, WhatCallsDoNotShowIsRefused) {
  // Parameters diverge in step 1, and the calls agree.
  for (int rank = 0; rank < 2; ++rank) {
    record(rank, 3, "clean");
    const std::string file = fmt::format("run/rank_{}.trace.jsonl", rank);
    std::string text = TempDir::read(folder_.file(file));
    const auto state = [](int step, const std::string& hash) {
      return json_line({{"ev", "state"}, {"n", step}, {"name", "w"}, {"hash", hash}});
    };
    text.insert(text.rfind("{\"end\""), state(0, "5") + state(1, std::to_string(rank)));
    folder_.write(file, text);
  }
  const Outcome made = make();
  EXPECT_EQ(made.status, 2);
  EXPECT_THAT(made.err, HasSubstr("it computes nothing and reads no data"));
}

TEST_F(ConvertToScenario, HelpFitsATerminal) {
  const Outcome help = run_lockstep({"convert", "--to", "scenario", "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("lockstep run --check hang.yaml"));
  expect_fits_a_terminal(help.out);
}

TEST_F(ConvertToScenario, NamesThatCannotBeAreRefusedBeforeAnythingIsWritten) {
  record_stall();
  const auto refused = [&](const std::string& output, const std::string& why) {
    const Outcome made =
        run_lockstep({"convert", "--to", "scenario", folder_.file("run"), "--force", "-o", output});
    EXPECT_EQ(made.status, 2) << output;
    EXPECT_THAT(made.err, HasSubstr(why));
  };
  refused(folder_.file("job.calls"), "a folder of this name");
  refused(folder_.file("new/"), "this is a folder");
  refused(folder_.file("run"), "this is a folder");
  refused(folder_.file("a\xff.yaml"), "cannot contain the name of its folder of calls");
  refused(folder_.file("a\n.yaml"), "cannot contain the name of its folder of calls");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("job.calls")));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("new")));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
}

TEST_F(ConvertToScenario, DoesNotReplaceWhatItReads) {
  record_stall();
  ASSERT_EQ(make().status, 0);
  const std::string calls_before = calls(0);
  for (const char* input : {"job.calls", "job.calls/../job.calls/rank_1.trace.jsonl"}) {
    const Outcome made = run_lockstep({"convert", "--to", "scenario", folder_.file(input),
                                       "--force", "-o", folder_.file("job.yaml")});
    EXPECT_EQ(made.status, 2);
    EXPECT_THAT(made.err, HasSubstr("would replace the traces"));
  }
  EXPECT_EQ(calls(0), calls_before);
}

TEST_F(ConvertToScenario, WrongOptionsSaySo) {
  record_stall();
  const Outcome none = make({"--last", "0"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("--last: 0 is not between 1 and "));
  EXPECT_EQ(make({"--max-elements", "1"}).status, 2);
  EXPECT_EQ(run_lockstep({"convert", "--to", "scenario", folder_.file("nowhere"), "-o",
                          folder_.file("job.yaml")})
                .status,
            2);
}

}  // namespace
}  // namespace lockstep::cli
