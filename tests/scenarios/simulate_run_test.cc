// `lockstep simulate SCENARIO` with a real worker: what it says of shipped jobs, of those that
// hang, and of worlds that nobody has; and `lockstep calibrate`.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/scenarios/program_test.h"
#include "trace/load.h"
#include "trace/work_costs.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Simulate : public ProgramTest {
 protected:
  int simulate(const std::string& scenario, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"simulate", scenario,   "--machine",
                                          kMachine,   "--output", "json=" + folder_.file("json")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return lockstep(std::move(arguments));
  }
  Json json() const { return Json::parse(TempDir::read(folder_.file("json"))); }
  std::string write(const std::string& text) {
    folder_.write("job.yaml", "lockstep: 1\nname: a job\n" + text);
    return folder_.file("job.yaml");
  }
  static constexpr const char* kMachine = LOCKSTEP_SOURCE_DIR "/sim/machines/dgx-h100.yaml";
};

TEST_F(Simulate, AHealthyJobHasAStepTimeAndItsSharesAddUp) {
  ASSERT_EQ(simulate(shipped("modality/manual_hang_ok")), 0) << log();
  const Json result = json();
  EXPECT_EQ(result["ranks"], 4);
  EXPECT_EQ(result["steps"], 6);
  EXPECT_EQ(result["step_ends_ps"].size(), 6U);
  EXPECT_GT(result["step_time_ps"], 0);
  double first = result["step_ends_ps"][0];
  double last = result["step_ends_ps"][5];
  for (const Json& use : result["use"]) {
    const double all =
        use["busy_s"].get<double>() + use["exposed_s"].get<double>() + use["idle_s"].get<double>();
    EXPECT_LE(all, (last - first) * 1e-12 * 1.2);
    EXPECT_GT(all, (last - first) * 1e-12 * 0.8);
  }
  EXPECT_THAT(log(), HasSubstr("[links]"));
}

TEST_F(Simulate, TheCriticalPathIsWhatTheMeasuredStepsTake) {
  ASSERT_EQ(simulate(shipped("modality/manual_hang_ok")), 0) << log();
  const Json path = json()["critical_path"];
  std::int64_t sum = 0;
  for (const Json& item : path["items"]) sum += item["time_ps"].get<std::int64_t>();
  EXPECT_EQ(sum, path["end_ps"].get<std::int64_t>() - path["begin_ps"].get<std::int64_t>());
  EXPECT_EQ(path["begin_ps"], json()["step_ends_ps"][0]);
  EXPECT_EQ(path["end_ps"], json()["step_ends_ps"][5]);
  EXPECT_FALSE(json()["what_if"].empty());
  EXPECT_GT(json()["flop_utilisation"], 0);
  EXPECT_THAT(log(), HasSubstr("HFU"));
}

// Where batches are drawn, ranks have different numbers of images. Each tells the others how many,
// and whether it has any: they are not taken to be like the rank that is derived.
TEST_F(Simulate, DrawnBatchesAnswerGathersAndVotes) {
  const std::string gathers = write(
      "ranks: 3\nmodel: {negatives: global}\ndata: {text_only: 0.3}\nstrategy: manual\n"
      "train: {steps: 3, batch_size: 8, seed: 3}\n");
  EXPECT_EQ(simulate(gathers), 0) << log();
  ASSERT_EQ(lockstep({"run", gathers, "--output-dir", folder_.file("run")}), 0) << log();
  EXPECT_EQ(lockstep({"derive", gathers, "--against", folder_.file("run")}), 0) << log();
  const std::string votes = write(
      "ranks: 3\nremedy: presence-vote\ndata: {text_only: 0.5, sampler: grouped}\n"
      "strategy: manual\ntrain: {steps: 4, batch_size: 2, seed: 3}\n");
  EXPECT_EQ(simulate(votes), 0) << log();
  EXPECT_EQ(simulate(votes, {"--ranks", "512"}), 0) << log();
  // Without the vote these batches stop the job, and without pictures nothing is gathered.
  EXPECT_EQ(simulate(write("ranks: 3\ndata: {text_only: 0.5, sampler: grouped}\n"
                           "strategy: manual\ntrain: {steps: 4, batch_size: 2, seed: 3}\n")),
            1)
      << log();
}

