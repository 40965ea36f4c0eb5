#include <gtest/gtest.h>

#include "runtime/forecast/calibration_jobs.h"
#include "runtime/forecast/derived_ranks.h"
#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_lines.h"
#include "trace/load.h"

namespace lockstep::cli {
namespace {

// Two ranks that all-reduce 100 floats: rank 1 comes 5 us later, and it takes 7 us from there.
std::string rank_text(int rank, int issued, int completed) {
  return header_line(rank, 2) +
         issue_line(0, "world", "all_reduce",
                    {{"t", issued},
                     {"in", {{100}}},
                     {"out", {{100}}},
                     {"dtype", "float32"},
                     {"async", true}}) +
         event_line("complete", 0, {{"t", completed}}) + end_line("clean");
}

trace::Run run_of_two(const std::string& one, const std::string& other) {
  const TempDir folder;
  folder.write("rank_0.trace.jsonl", one);
  folder.write("rank_1.trace.jsonl", other);
  Result<trace::Run> run = trace::load_run({folder.path()});
  EXPECT_TRUE(run);
  return std::move(*run);
}

TEST(Calibrate, ACallIsTimedFromItsLastArrival) {
  const auto calls =
      runtime::all_reduces_of(run_of_two(rank_text(0, 1000, 12900), rank_text(1, 6000, 13000)));
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].bytes, 400);
  EXPECT_DOUBLE_EQ(calls[0].seconds, 7e-6);
}

TEST(Calibrate, ARunsMeanStepIsFromTheFirstEndToTheLast) {
  const auto run_with = [](const std::string& events) {
    const TempDir folder;
    folder.write("rank_0.trace.jsonl",
                 "{\"header\":1,\"rank\":0,\"world_size\":1}\n" + events + "{\"end\":\"clean\"}\n");
    return trace::load_run({folder.path()});
  };
  EXPECT_DOUBLE_EQ(runtime::mean_step_of(*run_with("{\"ev\":\"step\",\"n\":0,\"t\":1000}\n"
                                                   "{\"ev\":\"step\",\"n\":1,\"t\":11000}\n"
                                                   "{\"ev\":\"step\",\"n\":2,\"t\":19000}\n")),
                   9e-6);
  EXPECT_EQ(runtime::mean_step_of(*run_with("{\"ev\":\"step\",\"n\":0,\"t\":1000}\n")), 0);
}

TEST(Calibrate, ACallThatNotAllCompletedIsLeftOut) {
  std::string unfinished = rank_text(1, 6000, 13000);
  const std::size_t complete = unfinished.find("{\"ev\":\"complete\"");
  unfinished.erase(complete, unfinished.find('\n', complete) + 1 - complete);
  EXPECT_TRUE(runtime::all_reduces_of(run_of_two(rank_text(0, 1000, 12900), unfinished)).empty());
}

TEST(Calibrate, TheShortestTimeOfSeveralLooksCounts) {
  trace::WorkCost segment;
  segment.id = 3;
  segment.kernels = 5;
  trace::RankCosts counted{0, 0, 0, {segment}};
  segment.kernels = 0;
  for (const std::int64_t nanos : {700, 500, 900}) {
    segment.nanos = nanos;
    ASSERT_TRUE(runtime::keep_shortest({0, 0, nanos, {segment}}, counted));
  }
  EXPECT_EQ(counted.work.front().kernels, 5);
  EXPECT_EQ(counted.work.front().nanos, 500);
  EXPECT_EQ(counted.other_threads_nanos, 500);
}

TEST(Calibrate, CountsAndTimesMustBeOfOneProgram) {
  trace::WorkCost segment;
  segment.id = 3;
  trace::RankCosts counted{0, 0, 0, {segment}};
  EXPECT_TRUE(runtime::keep_shortest({0, 0, 0, {segment}}, counted));
  EXPECT_FALSE(runtime::keep_shortest({1, 0, 0, {segment}}, counted));
  EXPECT_FALSE(runtime::keep_shortest({0, 0, 0, {}}, counted));
  segment.id = 4;
  EXPECT_FALSE(runtime::keep_shortest({0, 0, 0, {segment}}, counted));
}

