// What is derived happens: every counterexample hangs or fails on real processes, and a certificate
// is accepted.
#include <fstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tests/scenarios/program_test.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class Derive : public ProgramTest {};

class DeriveBad : public Derive, public ::testing::WithParamInterface<const char*> {};

TEST_P(DeriveBad, TheCounterexampleGoesWrongOnRealProcesses) {
  const std::string shown = folder_.file("shown.yaml");
  ASSERT_EQ(lockstep({"derive", shipped(GetParam()), "--write-scenario", shown}), 1) << log();
  EXPECT_THAT(log(), HasSubstr("DIVERGES"));
  EXPECT_EQ(lockstep({"run", "--check", shown, "--output-dir", folder_.file("run")}), 0) << log();
}

INSTANTIATE_TEST_SUITE_P(Scenarios, DeriveBad,
                         ::testing::Values("modality/manual_hang_bad", "modality/manual_silent_bad",
                                           "modality/ddp_unused_bad",
                                           "modality/ddp_static_graph_bad",
                                           "fsdp/fsdp_text_only_bad", "field/early_end_of_text_bad",
                                           "field/uneven_gradients_bad",
                                           "remedies/alternating_per_rank_bad",
                                           "remedies/grouped_bad", "training/overflow_bad"));

// The stages of a pipeline exchange messages: they are looked at together.
class DerivePipelineBad : public Derive, public ::testing::WithParamInterface<const char*> {};

TEST_P(DerivePipelineBad, TheCounterexampleHangsOnRealProcesses) {
  const std::string shown = folder_.file("shown.yaml");
  ASSERT_EQ(lockstep({"derive", shipped(GetParam()), "--write-scenario", shown}), 1) << log();
  EXPECT_THAT(log(), HasSubstr("MAY DEADLOCK"));
  EXPECT_THAT(log(), HasSubstr("p2p-cycle"));
  EXPECT_EQ(lockstep({"run", "--check", shown, "--output-dir", folder_.file("run")}), 0) << log();
}

INSTANTIATE_TEST_SUITE_P(Scenarios, DerivePipelineBad,
                         ::testing::Values("pipeline/crossed_bad", "pipeline/crossed_receive_bad",
                                           "pipeline/four_stages_crossed_bad"));

TEST_F(Derive, CopiesOfAPipelineAreSafeWhateverTheirBatchesHold) {
  EXPECT_EQ(lockstep({"derive", shipped("pipeline/dp_pipeline_ok")}), 0) << log();
  EXPECT_THAT(log(), HasSubstr("SAFE: data parallel pipelines, 4 ranks, 2 conditions"));
}

TEST_F(Derive, APipelineOfItsOwnHasACertificate) {
  const std::string derived = folder_.file("derived");
  const std::string certificate = folder_.file("certificate");
  ASSERT_EQ(lockstep({"derive", shipped("pipeline/gpipe_ok"), "--output-dir", derived,
                      "--certificate", certificate}),
            0)
      << log();
  EXPECT_EQ(lockstep({"check-certificate", certificate, derived + "/root-0"}), 0) << log();
}

TEST_F(Derive, TextsOfDifferentLengthsAreSafeWhereTheRanksWaitForTheLast) {
  EXPECT_EQ(lockstep({"derive", shipped("field/early_end_of_text_bad")}), 1) << log();
  EXPECT_THAT(log(), HasSubstr("missing-collective (proven)"));
  EXPECT_THAT(log(), HasSubstr("What happens in step 1"));
  EXPECT_EQ(lockstep({"derive", shipped("field/early_end_of_text_ok")}), 0) << log();
}

// Whether a gradient overflows is a value, and a rank alone has others than the job: here it
// overflows a step longer. A recorded run tells by its calls, and is compared as it went.
TEST_F(Derive, RanksOverflowWhereTheRecordedRunDid) {
  const std::string job = folder_.file("job.yaml");
  std::ofstream(job) << "lockstep: 1\nname: clipped\nranks: 2\nstrategy: fsdp\n"
                     << "train: {steps: 3, batch_size: 8, seed: 1, precision: float16, "
                     << "loss_scale: {initial: 65536}, clip: {image: 0.5, text: 0.5}}\n";
  const std::string run = folder_.file("recorded");
  ASSERT_EQ(lockstep({"run", job, "--output-dir", run}), 0) << log();
  EXPECT_EQ(lockstep({"derive", job, "--against", run}), 0) << log();
  EXPECT_THAT(log(), HasSubstr("recorded as derived"));
  EXPECT_EQ(lockstep({"derive", job, "--against", run, "--against", run}), 0) << log();
}

