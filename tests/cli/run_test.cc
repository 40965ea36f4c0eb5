// `lockstep run` and `lockstep scenario` as a user calls them; the workers only play at training
// (tests/runtime/launch/fake_worker.cc).
#include <stdlib.h>

#include <filesystem>
#include <sstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "runtime/launch/run_summary.h"
#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class RunCommand : public ::testing::Test {
 protected:
  RunCommand() { setenv("LOCKSTEP_WORKER", LOCKSTEP_BINARY_DIR "/tests/fake_worker", 1); }
  ~RunCommand() override { unsetenv("LOCKSTEP_WORKER"); }

  // Writes a scenario of three ranks that plays that piece, and returns its path.
  std::string scenario(const std::string& piece, const std::string& more = "") {
    return folder_.write(piece + ".yaml", "lockstep: 1\nranks: 3\nname: " + piece + "\n" + more);
  }

  TempDir folder_;
};

TEST_F(RunCommand, ACleanRunExitsWith0AndKeepsEverything) {
  const Outcome run =
      run_lockstep({"run", scenario("finish"), "--output-dir", folder_.file("out")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("CLEAN"));
  EXPECT_THAT(run.out, HasSubstr("all 3 ranks finished in "));
  EXPECT_TRUE(std::filesystem::exists(folder_.file("out/rank_2.ring")));
  EXPECT_TRUE(std::filesystem::exists(folder_.file("out/report.json")));
}

TEST_F(RunCommand, AHangIsProvenAndExitsWith1) {
  const Outcome run =
      run_lockstep({"run", scenario("one rank stops early"), "--output-dir", folder_.file("out")});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.out, HasSubstr("FINDINGS"));
  EXPECT_THAT(run.out, HasSubstr("hang proven "));
}

TEST_F(RunCommand, CheckComparesWithWhatIsExpected) {
  const std::string good = scenario("one rank stops early",
                                    "expect: {verdict: findings, culprits: [1], ends: stopped}\n");
  EXPECT_EQ(run_lockstep({"run", "--check", good, "--output-dir", folder_.file("a")}).status, 0);
  const std::string bad = scenario("finish", "expect: {verdict: findings}\n");
  const Outcome differing =
      run_lockstep({"run", "--check", bad, "--output-dir", folder_.file("b")});
  EXPECT_EQ(differing.status, 1);
  EXPECT_THAT(differing.err, HasSubstr("expected verdict findings, found clean"));
}

TEST_F(RunCommand, AFoldersTableComesLast) {
  scenario("finish", "expect: {verdict: clean}\n");
  scenario("one rank stops early", "expect: {verdict: clean}\n");
  const Outcome run = run_lockstep({"run", folder_.path(), "--output-dir", folder_.file("out")});
  EXPECT_EQ(run.status, 1);
  const std::string table = run.out.substr(run.out.rfind("\nscenario "));
  EXPECT_THAT(table, HasSubstr("finish"));
  EXPECT_THAT(table, HasSubstr("yes"));
  EXPECT_THAT(table, HasSubstr("NO"));
  EXPECT_TRUE(std::filesystem::exists(folder_.file("out/finish/report.json")));
}

TEST_F(RunCommand, TheTableOfReferencesComesLast) {
  scenario("finish");
  folder_.write("global.yaml", "lockstep: 1\nranks: 3\nname: finish\nmodel: {negatives: global}\n");
  const Outcome run =
      run_lockstep({"run", "--reference", folder_.path(), "--output-dir", folder_.file("out")});
  EXPECT_EQ(run.status, 0) << run.out << run.err;
  const std::string table = run.out.substr(run.out.find("final losses"));
  EXPECT_THAT(table, HasSubstr("finish    2      0.50000  0.50000    equal  2.4e-04    agrees"));
  EXPECT_THAT(table,
              HasSubstr("global    -      -        -          -      -          no reference"));
  EXPECT_THAT(table, HasSubstr("global: there is no reference for this job: its losses need"));
  EXPECT_TRUE(std::filesystem::exists(folder_.file("out/finish/reference/rank_0.ring")));
}

TEST_F(RunCommand, AComparisonWithAReferenceIsInTheReports) {
  const std::string file = scenario("finish");
  const std::string json = folder_.file("r.json"), page = folder_.file("r.html");
  const Outcome run = run_lockstep({"run", "--reference", "--quiet", file, "--output-dir",
                                    folder_.file("out"), "-o", json, "-o", page});
  EXPECT_EQ(run.status, 0) << run.out << run.err;
  const nlohmann::json report = nlohmann::json::parse(TempDir::read(json));
  EXPECT_TRUE(report.contains("reference")) << report.dump(1);
  EXPECT_THAT(TempDir::read(page), HasSubstr("Against one process with all batches"));
}

TEST_F(RunCommand, AnotherFinalLossThanTheReferencesExitsWith1) {
  const std::string file = scenario("finish, alone with another loss");
  const Outcome run =
      run_lockstep({"run", "--reference", file, "--output-dir", folder_.file("out")});
  EXPECT_EQ(run.status, 1) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("1.0e-03  2.4e-04    LOSS DIFFERS"));
}