// A remedy that does not reach the loss has its name also where the job is not run.
TEST_F(Simulate, ADeadRemedyIsOne) {
  for (const char* const job :
       {"modality/dummy_outside_graph_bad", "field/dummy_not_recomputed_bad"}) {
    ASSERT_EQ(simulate(shipped(job)), 1) << log();
    EXPECT_EQ(json()["report"]["findings"][0]["rule"], "dead-remedy") << job;
    ASSERT_EQ(lockstep({"derive", shipped(job)}), 1) << log();
    EXPECT_THAT(log(), HasSubstr("ERROR dead-remedy (proven)")) << job;
  }
}

// The critical path of DDP is before calls with long names.
TEST_F(Simulate, CutsNoNameOnTheCriticalPath) {
  ASSERT_EQ(simulate(shipped("modality/ddp_find_unused_ok")), 0) << log();
  EXPECT_THAT(log(),
              AllOf(HasSubstr("before all_reduce(logit_scale, image"), Not(HasSubstr(".."))));
}

// What is derived is a changed copy, which is gone afterwards.
TEST_F(Simulate, ErrorsNameTheUsersFile) {
  const std::string job = write(
      "ranks: 2\ndata: {text_only: 0.3}\nstrategy: ddp\nremedy: dummy-image\n"
      "train: {steps: 3, batch_size: 4, seed: 1}\n");
  ASSERT_EQ(simulate(job, {"--ranks", "4096", "--steps", "20"}), 2) << log();
  EXPECT_THAT(log(), AllOf(HasSubstr(job), HasSubstr("different conditions"),
                           Not(HasSubstr("lockstep-simulate-"))));
}

TEST_F(Simulate, ErrorsOfWorkersNameTheUsersFileInEveryCommand) {
  const std::string job = write(
      "ranks: 2\ndata: {source: manifest, manifest: /nowhere, vocab: /none.txt}\nstrategy: ddp\n");
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"simulate", job, "--machine", kMachine},
                                             {"derive", job},
                                             {"derive", job, "--remedies"},
                                             {"verify", job}}) {
    EXPECT_EQ(lockstep(command), 2) << log();
    EXPECT_THAT(log(), AllOf(HasSubstr("lockstep: " + job + ": error: the scenario names /nowhere"),
                             Not(HasSubstr("/lockstep-"))));
  }
  EXPECT_EQ(lockstep({"sweep", job, "--machine", kMachine, "-o", folder_.file("out")}), 2) << log();
  EXPECT_THAT(log(), AllOf(HasSubstr("the scenario names /nowhere"), Not(HasSubstr("/lockstep-"))));
}

// While ranks are derived the signal is polled; what only computes ends at once.
TEST_F(Simulate, CtrlCEndsEveryPhaseAndLeavesNothing) {
  namespace fs = std::filesystem;
  const std::string temporary = folder_.file("tmp");
  fs::create_directory(temporary);
  const auto interrupted_when = [&](const std::function<bool(pid_t)>& reached) {
    Result<runtime::Process> program = runtime::Process::spawn(
        {LOCKSTEP_PROGRAM, "simulate", shipped("modality/manual_hang_ok"), "--machine", kMachine,
         "--trials", "1000000", "--steps", "50", "--jitter", "compute=5%"},
        folder_.file("log"), {.environment = {{"TMPDIR", temporary}}});
    ASSERT_TRUE(program);
    const auto once = [&] { return reached(program->pid()); };
    ASSERT_TRUE(runtime::launch_testing::eventually(once, std::chrono::minutes(1)));
    program->signal(SIGINT);
    ASSERT_TRUE(runtime::launch_testing::eventually([&] { return !program->running(); }));
    EXPECT_EQ(program->poll()->exit_status, 130) << log();
    EXPECT_TRUE(fs::is_empty(temporary));
  };
  bool worked = false;
  const auto works = [&](pid_t program) {
    const std::string all = std::to_string(program);
    return !TempDir::read("/proc/" + all + "/task/" + all + "/children").empty();
  };
  interrupted_when(works);
  interrupted_when([&](pid_t program) {
    const bool now = works(program);
    worked = worked || now;
    return worked && !now;
  });
}