// What FSDP gathers ahead depends on the step before. Where the ranks agree on the branch, it is
// the same on all of them; where they do not, they diverge in the first step.
TEST_F(Derive, ShardsThatAreGatheredAheadAreSafeAfterAVote) {
  const std::string job = folder_.file("job.yaml");
  const auto write = [&](const std::string& rest, int seed) {
    std::ofstream(job) << "lockstep: 1\nname: vote\nranks: 3\nstrategy: fsdp\n"
                       << rest << "\ntrain: {steps: 8, batch_size: 4, seed: " << seed << "}\n";
  };
  const std::string vote = "data: {text_only: 0.3, sampler: grouped}\nremedy: presence-vote";
  write(vote, 1);
  const std::string derived = folder_.file("derived");
  const std::string certificate = folder_.file("certificate");
  ASSERT_EQ(lockstep({"derive", job, "--output-dir", derived, "--certificate", certificate}), 0)
      << log();
  EXPECT_EQ(lockstep({"check-certificate", certificate, derived + "/root-0"}), 0) << log();
  for (int seed = 1; seed < 4; ++seed) {
    write(vote, seed);
    const std::string run = folder_.file("run-" + std::to_string(seed));
    ASSERT_EQ(lockstep({"run", job, "--output-dir", run}), 0) << log();
    EXPECT_EQ(lockstep({"derive", job, "--against", run}), 0) << log();
  }
  write("data: {text_only: 0.5, sampler: dealt}", 1);
  EXPECT_EQ(lockstep({"derive", job}), 0) << log();
  write("data: {text_only: 0.3, sampler: grouped}", 1);
  EXPECT_EQ(lockstep({"derive", job}), 1) << log();
  EXPECT_THAT(log(), HasSubstr("What happens in step 0"));
}

// Its first step reduces at the end, its second knows the graph, and later ones have other buckets.
TEST_F(Derive, AStaticGraphIsSafeWhereItIsStatic) {
  EXPECT_EQ(lockstep({"derive", shipped("modality/ddp_static_graph_ok")}), 0) << log();
  const std::string job = folder_.file("job.yaml");
  const auto write = [&](const std::string& rest) {
    std::ofstream(job) << "lockstep: 1\nname: static\nranks: 3\nstrategy: {kind: ddp, "
                       << "static_graph: true, bucket_cap_mb: 0.05, first_bucket_mb: 0.01}\n"
                       << "data: {text_only: 0.3, sampler: grouped}\n"
                       << rest << "\ntrain: {steps: 5, batch_size: 4}\n";
  };
  write("remedy: dummy-image");
  EXPECT_EQ(lockstep({"derive", job}), 0) << log();
  ASSERT_EQ(lockstep({"run", job, "--output-dir", folder_.file("run")}), 0) << log();
  EXPECT_EQ(lockstep({"derive", job, "--against", folder_.file("run")}), 0) << log();
  write("");
  const std::string shown = folder_.file("shown.yaml");
  EXPECT_EQ(lockstep({"derive", job, "--write-scenario", shown}), 1) << log();
  EXPECT_EQ(lockstep({"run", "--check", shown, "--output-dir", folder_.file("shown")}), 0) << log();
}

// Rank 0's batch is everybody's: the others begin as it does.
TEST_F(Derive, RanksThatShareABatchBeginAlike) {
  const std::string job = folder_.file("job.yaml");
  std::ofstream(job) << "lockstep: 1\nname: shared\nranks: 3\nstrategy: fsdp\n"
                     << "data: {text_only: 0.7, sampler: grouped, broadcast: true}\n"
                     << "train: {steps: 6, batch_size: 4}\n";
  EXPECT_EQ(lockstep({"derive", job}), 0) << log();
  ASSERT_EQ(lockstep({"run", job, "--output-dir", folder_.file("run")}), 0) << log();
  EXPECT_EQ(lockstep({"derive", job, "--against", folder_.file("run")}), 0) << log();
}

