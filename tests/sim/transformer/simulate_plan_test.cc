// lockstep simulate plan: what is answered, in all forms, and what is refused.
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_lockstep.h"
#include "tests/support/temp_dir.h"

namespace lockstep::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr const char* kSimulatedPlan =
    "plan: 1\nname: small\ncalibration: a100-cluster\n"
    "model: {layers: 16, hidden: 1024, heads: 16, vocabulary: 51200}\n"
    "sequence: 2048\ngpus: 32\ntensor: 2\npipeline: {stages: 4}\nglobal_batch: 64\n";

class SimulatePlan : public ::testing::Test {
 protected:
  cli::Outcome simulate(const std::vector<std::string>& more,
                        const std::string& text = kSimulatedPlan) {
    std::vector<std::string> arguments = {"simulate", "plan", folder_.write("p.yaml", text)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return cli::run_lockstep(arguments);
  }
  Json json(std::vector<std::string> more, const std::string& text = kSimulatedPlan) {
    more.insert(more.end(), {"--output", "json=-"});
    const cli::Outcome outcome = simulate(more, text);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out, nullptr, false);
  }
  void expect_refused(const std::vector<std::string>& more, const std::string& why,
                      const std::string& text = kSimulatedPlan) {
    const cli::Outcome outcome = simulate(more, text);
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(why));
  }
  TempDir folder_;
};

TEST_F(SimulatePlan, HelpFitsATerminal) {
  const cli::Outcome help = cli::run_lockstep({"simulate", "plan", "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("--set"), HasSubstr("lockstep simulate plan llama3-70b")));
  cli::expect_fits_a_terminal(help.out);
}

TEST_F(SimulatePlan, SaysTimeMemoryAndWhatTheyRestOn) {
  const cli::Outcome outcome = simulate({});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("step time"), HasSubstr("MFU"), HasSubstr("pipeline bubble"),
                    HasSubstr("together"), HasSubstr("the fullest"), HasSubstr("fitted to 3"),
                    HasSubstr("in four cases of five")));
  // Without gpu_memory the machine says what a GPU has.
  EXPECT_THAT(outcome.out, HasSubstr("fits 80 GiB"));
  cli::expect_fits_a_terminal(outcome.out);
}

// The plan's own name often says how many GPUs it has.
TEST_F(SimulatePlan, TheTitleSaysWhatWasSet) {
  EXPECT_TRUE(simulate({}).out.starts_with("small\n"));
  const std::vector<std::string> settings = {"--set", "gpus=64", "--set",
                                             "calibration.network_speed=20"};
  EXPECT_TRUE(
      simulate(settings).out.starts_with("small with gpus=64, calibration.network_speed=20\n"));
  // A program that reads the result finds the plan by its name, and each value by its key.
  const Json result = json(settings);
  EXPECT_EQ(result["plan"], "small");
  EXPECT_EQ(result["settings"], (Json{{"gpus", 64}, {"calibration.network_speed", 20}}));
  EXPECT_FALSE(json({}).contains("settings"));
}

// All forms give the same reason. Four stages and eight micro-batches: a bubble.
TEST_F(SimulatePlan, GivesTheReason) {
  const std::vector<std::string> bubble = {"--set", "pipeline.stages=4", "--set", "tensor=1"};
  const std::string reason = json(bubble)["reason"];
  EXPECT_THAT(reason, HasSubstr("most time goes to the pipeline's bubble ("));
  EXPECT_THAT(
      simulate(bubble).out,
      HasSubstr("reason       beside computing, most time goes to the pipeline's bubble ("));
  std::vector<std::string> page = bubble;
  page.insert(page.end(), {"--output", "html=-"});
  EXPECT_THAT(simulate(page).out, HasSubstr("Beside computing, most time goes to the pipeline"));
}

// A step with ZeRO-1 and overlap was measured; what is said of ZeRO-2 is said where it is used.
TEST_F(SimulatePlan, SaysWhatZeroRestsOnWhereItIsUsed) {
  const auto zero = [&](const std::string& stage, const std::string& overlap) {
    return simulate({"--set", "zero=" + stage, "--set", "overlap.gradients=" + overlap}).out;
  };
  EXPECT_THAT(zero("1", "true"), testing::Not(HasSubstr("no measured step used")));
  EXPECT_THAT(zero("2", "true"), HasSubstr("ZeRO-2 exchanges gradients once a step"));
  EXPECT_THAT(zero("1", "false"), HasSubstr("no measured step used ZeRO-1 without overlap"));
  EXPECT_THAT(zero("0", "true"), testing::Not(HasSubstr("ZeRO-")));
}