TEST_F(Simulate, AllFormsAreWritten) {
  ASSERT_EQ(simulate(shipped("modality/all_image_text_ok"),
                     {"--output", "html=" + folder_.file("page.html"), "--output",
                      "csv=" + folder_.file("steps.csv"), "--output",
                      "timeline=" + folder_.file("timeline.json"), "--trials", "20", "--jitter",
                      "compute=10%,image=20%", "--seed", "3"}),
            0)
      << log();
  EXPECT_THAT(TempDir::read(folder_.file("page.html")), HasSubstr("Critical path"));
  EXPECT_THAT(TempDir::read(folder_.file("steps.csv")), HasSubstr("step,ranks,count"));
  EXPECT_FALSE(Json::parse(TempDir::read(folder_.file("timeline.json")))["traceEvents"].empty());
  EXPECT_EQ(json()["trials"]["trials"], 20);
  EXPECT_LT(json()["trials"]["steps"]["p5_ps"], json()["trials"]["steps"]["p95_ps"]);
}

TEST_F(Simulate, EveryCallAndWaitAndStepHasItsCosts) {
  const std::string kept = folder_.file("kept");
  ASSERT_EQ(
      simulate(write("ranks: 2\nstrategy: fsdp\ntrain: {steps: 3}\n"), {"--output-dir", kept}), 0)
      << log();
  const Result<trace::Run> run = trace::load_run({kept});
  ASSERT_TRUE(run);
  ASSERT_EQ(run->ranks.size(), 2U);
  for (const trace::RankTrace& trace : run->ranks) {
    const auto costs = trace::read_work_costs(trace::costs_file(kept, trace.rank.value));
    ASSERT_TRUE(costs) << costs.error().str();
    std::size_t marks = 0;
    for (const trace::Event& event : trace.events)
      marks += event.kind == trace::EventKind::issue || event.kind == trace::EventKind::wait ||
               event.kind == trace::EventKind::step;
    EXPECT_EQ(costs->work.size(), marks);
    double flops = 0;
    for (const trace::WorkCost& work : costs->work)
      for (const trace::WorkCost::Flops& f : work.flops) flops += f.matmul + f.convolution;
    EXPECT_GT(flops, 0);
    EXPECT_GT(costs->state_bytes, 0);
  }
}

TEST_F(Simulate, ALargerBatchComputesLongerAndSendsTheSame) {
  // Where launches are not hidden: on a GPU, they are what small models take.
  folder_.write("cpu.yaml",
                "machine: 1\nname: a core each\nranks_per_node: 64\n"
                "compute: {float32: {peak: 40GFLOP/s}}\nmemory: {bandwidth: 10GB/s}\n"
                "kernels: {dispatch: 1us, hidden: false}\nlinks: [{alpha: 1us, beta: 1GB/s}]\n");
  const auto simulated = [&](int batch_size) {
    const std::string job = write("ranks: 2\nstrategy: ddp\ntrain: {steps: 3, batch_size: " +
                                  std::to_string(batch_size) + "}\n");
    EXPECT_EQ(lockstep({"simulate", job, "--machine", folder_.file("cpu.yaml"), "--output",
                        "json=" + folder_.file("json")}),
              0)
        << log();
    return json();
  };
  const Json small = simulated(4);
  const Json large = simulated(64);
  EXPECT_GT(large["use"][0]["busy_s"], 2 * small["use"][0]["busy_s"].get<double>());
  EXPECT_EQ(large["bytes_sent_per_step"], small["bytes_sent_per_step"]);
}

TEST_F(Simulate, AJobThatHangsIsReportedAsByARun) {
  EXPECT_EQ(simulate(shipped("modality/manual_hang_bad")), 1) << log();
  EXPECT_THAT(log(), HasSubstr("hangs"));
  EXPECT_EQ(json()["report"]["verdict"], "findings");
}