// PyTorch's DDP does not survive its first backward there: it reduces the static graph's first
// gradients although no_sync says not to.
TEST_F(Derive, AStaticGraphCannotAccumulateWithoutReducing) {
  const std::string job = folder_.file("job.yaml");
  const auto write = [&](const std::string& options) {
    std::ofstream(job) << "lockstep: 1\nname: static\nranks: 2\nstrategy: {kind: ddp, "
                       << "static_graph: true" << options << "}\ntrain: {steps: 3, "
                       << "batch_size: 2, accumulation: 2}\nwatch: {every: 1}\n";
  };
  write("");
  EXPECT_EQ(lockstep({"derive", job}), 1) << log();
  EXPECT_THAT(log(), HasSubstr("RAISES"));
  EXPECT_THAT(log(), HasSubstr("step 0: expect_autograd_hooks_ INTERNAL ASSERT"));
  EXPECT_EQ(lockstep({"run", job, "--output-dir", folder_.file("a")}), 1) << log();
  EXPECT_THAT(log(), HasSubstr("rank-exception"));
  write(", no_sync: false");
  EXPECT_EQ(lockstep({"run", job, "--output-dir", folder_.file("b")}), 0) << log();
}

// DDP refuses the step after one without images, wherever it comes: nothing was recorded of the
// steps that the job has, and single mixes are tried. A step more shows it.
TEST_F(Derive, AVoteIsNoRemedyForUnusedParameters) {
  const std::string job = folder_.file("job.yaml");
  for (const std::string option : {"", ", static_graph: true", ", find_unused_parameters: true"}) {
    std::ofstream(job) << "lockstep: 1\nname: vote\nranks: 2\nremedy: presence-vote\n"
                       << "data: {text_only: 0.5, sampler: grouped}\nstrategy: {kind: ddp" << option
                       << "}\ntrain: {steps: 6, batch_size: 4}\n";
    const bool works = option.find("unused") != std::string::npos;
    EXPECT_EQ(lockstep({"derive", job}), works ? 0 : 1) << log();
    EXPECT_THAT(log(), HasSubstr(works ? "SAFE" : "RAISES"));
    const std::string run = folder_.file("run" + option);
    EXPECT_EQ(lockstep({"run", job, "--output-dir", run}), works ? 0 : 1) << log();
    EXPECT_THAT(log(), HasSubstr(works ? "CLEAN" : "unused-parameter"));
  }
}

// Gradients that nobody clears stay: after a batch with images, one without reduces them as well. A
// rank that never has images has none.
TEST_F(Derive, WhatRemainsOfAStepIsSeen) {
  const std::string job = folder_.file("job.yaml");
  std::ofstream(job) << "lockstep: 1\nname: remains\nranks: 3\nfault: zero-grad-forgotten\n"
                     << "data: {modality: [{ranks: [2], has: [text]}, {steps: [1], has: [image, "
                     << "text]}, {has: [text]}]}\nstrategy: manual\n"
                     << "train: {steps: 3, batch_size: 2, generate: {every: 2, tokens: 2}}\n";
  EXPECT_EQ(lockstep({"derive", job}), 1) << log();
  EXPECT_THAT(log(), HasSubstr("DIVERGES"));
}

