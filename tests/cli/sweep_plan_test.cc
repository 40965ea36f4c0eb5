// `lockstep sweep` of a plan file: without workers, resumable, and all forms.
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "runtime/launch/process.h"
#include "tests/cli/run_lockstep.h"
#include "tests/runtime/launch/launch_testing.h"
#include "tests/support/temp_dir.h"

namespace lockstep::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr const char* kPlan =
    "plan: 1\nname: small\ncalibration: a100-cluster\nmodel: gpt-1.7b\n"
    "sequence: 2048\ngpus: 64\nglobal_batch: 128\n";

class SweepPlan : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write("p.yaml", kPlan);
    // No worker is looked for.
    ::setenv("LOCKSTEP_WORKER", folder_.file("none").c_str(), 1);
  }
  void TearDown() override { ::unsetenv("LOCKSTEP_WORKER"); }
  Outcome sweep(std::vector<std::string> more, const std::string& file = "p.yaml") {
    std::vector<std::string> arguments = {"sweep", folder_.file(file), "-o", folder_.file("out")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_lockstep(arguments);
  }
  void expect_refused(const std::vector<std::string>& more, const std::string& why) {
    const Outcome outcome = sweep(more);
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(why));
    EXPECT_FALSE(std::filesystem::exists(folder_.file("out")));
  }
  std::string results() const { return TempDir::read(folder_.file("out/results.jsonl")); }
  TempDir folder_;
};

TEST_F(SweepPlan, BestFirstAndTheRestWithReasons) {
  const std::vector<std::string> vary = {
      "--vary", "tensor=1,2,3", "--vary",         "pipeline.stages=1,2",
      "--vary", "zero=0,3",     "--memory-limit", "30GB",
      "--best", "step_time"};
  std::vector<std::string> with_json = vary;
  with_json.insert(with_json.end(), {"--output", "json=-"});
  const Outcome outcome = sweep(with_json);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json all = Json::parse(outcome.out);
  EXPECT_EQ(all["plan"], "small");
  EXPECT_EQ(all["tried"], 12);
  EXPECT_EQ(all["exhaustive"], true);
  EXPECT_EQ(all["counts"]["refused"], 4);  // tensor 3
  double before = 0;
  for (const Json& row : all["rows"]) {
    if (row["verdict"] != "ok") continue;
    EXPECT_GE(row["step_time_s"], before);
    before = row["step_time_s"];
    EXPECT_LE(row["memory_bytes"], 30e9);
    EXPECT_GT(row["mfu"], 0);
  }
  EXPECT_GT(before, 0);

  // Again: all rows are there, and nothing is added to them.
  const std::string rows = results();
  const Outcome again = sweep(vary);
  EXPECT_EQ(again.status, 0);
  EXPECT_THAT(again.err, HasSubstr("has 12 points already"));
  EXPECT_THAT(again.out, AllOf(HasSubstr("MFU"), HasSubstr("4 refused"),
                               HasSubstr("do not divide by tensor x context")));
  expect_fits_a_terminal(again.out);
  EXPECT_EQ(results(), rows);
}

TEST_F(SweepPlan, HasATableAndAPage) {
  const std::vector<std::string> vary = {
      "--vary", "tensor=1,2,4", "--calibration", "a100-cluster", "--calibration", "h100-cluster",
      "-q"};
  std::vector<std::string> csv = vary, html = vary;
  csv.insert(csv.end(), {"--output", "csv=-"});
  html.insert(html.end(), {"--output", "html=-"});
  EXPECT_THAT(sweep(csv).out,
              AllOf(HasSubstr("memory_bytes,tokens_per_s_per_rank,mfu,bubble,reason\r\n"),
                    HasSubstr("\r\nh100-cluster,1,ok,"), Not(HasSubstr("bytes_sent"))));
  EXPECT_THAT(sweep(html).out, AllOf(HasSubstr("MFU"), HasSubstr("h100-cluster")));
}