// Nothing waits, so the forecast is one; but the pairs are wrong.
TEST_F(Simulate, AJobThatPairsTheWrongTensorsIsForecastAndReported) {
  EXPECT_EQ(simulate(shipped("modality/manual_silent_bad"),
                     {"--output", "html=" + folder_.file("page.html")}),
            1)
      << log();
  EXPECT_GT(json()["step_time_ps"], 0);
  const Json finding = json()["report"]["findings"][0];
  EXPECT_EQ(finding["rule"], "modality-divergence");
  EXPECT_EQ(finding["culprits"], Json({0}));
  EXPECT_THAT(log(), AllOf(HasSubstr("step time"), HasSubstr("This job does not hang, but"),
                           HasSubstr("ERROR modality-divergence")));
  EXPECT_THAT(TempDir::read(folder_.file("page.html")),
              AllOf(HasSubstr("id=\"finding-1\""), HasSubstr("batch of step 0 held text only")));
  EXPECT_EQ(simulate(shipped("modality/manual_silent_ok")), 0) << log();
  EXPECT_EQ(json()["report"], nullptr);
}

// 64 ranks read more samples than this data set has, so some read the same.
TEST_F(Simulate, SamplesAreJudgedOnTheScenariosOwnRanksOnly) {
  EXPECT_EQ(simulate(shipped("data/unsharded_bad")), 1) << log();
  EXPECT_EQ(json()["report"]["findings"][0]["rule"], "no-sharding");
  EXPECT_EQ(simulate(shipped("field/contiguous_micro_batches_ok"), {"--ranks", "64"}), 0) << log();
  EXPECT_EQ(json()["report"], nullptr);
}

TEST_F(Simulate, ABarrierOfRank0AloneHangsTheJob) {
  EXPECT_EQ(simulate(shipped("training/checkpoint_bad")), 1) << log();
  const Json finding = json()["report"]["findings"][0];
  EXPECT_EQ(finding["step"], 1);
  EXPECT_THAT(log(), HasSubstr("barrier"));
}

TEST_F(Simulate, CheckpointsAndTheEvaluationAreTimedApartFromTheSteps) {
  const std::string train = "ranks: 2\nstrategy: fsdp\ndata: {held_out: 32}\ntrain: {steps: 5";
  const std::string saved = folder_.file("saved");
  const std::string saves = ", checkpoint: {folder: " + saved + ", every: 2, layout: gathered}";
  const auto simulated = [&](const std::string& more, const std::vector<std::string>& options) {
    EXPECT_EQ(simulate(write(train + more + "}\n"), options), 0) << log();
    return json();
  };
  const auto durations = [](const Json& of) {
    std::vector<std::int64_t> out;
    for (std::size_t s = 0; s < of["step_ends_ps"].size(); ++s)
      out.push_back(of["step_ends_ps"][s].get<std::int64_t>() -
                    of["step_begins_ps"][s].get<std::int64_t>());
    return out;
  };
  for (const std::string values : {"--no-meta", "--meta"}) {
    const Json plain = simulated("", {values});
    EXPECT_EQ(plain["checkpoints"], 0);
    EXPECT_TRUE(plain["evaluation_ps"].is_null());
    EXPECT_FALSE(plain["assumptions"].contains("checkpoints"));
    const Json full =
        simulated(saves + ", evaluate: true", {values, "--trials", "3", "--jitter", "compute=5%"});
    EXPECT_EQ(full["checkpoints"], 2) << values;
    EXPECT_GT(full["checkpoint_time_ps"], 0);
    EXPECT_GT(full["evaluation_ps"], 0);
    EXPECT_THAT(log(), HasSubstr("[checkpoints]"));
    EXPECT_THAT(log(), HasSubstr("steps and the checkpoints between them"));
    EXPECT_THAT(log(),
                HasSubstr(values == "--meta" ? "of calls, work uncounted" : "after the last step"));
    for (const std::size_t after : {1U, 3U})
      EXPECT_GT(full["step_begins_ps"][after + 1], full["step_ends_ps"][after]);
    EXPECT_EQ(full["step_begins_ps"][1], full["step_ends_ps"][0]);
    EXPECT_EQ(durations(full), durations(plain));
    EXPECT_EQ(full["calls_per_step"], plain["calls_per_step"]);
    EXPECT_EQ(full["bytes_sent_per_step"], plain["bytes_sent_per_step"]);
    EXPECT_EQ(full["flops_per_step"], plain["flops_per_step"]);
    EXPECT_FALSE(std::filesystem::exists(saved)) << "a rank that is derived alone writes nothing";
  }
  const Json values = simulated(", evaluate: true", {"--no-meta"});
  const Json shapes = simulated(", evaluate: true", {"--meta"});
  EXPECT_GT(values["evaluation_ps"], shapes["evaluation_ps"]) << "without values: its calls alone";
}