// PyTorch's operators overlap by themselves, and not where they are compiled, whatever
// overlap.context says; the answer says which.
TEST_F(SimulatePlan, SaysWhetherContextParallelCallsOverlap) {
  const auto said = [&](const std::string& kernels, const std::string& compile,
                        const std::string& overlap) -> std::string {
    const Json all =
        json({"--set", "model=llama3-8b", "--set", "context=2", "--set", "kernels=" + kernels,
              "--set", "compile=" + compile, "--set", "overlap.context=" + overlap});
    for (const Json& part : all["time"])
      if (part["part"] == "context_parallel") return part["rests_on"];
    return "no such part";
  };
  for (const std::string overlap : {"true", "false"}) {
    EXPECT_THAT(said("pytorch", "true", overlap), HasSubstr("each call is waited for"));
    EXPECT_THAT(said("pytorch", "false", overlap),
                testing::AllOf(HasSubstr("in float32;"), HasSubstr("during the attention")));
  }
  EXPECT_THAT(said("fused", "true", "true"), HasSubstr("during the attention"));
  EXPECT_THAT(said("fused", "true", "false"), HasSubstr("nothing hides them"));
}

// A machine's file may list GPUs that the job does not use; the answer is then that of others.
TEST_F(SimulatePlan, SaysWhichOfItsGpusAreSlow) {
  const auto with_slow = [&](const std::string& ranks) {
    return simulate({"--set", "calibration.slow=[{" + ranks + ", work: 1.5}]"}).out;
  };
  EXPECT_THAT(with_slow("first: 3"), HasSubstr("rank 3 takes 1.5 times as long; times are of"));
  EXPECT_THAT(with_slow("first: 28, last: 40"), HasSubstr("ranks 28-31 take 1.5 times as long"));
  EXPECT_THAT(with_slow("first: 32"), HasSubstr("the job has none of the machine's slow ranks"));
}

TEST_F(SimulatePlan, FilesOfOtherKindsAreCalledThat) {
  expect_refused({}, "this is a scenario, not a plan", "lockstep: 1\nname: job\n");
  expect_refused({}, "this is a sweep file, not a plan", "sweep: 1\nplan: p.yaml\n");
  expect_refused({}, "this is a machine file, not a plan", "machine: 1\nname: here\n");
  expect_refused({}, "\"plan\" is missing", "name: small\n");
}

// The fix of an error can be tried before the file is changed.
TEST_F(SimulatePlan, WhatIsSetCanMakeAPlanPossible) {
  std::string text = kSimulatedPlan;
  text.replace(text.find("gpus: 32"), 8, "gpus: 30");
  expect_refused({}, "p.yaml:6:7: error: 30 GPUs do not divide", text);
  expect_refused({"--set", "zero=1"}, "p.yaml:6:7: error: 30 GPUs do not divide", text);
  expect_refused({"--set", "gpus=28"}, "lockstep: gpus=28: error: 28 GPUs do not divide", text);
  EXPECT_EQ(simulate({"--set", "gpus=32"}, text).status, 0);
  const cli::Outcome sweep = cli::run_lockstep(
      {"sweep", folder_.file("p.yaml"), "-o", folder_.file("out"), "--vary", "gpus=30,32"});
  EXPECT_EQ(sweep.status, 0) << sweep.err;
  EXPECT_THAT(sweep.out, HasSubstr("1 refused"));
}

TEST_F(SimulatePlan, AKeyIsSetOnce) {
  expect_refused({"--set", "tensor=1", "--set", "tensor=2"}, "--set tensor is given twice");
}

TEST_F(SimulatePlan, TheJsonAddsUp) {
  const Json all = json({"--set", "gpu_memory=80GB", "--set", "recompute=full"});
  double time = 0, memory = 0;
  for (const Json& part : all["time"]) time += part["seconds"].get<double>();
  for (const Json& part : all["memory"]["parts"]) memory += part["bytes"].get<double>();
  EXPECT_NEAR(time, all["step_time_s"], 1e-9 * time);
  EXPECT_NEAR(memory, all["memory"]["bytes"], 1e-9 * memory);
  EXPECT_EQ(all["memory"]["fits"], true);
  EXPECT_EQ(all["layout"]["data"], 4);
  EXPECT_GT(all["hfu"], all["mfu"]);
  EXPECT_NEAR(all["tokens_per_s"].get<double>(), 64 * 2048 / all["step_time_s"].get<double>(),
              1e-6);
}

TEST_F(SimulatePlan, SaysWhatDoesNotFit) {
  const std::vector<std::string> small = {"--set", "gpu_memory=4GB"};
  const cli::Outcome outcome = simulate(small);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("does not fit 3.73 GiB: "), HasSubstr("too much on stage 3"),
                    HasSubstr("logits and their gradient")));
  cli::expect_fits_a_terminal(outcome.out);
  const Json all = json(small);
  EXPECT_EQ(all["memory"]["fits"], false);
  EXPECT_DOUBLE_EQ(all["memory"]["missing_bytes"].get<double>(),
                   all["memory"]["bytes"].get<double>() - 4e9);
}