TEST(Calibrate, WrongUsageIsRefused) {
  EXPECT_EQ(run_lockstep({"calibrate"}).status, 2);
  EXPECT_EQ(run_lockstep({"calibrate", "-o", "x", "--ranks", "1"}).status, 2);
  // Before minutes of measuring, whose result no command would read, or which has no place.
  EXPECT_NE(run_lockstep({"calibrate", "-o", "x", "--name", ""}).err.find("--name"),
            std::string::npos);
  const TempDir folder;
  EXPECT_NE(run_lockstep({"calibrate", "-o", folder.path()}).err.find("this is a folder"),
            std::string::npos);
  const Outcome help = run_lockstep({"calibrate", "--help"});
  EXPECT_EQ(help.status, 0);
  expect_fits_a_terminal(help.out);
}

runtime::Scenario scenario_of(const std::string& more) {
  const auto scenario = runtime::parse_scenario("lockstep: 1\nname: n\n" + more, "s.yaml");
  EXPECT_TRUE(scenario) << scenario.error().str();
  return *scenario;
}

TEST(RanksThatStandForOthers, FewRanksAreAllExamined) {
  const auto traced = runtime::ranks_that_stand_for(scenario_of("ranks: 3\nstrategy: ddp\n"), {});
  ASSERT_TRUE(traced);
  EXPECT_EQ(*traced, (std::vector<std::int32_t>{0, 1, 2}));
}

TEST(RanksThatStandForOthers, OneOfEachClassIsExamined) {
  const auto traced = runtime::ranks_that_stand_for(
      scenario_of("ranks: 1000\nstrategy: ddp\n"
                  "data: {modality: [{ranks: [7, 9], steps: [1], has: [text]}, {has: [image, "
                  "text]}]}\n"),
      {});
  ASSERT_TRUE(traced);
  EXPECT_EQ((*traced)[0], 0);
  EXPECT_EQ((*traced)[999], 1);
  EXPECT_EQ((*traced)[9], 7);
}

// By rank, of a job of 1000: the first rank of `period` that draws the same.
std::vector<std::int32_t> drawn_every(std::int32_t period) {
  std::vector<std::int32_t> out;
  for (std::int32_t rank = 0; rank < 1000; ++rank) out.push_back(rank % period);
  return out;
}

TEST(RanksThatStandForOthers, OneOfTheRanksThatDrewEqualBatchesIsExamined) {
  const runtime::Scenario job = scenario_of("ranks: 1000\nstrategy: ddp\ndata: {text_only: 0.5}\n");
  EXPECT_TRUE(runtime::needs_draws(job));
  EXPECT_FALSE(runtime::needs_draws(scenario_of("ranks: 64\ndata: {text_only: 0.5}\n")));
  EXPECT_FALSE(runtime::needs_draws(scenario_of("ranks: 1000\n")));
  const auto traced = runtime::ranks_that_stand_for(
      job, runtime::DrawnAlike{drawn_every(7), drawn_every(2), drawn_every(1)});
  ASSERT_TRUE(traced);
  EXPECT_EQ((*traced)[999], 5);  // 999 = 142 · 7 + 5
  EXPECT_EQ((*traced)[7], 7);    // the first but rank 0, which is a root, to draw what rank 0 does
}