TEST_F(Simulate, ARankThatRaisesIsSaidWithWhatComesOfIt) {
  EXPECT_EQ(simulate(shipped("modality/ddp_unused_bad")), 1) << log();
  EXPECT_THAT(log(), HasSubstr("an exception ends ranks 1,3, and ranks 0,2 can never"));
  EXPECT_EQ(json()["raised"], Json({1, 3}));
  EXPECT_EQ(json()["stuck"], true);
  EXPECT_EQ(json()["report"]["findings"][0]["rule"], "modality-divergence");
  EXPECT_EQ(simulate(shipped("modality/ddp_all_text_only_bad")), 1) << log();
  EXPECT_THAT(log(), HasSubstr("an exception ends ranks 0,1."));
  EXPECT_EQ(json()["report"]["findings"][0]["rule"], "unused-parameter");
  // Where all stages receive first, each is derived up to there, and waits.
  EXPECT_EQ(simulate(shipped("pipeline/crossed_receive_bad")), 1) << log();
  EXPECT_EQ(json()["raised"], Json::array());
  EXPECT_EQ(json()["report"]["findings"][0]["rule"], "p2p-cycle");
}

TEST_F(Simulate, ReportsARaisingRankWhereOneRankRepresentsMany) {
  EXPECT_EQ(simulate(shipped("modality/ddp_unused_bad"), {"--ranks", "65"}), 1) << log();
  EXPECT_EQ(json()["raised"], Json({1, 3}));
  EXPECT_EQ(json()["report"]["findings"][0]["rule"], "modality-divergence");
  EXPECT_EQ(json()["report"]["findings"][0]["culprits"], Json({1, 3}));
  EXPECT_EQ(json()["report"]["findings"].size(), 1U) << "equal ranks do not train on equal samples";
  EXPECT_EQ(simulate(shipped("modality/ddp_all_text_only_bad"), {"--ranks", "65"}), 1) << log();
  EXPECT_EQ(json()["raised"].size(), 65U);
  EXPECT_EQ(json()["report"]["findings"][0]["rule"], "unused-parameter");
}

TEST_F(Simulate, ThePipelinesStagesWaitForEachOther) {
  ASSERT_EQ(simulate(shipped("pipeline/gpipe_ok")), 0) << log();
  EXPECT_EQ(json()["ranks"], 2);
  for (const Json& use : json()["use"])
    EXPECT_GT(use["idle_s"].get<double>() + use["exposed_s"].get<double>(), 0);
}

TEST_F(Simulate, WhatCannotBeDerivedIsRefusedWithTheReason) {
  EXPECT_EQ(simulate(shipped("training/balance_cost_ok")), 2);
  EXPECT_THAT(log(), HasSubstr("balance_cost_ok.yaml"));
  EXPECT_THAT(log(), HasSubstr("what they measure"));
}