TEST_F(SimulatePlan, SettingsAndCalibrationsChangeThePlan) {
  const double slow = json({})["step_time_s"];
  EXPECT_LT(json({"--set", "calibration.network_speed=20"})["step_time_s"], slow);
  EXPECT_LT(json({"--calibration", "h100-cluster"})["step_time_s"], slow);
  const Json other = json({"--set", "pipeline={stages: 2, schedule: zbv}", "--set", "tensor=4"});
  EXPECT_EQ(other["layout"]["pipeline"]["chunks"], 2);
  EXPECT_EQ(other["layout"]["data"], 4);
  EXPECT_EQ(json({"--set", "model=llama3-8b", "--set", "model.layers=8"})["model"]["layers"], 8);
}

TEST_F(SimulatePlan, LinksOfTheMachineChangeThePlan) {
  const double as_it_is = json({})["step_time_s"];
  // Groups are inside nodes, messages between stages are not.
  EXPECT_LT(json({"--set", "calibration.links.0.ring=12x40GB/s"})["step_time_s"], as_it_is);
  EXPECT_LT(json({"--set", "calibration.links.1.beta=100GB/s"})["step_time_s"], as_it_is);
  EXPECT_EQ(json({"--set", "calibration.links.1.ring=16x120GB/s"})["step_time_s"], as_it_is);
}

// At the line that names them.
TEST_F(SimulatePlan, FilesThatThePlanNamesAndThatAreMissing) {
  const auto with = [](const char* calibration) {
    std::string text = kSimulatedPlan;
    return text.replace(text.find("a100-cluster"), 12, calibration);
  };
  expect_refused({}, "p.yaml:3:14: error: there is no file ", with("a100-clusters"));
  expect_refused({}, "p.yaml:3:14: error: ", with("mine.yaml"));
  expect_refused({}, "mine.yaml: cannot open the file", with("mine.yaml"));
  expect_refused({"--calibration", "mine.yaml"}, "lockstep: mine.yaml: error: cannot open");
  expect_refused({}, "p.yaml:9:18: error: ", R"(plan: 1
name: towers
calibration: h100-cluster
gpus: 8
global_batch: 8
llm: {model: llama3-8b, sequence: 4096}
encoders: [{name: vit, input: image, model: vit-huge}]
data:
  manifest:      samples.jsonl
)");
}

TEST_F(SimulatePlan, TheIntervalHoldsTheStep) {
  const Json all = json({});
  EXPECT_LT(all["step_time_interval_s"][0], all["step_time_s"]);
  EXPECT_GT(all["step_time_interval_s"][1], all["step_time_s"]);
}

TEST_F(SimulatePlan, FailuresLeaveTheirGoodput) {
  std::string text = kSimulatedPlan;
  text += "failures: {gpu_mtbf_hours: 100, checkpoint: 10s, restart: 5min}\n";
  const Json all = json({}, text);
  EXPECT_NEAR(all["goodput"]["mtbf_s"], 100.0 * 3600 / 32, 1e-6);
  EXPECT_NEAR(all["goodput"]["interval_s"], all["goodput"]["daly_interval_s"], 5);
  const Json seldom = json({"--set", "failures.every=3h"}, text);
  EXPECT_LT(seldom["goodput"]["share"], all["goodput"]["share"]);
  EXPECT_EQ(seldom["goodput"]["best_interval_s"], all["goodput"]["best_interval_s"]);
  EXPECT_THAT(simulate({}, text).out, HasSubstr("goodput"));
  EXPECT_FALSE(json({}).contains("goodput"));
  // A checkpoint within a step would have nothing to keep; one that is free comes after each step.
  const double step = all["step_time_s"];
  EXPECT_EQ(json({"--set", "failures.checkpoint=0s"}, text)["goodput"]["interval_s"], step);
  EXPECT_EQ(json({"--set", "failures.every=1us"}, text)["goodput"]["interval_s"], step);
  expect_refused({"--set", "failures.every=0s"}, "makes no progress", text);
  expect_refused({"--set", "failures.checkpoint=10"}, "checkpoint", text);
}

// `"-80GB" is negative` did not say of which of ten keys.
TEST_F(SimulatePlan, WhatIsSetIsNamedWhereItIsWrong) {
  expect_refused({"--set", "tensor=4", "--set", "gpu_memory=-80GB"},
                 "lockstep: gpu_memory=-80GB: error: \"-80GB\" is negative");
  expect_refused({"--set", "model={name: llama3-9b}"},
                 "lockstep: model={\"name\":\"llama3-9b\"}: error: no published model");
  // Of two keys that do not fit together, the message names both, and neither line is at fault.
  expect_refused({"--set", "tensor=3"}, "p.yaml: error: 32 GPUs do not divide");
  expect_refused({"--set", "calibration.network_sped=2"},
                 "calibration.network_sped=2: unknown key \"calibration.network_sped\"; did you "
                 "mean \"calibration.network_speed\"?");
  expect_refused({"--set", "calibration.nosuch=2"}, "unknown key \"nosuch\"");
  expect_refused({"--calibration", "v100-node"}, "v100-node has no section \"transformer\"");
}

