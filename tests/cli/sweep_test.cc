// `lockstep sweep` without a worker that derives: what it refuses, and what it makes of workers
// that fail.
#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>

#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SweepCommand : public ::testing::Test {
 protected:
  Outcome sweep(std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "sweep",     LOCKSTEP_SOURCE_DIR "/scenarios/modality/manual_hang_ok.yaml",
        "--machine", LOCKSTEP_SOURCE_DIR "/sim/machines/dgx-h100.yaml",
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
  // A worker that does what the shell script says.
  void use_worker(const std::string& script) {
    const std::string file = folder_.write("worker", "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    ::setenv("LOCKSTEP_WORKER", file.c_str(), 1);
  }
  void TearDown() override { ::unsetenv("LOCKSTEP_WORKER"); }
  std::string results() const { return TempDir::read(folder_.file("out/results.jsonl")); }
  TempDir folder_;
};

// And not that it names no machine, which a study does not have.
TEST_F(SweepCommand, SaysWhatIsWrongWithAStudy) {
  const Outcome outcome =
      run_lockstep({"sweep",
                    folder_.write("study.yaml",
                                  "lockstep: 1\nname: s\nstudy:\n  strategies: {DDP: {}}\n"
                                  "  remedies: {dummies: {remedy: dummy-picture}}\n"),
                    "-o", folder_.file("out")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("study.yaml:5:"), HasSubstr("dummy-picture")));
}

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

// Not because a machine is missing: a plan does not need one.
TEST_F(SweepCommand, AJobThatIsNotThereIsSaid) {
  for (const char* name : {"plan", "scenario"}) {
    const std::string file = folder_.write(
        "sweep.yaml", std::string("sweep: 1\n") + name +
                          ": nowhere.yaml\nvary: {tensor: [1, 2]}\n" +
                          (name == std::string("plan") ? "" : "machines: [dgx-h100]\n"));
    const Outcome outcome = run_lockstep({"sweep", file, "-o", folder_.file("out")});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("nowhere.yaml"), HasSubstr("cannot open the file")));
  }
}

TEST_F(SweepCommand, WhatCannotBeReadIsRefused) {
  expect_refused({"--vary", "ranks"}, "KEY=VALUE");
  expect_refused({"--vary", "ranks=8..2"}, "ends before it starts");
  expect_refused({"--memory-limit", "80"}, "--memory-limit");
  expect_refused({"--vary", "ranks." + std::string(200, 'x') + "=1"}, "at most 200 bytes");
  expect_refused({"--vary", "train.\xff=1"}, "UTF-8");
  expect_refused({"--best", "speed"}, "--best");
  expect_refused({"--seed", "-1"}, "--seed");
  expect_refused({"--trials", "0"}, "--trials");
  expect_refused({"--output", "xml=out.xml"}, "kinds: text, json, csv and html");
  expect_refused({"--machine", "missing.yaml"}, "missing.yaml");
  expect_refused({"--machine", LOCKSTEP_SOURCE_DIR "/sim/machines/dgx-h100.yaml"}, "given twice");
}

TEST_F(SweepCommand, WhatCannotBeVariedIsRefusedWithAFix) {
  expect_refused({"--vary", "ranks=2,2"}, "fix: give each value once");
  expect_refused({"--vary", "ranks=2.5"}, "fix: `lockstep scenario --schema` has all keys");
}

TEST_F(SweepCommand, AGridThatIsTooLargeToTryAsksForASearch) {
  expect_refused({"--vary", "ranks=1..1000", "--vary", "train.batch_size=1..1000"},
                 "1,000,000 points");
}

TEST_F(SweepCommand, ARefusalOfAWorkerIsFinal) {
  use_worker("echo asked >> '" + folder_.file("asked") + "'; echo no such data; exit 2");
  for (int time = 0; time < 2; ++time) {
    const Outcome outcome = sweep({"--vary", "ranks=4,5,6", "-j", "2"});
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("3 refused"), HasSubstr("no such data")));
    expect_fits_a_terminal(outcome.out);
    EXPECT_EQ(TempDir::read(folder_.file("asked")), "asked\nasked\nasked\n");
  }
}

