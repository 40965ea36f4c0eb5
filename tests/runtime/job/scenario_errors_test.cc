// Scenario files that are wrong: every message says where, what was expected, what was found, and
// what was probably meant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/scenario.h"

namespace lockstep::runtime {
namespace {

// The error for a file that begins with a good head (line 1 is "lockstep: 1", line 2 the name) and
// goes on with `rest` in line 3.
std::string error_with(const std::string& rest) {
  const Result<Scenario> s = parse_scenario("lockstep: 1\nname: x\n" + rest, "job.yaml");
  return s ? "no error" : s.error().str();
}

TEST(ScenarioErrors, AnUnknownKeyNamesTheNearest) {
  EXPECT_EQ(
      error_with("stratgy: ddp\n"),
      "job.yaml:3:1: error: unknown key \"stratgy\"; did you mean \"strategy\"?\n"
      "  fix: allowed here: backend, data, description, expect, fault, gpus, limits, lockstep, "
      "model, name, ranks, remedy, replay, strategy, study, train and watch");
}

TEST(ScenarioErrors, AnUnknownKeyDeepInside) {
  EXPECT_EQ(
      error_with("train:\n  steps: 3\n  batchsize: 8\n"),
      "job.yaml:5:3: error: unknown key \"batchsize\"; did you mean \"batch_size\"?\n"
      "  fix: allowed here: accumulation, batch_size, checkpoint, clip, evaluate, "
      "generate, loss_scale, lr, optimizer, precision, schedule, seed, steps and weight_decay");
}

TEST(ScenarioErrors, AKeyLikeNoOtherHasNoSuggestion) {
  EXPECT_EQ(error_with("limits: {zzzzzzzz: 1}\n"),
            "job.yaml:3:10: error: unknown key \"zzzzzzzz\"\n"
            "  fix: allowed here: hang_after_s and total_s");
}

TEST(ScenarioErrors, AWrongTypeSaysWhatWasFound) {
  EXPECT_EQ(error_with("ranks: four\n"),
            "job.yaml:3:8: error: \"ranks\" should be a whole number, but it is the text "
            "\"four\"");
  EXPECT_EQ(error_with("ranks: 2.5\n"),
            "job.yaml:3:8: error: \"ranks\" should be a whole number, but it is 2.5");
  EXPECT_EQ(error_with("ranks: \"4\"\n"),
            "job.yaml:3:8: error: \"ranks\" should be a whole number, but it is the text \"4\"");
  EXPECT_EQ(error_with("ranks:\n"),
            "job.yaml:3:1: error: \"ranks\" should be a whole number, but it is empty");
  EXPECT_EQ(error_with("train: [1]\n"),
            "job.yaml:3:8: error: \"train\" should be a mapping, but it is a list");
}

TEST(ScenarioErrors, AllNumbersToChooseFromAreNamed) {
  EXPECT_EQ(error_with("strategy: {kind: ddp, stages: 3}\n"),
            "job.yaml:3:31: error: \"strategy.stages\" should be one of 2 and 4, but it is 3");
}

TEST(ScenarioErrors, AReplayHasItsCallsAndNothingOfTraining) {
  EXPECT_EQ(error_with("replay: x\ntrain: {steps: 3}\n"),
            "job.yaml:4:1: error: a replay only makes the calls of a recorded run: it has no "
            "\"train\"\n"
            "  fix: remove it, or remove \"replay\"");
  EXPECT_EQ(error_with("ranks: 2\nreplay: x\nbackend: nccl\ngpus: shared\n"), "no error");
}

TEST(ScenarioErrors, YesIsTextNotTrue) {
  EXPECT_EQ(error_with("train:\n  evaluate: yes\n"),
            "job.yaml:4:13: error: \"train.evaluate\" should be true or false, but it is the text "
            "\"yes\"");
}

TEST(ScenarioErrors, AWrongChoiceNamesTheChoices) {
  EXPECT_EQ(error_with("remedy: dumy-image\n"),
            "job.yaml:3:9: error: \"remedy\" should be one of none, dummy-image, "
            "alternating, presence-vote, gradient-mask and empty-image, but it is the text "
            "\"dumy-image\"\n"
            "  fix: did you mean \"dummy-image\"?");
  EXPECT_EQ(error_with("backend: mpi\n"),
            "job.yaml:3:10: error: \"backend\" should be one of gloo and nccl, but it is the text "
            "\"mpi\"");
}

TEST(ScenarioErrors, ANumberOutOfRange) {
  EXPECT_EQ(error_with("ranks: 0\n"),
            "job.yaml:3:8: error: \"ranks\" should be at least 1, but it is 0");
  EXPECT_EQ(error_with("data: {text_only: 1.5}\n"),
            "job.yaml:3:19: error: \"data.text_only\" should be at most 1, but it is 1.5");
  EXPECT_EQ(error_with("limits: {total_s: 0}\n"),
            "job.yaml:3:19: error: \"limits.total_s\" should be more than 0, but it is 0");
}

TEST(ScenarioErrors, TheStrategyIsANameOrAMapping) {
  EXPECT_EQ(error_with("strategy: dpp\n"),
            "job.yaml:3:11: error: \"strategy\" should be one of manual, ddp, pipeline and fsdp, "
            "but it is the text \"dpp\"\n  fix: did you mean \"ddp\"?");
  EXPECT_EQ(error_with("strategy: 3\n"),
            "job.yaml:3:11: error: \"strategy\" should be one of manual, ddp, pipeline and fsdp "
            "or a mapping, but it is 3");
  EXPECT_EQ(
      error_with("strategy: {find_unused_parameters: true}\n"),
      "job.yaml:3:11: error: the key \"kind\" is missing in \"strategy\"\n"
      "  fix: add \"kind: …\": manual: after backward, all-reduce each gradient that exists. ddp: "
      "LibTorch's own c10d::Reducer. pipeline: the image branch on one rank, the text "
      "branch and the loss on the next; micro-batches pass between them. fsdp: each rank "
      "keeps a shard of every block's parameters, gathered for use and freed after it.");
}

TEST(ScenarioErrors, ModalityRules) {
  EXPECT_EQ(error_with("data:\n  modality: {rnk 1: [text]}\n"),
            "job.yaml:4:14: error: unknown key \"rnk 1\"\n"
            "  fix: write \"rank 0\", \"rank 1\" and so on");
  EXPECT_EQ(error_with("data:\n  modality:\n    - {ranks: [0], has: [txt]}\n"),
            "job.yaml:5:26: error: \"data.modality[0].has[0]\" should be one of image, text and "
            "video, but it is the text \"txt\"\n  fix: did you mean \"text\"?");
  EXPECT_EQ(error_with("data:\n  modality:\n    - {ranks: [0], has: []}\n"),
            "job.yaml:5:25: error: \"data.modality[0].has\" should have at least 1 item, but it "
            "has 0");
  EXPECT_EQ(error_with("data:\n  modality:\n    - {ranks: [0], has: [image]}\n"),
            "job.yaml:5:20: error: a batch of images alone has no loss here\n"
            "  fix: write [image, text] or [text]");
}

TEST(ScenarioErrors, Videos) {
  EXPECT_EQ(error_with("data:\n  modality:\n    - {ranks: [0], has: [image, video]}\n"),
            "job.yaml:5:20: error: a batch of images alone has no loss here\n"
            "  fix: write [image, text] or [text]");
  EXPECT_EQ(error_with("data: {modality: {rank 1: [text, video]}, broadcast: true}\n"),
            "job.yaml:3:19: error: videos are neither sent to other ranks nor distributed by cost\n"
            "  fix: write [image, text], or remove the pipeline, \"broadcast\" or \"balance\"");
  EXPECT_EQ(error_with("remedy: gradient-mask\ndata: {modality: {rank 1: [text, video]}}\n"),
            "job.yaml:4:19: error: a mask drops the gradients of a whole batch, not those of one "
            "run\n  fix: write \"remedy: dummy-image\"");
}

TEST(ScenarioErrors, ANetworkThatStalls) {
  EXPECT_EQ(error_with("fault: stalled-network\n"),
            "job.yaml:3:1: error: this mistake can be made only under the strategy fsdp\n"
            "  fix: write \"strategy: fsdp\", or remove \"fault\"");
  EXPECT_EQ(
      error_with("ranks: 4\nstrategy: {kind: fsdp, shard_ranks: 2}\nfault: stalled-network\n"),
      "job.yaml:5:1: error: it shards over all ranks\n"
      "  fix: remove \"shard_ranks\", or remove \"fault\"");
}

TEST(ScenarioErrors, TheFirstProblemOfTheFileComesFirst) {
  EXPECT_EQ(error_with("ranks: four\nbackend: nccl\n"),
            "job.yaml:3:8: error: \"ranks\" should be a whole number, but it is the text "
            "\"four\"");
}

TEST(ScenarioErrors, WhatIsMissingAndWhatIsOfAnotherVersion) {
  const auto whole = [](const std::string& text) {
    return parse_scenario(text, "job.yaml").error().str();
  };
  EXPECT_EQ(whole("lockstep: 1\n"),
            "job.yaml:1:1: error: the key \"name\" is missing\n"
            "  fix: add \"name: …\": A short name of the job, for people.");
  EXPECT_EQ(whole("lockstep: 2\nname: x\n"),
            "job.yaml:1:11: error: \"lockstep\" should be 1, but it is 2");
  EXPECT_EQ(whole("[1, 2]\n"),
            "job.yaml:1:1: error: the file should be a mapping, but it is a list");
  EXPECT_EQ(whole("lockstep: 1\nname: ''\n"),
            "job.yaml:2:7: error: \"name\" should be text that is not empty, but it is the text "
            "\"\"");
}

TEST(ScenarioErrors, ADuplicateKeyNamesBothLocations) {
  EXPECT_EQ(error_with("train: {steps: 1, lr: 0.1, steps: 2}\n"),
            "job.yaml:3:28: error: the key \"steps\" is given twice; first in line 3, column 9\n"
            "  fix: remove one of the two");
  EXPECT_EQ(error_with("name: y\n"),
            "job.yaml:3:1: error: the key \"name\" is given twice; first in line 2, column 1\n"
            "  fix: remove one of the two");
}

TEST(ScenarioErrors, RanksAndStepsMustExist) {
  EXPECT_EQ(error_with("ranks: 2\nexpect: {verdict: findings, culprits: [1, 2]}\n"),
            "job.yaml:4:43: error: there is no rank 2: the job has 2 ranks\n"
            "  fix: ranks are 0 to 1, or raise \"ranks\"");
  EXPECT_EQ(error_with("data: {modality: {rank 7: [text]}}\n"),
            "job.yaml:3:19: error: there is no rank 7: the job has 2 ranks\n"
            "  fix: ranks are 0 to 1, or raise \"ranks\"");
  EXPECT_EQ(error_with("data: {modality: [{ranks: [5], has: [text]}]}\n"),
            "job.yaml:3:28: error: there is no rank 5: the job has 2 ranks\n"
            "  fix: ranks are 0 to 1, or raise \"ranks\"");
  EXPECT_EQ(error_with("data: {modality: [{steps: [6], has: [text]}]}\n"),
            "job.yaml:3:28: error: there is no step 6: the job has 6 steps\n"
            "  fix: steps count from 0");
  EXPECT_EQ(error_with("ranks: 1\nexpect: {verdict: findings, culprits: [9]}\n"),
            "job.yaml:4:40: error: there is no rank 9: the job has 1 rank\n"
            "  fix: rank 0 is the only one, or raise \"ranks\"");
}

TEST(ScenarioErrors, OptionsOfTheOtherStrategy) {
  EXPECT_EQ(error_with("strategy: {kind: manual, find_unused_parameters: true}\n"),
            "job.yaml:3:26: error: \"find_unused_parameters\" is an option of ddp, but the "
            "strategy is manual\n  fix: remove it, or write \"kind: ddp\"");
  EXPECT_EQ(error_with("strategy: {kind: ddp, process_groups: one}\n"),
            "job.yaml:3:23: error: \"process_groups\" is an option of manual, but the strategy is "
            "ddp\n  fix: remove it, or write \"kind: manual\"");
}

TEST(ScenarioErrors, WhatFullyShardedDoesNotTake) {
  EXPECT_EQ(error_with("ranks: 4\nstrategy: {kind: fsdp, shard_ranks: 3}\n"),
            "job.yaml:4:24: error: 4 ranks cannot be cut into groups of 3\n"
            "  fix: choose a divisor of \"ranks\", or leave it out to shard over all of them");
  EXPECT_EQ(error_with("strategy: {kind: fsdp, no_sync: false}\n"),
            "job.yaml:3:24: error: \"no_sync\" is an option of ddp, but the strategy is fsdp\n"
            "  fix: remove it, or write \"kind: ddp\"");
  EXPECT_EQ(error_with("strategy: {kind: ddp, prefetch: false}\n"),
            "job.yaml:3:23: error: \"prefetch\" is an option of fsdp, but the strategy is ddp\n"
            "  fix: remove it, or write \"kind: fsdp\"");
}

TEST(ScenarioErrors, AFaultThatWouldChangeNothing) {
  EXPECT_EQ(error_with("fault: clip-local-norm\ntrain: {clip: {image: 1}}\n"),
            "job.yaml:3:1: error: this mistake can be made only under the strategy fsdp\n"
            "  fix: write \"strategy: fsdp\", or remove \"fault\"");
  EXPECT_EQ(error_with("strategy: fsdp\nfault: clip-local-norm\n"),
            "job.yaml:4:1: error: this job clips no gradients\n"
            "  fix: set \"train: {clip: {image: 1.0}}\", or remove \"fault\"");
  EXPECT_EQ(error_with("fault: dummy-outside-graph\n"),
            "job.yaml:3:1: error: this is a mistake in the remedy dummy-image, which the job does "
            "not have\n"
            "  fix: write \"remedy: dummy-image\", or remove \"fault\"");
  const std::string clip = "strategy: manual\nfault: clip-before-sync\ntrain: {clip: {image: 1}";
  EXPECT_EQ(error_with(clip + ", precision: float16}\n"),
            "job.yaml:4:1: error: before they are synchronised, float16's gradients are still "
            "multiplied by the loss scale, so their norm says nothing\n"
            "  fix: write \"precision: bfloat16\", which needs no scale, or remove \"fault\"");
  EXPECT_EQ(error_with(clip + "}\n"), "no error");
  EXPECT_EQ(error_with(clip + ", precision: bfloat16}\n"), "no error");
  const std::string wanting[] = {
      "fault: detached-negatives\n",
      "fault: gradients-summed\n",
      "fault: gradients-not-reduced\n",
      "fault: crossed-stages\n",
      "strategy: {kind: pipeline, micro_batches: 2}\nfault: crossed-stages\n",
      "fault: dummy-in-batchnorm\n",
      "strategy: pipeline\nfault: lengths-sent-first\n",
      "remedy: dummy-image\nfault: dummy-not-recomputed\n",
      "strategy: fsdp\nremedy: dummy-image\nfault: dummy-not-recomputed\n",
      "model: {activation_checkpointing: encoders}\nremedy: dummy-image\n"
      "strategy: {kind: fsdp, units: image-encoder}\nfault: dummy-not-recomputed\n",
      "fault: alternating-per-rank\n",
      "strategy: pipeline\nremedy: alternating\nfault: alternating-per-rank\n",
      "fault: mask-decayed\n",
      "remedy: gradient-mask\nfault: diluted-average\n",
      "fault: local-overflow\n",
      "fault: barrier-on-rank-0\n",
      "fault: clip-before-sync\n",
  };
  for (const std::string& scenario : wanting)
    EXPECT_THAT(error_with(scenario), testing::HasSubstr("or remove \"fault\"")) << scenario;
  const std::string fitting[] = {
      "model: {negatives: global}\nfault: detached-negatives\n",
      "fault: unsharded-data\n",
      "fault: no-reshuffle\n",
      "fault: zero-grad-forgotten\n",
      "strategy: manual\nfault: gradients-not-reduced\n",
      "strategy: {kind: pipeline, exchange_lengths: true}\nfault: lengths-sent-first\n",
      "model: {activation_checkpointing: encoders}\nstrategy: fsdp\nremedy: dummy-image\n"
      "fault: dummy-not-recomputed\n",
      "remedy: alternating\nfault: alternating-per-rank\n",
      "remedy: {kind: dummy-image, average: contributors}\nfault: diluted-average\n",
      "train: {precision: float16}\nfault: local-overflow\n",
      "train: {checkpoint: {folder: f, every: 2, barrier: all}}\nfault: barrier-on-rank-0\n",
  };
  for (const std::string& scenario : fitting) EXPECT_EQ(error_with(scenario), "no error");
}

TEST(ScenarioErrors, KeysOfEarlierVersionsSayWhatIsWrittenNow) {
  EXPECT_EQ(error_with("train: {zero_grad: false}\n"),
            "job.yaml:3:9: error: \"zero_grad: false\" is no longer accepted\n"
            "  fix: write \"fault: zero-grad-forgotten\"");
  EXPECT_EQ(error_with("data: {sharding: true}\n"),
            "job.yaml:3:8: error: \"sharding\" is no longer a key: the correct behaviour is the "
            "only one\n"
            "  fix: remove it; \"fault\" asks for a deliberate mistake");
  EXPECT_EQ(error_with("remedy: dummy-image-outside-graph\n"),
            "job.yaml:3:1: error: \"remedy: dummy-image-outside-graph\" is no longer accepted\n"
            "  fix: write \"remedy: dummy-image\" and \"fault: dummy-outside-graph\"");
  EXPECT_EQ(error_with("remedy: {kind: gradient-mask-decayed}\n"),
            "job.yaml:3:10: error: \"kind: gradient-mask-decayed\" is no longer accepted\n"
            "  fix: write \"kind: gradient-mask\" and \"fault: mask-decayed\"");
  EXPECT_EQ(error_with("strategy: {kind: replay, trace: x}\n"),
            "job.yaml:3:12: error: \"kind: replay\" is no longer accepted\n"
            "  fix: write \"replay: FOLDER\"");
  const std::string moved[] = {
      "model: {negatives: global-detached}\n",
      "data: {reshuffle: false}\n",
      "strategy: {kind: manual, reduction: sum}\n",
      "strategy: {kind: manual, reduction: none}\n",
      "strategy: {kind: pipeline, order: crossed}\n",
      "strategy: replay\n",
      "train: {clip: {image: 1, when: before-sync}}\n",
      "train: {clip: {image: 1, norm: local}}\n",
      "train: {loss_scale: {found_inf: local}}\n",
      "train: {checkpoint: {barrier: rank-0}}\n",
      "remedy: {kind: gradient-mask, average: contributors-diluted}\n",
      "remedy: dummy-image-in-batchnorm\n",
      "remedy: alternating-per-rank\n",
  };
  for (const std::string& scenario : moved)
    EXPECT_THAT(error_with(scenario), testing::HasSubstr("is no longer accepted")) << scenario;
}

TEST(ScenarioErrors, WhatAPipelineDoesNotTake) {
  EXPECT_EQ(error_with("ranks: 3\nstrategy: pipeline\n"),
            "job.yaml:3:1: error: a pipeline has 2 stages, one to a rank, but 3 ranks cannot be "
            "distributed among them\n  fix: make \"ranks\" a multiple of 2");
  EXPECT_EQ(error_with("strategy: pipeline\nremedy: dummy-image\n"),
            "job.yaml:4:1: error: a micro-batch without images needs no remedy in a pipeline: "
            "nothing is sent for it\n  fix: remove \"remedy\"");
  EXPECT_EQ(error_with("strategy: pipeline\nmodel: {negatives: global}\n"),
            "job.yaml:4:9: error: a pipeline's loss is computed for each micro-batch\n"
            "  fix: write \"negatives: local\"");
  EXPECT_EQ(error_with("strategy: pipeline\ntrain: {accumulation: 2}\n"),
            "job.yaml:4:9: error: a pipeline accumulates over its micro-batches\n"
            "  fix: remove it, and set \"micro_batches\" of the strategy");
  EXPECT_EQ(
      error_with("strategy: pipeline\ntrain: {precision: bfloat16}\n"),
      "job.yaml:4:9: error: the stages exchange float32\n  fix: write \"precision: float32\"");
  EXPECT_EQ(error_with("strategy: pipeline\ndata: {broadcast: true}\n"),
            "job.yaml:4:8: error: the ranks of a pipeline read their replica's batch\n"
            "  fix: remove it, or choose another strategy");
  EXPECT_EQ(error_with("strategy: pipeline\ndata: {modality: {rank 1: [text]}}\n"),
            "job.yaml:4:8: error: rank 1 reads the batch of its replica's rank 0\n"
            "  fix: name rank 0 instead");
  EXPECT_EQ(error_with("strategy: {kind: ddp, micro_batches: 2}\n"),
            "job.yaml:3:23: error: \"micro_batches\" is an option of pipeline, but the strategy is "
            "ddp\n  fix: remove it, or write \"kind: pipeline\"");
}

TEST(ScenarioErrors, ACleanRunHasNoCulprits) {
  EXPECT_EQ(error_with("expect: {verdict: clean, culprits: [0]}\n"),
            "job.yaml:3:26: error: a clean run has no leading finding, so no \"culprits\"\n"
            "  fix: remove it, or write \"verdict: findings\"");
}

TEST(ScenarioErrors, OnlyRanksOnNcclAreAskedToShareGpus) {
  EXPECT_EQ(error_with("backend: nccl\ngpus: shared\n"), "no error");
  EXPECT_EQ(error_with("gpus: own\n"), "no error");
  EXPECT_EQ(error_with("gpus: shared\n"),
            "job.yaml:3:1: error: \"gpus: shared\" is an option of nccl: ranks on gloo may share a "
            "GPU anyway\n"
            "  fix: remove it, or write \"backend: nccl\"");
}

TEST(ScenarioErrors, WhatCannotBeSharedOutByCost) {
  const auto message = [](const std::string& more) {
    const std::string text = error_with(more);
    return text.substr(text.find("error: ") + 7);
  };
  EXPECT_EQ(message("data: {balance_every: 4}\n"),
            "\"balance_every\" belongs to \"balance: cost\"\n"
            "  fix: write \"balance: cost\" beside it");
  EXPECT_EQ(
      message("data: {balance: cost, modality: {rank 1: [text]}}\n"),
      "an item may go to any rank, but \"modality\" has rules for single ranks\n"
      "  fix: leave \"ranks\" out of its rules, or set \"text_only\" and \"sampler: grouped\"");
  EXPECT_EQ(message("strategy: pipeline\ndata: {balance: cost}\n"),
            "the stages of a pipeline train on one batch\n"
            "  fix: remove it, or choose another strategy");
  EXPECT_EQ(message("data: {balance: cost}\nfault: unsharded-data\n"),
            "ranks that train on the same items have nothing to distribute\n"
            "  fix: remove it, or \"fault: unsharded-data\" and \"broadcast\"");
}

TEST(ScenarioErrors, WhatCannotGenerateTexts) {
  EXPECT_EQ(error_with("train: {generate: {synced: true}}\n"),
            "job.yaml:3:9: error: \"every\" does not say after which steps texts are generated\n"
            "  fix: write \"every: 1\" in it");
  EXPECT_EQ(error_with("strategy: pipeline\ntrain: {generate: {every: 1}}\n"),
            "job.yaml:4:9: error: no stage of a pipeline has the whole text encoder\n"
            "  fix: remove it, or choose another strategy");
  EXPECT_EQ(error_with("model: {text: minilm}\ntrain: {generate: {every: 1}}\n"),
            "job.yaml:4:9: error: only a causal text encoder continues texts\n"
            "  fix: write \"text: bert-small\" in \"model\"");
  EXPECT_THAT(error_with("train: {generate: {every: 1, ends: [{ranks: [2], after: 1}]}}\n"),
              testing::HasSubstr("there is no rank 2: the job has 2 ranks"));
  EXPECT_THAT(error_with("train: {generate: {every: 1, ends: [{steps: [6], after: 1}]}}\n"),
              testing::HasSubstr("there is no step 6: the job has 6 steps"));
}

TEST(ScenarioErrors, SwitchesThatContradictEachOther) {
  EXPECT_EQ(error_with("strategy: {kind: ddp, skip_all_reduce_unused_params: true}\n"),
            "job.yaml:3:23: error: DDP knows unused parameters only if it searches for them\n"
            "  fix: write \"find_unused_parameters: true\" beside it");
  EXPECT_EQ(error_with("strategy: {kind: ddp, static_graph: true, find_unused_parameters: true}\n"),
            "job.yaml:3:23: error: a static graph does not search: its first step decides which "
            "are unused\n"
            "  fix: remove \"find_unused_parameters\"");
  EXPECT_EQ(error_with("ranks: 6\nstrategy: {kind: pipeline, stages: 4}\n"),
            "job.yaml:3:1: error: a pipeline has 4 stages, one to a rank, but 6 ranks cannot be "
            "distributed among them\n  fix: make \"ranks\" a multiple of 4");
  EXPECT_EQ(error_with("strategy: {kind: manual, process_groups: image-ranks}\n"
                       "data: {modality: [{has: [text]}]}\n"),
            "job.yaml:3:26: error: no rank ever has images\n"
            "  fix: write \"process_groups: one\", or let a rank have images");
  EXPECT_EQ(
      error_with("strategy: pipeline\ntrain: {checkpoint: {folder: x, layout: gathered}}\n"),
      "job.yaml:4:33: error: no rank has all parameters as they are trained, and none gathers "
      "them\n  fix: write \"layout: per-rank\"");
}

}  // namespace
}  // namespace lockstep::runtime