TEST_F(SimulatePlan, ACalibrationsFileIsSeenFromThePlan) {
  std::filesystem::copy_file(LOCKSTEP_SOURCE_DIR "/sim/machines/h100-cluster.yaml",
                             folder_.file("mine.yaml"));
  std::string text = kSimulatedPlan;
  text.replace(text.find("a100-cluster"), 12, "mine.yaml");
  EXPECT_EQ(json({}, text)["calibration"], "h100-cluster");
  text.replace(text.find("mine.yaml"), 9, "none.yaml");
  expect_refused({}, "none.yaml", text);
}

TEST_F(SimulatePlan, WhatCannotBeIsRefused) {
  expect_refused({"--set", "tensor"}, "--set: \"tensor\" should be KEY=VALUE");
  expect_refused({"--set", "tensor=1,2"}, "try all of them: lockstep sweep");
  expect_refused({"--set", "tensors=2"}, "did you mean \"tensor\"?");
  expect_refused({"--set", "tensor=3"}, "GPUs do not divide by tensor x context");
  expect_refused({"--set", "tensor=0"}, "at least 1");
  expect_refused({"--set", "calibration=h100-cluster"}, "--calibration");
  expect_refused({"--set", "calibration.network=1"}, "\"network\"");
  expect_refused({"--set", "gpus_per_node=4", "--set",
                  "calibration.network={topology: rails, rails: 8, tiers: [{nodes: 4}]}"},
                 "network/rails: 4 ranks of a node do not divide into 8 rails");
  expect_refused({"--set", "tensor=2", "--set", "tensor=4"}, "given twice");
  expect_refused({"--calibration", "h300"}, "h300");
  expect_refused({"--set", "dtype=float8"}, "GPUs of the generation ampere");
  expect_refused({"--output", "xml=-"}, "text, json, csv and html");
  expect_refused({}, "p.yaml:1:1", "lockstep: 1\n");
  expect_refused({}, "p.yaml", "plan: 1\nname: [\n");
  expect_refused({}, "p.yaml:6:7: error: 33 GPUs do not divide",
                 std::string(kSimulatedPlan)
                     .replace(std::string(kSimulatedPlan).find("gpus: 32"), 8, "gpus: 33"));
  expect_refused({"--set", "gpus=24", "--set", "pipeline.stages=3", "--set", "global_batch=16",
                  "--set", "calibration.ranks_per_node=16"},
                 "24 GPUs do not fill the nodes of 16");
  EXPECT_EQ(cli::run_lockstep({"simulate", "plan", folder_.file("missing.yaml")}).status, 2);
}

TEST_F(SimulatePlan, APlanIsNoScenario) {
  const cli::Outcome outcome =
      cli::run_lockstep({"simulate", folder_.write("p.yaml", kSimulatedPlan)});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("lockstep simulate plan"));
}

TEST_F(SimulatePlan, HasATableAndAPage) {
  const cli::Outcome csv = simulate({"-q", "--output", "csv=-", "--set", "gpu_memory=80GB"});
  EXPECT_THAT(csv.out,
              AllOf(HasSubstr("quantity,value,unit,rests_on\r\n"),
                    HasSubstr("\r\ntime.pipeline_bubble,"), HasSubstr("memory_missing,0,B")));
  std::string text = kSimulatedPlan;
  text.replace(text.find("small"), 5, "\"<b>small</b>\"");
  const cli::Outcome html = simulate({"-q", "--output", "html=-"}, text);
  EXPECT_THAT(html.out, AllOf(HasSubstr("&lt;b&gt;small"), HasSubstr("pipeline bubble"),
                              Not(HasSubstr("<b>small"))));
}

TEST_F(SimulatePlan, ShippedPlansFit) {
  std::size_t plans = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/sim/plans")) {
    const cli::Outcome outcome =
        cli::run_lockstep({"simulate", "plan", entry.path(), "--output", "json=-"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const Json all = Json::parse(outcome.out);
    EXPECT_EQ(all["memory"]["fits"], true) << entry.path();
    // The lower end for a model of several towers depends on its data.
    EXPECT_GT(all["mfu"], all.contains("items") ? 0.1 : 0.2) << entry.path();
    EXPECT_LT(all["mfu"], 0.65) << entry.path();
    ++plans;
  }
  EXPECT_GE(plans, 3U);
}

}  // namespace
}  // namespace lockstep::sim
