#include "runtime/worker/worker.h"

#include <signal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/record/watchdog.h"
#include "tests/runtime/spawn.h"
#include "tests/support/temp_dir.h"

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two ranks, of which rank 1 gets text only.
Scenario text_only_rank(Scenario::Strategy::Kind kind) {
  Scenario s;
  s.name = "rank 1 has no images";
  s.data.items = 64;
  s.data.modality = {{.ranks = {1}, .steps = {}, .has = {Modality::text}}};
  s.strategy.kind = kind;
  s.train.steps = 3;
  s.train.batch_size = 2;
  s.limits.hang_after_s = 1;
  s.limits.total_s = 30;
  return s;
}

std::vector<ExitStatus> run(const Scenario& s, const TempDir& folder,
                            QueuedCalls queued = QueuedCalls::no) {
  return spawn(s.ranks, [&](int rank) {
    WorkerOptions options;
    options.rank = rank;
    options.world_size = s.ranks;
    options.store = folder.file("store");
    options.trace = folder.path();
    options.queued = queued;
    options.parent = prepare_process_for_watchdog();
    return run_worker(s, options);
  });
}

TEST(Worker, LeavesACleanTraceAndAResult) {
  Scenario s = text_only_rank(Scenario::Strategy::Kind::ddp);
  s.data.modality.clear();
  s.train.evaluate = true;
  const TempDir folder;
  EXPECT_THAT(run(s, folder), ElementsAre(0, 0));
  const Recorded run = recorded(folder.path(), 1);
  EXPECT_EQ(run.trace.end, trace::End::clean);
  EXPECT_EQ(run.trace.steps.size(), 3U);
  EXPECT_EQ(run.trace.data.at(0).indices.size(), 2U);
  const auto result = nlohmann::json::parse(TempDir::read(folder.file("rank_0.result.json")));
  EXPECT_EQ(result["steps"], 3);
  EXPECT_EQ(result["losses"].size(), 3U);
  EXPECT_EQ(result["retrieval"]["items"], 128);
  EXPECT_TRUE(result["error"].is_null());
}

TEST(Worker, UnusedParametersUnderDdpRaiseInTheSecondStep) {
  const TempDir folder;
  EXPECT_THAT(run(text_only_rank(Scenario::Strategy::Kind::ddp), folder),
              ElementsAre(kExitException, kExitException));
  const Recorded culprit = recorded(folder.path(), 1);
  EXPECT_EQ(culprit.trace.end, trace::End::exception);
  EXPECT_EQ(culprit.trace.steps.size(), 1U);  // the first one passed, without an all-reduce
  EXPECT_THAT(culprit.trace.exceptions.at(0).what,
              HasSubstr("Expected to have finished reduction in the prior iteration"));
  const Recorded victim = recorded(folder.path(), 0);
  EXPECT_THAT(victim.calls(0).back(), HasSubstr("#ddp.bucket.0"));
  EXPECT_EQ(victim.trace.exceptions.at(0).call, victim.trace.calls.size() - 1);
}

TEST(Worker, ASizeMismatchAbortsARankAndItsTraceShowsTheCall) {
  const TempDir folder;
  EXPECT_THAT(run(text_only_rank(Scenario::Strategy::Kind::manual), folder),
              testing::Contains(128 + SIGABRT));
  const auto last_call = [&](int rank) { return recorded(folder.path(), rank).calls().back(); };
  EXPECT_THAT(last_call(0), HasSubstr("float32[1] sum logit_scale"));
  EXPECT_THAT(last_call(1), HasSubstr("sum text."));
}

TEST(Worker, WithAGroupForEachModalityTheRanksWaitForEachOtherUntilOneGivesUp) {
  Scenario s = text_only_rank(Scenario::Strategy::Kind::manual);
  s.strategy.process_groups = Scenario::Strategy::Groups::per_modality;
  const TempDir folder;
  EXPECT_THAT(run(s, folder), testing::Contains(kExitGaveUp));
  EXPECT_THAT(recorded(folder.path(), 0).calls().back(), HasSubstr("image_branch:0"));
  EXPECT_THAT(recorded(folder.path(), 1).calls().back(), HasSubstr("text_branch:0"));
  EXPECT_THAT(
      (std::vector{recorded(folder.path(), 0).trace.end, recorded(folder.path(), 1).trace.end}),
      testing::Contains(trace::End::hung));
}