TEST_F(RunCommand, WhatDidNotFinishHasNoReference) {
  const Outcome run = run_lockstep(
      {"run", "--reference", scenario("one rank fails"), "--output-dir", folder_.file("out")});
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(run.out, HasSubstr("one rank fails: the job did not finish"));
}

TEST_F(RunCommand, JsonOnStandardOutputIsAloneThere) {
  const Outcome run = run_lockstep(
      {"run", scenario("finish"), "--output", "json=-", "--output-dir", folder_.file("out")});
  EXPECT_EQ(nlohmann::json::parse(run.out)["verdict"], "clean");
  EXPECT_THAT(run.err, HasSubstr("all 3 ranks finished"));
}

TEST_F(RunCommand, QuietSaysNothingOfACleanRun) {
  const Outcome run =
      run_lockstep({"run", "--quiet", scenario("finish"), "--output-dir", folder_.file("out")});
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.out, IsEmpty());
  EXPECT_THAT(run.err, IsEmpty());
}

TEST_F(RunCommand, WorkersThatASignalKilledAreNamed) {
  const Outcome run =
      run_lockstep({"run", scenario("one rank aborts"), "--output-dir", folder_.file("out")});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.out, HasSubstr("rank 1 aborted (SIGABRT); its log ends with:"));
}

TEST_F(RunCommand, AJobThatDidNotCompleteIsNeverClean) {
  const Outcome run = run_lockstep({"run", scenario("long computation", "limits: {total_s: 1}\n"),
                                    "--output-dir", folder_.file("out")});
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(run.out, HasSubstr("limits.total_s"));
}

TEST_F(RunCommand, BadScenariosAndBadUsageExitWith2BeforeAnythingStarts) {
  const auto status_and_error = [&](const std::vector<std::string>& arguments) {
    const Outcome run = run_lockstep(arguments);
    return std::to_string(run.status) + " " + run.err;
  };
  EXPECT_THAT(status_and_error({"run", scenario("x", "rnks: 3\n")}),
              HasSubstr("unknown key \"rnks\"; did you mean \"ranks\"?"));
  EXPECT_THAT(status_and_error({"run", folder_.file("none")}), StartsWith("2 "));
  EXPECT_THAT(status_and_error({"run", "--check", scenario("finish")}),
              HasSubstr("--check needs something to compare with"));
  EXPECT_THAT(status_and_error({"run", scenario("y", "expect: {verdict: findings, rules: [x]}\n")}),
              HasSubstr("has an unknown rule"));
  setenv("LOCKSTEP_WORKER", "/nowhere", 1);
  EXPECT_THAT(status_and_error({"run", scenario("finish")}),
              HasSubstr("LOCKSTEP_WORKER is not a program"));
}

TEST_F(RunCommand, TracesOfAnEarlierRunAreNotWrittenOver) {
  const std::string file = scenario("finish");
  EXPECT_EQ(run_lockstep({"run", file, "--output-dir", folder_.file("out")}).status, 0);
  const Outcome again = run_lockstep({"run", file, "--output-dir", folder_.file("out")});
  EXPECT_EQ(again.status, 4);
  EXPECT_THAT(again.err, HasSubstr("holds the traces of an earlier run"));
}

TEST_F(RunCommand, ScenarioListsChecksAndPrintsTheSchema) {
  const std::string file = scenario("finish");
  EXPECT_THAT(run_lockstep({"scenario", "--list", folder_.path()}).out,
              HasSubstr("finish.yaml  finish"));
  EXPECT_THAT(run_lockstep({"scenario", "--check", file}).out, HasSubstr(": valid: 3 ranks"));
  EXPECT_EQ(run_lockstep({"scenario", "--check", scenario("x", "a: b\n")}).status, 2);
  const Outcome json =
      run_lockstep({"scenario", "--json", LOCKSTEP_SOURCE_DIR "/scenarios/modality"});
  EXPECT_EQ(json.status, 0) << json.err;
  const auto line = nlohmann::json::parse(json.out.substr(0, json.out.find('\n')));
  EXPECT_THAT(line["file"].get<std::string>(), HasSubstr("modality/all_image_text_ok.yaml"));
  EXPECT_EQ(line["scenario"]["expect"]["verdict"], "clean");
  EXPECT_EQ(run_lockstep({"scenario", "--json"}).status, 2);
  EXPECT_EQ(run_lockstep({"scenario", "--json", LOCKSTEP_SOURCE_DIR "/README.md"}).status, 2);
  const Outcome schema = run_lockstep({"scenario", "--schema"});
  EXPECT_EQ(nlohmann::json::parse(schema.out)["type"], "object");
  EXPECT_EQ(run_lockstep({"scenario"}).status, 2);
  EXPECT_EQ(run_lockstep({"scenario", "--check"}).status, 2);
}