TEST_F(Simulate, WorldsThatNobodyHasFoldIntoTheirKindsOfRanks) {
  const std::string job = write(
      "ranks: 2\nstrategy: ddp\nremedy: dummy-image\n"
      "data: {modality: [{ranks: [1], steps: [1], has: [text]}, {has: [image, text]}]}\n"
      "train: {steps: 3}\n");
  ASSERT_EQ(simulate(job, {"--ranks", "2048"}), 0) << log();
  EXPECT_EQ(json()["ranks"], 2048);
  EXPECT_LE(json()["use"].size(), 4U);
  const double many = json()["bytes_sent_per_step"];
  ASSERT_EQ(simulate(job, {"--meta"}), 0) << log();
  EXPECT_GT(many, json()["bytes_sent_per_step"].get<double>());
}

// A rank alone trains on other values than in the job, and some overflow where others do not. A
// checkpoint gathers the optimizer's state, which is there after the first update.
TEST_F(Simulate, RanksAgreeOnOverflows) {
  const std::string job = write(
      "ranks: 4\nstrategy: fsdp\ntrain: {steps: 3, batch_size: 4, seed: 7, precision: float16, "
      "checkpoint: {folder: saved, every: 2, layout: gathered}}\n");
  EXPECT_EQ(simulate(job, {}), 0) << log();
  EXPECT_EQ(simulate(job, {"--ranks", "512"}), 0) << log();
  EXPECT_EQ(lockstep({"derive", job}), 0) << log();
}

// What is simulated for a few kinds of ranks is held against all ranks, derived one by one.
TEST_F(Simulate, LargeWorldsCallWhatEachOfTheirRanksCalls) {
  const std::vector<std::string> jobs = {
      "ranks: 72\nstrategy: {kind: fsdp, shard_ranks: 4}\n"
      "data: {modality: [{has: [image, text]}]}\ntrain: {steps: 2}\n",
      "ranks: 72\nstrategy: {kind: pipeline, schedule: 1f1b, micro_batches: 2}\n"
      "data: {modality: [{ranks: [4], steps: [1], has: [text]}, {has: [image, text]}]}\n"
      "train: {steps: 2, batch_size: 4}\n",
      "ranks: 66\nstrategy: {kind: ddp, find_unused_parameters: true}\n"
      "data: {items: 64, text_only: 0.4, sampler: grouped}\ntrain: {steps: 3, batch_size: 4}\n"};
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const std::string job = write(jobs[i]), traces = folder_.file("simulated" + std::to_string(i));
    ASSERT_EQ(simulate(job, {"--traces", traces}), 0) << log();
    EXPECT_EQ(lockstep({"derive", job, "--against", traces}), 0) << log();
    EXPECT_THAT(log(), HasSubstr("recorded as derived"));
  }
}

TEST_F(Simulate, CyclesOfAThousandReplicasAreOneFinding) {
  EXPECT_EQ(simulate(shipped("pipeline/crossed_bad"), {"--ranks", "2000"}), 1) << log();
  const Json findings = json()["report"]["findings"];
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0]["rule"], "p2p-cycle");
  EXPECT_EQ(findings[0]["step"], 0);
  EXPECT_EQ(findings[0]["ranks"].size(), 2000U);
}

TEST_F(Simulate, Bfloat16OnTheMetaDeviceComputesWhatItComputesWithValues) {
  const std::string job = shipped("training/bfloat16_ok");
  const auto flops = [&](const std::string& device) {
    const std::string folder = folder_.file(device);
    EXPECT_EQ(simulate(job, {"--" + device, "--output-dir", folder}), 0) << log();
    std::map<std::string, double> out;
    const auto costs = trace::read_work_costs(trace::costs_file(folder, 1));
    EXPECT_TRUE(costs) << log();
    if (!costs) return out;
    for (const trace::WorkCost& work : costs->work)
      for (const trace::WorkCost::Flops& some : work.flops)
        out[some.dtype] += some.matmul + some.convolution;
    return out;
  };
  const auto with_values = flops("no-meta");
  EXPECT_EQ(flops("meta"), with_values);
  EXPECT_GT(with_values.at("bfloat16"), with_values.at("float32"));
}