// What it says is the reason, so that equal ones are said once, wherever its files were.
TEST_F(SweepCommand, TheReasonIsTheWorkersOwn) {
  use_worker("echo 'worker 1.0'; echo \"$2: error: no such data\"; echo '  fix: buy some'; exit 2");
  const Outcome outcome = sweep({"--vary", "ranks=4,5,6"});
  EXPECT_THAT(outcome.out, HasSubstr("  3 × no such data\n      first: ranks=4\n"));
}

TEST_F(SweepCommand, AWorkerWithoutDiskSpaceIsRetried) {
  use_worker("echo asked >> '" + folder_.file("asked") + "'; echo no space; exit 4");
  for (int time = 0; time < 2; ++time) {
    const Outcome outcome = sweep({"--vary", "ranks=4"});
    EXPECT_EQ(outcome.status, 4) << outcome.err;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("1 failed"), HasSubstr("no space")));
    EXPECT_THAT(outcome.out, Not(HasSubstr("\\x0a")));
  }
  EXPECT_EQ(TempDir::read(folder_.file("asked")), "asked\nasked\n");
}

TEST_F(SweepCommand, AMachinesFileMayHaveAnyName) {
  use_worker("echo asked >> '" + folder_.file("asked") + "'; exit 2");
  const std::string machine =
      folder_.write("m\xff.yaml", TempDir::read(LOCKSTEP_SOURCE_DIR "/sim/machines/dgx-a100.yaml"));
  for (int time = 0; time < 2; ++time) {
    const Outcome outcome = sweep({"--machine", machine, "--vary", "ranks=4"});
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("2 refused"));
  }
  EXPECT_EQ(TempDir::read(folder_.file("asked")), "asked\n");  // one job, and known the second time
}

// Paths in a sweep file are relative to its folder; a shipped machine has its name everywhere.
TEST_F(SweepCommand, ASweepFileNamesMachinesByPathOrName) {
  use_worker("exit 2");
  folder_.write("mine.yaml", TempDir::read(LOCKSTEP_SOURCE_DIR "/sim/machines/dgx-a100.yaml"));
  folder_.write("job.yaml",
                TempDir::read(LOCKSTEP_SOURCE_DIR "/scenarios/modality/manual_hang_ok.yaml"));
  const auto of_machines = [&](const std::string& machines) {
    const std::string file = folder_.write(
        "s.yaml", "sweep: 1\nscenario: job.yaml\nmachines: " + machines + "\nvary: {ranks: 4}\n");
    return run_lockstep({"sweep", file, "-o", folder_.file("out")});
  };
  const Outcome both = of_machines("[mine.yaml, dgx-h100]");
  EXPECT_THAT(both.out, HasSubstr("2 refused")) << both.err;
  EXPECT_THAT(results(), AllOf(HasSubstr("mine.yaml"), HasSubstr("\"dgx-h100\"")));
  EXPECT_THAT(of_machines("[dgx-h1000]").err, HasSubstr(folder_.file("dgx-h1000")));
}

TEST_F(SweepCommand, APointWhoseWorkerWasKilledIsTriedAgain) {
  use_worker("echo asked >> '" + folder_.file("asked") + "'; kill -9 $$");
  for (int time = 0; time < 2; ++time) {
    const Outcome outcome = sweep({"--vary", "ranks=4,5"});
    EXPECT_EQ(outcome.status, 4) << outcome.err;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("2 failed"), HasSubstr("SIGKILL")));
  }
  EXPECT_EQ(TempDir::read(folder_.file("asked")), "asked\nasked\nasked\nasked\n");
  EXPECT_THAT(results(), HasSubstr("\"verdict\":\"failed\""));
}

TEST_F(SweepCommand, WhatIsNoPlanNeedsNoWorker) {
  use_worker("touch '" + folder_.file("asked") + "'; exit 2");
  EXPECT_EQ(sweep({"--vary", "ranks=2"}).status, 2);  // the scenario's rules name rank 3
  EXPECT_THAT(results(), HasSubstr("\"verdict\":\"refused\""));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("asked")));
}

}  // namespace
}  // namespace lockstep::cli