// What rank 0 broadcasts depends on its first step, of which it has only some.
TEST_F(Derive, RankZeroBeginsOnlyAsTheJobSays) {
  const std::string job = folder_.file("job.yaml");
  std::ofstream(job) << "lockstep: 1\nname: vote\nranks: 2\nremedy: presence-vote\n"
                     << "data: {modality: {rank 1: [text]}}\n"
                     << "strategy: {kind: ddp, find_unused_parameters: true, "
                     << "bucket_cap_mb: 0.05}\ntrain: {steps: 2}\n";
  EXPECT_EQ(lockstep({"derive", job}), 0) << log();
  // The others are derived once where two first steps make rank 0 broadcast the same.
  std::ofstream(job) << "lockstep: 1\nname: overflows\nranks: 2\nmodel: {negatives: global}\n"
                     << "data: {modality: [{ranks: [1], steps: [0], has: [text]}, "
                     << "{has: [image, text]}]}\nstrategy: {kind: ddp, bucket_cap_mb: 0.01}\n"
                     << "train: {steps: 3, batch_size: 2, precision: float16}\n";
  EXPECT_EQ(lockstep({"derive", job}), 1) << log();
  EXPECT_THAT(log(), HasSubstr("DIVERGES"));
}

TEST_F(Derive, ASafeJobHasACertificate) {
  const std::string derived = folder_.file("derived");
  const std::string certificate = folder_.file("certificate");
  ASSERT_EQ(lockstep({"derive", shipped("modality/manual_hang_ok"), "--output-dir", derived,
                      "--certificate", certificate}),
            0)
      << log();
  EXPECT_THAT(log(), HasSubstr("SAFE"));
  EXPECT_EQ(lockstep({"check-certificate", certificate, derived + "/root-0"}), 0) << log();
}

TEST_F(Derive, NamesTheRemediesThatMakeAJobSafe) {
  EXPECT_EQ(lockstep({"derive", shipped("modality/manual_silent_bad"), "--remedies"}), 1);
  EXPECT_THAT(log(), ::testing::ContainsRegex("dummy images +safe"));
  const std::string shown = log();
  for (const std::string_view line : split(shown, '\n')) EXPECT_LE(columns_of(line), 80U) << line;
}

TEST_F(Derive, WritesEveryReportOfTheCounterexample) {
  const auto file = [&](const std::string& name) { return folder_.file(name); };
  ASSERT_EQ(lockstep({"derive", shipped("modality/manual_hang_bad"), "-o", "json=-", "-o",
                      "html=" + file("html"), "-o", "csv=" + file("csv"), "-o",
                      "dot=" + file("dot"), "-o", "junit=" + file("junit")}),
            1);
  const auto report = nlohmann::json::parse(log());
  EXPECT_EQ(report["findings"][0]["rule"], "modality-divergence");
  EXPECT_THAT(TempDir::read(file("html")), HasSubstr("modality-divergence"));
  EXPECT_THAT(TempDir::read(file("csv")), HasSubstr("error,modality-divergence,proven"));
  EXPECT_THAT(TempDir::read(file("dot")), HasSubstr("digraph"));
  EXPECT_THAT(TempDir::read(file("junit")), HasSubstr("<failure"));
}

TEST_F(Derive, RefusesAnUnknownReportBeforeItDerives) {
  EXPECT_EQ(lockstep({"derive", shipped("modality/manual_hang_bad"), "-o", "timelime=x"}), 2);
  EXPECT_THAT(log(), HasSubstr("did you mean timeline?"));
}

TEST_F(Derive, GatesAJob) {
  const std::string report = "json=" + folder_.file("json");
  const std::string page = folder_.file("lockstep.xml");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());  // where gate leaves its reports
  EXPECT_EQ(lockstep({"verify", "--ci", shipped("modality/manual_hang_ok"), "-o", report}), 0)
      << log();
  EXPECT_EQ(nlohmann::json::parse(TempDir::read(folder_.file("json")))["verdict"], "clean");
  EXPECT_EQ(lockstep({"verify", "--ci", shipped("modality/manual_hang_bad")}), 1) << log();
  std::filesystem::current_path(before);
  EXPECT_THAT(TempDir::read(page), HasSubstr("modality-divergence"));
}

// The published models on 4,096 ranks, in this process's memory and time.
class DeriveAtScale : public Derive {
 protected:
  std::string job(const std::string& rest) const {
    std::ofstream(folder_.file("job.yaml"))
        << "lockstep: 1\nname: large\nranks: 4096\n"
        << "model: {image: resnet-50, text: bert-base, embed_dim: 512}\n"
        << "data: {text_only: 0.5}\n"
        << rest;
    return folder_.file("job.yaml");
  }
};

