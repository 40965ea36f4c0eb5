// lockstep simulate plan and sweep, with plans of several towers.
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files/read_file.h"
#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"

namespace lockstep::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr const char* kTwoTowers = R"(plan: 1
name: two <towers>
calibration: h100-cluster
gpus: 32
global_batch: 32
llm:
  model: {layers: 8, hidden: 1024, heads: 8, vocabulary: 32000}
  sequence: 2048
  tensor: 2
  pipeline: {stages: 2}
encoders:
  - {name: vit, input: image, model: vit-huge, merge: 4, tensor: 2}
  - {name: ears, input: audio, model: whisper-large, merge: 2, on: every_gpu, frozen: true}
data:
  text: {lognormal: [600, 1]}
  image: {per_sample: {poisson: 2}, size: {lognormal: [576, 0.7]}}
  audio: {per_sample: {choice: [[0, 3], [1, 1]]}, size: 1500}
)";

class SimulateTowers : public ::testing::Test {
 protected:
  cli::Outcome simulate(const std::vector<std::string>& more,
                        const std::string& text = kTwoTowers) {
    std::vector<std::string> arguments = {"simulate", "plan", folder_.write("p.yaml", text)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return cli::run_lockstep(arguments);
  }
  TempDir folder_;
};

TEST_F(SimulateTowers, SaysTimeReasonPictureAndAlternatives) {
  const cli::Outcome outcome = simulate({});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("reason"), HasSubstr("LLM stage 0 with vit"), HasSubstr("seed 1"),
                    HasSubstr("critical path"), HasSubstr("data.arrange: balanced"),
                    HasSubstr("as planned"), HasSubstr("of language models: no encoder")));
  cli::expect_fits_a_terminal(outcome.out);
}

// The drawn steps differ by what is in their batches alone. How far a prediction may be off is the
// calibration's to say, and that it was never compared with a step that had an encoder.
TEST_F(SimulateTowers, TheIntervalIsTheCalibrations) {
  const cli::Outcome outcome = simulate({"--output", "json=" + folder_.file("out.json")});
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("in four cases of five)"), HasSubstr("drawn steps")));
  const Json all = Json::parse(TempDir::read(folder_.file("out.json")));
  const double seconds = all["step_time_s"];
  const double least = all["step_time_interval_s"][0], most = all["step_time_interval_s"][1];
  EXPECT_GT(seconds / least, 1.01);
  EXPECT_NEAR(seconds / least, most / seconds, 1e-9);
  EXPECT_THAT(all["rests_on"].dump(), HasSubstr("of their prediction, all of language models"));
  EXPECT_THAT(simulate({"--set", "steps=1"}).out, Not(HasSubstr("drawn steps")));
}

// The plan does not say what a GPU has; the machine does. Just above it is an answer of its own.
TEST_F(SimulateTowers, MemoryIsHeldAgainstTheMachines) {
  EXPECT_THAT(simulate({}).out, HasSubstr("fits 89.4 GiB"));
  const std::string json = "json=" + folder_.file("out.json");
  ASSERT_EQ(simulate({"--output", json}).status, 0);
  const double bytes = Json::parse(TempDir::read(folder_.file("out.json")))["memory"]["bytes"];
  const auto with_memory = [&](double share) {
    return simulate({"--set", fmt::format("gpu_memory={:.0f}MB", share * bytes / 1e6)}).out;
  };
  EXPECT_THAT(with_memory(0.97), HasSubstr("may not fit"));
  EXPECT_THAT(with_memory(0.8), HasSubstr("does not fit"));
}

// Plans are told from scenarios, whatever they train.
TEST_F(SimulateTowers, AreNoScenario) {
  const cli::Outcome outcome =
      cli::run_lockstep({"simulate", folder_.write("p.yaml", kTwoTowers), "--machine", "dgx-h100"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("p.yaml:1:1: error: this is a plan, not a scenario"),
                                 HasSubstr("`lockstep simulate plan`")));
}