TEST_F(Simulate, ShowsMemoryByCategoryAndHowMuchDoesNotFit) {
  folder_.write("small.yaml",
                "machine: 1\nname: small devices\ncompute: {float32: {peak: 1TFLOP/s}}\n"
                "memory: {bandwidth: 1TB/s, per_device: 1MB, reserved: 100kB, fragmentation: 1.5}\n"
                "links: [{alpha: 1us, beta: 1GB/s}]\n");
  ASSERT_EQ(lockstep({"simulate", shipped("modality/dummy_fill_ok"), "--machine",
                      folder_.file("small.yaml"), "--output", "json=" + folder_.file("json")}),
            0)
      << log();
  EXPECT_THAT(log(), HasSubstr("does not fit: rank"));
  const Json result = json();
  EXPECT_EQ(result["fits_memory"], false);
  const Json& memory = result["memory"];
  double most = 0;
  std::size_t steps = 0;
  for (const Json& own : memory["classes"]) {
    const Json& peak = own["peak"];
    EXPECT_DOUBLE_EQ(own["needed_bytes"], 1.5 * peak["bytes"].get<double>() + 100'000);
    double sum = 0;
    for (const Json& bytes : peak["by_category"]) sum += bytes.get<double>();
    EXPECT_EQ(sum, peak["bytes"]);
    for (const char* category :
         {"parameters", "gradients", "activations", "communication", "inputs"}) {
      EXPECT_GT(peak["by_category"][category], 0) << category;
    }
    EXPECT_EQ(peak["by_category"]["other"], 0);
    const Json& ends = own["timeline"]["end_ps"];
    EXPECT_TRUE(std::is_sorted(ends.begin(), ends.end()));
    EXPECT_LE(ends.back(), result["step_ends_ps"].back());
    steps = std::max(steps, own["timeline"]["step"].back().get<std::size_t>() + 1);
    most = std::max(most, own["needed_bytes"].get<double>());
  }
  EXPECT_EQ(steps, result["steps"]);
  EXPECT_EQ(memory["needed_bytes"], most);
}

// GPipe's first stage does all forwards before a backward; 1F1B's, only as many as there are
// stages.
TEST_F(Simulate, APipelinesFirstStageHoldsTheMicroBatchesThatItsScheduleHasInFlight) {
  const auto activations = [&](const std::string& schedule) {
    EXPECT_EQ(simulate(write(
                  "ranks: 2\nstrategy: {kind: pipeline, micro_batches: 8, schedule: " + schedule +
                  "}\ndata: {modality: [{has: [image, text]}]}\n"
                  "train: {steps: 2, batch_size: 8}\n")),
              0)
        << log();
    const Json result = json();
    const Json& ends = result["memory"]["classes"][0]["timeline"]["end_bytes"]["activations"];
    double most = 0;
    for (const Json& bytes : ends) most = std::max(most, bytes.get<double>());
    return most;
  };
  EXPECT_EQ(activations("gpipe"), 8.0 / 2 * activations("1f1b"));
}

class Calibrate : public Simulate {};

TEST_F(Calibrate, AMachineIsMeasuredAndUsed) {
  const std::string here = folder_.file("here.yaml");
  ASSERT_EQ(lockstep({"calibrate", "--ranks", "2", "--repeats", "1", "-o", here}), 0) << log();
  EXPECT_THAT(log(), HasSubstr("GFLOP/s"));
  const std::string job = write("ranks: 2\nstrategy: ddp\ntrain: {steps: 3}\n");
  ASSERT_EQ(lockstep({"simulate", job, "--machine", here}), 0) << log();
  EXPECT_THAT(log(), HasSubstr("step time"));
  EXPECT_THAT(log(), HasSubstr("roofline"));
  ASSERT_EQ(lockstep({"simulate", job, "--machine", here, "--time-work"}), 0) << log();
  EXPECT_THAT(log(), HasSubstr("with the rank alone"));
  EXPECT_THAT(log(), Not(HasSubstr("roofline")));
  EXPECT_EQ(lockstep({"simulate", job, "--machine", kMachine, "--time-work"}), 2);
  EXPECT_THAT(log(), HasSubstr("has devices"));
}

}  // namespace
}  // namespace lockstep
