// `lockstep sweep` with a real worker.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/scenarios/program_test.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Sweep : public ProgramTest {
 protected:
  static constexpr const char* kMachine = LOCKSTEP_SOURCE_DIR "/sim/machines/dgx-h100.yaml";

  std::vector<std::string> command(const std::string& scenario,
                                   const std::vector<std::string>& more) const {
    std::vector<std::string> out = {"sweep",     scenario,
                                    "--machine", kMachine,
                                    "-o",        folder_.file("out"),
                                    "--output",  "json=" + folder_.file("json"),
                                    "--steps",   "3"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  int sweep(const std::string& scenario, const std::vector<std::string>& more) {
    return lockstep(command(scenario, more));
  }
  Json json() const { return Json::parse(TempDir::read(folder_.file("json"))); }
  std::vector<Json> lines() const {
    std::istringstream text(TempDir::read(folder_.file("out/results.jsonl")));
    std::vector<Json> out;
    for (std::string line; std::getline(text, line);) out.push_back(Json::parse(line));
    return out;
  }
  std::string job(const std::string& text) {
    folder_.write("job.yaml", "lockstep: 1\nname: a job\n" + text);
    return folder_.file("job.yaml");
  }
};

TEST_F(Sweep, EveryPointIsARowAndTheImpossibleOnesSayWhy) {
  ASSERT_EQ(
      sweep(shipped("pipeline/gpipe_ok"),
            {"--vary", "ranks=2,3,4", "--vary", "train.batch_size=8,16", "-j", "2", "--output",
             "html=" + folder_.file("html"), "--output", "csv=" + folder_.file("csv")}),
      0)
      << log();
  const Json result = json();
  EXPECT_EQ(result["tried"], 6);
  EXPECT_EQ(result["exhaustive"], true);
  EXPECT_EQ(result["counts"]["refused"], 2) << log();
  EXPECT_EQ(result["counts"]["ok"], 4) << log();
  for (const Json& row : lines()) {
    if (row["values"]["ranks"] == 3) {
      EXPECT_EQ(row["verdict"], "refused");
      EXPECT_NE(row["reason"], "");
    } else {
      EXPECT_EQ(row["verdict"], "ok");
      EXPECT_GT(row["step_time_s"], 0);
      EXPECT_GT(row["memory_bytes"], 0);
      EXPECT_EQ(row["memory_counted"], true);
    }
  }
  EXPECT_THAT(log(), AllOf(HasSubstr("6 of 6 points"), HasSubstr("2 refused")));
  EXPECT_THAT(TempDir::read(folder_.file("html")), HasSubstr("<svg"));
  EXPECT_THAT(TempDir::read(folder_.file("csv")), HasSubstr("ranks,train.batch_size,verdict"));
}

TEST_F(Sweep, SaysWhatSimulateSays) {
  const std::string scenario = shipped("modality/manual_hang_ok");
  ASSERT_EQ(sweep(scenario, {"--vary", "ranks=4"}), 0) << log();
  const Json row = json()["rows"][0];
  ASSERT_EQ(lockstep({"simulate", scenario, "--machine", kMachine, "--steps", "3", "--ranks", "4",
                      "--output", "json=" + folder_.file("simulated")}),
            0)
      << log();
  const Json simulated = Json::parse(TempDir::read(folder_.file("simulated")));
  EXPECT_DOUBLE_EQ(row["step_time_s"].get<double>() * 1e12,
                   simulated["step_time_ps"].get<double>());
  EXPECT_EQ(row["memory_bytes"], simulated["memory"]["needed_bytes"]);
  EXPECT_DOUBLE_EQ(row["samples_per_s"].get<double>(), simulated["samples_per_s"].get<double>());
  EXPECT_DOUBLE_EQ(row["bytes_sent_per_step"].get<double>(),
                   simulated["bytes_sent_per_step"].get<double>());
}

TEST_F(Sweep, WhatHangsIsARowAndWhereAllHangTheStatusSaysSo) {
  ASSERT_EQ(sweep(shipped("modality/manual_hang_bad"), {"--vary", "remedy=none,dummy-image"}), 0)
      << log();
  EXPECT_EQ(json()["counts"]["hangs"], 1);
  EXPECT_EQ(json()["counts"]["ok"], 1);
  EXPECT_THAT(log(), HasSubstr("modality-divergence"));
  EXPECT_EQ(sweep(shipped("modality/manual_hang_bad"), {"--vary", "remedy=none"}), 1) << log();
}

TEST_F(Sweep, WhatPairsTheWrongTensorsIsNoPlanThatTrains) {
  EXPECT_EQ(sweep(shipped("modality/manual_silent_bad"), {"--vary", "remedy=none,dummy-image"}), 0)
      << log();
  EXPECT_EQ(json()["counts"]["wrong"], 1);
  EXPECT_EQ(json()["counts"]["ok"], 1);
  EXPECT_THAT(log(), AllOf(HasSubstr("1 reaches its end"), HasSubstr("modality-divergence")));
}

TEST_F(Sweep, AFasterLinkIsTimedAndNotDerivedAgain) {
  const std::string scenario = job("ranks: 16\nstrategy: ddp\n");
  ASSERT_EQ(sweep(scenario, {"--vary", "machine.links.1.speed=0.0625..64*2"}), 0) << log();
  std::map<double, double> step_times;  // by speed
  for (const Json& row : lines()) {
    step_times[row["values"]["machine.links.1.speed"]] = row["step_time_s"];
  }
  ASSERT_EQ(step_times.size(), 11U);
  EXPECT_GT(step_times[0.0625], step_times[64]);
  for (auto next = std::next(step_times.begin()); next != step_times.end(); ++next)
    EXPECT_LE(next->second, std::prev(next)->second);
}

TEST_F(Sweep, ContinuesAfterAnInterruption) {
  const std::string scenario = job("ranks: 2\nstrategy: ddp\n");
  const std::vector<std::string> varied = {"--vary", "train.batch_size=1,2,4", "-j", "1"};
  ASSERT_EQ(sweep(scenario, varied), 0) << log();
  const std::string whole = TempDir::read(folder_.file("out/results.jsonl"));
  const std::size_t first = whole.find('\n') + 1;
  // The first row is another's than it was computed: it must be taken as it is.
  Json changed = Json::parse(whole.substr(0, first));
  changed["step_time_s"] = 12345.0;
  folder_.write("out/results.jsonl", changed.dump() + "\n" + whole.substr(first, 40));
  ASSERT_EQ(sweep(scenario, varied), 0) << log();
  EXPECT_THAT(log(), AllOf(HasSubstr("cut off"), HasSubstr("1 point already")));
  const std::string again = TempDir::read(folder_.file("out/results.jsonl"));
  EXPECT_EQ(again, changed.dump() + "\n" + whole.substr(first));
  // Nothing is left to do.
  ASSERT_EQ(sweep(scenario, varied), 0) << log();
  EXPECT_EQ(TempDir::read(folder_.file("out/results.jsonl")), again);
  // Another scenario is another sweep.
  EXPECT_EQ(sweep(job("ranks: 4\nstrategy: ddp\n"), varied), 2) << log();
}

TEST_F(Sweep, ASearchKeepsToItsTrialsAndSaysWhatItIs) {
  const std::string scenario = job("ranks: 2\nstrategy: ddp\n");
  const std::vector<std::string> varied = {
      "--vary", "train.batch_size=1..16", "--vary", "ranks=1..4", "--trials", "6", "--seed", "3"};
  ASSERT_EQ(sweep(scenario, varied), 0) << log();
  EXPECT_EQ(json()["tried"], 6);
  EXPECT_EQ(json()["grid_points"], 64);
  EXPECT_EQ(json()["exhaustive"], false);
  EXPECT_THAT(log(), HasSubstr("not exhaustive"));
  const std::string rows = json()["rows"].dump();
  std::filesystem::remove_all(folder_.file("out"));
  ASSERT_EQ(sweep(scenario, varied), 0) << log();
  EXPECT_EQ(json()["rows"].dump(), rows);
}

TEST_F(Sweep, AMemoryLimitDecidesWhatFits) {
  const std::string scenario = job("ranks: 2\n");
  ASSERT_EQ(sweep(scenario, {"--vary", "strategy=ddp,fsdp"}), 0) << log();
  double least = 1e30, most = 0;
  for (const Json& row : lines()) {
    least = std::min(least, row["memory_bytes"].get<double>());
    most = std::max(most, row["memory_bytes"].get<double>());
  }
  ASSERT_LT(least, most);
  const auto limit = std::to_string(static_cast<long>((least + most) / 2)) + "B";
  ASSERT_EQ(sweep(scenario, {"--vary", "strategy=ddp,fsdp", "--memory-limit", limit}), 0) << log();
  EXPECT_EQ(json()["counts"]["ok"], 1);
  EXPECT_EQ(json()["counts"]["does-not-fit"], 1);
  EXPECT_EQ(json()["rows"][0]["memory_bytes"], least);
}

TEST_F(Sweep, AnInterruptKeepsWhatIsDoneAndEndsTheWorkers) {
  const std::string scenario = job("ranks: 2\nstrategy: ddp\n");
  std::vector<std::string> arguments =
      command(scenario, {"--vary", "train.batch_size=1..500", "-j", "2"});
  arguments.insert(arguments.begin(), LOCKSTEP_PROGRAM);
  Result<runtime::Process> program = runtime::Process::spawn(arguments, folder_.file("log"));
  ASSERT_TRUE(program);
  const std::string results = folder_.file("out/results.jsonl");
  runtime::launch_testing::eventually(
      [&] { return std::filesystem::exists(results) && std::filesystem::file_size(results) > 0; },
      std::chrono::minutes(5));
  program->signal(SIGINT);
  runtime::launch_testing::eventually([&] { return !program->running(); }, std::chrono::minutes(5));
  ASSERT_TRUE(program->poll());
  EXPECT_EQ(program->poll()->exit_status, 130);
  EXPECT_THAT(log(), HasSubstr("interrupted"));
  EXPECT_GE(lines().size(), 1U);
  EXPECT_LT(lines().size(), 500U);
  EXPECT_EQ(json()["tried"], lines().size());
}

}  // namespace
}  // namespace lockstep
