// `lockstep sweep` up to where it needs a worker: what it refuses, and how it says so.
#include <filesystem>

#include <gmock/gmock.h>

#include "cli/run_lockstep.h"
#include "support/temp_dir.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SweepCommand : public ::testing::Test {
 protected:
  Outcome sweep(std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "sweep",     LOCKSTEP_SOURCE_DIR "/scenarios/modality/manual_hang_ok.yaml",
        "--machine", LOCKSTEP_SOURCE_DIR "/machines/dgx-h100.yaml",
        "-o",        folder_.file("out")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_lockstep(arguments);
  }
  void expect_refused(const std::vector<std::string>& more, const std::string& why) {
    const Outcome outcome = sweep(more);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(why));
    EXPECT_FALSE(std::filesystem::exists(folder_.file("out")));
  }
  TempDir folder_;
};

TEST_F(SweepCommand, HelpFitsATerminal) {
  const Outcome help = run_lockstep({"sweep", "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("--vary"), HasSubstr("ranks=2..64*2")));
  expect_fits_a_terminal(help.out);
}

TEST_F(SweepCommand, AKeyThatIsNotThereIsRefusedBeforeAnythingRuns) {
  expect_refused({"--vary", "train.batchsize=8"},
                 "train.batchsize=8: unknown key \"batchsize\"; did you mean");
  expect_refused({"--vary", "machine.memory.bandwith=1TB/s"}, "did you mean \"bandwidth\"?");
}

TEST_F(SweepCommand, WhatCannotBeReadIsRefused) {
  expect_refused({"--vary", "ranks"}, "KEY=VALUE");
  expect_refused({"--vary", "ranks=8..2"}, "ends before it begins");
  expect_refused({"--memory-limit", "80"}, "--memory-limit");
  expect_refused({"--best", "speed"}, "--best");
  expect_refused({"--trials", "0"}, "--trials");
  expect_refused({"--output", "xml=out.xml"}, "kinds: text, json, csv and html");
  expect_refused({"--machine", "missing.yaml"}, "missing.yaml");
  expect_refused({"--machine", LOCKSTEP_SOURCE_DIR "/machines/dgx-h100.yaml"}, "given twice");
}

TEST_F(SweepCommand, AGridThatIsTooLargeToTryAsksForASearch) {
  expect_refused({"--vary", "ranks=1..1000", "--vary", "train.batch_size=1..1000"},
                 "1,000,000 points");
}

}  // namespace
}  // namespace lockstep