// Failures are the whole job's, encoders and all; below `llm` they would say nothing.
TEST_F(SimulateTowers, FailuresLeaveTheirGoodput) {
  const std::string failures = "failures: {gpu_mtbf_hours: 100, checkpoint: 10s, restart: 5min}\n";
  const cli::Outcome outcome =
      simulate({"--output", "json=" + folder_.file("out.json")}, kTwoTowers + failures);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("goodput "));
  const Json all = Json::parse(TempDir::read(folder_.file("out.json")));
  EXPECT_NEAR(all["goodput"]["mtbf_s"], 100.0 * 3600 / 32, 1e-6);
  EXPECT_NEAR(all["goodput"]["tokens_per_s"],
              double{all["goodput"]["share"]} * double{all["tokens_per_s"]}, 1e-3);
  std::string below = kTwoTowers;
  below.insert(below.find("  sequence: 2048"), "  " + failures);
  EXPECT_THAT(simulate({}, below).err, HasSubstr("unknown key \"failures\""));
}

// Gradients' and the LLM's calls over two nodes are slower where the network is too narrow.
TEST_F(SimulateTowers, RunOnNetworks) {
  const auto seconds = [&](const std::string& network) {
    const cli::Outcome outcome = simulate({"--set", "calibration.network=" + network, "--output",
                                           "json=" + folder_.file("out.json")});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return double{Json::parse(TempDir::read(folder_.file("out.json")))["step_time_s"]};
  };
  const double wide = seconds("{topology: fat-tree, tiers: [{nodes: 1}]}");
  EXPECT_GT(seconds("{topology: fat-tree, tiers: [{nodes: 1, oversubscription: 50}]}"), wide);
  EXPECT_EQ(seconds("{topology: fat-tree, tiers: [{nodes: 4, oversubscription: 50}]}"), wide);
  EXPECT_THAT(simulate({"--set", "calibration.network={topology: torus, sides: [2]}"}).err,
              HasSubstr("needs 4 nodes"));
  // 1,180 GPUs, of which the LLM has fewer.
  EXPECT_THAT(
      cli::run_lockstep({"simulate", "plan", LOCKSTEP_SOURCE_DIR "/sim/plans/disttrain-72b.yaml",
                         "--set", "calibration.network={topology: torus, sides: [10, 14]}"})
          .err,
      HasSubstr("needs 148 nodes"));
}

TEST_F(SimulateTowers, SayWhichGpusAreSlow) {
  const auto answer = [&](const std::string& ranks) {
    return simulate({"--set", "calibration.slow=[{" + ranks + ", work: 2}]"}).out;
  };
  EXPECT_THAT(answer("first: 3"),
              HasSubstr("rank 3 takes 2 times as long: GPUs are numbered by stages"));
  EXPECT_THAT(answer("first: 300"), HasSubstr("none of the machine's slow ranks: all GPUs are"));
}

TEST_F(SimulateTowers, EveryFormSaysTheSame) {
  const cli::Outcome text = simulate({"--output", "json=-"});
  ASSERT_EQ(text.status, 0) << text.err;
  const Json json = Json::parse(text.out);
  EXPECT_GT(json["step_time_s"].get<double>(), 0);
  EXPECT_EQ(json["places"].size(), 2U);
  double sum = 0;
  for (const Json& part : json["time"]) sum += part["seconds"].get<double>();
  EXPECT_NEAR(sum, json["step_time_s"].get<double>(), 0.005 * sum);
  const std::string csv = simulate({"--output", "csv=-"}).out;
  EXPECT_THAT(csv, AllOf(HasSubstr("step_time,"), HasSubstr("busy.LLM stage 0 with vit,")));
  const std::string html = simulate({"--output", "html=-"}).out;
  EXPECT_THAT(html, AllOf(HasSubstr("two &lt;towers&gt;"), HasSubstr("<svg"),
                          HasSubstr("what each stage does during one step"), HasSubstr(">encodes<"),
                          HasSubstr(": gradients reduced"), testing::Not(HasSubstr("<towers>"))));
}

TEST_F(SimulateTowers, TheSamePlanGivesTheSameFigures) {
  EXPECT_EQ(simulate({"--output", "json=-"}).out, simulate({"--output", "json=-"}).out);
  const auto figures = [&](const std::string& seed) {
    Json all =
        Json::parse(simulate({"--output", "json=-", "-q", "--set", "data.seed=" + seed}).out);
    EXPECT_EQ(all["plan"], "two <towers>");
    EXPECT_EQ(all["settings"], (Json{{"data.seed", std::stoi(seed)}}));
    all.erase("settings");
    return all;
  };
  EXPECT_NE(figures("1"), figures("2"));
}