TEST(RanksThatStandForOthers, TooManyDifferentRanksAreExaminedLessClosely) {
  const runtime::DrawnAlike drawn{drawn_every(500), drawn_every(400), drawn_every(3)};
  const auto one_batch = runtime::ranks_that_stand_for(
      scenario_of("ranks: 1000\nstrategy: ddp\ndata: {text_only: 0.5}\n"), drawn);
  ASSERT_FALSE(one_batch);
  EXPECT_EQ(one_batch.error().message,
            "401 ranks of this job have different conditions, and at most 256 are derived");
  // What a micro-batch holds is seen within a replica only.
  const auto stages = runtime::ranks_that_stand_for(
      scenario_of("ranks: 1000\nstrategy: {kind: pipeline, schedule: gpipe}\n"
                  "data: {text_only: 0.5}\n"),
      drawn);
  ASSERT_TRUE(stages) << stages.error().str();
  EXPECT_EQ((*stages)[999], (*stages)[998] + 1);
}

class SimulateScenario : public testing::Test {
 protected:
  TempDir folder_;
  std::string write(const std::string& name, const std::string& text) {
    folder_.write(name, text);
    return folder_.file(name);
  }
  const std::string job_ = write("job.yaml", "lockstep: 1\nname: n\nranks: 2\nstrategy: ddp\n");
  const std::string machine_ = LOCKSTEP_SOURCE_DIR "/sim/machines/dgx-h100.yaml";
};

TEST_F(SimulateScenario, WrongUsageIsRefusedWithTheReason) {
  const auto says = [](const std::vector<std::string>& arguments, const std::string& what) {
    const Outcome outcome = run_lockstep(arguments);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.err.find(what), std::string::npos) << outcome.err;
  };
  says({"simulate"}, "nothing to simulate");
  says({"simulate", job_}, "no machine");
  // What is wrong with the file is said before a machine is asked for.
  says({"simulate", folder_.file("none")}, "none");
  says({"simulate", "trace", folder_.file("none")}, "none: error: no such file or folder");
  says({"simulate", write("empty.yaml", "")}, "empty.yaml:1:1: error: the file is empty");
  says({"simulate", job_, "--machine", folder_.file("none.yaml")}, "none.yaml");
  says({"simulate", folder_.file("none"), "--machine", machine_}, "none");
  says({"simulate", job_, "--machine", write("bad.yaml", "machine: 1\nname: [")}, "bad.yaml:");
  says({"simulate", job_, "--machine", machine_, "--ranks", "0"}, "--ranks");
  says({"simulate", job_, "--machine", machine_, "-o", "pdf=x"}, "pdf");
  says({"simulate", job_, "--machine", machine_, "--machine", machine_},
       "--machine is given 2 times, and takes one value");
  says({"simulate", job_, "--machine", machine_, "--traces", folder_.path()},
       "this folder is not empty");
}

// By the key that each kind of file must have.
TEST_F(SimulateScenario, FilesOfOtherKindsAreCalledThat) {
  const std::string plan = write("plan.yaml", "plan: 1\nname: p\n");
  const std::string sweep = write("sweep.yaml", "sweep: 1\nscenario: job.yaml\n");
  const auto says = [](const std::vector<std::string>& arguments, const std::string& what) {
    const Outcome outcome = run_lockstep(arguments);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.err.find(what), std::string::npos) << outcome.err;
  };
  says({"simulate", plan}, "this is a plan, not a scenario");
  says({"simulate", sweep}, "this is a sweep file, not a scenario");
  says({"simulate", machine_}, "this is a machine file, not a scenario");
  says({"derive", plan}, "this is a plan, not a scenario");
  says({"scenario", "--check", machine_}, "this is a machine file, not a scenario");
  says({"simulate", job_, "--machine", plan}, "this is a plan, not a machine file");
  says({"simulate", "collective", "--ranks", "8", "--bytes", "1MiB", "--machine", job_},
       "this is a scenario, not a machine file");
  says(
      {"simulate", "plan", LOCKSTEP_SOURCE_DIR "/sim/plans/llama3-70b.yaml", "--calibration", job_},
      "this is a scenario, not a machine file");
}

TEST_F(SimulateScenario, HelpFitsATerminal) {
  const Outcome help = run_lockstep({"simulate", "--help"});
  EXPECT_EQ(help.status, 0);
  expect_fits_a_terminal(help.out);
}

}  // namespace
}  // namespace lockstep::cli