TEST_F(SweepPlan, ASearchKeepsToItsTrials) {
  const Outcome outcome =
      sweep({"--vary", "tensor=1,2,4,8", "--vary", "micro_batch=1..16", "--vary",
             "pipeline.stages=1..8", "--trials", "40", "-q", "--output", "json=-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json all = Json::parse(outcome.out);
  EXPECT_LE(all["tried"], 40);
  EXPECT_EQ(all["exhaustive"], false);
  EXPECT_EQ(all["grid_points"], 512);
}

TEST_F(SweepPlan, ASweepFileNamesThePlan) {
  folder_.write("s.yaml",
                "sweep: 1\nplan: p.yaml\ncalibrations: [h100-cluster]\nvary: {tensor: 1..4*2}\n");
  const Outcome outcome = sweep({"-q", "--output", "json=-"}, "s.yaml");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json all = Json::parse(outcome.out);
  EXPECT_EQ(all["tried"], 3);
  EXPECT_EQ(all["rows"][0]["machine"], "h100-cluster");
  folder_.write("s.yaml", "sweep: 1\nplan: p.yaml\nmachines: [m.yaml]\n");
  EXPECT_THAT(sweep({}, "s.yaml").err, AllOf(HasSubstr("s.yaml:3:1"), HasSubstr("\"machines\"")));
  folder_.write("s.yaml", "sweep: 1\nplan: p.yaml\nscenario: job.yaml\n");
  EXPECT_THAT(sweep({}, "s.yaml").err, HasSubstr("either a scenario or a plan"));
}

// As on the command line; a file of that name beside the sweep's goes first. (No plans are
// installed with this test.)
TEST_F(SweepPlan, ASweepFileMayNameAShippedPlan) {
  folder_.write("s.yaml", "sweep: 1\nplan: llama3-70b\nvary: {tensor: [1, 2]}\n");
  EXPECT_THAT(
      sweep({}, "s.yaml").err,
      HasSubstr("s.yaml: error: \"llama3-70b\" is neither a file nor one of the shipped plans"));
  folder_.write("llama3-70b", kPlan);
  EXPECT_THAT(sweep({}, "s.yaml").out, HasSubstr("\"small\""));
}

TEST_F(SweepPlan, OptionsOfScenariosAreRefused) {
  expect_refused({"--machine", "m.yaml"}, "--machine is for scenarios");
  expect_refused({"--steps", "2"}, "--steps is for scenarios");
  expect_refused({"--meta"}, "--meta is for scenarios");
  expect_refused({"-j", "2"}, "--jobs is for scenarios");
  expect_refused({"--calibration", "h300"}, "h300");
  expect_refused({"--calibration", "h100-cluster", "--calibration", "h100-cluster"}, "given twice");
  expect_refused({"--vary", "tensors=1"}, "did you mean");
  expect_refused({"--memory-limit", "0GB"}, "nothing fits in 0 bytes");
  expect_refused({"--vary", "tensor=1.5"}, "fix: docs/reference/plan.md has all keys");
  expect_refused({"--vary", "machine.links.0.beta=1GB/s"}, "unknown key \"machine\"");
  const Outcome scenario =
      run_lockstep({"sweep", LOCKSTEP_SOURCE_DIR "/scenarios/modality/manual_hang_ok.yaml",
                    "--calibration", "h100-cluster", "-o", folder_.file("out")});
  EXPECT_EQ(scenario.status, 2);
  EXPECT_THAT(scenario.err, HasSubstr("--calibration is for plans"));
}

TEST_F(SweepPlan, AnotherPlanIsNotMixedIn) {
  ASSERT_EQ(sweep({"--vary", "tensor=1,2"}).status, 0);
  folder_.write("p.yaml", std::string(kPlan) + "recompute: full\n");
  const Outcome other = sweep({"--vary", "tensor=1,2"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("before it was changed"));
}

// In a process of its own, which the signal ends.
TEST_F(SweepPlan, CtrlCKeepsAndReportsWhatWasComputed) {
  for (const int signal : {SIGINT, SIGTERM}) {
    std::filesystem::remove_all(folder_.file("out"));
    std::filesystem::remove(folder_.file("log"));
    Result<runtime::Process> program =
        runtime::Process::spawn({LOCKSTEP_BINARY_DIR "/lockstep", "sweep", folder_.file("p.yaml"),
                                 "-o", folder_.file("out"), "-o", "json=" + folder_.file("json"),
                                 "--vary", "micro_batch=1..90", "--vary", "sequence=1..1000"},
                                folder_.file("log"));
    ASSERT_TRUE(program);
    const std::string file = folder_.file("out/results.jsonl");
    ASSERT_TRUE(runtime::launch_testing::eventually(
        [&] { return std::filesystem::exists(file) && std::filesystem::file_size(file) > 0; }));
    program->signal(signal);
    ASSERT_TRUE(runtime::launch_testing::eventually([&] { return !program->running(); }));
    EXPECT_EQ(program->poll()->exit_status, 128 + signal);
    const auto lines = [](const std::string& text) {
      return std::count(text.begin(), text.end(), '\n');
    };
    const std::string rows = results();
    const auto computed = lines(rows);
    EXPECT_TRUE(rows.ends_with('\n'));
    EXPECT_LT(computed, 90000);
    const Json report = Json::parse(TempDir::read(folder_.file("json")));
    EXPECT_EQ(report["tried"], computed);
    EXPECT_EQ(report["interrupted"], true);
    EXPECT_EQ(report["exhaustive"], false);
    EXPECT_THAT(TempDir::read(folder_.file("log")),
                AllOf(HasSubstr(" of 90,000 points; interrupted"), HasSubstr("best by")));
    // What is there is taken as it is.
    const Outcome more = sweep({"--vary", "micro_batch=1", "--vary", "sequence=1..1000"});
    EXPECT_EQ(more.status, 0);
    EXPECT_THAT(more.err, HasSubstr(fmt::format("has {} already", plural(computed, "point"))));
    EXPECT_THAT(more.out, AllOf(HasSubstr("1,000 of 1,000 points\n"), Not(HasSubstr("interr"))));
    EXPECT_TRUE(results().starts_with(rows));
    EXPECT_EQ(lines(results()), std::max<std::ptrdiff_t>(computed, 1000));
  }
}

// The second point takes seconds: Ctrl-C does not wait for it.
TEST_F(SweepPlan, CtrlCEndsAPointThatIsComputed) {
  folder_.write("slow.yaml",
                "plan: 1\nname: slow\ncalibration: h100-cluster\ngpus: 64\nglobal_batch: 65536\n"
                "steps: 60\nllm: {model: {layers: 64, hidden: 1024, heads: 16, vocabulary: 51200}, "
                "sequence: 256, pipeline: {stages: 2}}\nencoders: []\ndata: {text: 100}\n");
  Result<runtime::Process> program = runtime::Process::spawn(
      {LOCKSTEP_BINARY_DIR "/lockstep", "sweep", folder_.file("slow.yaml"), "-o",
       folder_.file("out"), "-o", "json=" + folder_.file("json"), "--vary", "micro_batch=4096,1,2"},
      folder_.file("log"));
  ASSERT_TRUE(program);
  const std::string file = folder_.file("out/results.jsonl");
  ASSERT_TRUE(runtime::launch_testing::eventually(
      [&] { return std::filesystem::exists(file) && std::filesystem::file_size(file) > 0; }));
  program->signal(SIGINT);
  ASSERT_TRUE(runtime::launch_testing::eventually([&] { return !program->running(); }));
  EXPECT_EQ(program->poll()->exit_status, 128 + SIGINT);
  const Json report = Json::parse(TempDir::read(folder_.file("json")));
  EXPECT_EQ(report["tried"], 1);
  EXPECT_EQ(report["interrupted"], true);
  EXPECT_THAT(TempDir::read(folder_.file("log")), HasSubstr("1 of 3 points; interrupted"));
}

TEST_F(SweepPlan, WhereAllAreRefusedTheStatusSaysSo) {
  const Outcome outcome = sweep({"--vary", "tensor=3,5"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out, HasSubstr("2 refused"));
}

TEST_F(SweepPlan, AReportThatCannotBeWrittenIsRefusedBeforeAnyPoint) {
  expect_refused({"--vary", "tensor=1,2", "--output", "html=/no/such/folder/x.html"},
                 "/no/such/folder/x.html: error: cannot write");
  expect_refused({"--vary", "tensor=1,2", "--output", "html=" + folder_.path()}, "cannot write");
  // The folder of the results is made by the sweep itself.
  const Outcome inside =
      sweep({"--vary", "tensor=1,2", "--output", "html=" + folder_.file("out/x.html")});
  EXPECT_EQ(inside.status, 0) << inside.err;
  EXPECT_TRUE(std::filesystem::exists(folder_.file("out/x.html")));
  const Outcome nested =
      sweep({"--vary", "tensor=1,2", "--output", "html=" + folder_.file("out/no/x.html")});
  EXPECT_EQ(nested.status, 2) << nested.out;
}

}  // namespace
}  // namespace lockstep::cli