TEST_F(SimulateTowers, APlanThatCanHangEndsWithFindings) {
  const cli::Outcome outcome =
      simulate({"--set", "encoders.0.zero=3", "--set", "data.image.per_sample={poisson: 0.3}"});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("ERROR modality-divergence"),
                                 HasSubstr("without_items: dummy"), HasSubstr("no hang")));
  // Before the step time, which is that of steps that end; other plans that hang are marked.
  EXPECT_THAT(outcome.out, testing::ContainsRegex("\ncan hang +in [0-9.]+ % of the steps"));
  EXPECT_LT(outcome.out.find("\ncan hang"), outcome.out.find("\nstep time"));
  EXPECT_THAT(outcome.out, testing::ContainsRegex("\n  as planned .* h\n"));
  EXPECT_THAT(simulate({}).out, Not(HasSubstr("can hang")));
  // The page has the finding with its picture, and not the text in one line.
  const std::string page = simulate({"--set", "encoders.0.zero=3", "--set",
                                     "data.image.per_sample={poisson: 0.3}", "--output", "html=-"})
                               .out;
  EXPECT_THAT(page, AllOf(HasSubstr("id=\"finding-1\""), HasSubstr("The calls around it"),
                          Not(HasSubstr("\\x0a"))));
  const cli::Outcome dummy =
      simulate({"--set", "encoders.0.zero=3", "--set", "data.image.per_sample={poisson: 0.3}",
                "--set", "encoders.0.without_items=dummy"});
  EXPECT_EQ(dummy.status, 0) << dummy.err;
}

TEST_F(SimulateTowers, WhatIsWrongIsAnsweredWithItsPlace) {
  std::string text = kTwoTowers;
  text.replace(text.find("merge: 4"), 8, "merges: 4");
  const cli::Outcome outcome = simulate({}, text);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("p.yaml:12"), HasSubstr("merges")));
  const cli::Outcome set = simulate({"--set", "encoders.0.tensor=7"});
  EXPECT_EQ(set.status, 2);
  EXPECT_THAT(set.err, HasSubstr("do not divide by tensor 7"));
  // An A100 multiplies in 16 bits, also an encoder's.
  const cli::Outcome in_8_bits =
      simulate({"--set", "encoders.0.dtype=float8", "--calibration", "a100-cluster"});
  EXPECT_EQ(in_8_bits.status, 2);
  EXPECT_THAT(in_8_bits.err, HasSubstr("dtype: float8 on GPUs of the generation ampere"));
}

TEST_F(SimulateTowers, AManifestIsReadNextToThePlan) {
  std::string text = std::string(kTwoTowers).substr(0, std::string(kTwoTowers).find("data:")) +
                     "data: {manifest: samples.jsonl}\n";
  EXPECT_EQ(simulate({}, text).status, 2);
  folder_.write("samples.jsonl", "{\"text\": 700, \"image\": [1024, 256], \"audio\": [750]}\n");
  const cli::Outcome outcome = simulate({}, text);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("1 sample of samples.jsonl"));
}

TEST_F(SimulateTowers, ASweepFindsPlansThatDoNotHang) {
  const std::string plan = folder_.write("p.yaml", kTwoTowers);
  const cli::Outcome outcome = cli::run_lockstep(
      {"sweep", plan, "-o", folder_.path() + "/out", "--vary",
       "encoders.0.on=first_stage,every_gpu", "--vary", "encoders.0.zero=1,3", "--vary",
       "data.arrange=drawn,balanced", "--vary", "data.image.per_sample={poisson: 0.3}"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("8 of 8 points"), HasSubstr("modality-divergence")));
}

TEST(ShippedTowers, AreForecastAndFit) {
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/sim/plans")) {
    const std::string file = entry.path().string();
    const auto text = read_input(file);
    if (!text || text->find("\nencoders:") == std::string::npos) continue;
    const cli::Outcome outcome =
        cli::run_lockstep({"simulate", "plan", file, "--output", "json=-"});
    EXPECT_EQ(outcome.status, 0) << file << outcome.err;
    const Json json = Json::parse(outcome.out, nullptr, false);
    EXPECT_TRUE(json["memory"].value("fits", true)) << file;
  }
}

}  // namespace
}  // namespace lockstep::sim