TEST_F(DeriveAtScale, ARemedyHasACertificate) {
  const std::string derived = folder_.file("derived");
  const std::string certificate = folder_.file("certificate");
  ASSERT_EQ(lockstep({"derive", job("strategy: fsdp\nremedy: dummy-image\n"), "--output-dir",
                      derived, "--certificate", certificate}),
            0)
      << log();
  EXPECT_THAT(log(), HasSubstr("SAFE: large, 4,096 ranks, 2 conditions"));
  EXPECT_EQ(lockstep({"check-certificate", certificate, derived + "/root-0"}), 0) << log();
}

TEST_F(DeriveAtScale, WithoutOneARankAloneLeavesTheOthersWaiting) {
  ASSERT_EQ(lockstep({"derive", job("strategy: fsdp\n")}), 1) << log();
  EXPECT_THAT(log(), HasSubstr("DIVERGES: large, 4,096 ranks"));
}

// With prefetch a step gathers what the step before it used: more than its own condition decides.
// There are six conditions, too many for all pairs, so single mixes of batches are tried.
TEST_F(DeriveAtScale, MixesAreTriedWhereAStepDependsOnTheOneBefore) {
  const std::string texts =
      ", generate: {every: 1, tokens: 4, synced: true, ends: [{steps: [1], after: 3}, "
      "{steps: [3], after: 2}]}";
  for (const std::string& generate : {std::string(), texts}) {
    std::ofstream(folder_.file("job.yaml"))
        << "lockstep: 1\nname: large\nranks: 4096\n"
        << "model: {image: resnet-18, text: bert-small}\nstrategy: fsdp\n"
        << "data: {modality: [{ranks: [2], steps: [2], has: [text]}, {has: [image, text]}]}\n"
        << "train: {steps: 4" << generate << "}\n";
    ASSERT_EQ(lockstep({"derive", folder_.file("job.yaml")}), 1) << log();
    EXPECT_THAT(log(), HasSubstr("DIVERGES: large, 4,096 ranks"));
    EXPECT_EQ(log().find("a step depends on more than its condition") != std::string::npos,
              generate == texts);
    EXPECT_THAT(log(), HasSubstr("ERROR modality-divergence (proven)\n  rank 2's batch of step 2"));
  }
}

// Only rank 1 never has images: it does not show what the others do.
TEST_F(DeriveAtScale, RanksStandForThoseWhoseBatchesMayHoldTheSame) {
  std::string text = TempDir::read(shipped("modality/manual_hang_late_bad"));
  text.replace(text.find("ranks: 2"), 8, "ranks: 4096");
  std::ofstream(folder_.file("job.yaml")) << text;
  ASSERT_EQ(lockstep({"derive", folder_.file("job.yaml")}), 1) << log();
  EXPECT_THAT(log(), HasSubstr("rank 1's batch of step 0 held text only"));
  EXPECT_THAT(log(), HasSubstr("who    rank 1; concerns ranks 0,2-4095 too"));
}

TEST_F(DeriveAtScale, WhatNeedsValuesIsRefused) {
  EXPECT_EQ(lockstep({"derive", "--meta", job("train: {precision: float16}\n")}), 2);
  EXPECT_THAT(log(), HasSubstr("cannot be derived on the meta device: whether a float16"));
}

TEST_F(DeriveAtScale, SoManyRanksAreNotStartedOnOneMachine) {
  EXPECT_EQ(lockstep({"run", job("")}), 2);
  EXPECT_THAT(log(), HasSubstr("4,096 processes are more than one machine is asked to run"));
}

TEST_F(Derive, SaysWhyAJobCannotBeDerived) {
  EXPECT_EQ(lockstep({"derive", shipped("training/balance_cost_ok")}), 2);
  EXPECT_THAT(log(), HasSubstr("cannot be derived: the ranks distribute their batches"));
  EXPECT_EQ(lockstep({"derive", shipped("training/clip_ok"), "--certificate", "c"}), 2);
  EXPECT_THAT(log(), HasSubstr("--output-dir"));
}

}  // namespace
}  // namespace lockstep