TEST_F(RunCommand, NcclWithoutAGpuIsRefusedBeforeAnythingStarts) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  for (const bool share : {false, true}) {
    std::vector<std::string> arguments = {"run", scenario("finish", "backend: nccl\n"),
                                          "--output-dir", folder_.file("out")};
    if (share) arguments.emplace_back("--share-gpus");
    const Outcome run = run_lockstep(arguments);
    EXPECT_EQ(run.status, 2);
    EXPECT_THAT(run.err, HasSubstr("the backend is nccl, and this machine has no GPU"));
    EXPECT_THAT(run.err, HasSubstr("backend: gloo"));
    EXPECT_FALSE(std::filesystem::exists(folder_.file("out")));
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(RunCommand, SharingGpusChangesNothingOnGloo) {
  const Outcome run = run_lockstep(
      {"run", "--share-gpus", scenario("finish"), "--output-dir", folder_.file("out")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, Not(HasSubstr("sharing GPUs")));
}

// The outcome of a job of two ranks in which nothing was found.
runtime::JobOutcome ended(runtime::JobEnd end) {
  runtime::JobOutcome out;
  out.end = end;
  out.workers.resize(2);
  out.workers[1].rank = 1;
  out.steps = 7;
  out.planned_steps = 200;
  out.wall_s = 12.34;
  out.report.verdict = verify::Verdict::inconclusive;
  return out;
}

TEST(RunSummary, OfWhatWeEndedTellsHowFarItCameAndThatNothingWasWrong) {
  EXPECT_EQ(runtime::run_summary(ended(runtime::JobEnd::interrupted)),
            "interrupted at step 7 of 200, after 12.3 s\nnothing was found wrong until then\n");
  runtime::JobOutcome late = ended(runtime::JobEnd::timed_out);
  late.quiet_s = 31;
  EXPECT_THAT(runtime::run_summary(late),
              HasSubstr("ended at step 7 of 200, after 12.3 s, the limit"));
  EXPECT_THAT(runtime::run_summary(late), HasSubstr("nothing had moved for 31 s\n"));
  runtime::JobOutcome wrong = ended(runtime::JobEnd::interrupted);
  wrong.report.verdict = verify::Verdict::findings;
  EXPECT_THAT(runtime::run_summary(wrong), Not(HasSubstr("nothing was found wrong")));
}

TEST(RunSummary, TellsWhereRanksHung) {
  runtime::JobOutcome outcome = ended(runtime::JobEnd::stopped);
  for (runtime::WorkerOutcome& worker : outcome.workers) worker.hung_in = "poll < lockstep::train";
  EXPECT_THAT(runtime::run_summary(outcome),
              HasSubstr("ranks 0,1 hung in\n  poll < lockstep::train\n"));
}

TEST(RunSummary, PrintsNoTimesThatMeanNothing) {
  runtime::JobOutcome outcome = ended(runtime::JobEnd::completed);
  runtime::WorkerNumbers& numbers = outcome.workers[0].numbers.emplace();
  numbers.steps = 7;
  numbers.first_loss = 2;
  numbers.last_loss = 1;
  numbers.step_ms_median = 55;
  EXPECT_THAT(runtime::run_summary(outcome), HasSubstr("55 ms per step"));
  outcome.times_mean_nothing = true;
  EXPECT_THAT(runtime::run_summary(outcome), Not(HasSubstr(" ms per step")));
  EXPECT_THAT(runtime::run_summary(outcome), Not(HasSubstr("waiting for data")));
  EXPECT_THAT(runtime::run_summary(outcome),
              HasSubstr("the ranks shared GPUs: times mean nothing\n"));
}

TEST(RunProgress, OnATerminalOneLineIsWrittenOver) {
  std::ostringstream out;
  StatusLine line(out, 80, {});
  runtime::RunProgress progress(line, {.ranks = 4, .steps = 40});
  progress.update({.steps = 0, .loss = {}, .started = 3}, 0.1);
  progress.update({.steps = 2, .loss = 2.5, .started = 4}, 1.0);
  progress.update({.steps = 12, .loss = 2.31, .started = 4}, 2.0);
  line.erase();
  EXPECT_EQ(out.str(),
            "\rstarting  3 of 4 ranks\x1b[K"
            "\rstep 2/40  loss 2.500  4 ranks\x1b[K"
            "\rstep 12/40  loss 2.310  4 ranks  10 steps/s\x1b[K"
            "\r\x1b[K");
}

TEST(RunProgress, ElsewhereAPlainLineEveryFewSeconds) {
  std::ostringstream out;
  StatusLine line(out, 0, {.log = true});
  runtime::RunProgress progress(line, {.ranks = 1, .steps = 40});
  for (int i = 0; i < 100; ++i) progress.update({.steps = i, .loss = 1.0, .started = 1}, 0.1 * i);
  EXPECT_EQ(out.str(), "step 50/40  loss 1.000  1 rank  10 steps/s  (5 s)\n");
}

TEST(RunTable, FitsATerminal) {
  const std::string text = runtime::table(
      {{std::string(60, 'x'), "findings", "modality-divergence", "1,3,5,7,9,11,13", "yes", 123.4}});
  expect_fits_a_terminal(text);
  EXPECT_THAT(text, Not(HasSubstr("xxxxxxxxxxxxxxxxxxxxxxxxxxx")));
}

}  // namespace
}  // namespace lockstep::cli