TEST(Worker, EqualSizesPairSilentlyAndTheRunEndsNormally) {
  Scenario s = text_only_rank(Scenario::Strategy::Kind::manual);
  s.model.freeze = {"image.", "text.", "text_head", "logit_scale"};
  s.data.modality = {{.ranks = {0}, .steps = {1}, .has = {Modality::text}},
                     {.ranks = {1}, .steps = {0}, .has = {Modality::text}}};
  s.train.steps = 2;
  const TempDir folder;
  EXPECT_THAT(run(s, folder), ElementsAre(0, 0));
  EXPECT_THAT(recorded(folder.path(), 0).calls(0).front(), HasSubstr("image_proj.weight"));
  EXPECT_THAT(recorded(folder.path(), 1).calls(0).front(), HasSubstr("text_proj.weight"));
}

TEST(Worker, ADummyImageInsideTheGraphHelps) {
  Scenario s = text_only_rank(Scenario::Strategy::Kind::ddp);
  s.remedy.kind = Scenario::Remedy::Kind::dummy_image;
  const TempDir folder;
  EXPECT_THAT(run(s, folder), ElementsAre(0, 0));
}

TEST(Worker, ADummyImageOutsideTheGraphDoesNot) {
  Scenario s = text_only_rank(Scenario::Strategy::Kind::ddp);
  s.remedy.kind = Scenario::Remedy::Kind::dummy_image;
  s.fault = Fault::dummy_outside_graph;
  const TempDir folder;
  EXPECT_THAT(run(s, folder), ElementsAre(kExitException, kExitException));
}

TEST(Worker, WithQueuedCallsIsJudgedByTheRulesOfNccl) {
  Scenario s = text_only_rank(Scenario::Strategy::Kind::manual);
  s.data.modality.clear();
  const TempDir folder;
  EXPECT_THAT(run(s, folder, QueuedCalls::per_group), ElementsAre(0, 0));
  const Recorded run = recorded(folder.path(), 0);
  EXPECT_EQ(run.trace.end, trace::End::clean);
  EXPECT_EQ(run.trace.backend, "gloo-as-nccl");
  for (const trace::Call& call : run.trace.calls) EXPECT_TRUE(call.has(trace::kCompleted));
}

TEST(CheckRunnable, RefusesWhatCannotBeRun) {
  WorkerOptions options;
  options.world_size = 2;
  Scenario s;
  EXPECT_TRUE(static_cast<bool>(check_runnable(s, options)));

  Scenario no_weights = s;
  no_weights.model.weights.text = "nowhere/model.safetensors";
  EXPECT_THAT(check_runnable(no_weights, options).error().message, HasSubstr("no such file"));

  Scenario pipeline = s;
  pipeline.strategy.kind = Scenario::Strategy::Kind::pipeline;
  WorkerOptions on_gpu = options;
  on_gpu.device = "cuda";
  EXPECT_TRUE(static_cast<bool>(check_runnable(pipeline, options)));
  EXPECT_TRUE(static_cast<bool>(check_runnable(pipeline, on_gpu)));
  EXPECT_TRUE(static_cast<bool>(check_runnable(s, on_gpu)));

  Scenario balanced = s;
  balanced.data.balance = Scenario::Data::Balance::cost;
  EXPECT_TRUE(static_cast<bool>(check_runnable(balanced, options)));
  EXPECT_THAT(check_runnable(balanced, on_gpu).error().message, HasSubstr("needs NCCL's calls"));
  balanced.backend = Scenario::Backend::nccl;
  EXPECT_TRUE(static_cast<bool>(check_runnable(balanced, on_gpu)));

  options.rank = 2;
  EXPECT_FALSE(static_cast<bool>(check_runnable(s, options)));
}

TEST(CheckRunnable, AnotherNumberOfRanksThanTheScenariosIsAnErrorThatShowsBoth) {
  Scenario s;
  s.ranks = 3;
  WorkerOptions options;
  options.world_size = 4;
  const Error more = check_runnable(s, options).error();
  EXPECT_EQ(more.message, "the scenario says \"ranks: 3\", and 4 ranks were started");
  EXPECT_THAT(more.fix, HasSubstr("start 3, or write \"ranks: 4\""));
  options.world_size = 1;
  const Error alone = check_runnable(s, options).error();
  EXPECT_THAT(alone.message, HasSubstr("\"ranks: 3\", and this process is alone"));
  EXPECT_THAT(alone.fix, HasSubstr("torchrun"));
  options.world_size = 3;
  EXPECT_TRUE(static_cast<bool>(check_runnable(s, options)));
}

TEST(CheckRunnable, TheReferenceIsOneProcess) {
  Scenario s;
  WorkerOptions options;
  options.reference = true;
  EXPECT_TRUE(static_cast<bool>(check_runnable(s, options)));
  options.world_size = s.ranks;
  EXPECT_THAT(check_runnable(s, options).error().message, HasSubstr("one process alone"));
}

}  // namespace
}  // namespace lockstep::runtime
