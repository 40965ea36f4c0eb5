// Batches that hold different modalities, and what comes of it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Parameters' all-reduces in one group, image branch first.
std::string both(int step, const std::string& last = "") {
  const std::string s = " step=" + std::to_string(step);
  return "modality " + std::to_string(step) + " image,text; all_reduce n=8 what=image.w" + s +
         "; all_reduce n=4 what=proj.w" + s + "; all_reduce n=2 what=text.w" + s + last + "; ";
}

TEST(Modality, TheRankWithoutImagesIsNamedWithItsParameters) {
  const Report report = verify(
      program({both(0) + "modality 1 image,text; all_reduce n=8 what=image.w step=1 open; hung",
               both(0) + "modality 1 text; all_reduce n=2 what=text.w step=1 open; hung",
               both(0) + "modality 1 image,text; all_reduce n=8 what=image.w step=1 open; hung"}));
  EXPECT_EQ(
      summary(report),
      "modality-divergence error proven culprits=1 group=world seq=3 step=1\nverdict findings");
  const Finding& f = report.findings[0];
  EXPECT_THAT(f.message, HasSubstr("rank 1's batch of step 1 held text only"));
  EXPECT_THAT(f.what, ElementsAre("image.w", "proj.w"));
}

// PyTorch's own remedy reduces zeros for a module that ran, and does not make one run.
TEST(Modality, TheAdviceForShardedModulesDependsOnWhatIsMissing) {
  const auto fix = [](const std::string& left_out) {
    const std::string rest = "reduce_scatter_tensor n=2 what=text.w step=0 open; hung";
    const Report report = verify(
        program({"modality 0 image,text; " + left_out + " n=8 what=image.w step=0 open; hung",
                 "modality 0 text; " + rest,
                 "modality 0 image,text; " + left_out + " n=8 what=image.w step=0 open; hung"}));
    EXPECT_EQ(report.findings.at(0).rule, RuleId::modality_divergence);
    return report.findings.at(0).fix;
  };
  EXPECT_THAT(fix("all_gather_into_tensor"), HasSubstr("call the module on every rank"));
  EXPECT_THAT(fix("all_gather_into_tensor"),
              HasSubstr("set_reduce_scatter_unused_params of FSDP2 does not help"));
  EXPECT_THAT(fix("reduce_scatter_tensor"), HasSubstr("set_reduce_scatter_unused_params(True)"));
  EXPECT_THAT(fix("all_reduce"), HasSubstr("find_unused_parameters"));
}

TEST(Modality, WithAGroupForEachBranchTheRanksWaitInACycle) {
  const std::string groups = "group image 0,1; group text 0,1; ";
  const Report report = verify(program(
      {groups + "modality 0 image,text; all_reduce g=image n=8 what=image.w step=0 open; hung",
       groups + "modality 0 text; all_reduce g=text n=4 what=text.w step=0 open; hung"}));
  EXPECT_EQ(
      summary(report),
      "modality-divergence error proven culprits=1 group=image seq=0 step=0\nverdict findings");
  ASSERT_EQ(report.findings[0].consequences.size(), 1U);
  EXPECT_EQ(report.findings[0].consequences[0].rule, RuleId::deadlock);
}

TEST(Modality, ARemedyMakesTheCallsAgreeAndTheBatchesMayDiffer) {
  EXPECT_EQ(
      summary(verify(program({"modality 0 image,text; all_reduce n=8 what=image.w step=0; clean",
                              "modality 0 text; all_reduce n=8 what=image.w step=0; clean"}))),
      "verdict clean");
}

TEST(Modality, WithoutModalityLinesItIsACollectiveLeftOut) {
  EXPECT_THAT(
      summary(verify(program(
          {"all_reduce n=8 what=image.w step=0; all_reduce n=8 what=text.w step=0; clean",
           "all_reduce n=8 what=text.w step=0; clean",
           "all_reduce n=8 what=image.w step=0; all_reduce n=8 what=text.w step=0; clean"}))),
      HasSubstr("missing-collective error observed culprits=1 group=world seq=0 step=0"));
}

// A tower that runs once for images and once for videos.
TEST(Modality, APartThatRunsTwiceIsSaidToRunMoreOrLessOften) {
  const std::string first = "all_gather_into_tensor n=8 what=visual.w step=0; ";
  const std::string with_video = "modality 0 image,text,video; " + first +
                                 "all_gather_into_tensor n=8 what=visual.w step=0 open; hung";
  const std::string without = "modality 0 image,text; " + first +
                              "all_gather_into_tensor n=2 what=text.w step=0 open; hung";
  const Report less = verify(program({with_video, without, with_video}));
  EXPECT_THAT(summary(less), HasSubstr("modality-divergence error proven culprits=1 "));
  EXPECT_EQ(
      less.findings[0].message,
      "rank 1's batch of step 0 held image and text, those of ranks 0, 2 held image, text and "
      "video; all_gather_into_tensor(visual.w) was called less often there: a part of the "
      "model ran less often");
  const Report more = verify(program({without, with_video, without}));
  EXPECT_THAT(summary(more), HasSubstr("modality-divergence error proven culprits=1 "));
  EXPECT_THAT(more.findings[0].message,
              HasSubstr("all_gather_into_tensor(visual.w) was called once more there"));
}

// The same with two blocks, which backward gathers in the other order, in a world so large that
// every shard has one element: the calls of one block pair with those of the other, until a gather
// meets a reduction.
TEST(Modality, APartThatRunsTwiceIsNoSwapWhereItsCallsPairWithOthers) {
  const auto calls = [](int step, const std::string& blocks) {
    std::string out;
    for (const char block : blocks) {
      const bool reduces = block >= 'A' && block <= 'Z';
      out += fmt::format("{} n=1 what=block.{} step={}; ",
                         reduces ? "reduce_scatter_tensor" : "all_gather_into_tensor",
                         reduces ? static_cast<char>(block - 'A' + 'a') : block, step);
    }
    return out;
  };
  const auto hung = [&](int step, const std::string& has, const std::string& blocks) {
    const std::string all = fmt::format("modality {} {}; ", step, has) + calls(step, blocks);
    return all.substr(0, all.size() - 2) + " open; hung";
  };
  const std::string before = "modality 0 image,text; " + calls(0, "abbaBA");
  const std::string once = before + hung(1, "image,text", "abbaB");
  const std::string twice = before + hung(1, "image,text,video", "ababb");
  EXPECT_THAT(summary(verify(program({once, twice, once, once}))),
              HasSubstr("modality-divergence error proven culprits=1 group=world seq=8 step=1"));
  EXPECT_THAT(
      summary(verify(program({hung(0, "image,text,video", "ababb"), hung(0, "image,text", "abbaB"),
                              hung(0, "image,text,video", "ababb")}))),
      HasSubstr("modality-divergence error proven culprits=1 group=world seq=2 step=0"));
}

// Two calls in the opposite order, with batches that differ as well: a changed order.
TEST(Modality, CallsInTheOtherOrderAreASwapWhateverTheBatchesHeld) {
  const auto rank = [](const std::string& has, const std::string& first,
                       const std::string& second) {
    return "modality 0 " + has + "; all_reduce n=1 what=" + first +
           " step=0; all_reduce n=1 what=" + second +
           " step=0; all_reduce n=1 what=c step=0; clean";
  };
  EXPECT_THAT(summary(verify(program({rank("image,text", "a", "b"), rank("text", "b", "a"),
                                      rank("image,text", "a", "b")}))),
              HasSubstr("order-swap error"));
}

TEST(Modality, TheOneOfTwoThatLacksTheModalityDeviates) {
  EXPECT_THAT(summary(verify(program(
                  {"modality 0 text; all_reduce n=2 what=text.w step=0 open; cut",
                   "modality 0 image,text; all_reduce n=8 what=image.w step=0 open; cut"}))),
              HasSubstr("modality-divergence error proven culprits=0 group=world seq=0 step=0"));
}

// Two ranks with images and two without, over NCCL, each ended after a few calls of the step: who
// deviates does not depend on how many of them a rank still recorded.
TEST(Modality, TheSameRanksAreNamedHoweverSoonEachWasEnded) {
  const std::vector<std::string> image = {"image.w n=8", "proj.w n=4", "text.w n=2", "head.w n=1"};
  const std::vector<std::string> text = {"text.w n=2", "head.w n=1"};
  const auto rank = [](const std::string& has, const std::vector<std::string>& names,
                       std::size_t calls, const std::string& end) {
    std::string out = "backend nccl; modality 0 " + has;
    for (std::size_t i = 0; i < calls; ++i)
      out += "; all_reduce step=0 async open what=" + names[i];
    return out + "; " + end;
  };
  const std::vector<std::vector<std::size_t>> recorded = {
      {1, 2, 2, 2}, {4, 1, 1, 2}, {1, 1, 1, 1}, {1, 2, 1, 2}};
  for (const std::vector<std::size_t>& calls : recorded) {
    EXPECT_THAT(summary(verify(program({rank("image,text", image, calls[0], "killed"),
                                        rank("text", text, calls[1], "hung"),
                                        rank("image,text", image, calls[2], "killed"),
                                        rank("text", text, calls[3], "killed")}))),
                HasSubstr("modality-divergence error observed culprits=1,3 group=world seq=0"))
        << calls[0] << calls[1] << calls[2] << calls[3];
  }
}

// Over the whole step both ranks hold images, but not in the same micro-batch.
TEST(Modality, TheRankWhoseMicroBatchLacksTheModalityIsNamed) {
  const std::string image = "all_gather_into_tensor n=8 what=image.w step=0";
  const std::string text = "all_gather_into_tensor n=2 what=text.w step=0";
  const std::string first = "modality 0 image,text; " + image + "; " + text + "; ";
  const Report second =
      verify(program({first + "modality 0 text; " + text + " open; hung",
                      first + "modality 0 image,text; " + image + " open; hung"}));
  EXPECT_EQ(
      summary(second),
      "modality-divergence error proven culprits=0 group=world seq=2 step=0\nverdict findings");
  EXPECT_THAT(second.findings[0].message,
              HasSubstr("rank 0's micro-batch 1 of step 0 held text only"));
}

TEST(Modality, MicroBatchesThatDifferedBeforeWithoutHarmAreNotTheCause) {
  const std::string call = "all_reduce n=8 step=0; ";
  const std::string image =
      "modality 0 image,text; " + call + "modality 0 image,text; all_reduce n=8 step=0 open; hung";
  EXPECT_THAT(
      summary(verify(program(
          {image, "modality 0 text; " + call + "modality 0 text; all_reduce n=9 step=0 open; hung",
           image}))),
      HasSubstr("size-mismatch error proven culprits=1 group=world seq=1 step=0"));
}

TEST(Modality, AnotherKindOfMismatchIsNotBlamedOnTheBatch) {
  EXPECT_THAT(
      summary(verify(program({"modality 0 image,text; all_reduce n=8 redop=sum step=0; clean",
                              "modality 0 text; all_reduce n=8 redop=max step=0; clean",
                              "modality 0 image,text; all_reduce n=8 redop=sum step=0; clean"}))),
      HasSubstr("redop-mismatch error observed culprits=1"));
}

TEST(Modality, UnderDdpTheRankThatRaisesLaterIsTheOneThatSkipped) {
  // Rank 1's first backward succeeds without the bucket; it raises in its next step.
  const Report report = verify(program(
      {"modality 0 image,text; all_reduce n=9 what=text.w,image.w step=0 async open; wait 0 open; "
       "raise 0 Connection closed by peer; exception",
       "modality 0 text; step 0; modality 1 image,text; raise Expected to have finished reduction "
       "in "
       "the prior iteration; exception"}));
  EXPECT_EQ(
      summary(report),
      "modality-divergence error observed culprits=1 group=world seq=0 step=0\nverdict findings");
}

TEST(Modality, BatchesThatDifferedBeforeWithoutHarmAreNotTheCause) {
  const std::string image = "modality 0 image,text; all_reduce n=8 step=0; modality 1 image,text; ";
  const std::string text = "modality 0 text; all_reduce n=8 step=0; modality 1 text; ";
  EXPECT_THAT(summary(verify(program({image + "all_reduce n=8 step=1 open; hung",
                                      text + "all_reduce n=9 step=1 open; hung",
                                      image + "all_reduce n=8 step=1 open; hung"}))),
              HasSubstr("size-mismatch error proven culprits=1 group=world seq=1 step=1"));
}

TEST(Modality, ARankThatWentOnWithoutItsImageCallsIsSaidOnce) {
  // An asynchronous call that nobody waited for, and both programs end.
  EXPECT_THAT(summary(verify(program(
                  {"barrier step=0; modality 1 image,text; all_reduce n=8 async step=1; clean",
                   "barrier step=0; modality 1 text; clean"}))),
              HasSubstr("modality-divergence error observed"));
}

TEST(Modality, AStandInThatIsNotConnectedToTheLossIsADeadRemedy) {
  const std::string image = "modality 0 image,text; all_reduce n=8 what=image.w step=0 open; hung";
  const Report report = verify(program(
      {image,
       "modality 0 text; span remedy.dummy_image; all_reduce n=2 what=text.w step=0 open; hung",
       image}));
  EXPECT_EQ(summary(report),
            "dead-remedy error proven culprits=1 group=world seq=0 step=0\nverdict findings");
  EXPECT_THAT(report.findings[0].message, HasSubstr("not connected to the loss"));
}

// A loss over pairs gathers the features of images that are there: no stand-in takes part in it.
TEST(Modality, AGatherThatAStandInNeverMadeIsNoDeadRemedy) {
  const std::string image =
      "modality 0 image,text; all_gather_into_tensor n=8 what=image_features step=0 open; hung";
  const Report report = verify(
      program({image,
               "modality 0 text; span remedy.dummy_image; all_reduce n=2 what=text.w step=0 open; "
               "hung",
               image}));
  EXPECT_EQ(summary(report),
            "modality-divergence error proven culprits=1 group=world seq=0 step=0\n"
            "verdict findings");
  EXPECT_THAT(report.findings[0].message, HasSubstr("image_features was not used there"));
}

// FSDP gathers a block for its forward, and again for its backward.
TEST(Modality, AGatherThatItMadeInForwardAloneIsOne) {
  const auto gather = [](int step) {
    return "all_gather_into_tensor n=8 what=image.w step=" + std::to_string(step) + "; ";
  };
  const auto reduce = [](int step) {
    return "all_reduce n=2 what=text.w step=" + std::to_string(step);
  };
  const std::string whole = "modality 0 image,text; " + gather(0) + gather(0) + reduce(0) + "; ";
  const std::string image = whole + "modality 1 image,text; " + gather(1) +
                            "all_gather_into_tensor n=8 what=image.w step=1 open; hung";
  const std::string text =
      whole + "modality 1 text; span remedy.dummy_image; " + gather(1) + reduce(1) + " open; hung";
  EXPECT_THAT(summary(verify(program({image, text, image}))),
              HasSubstr("dead-remedy error proven culprits=1 group=world seq=4 step=1"));
}

TEST(Modality, OtherWorkIsNoStandIn) {
  const std::string image = "modality 0 image,text; all_reduce n=8 what=image.w step=0 open; hung";
  EXPECT_THAT(
      summary(verify(program(
          {image, "modality 0 text; span forward; all_reduce n=2 what=text.w step=0 open; hung",
           image}))),
      HasSubstr("modality-divergence error proven culprits=1"));
}

TEST(Modality, WhatDdpSaysOfUnusedParametersIsTheirRule) {
  const std::string raises =
      "modality 0 text; step 0; modality 1 text; raise Expected to have finished "
      "reduction in the prior iteration before starting a new one; exception";
  EXPECT_THAT(summary(verify(program({raises, raises}))),
              HasSubstr("unused-parameter error observed culprits=0,1"));
}

TEST(Modality, AnotherExceptionIsNot) {
  EXPECT_THAT(summary(verify(program({"raise out of memory; exception", "barrier open; hung"}))),
              HasSubstr("rank-exception"));
}

// All gradients are reduced, whatever the batch holds. That the batches differ in the step in which
// a rank leaves a call out says nothing, because they differed before.
TEST(Modality, BatchesThatMadeTheCallBeforeAreNotTheReason) {
  const auto step = [](int n, const std::string& has, bool skips, const std::string& end) {
    const std::string s = fmt::format(" step={}", n);
    return fmt::format("modality {} {}; all_reduce n=8 what=a.w{}; ", n, has, s) +
           (skips ? "" : "all_reduce n=4 what=b.w" + s + (end.empty() ? "; " : end)) +
           (skips || end.empty() ? "all_reduce n=1" + s + (end.empty() ? "; " : end) : "");
  };
  const std::string open = " open; hung";
  const auto of = [&](const std::string& first, const std::string& now_0, bool skips_0) {
    return judge({step(0, first, false, "") + step(1, now_0, skips_0, open),
                  step(0, "image,text", false, "") + step(1, "image,text", !skips_0, open)});
  };
  EXPECT_THAT(of("text", "text", false),
              HasSubstr("missing-collective error proven culprits=1 group=world seq=4 step=1"));
  EXPECT_THAT(of("text", "text", true),
              HasSubstr("missing-collective error proven culprits=0 group=world seq=4 step=1"));
  // Without such a step before, they are the reason.
  EXPECT_THAT(of("image,text", "text", true),
              HasSubstr("modality-divergence error proven culprits=0 group=world seq=4 step=1"));
}

// Two sharded groups of four, and pairs across them. Rank 6 left out the norm of its group and
// waits for the loss, in another group of the same ranks. Rank 2, which waits in the norm, did not
// leave out the loss because its batch holds text only: with such a batch it made it before.
TEST(Modality, RanksWhoseBatchesMadeTheCallBeforeDidNotGoPastIt) {
  const auto job = [](int rank, bool differed_before) {
    const std::string has = rank == 2 || rank == 3 ? "text" : "image,text";
    const std::string half = std::to_string(rank % 2), pair = std::to_string(rank / 2);
    const std::string members = rank % 2 == 0 ? "0,2,4,6" : "1,3,5,7";
    const std::string open = " open; hung";
    std::string out = fmt::format(
        "group shard{0} {1} shard; group loss{0} {1} loss; group pair{2} {3},{4} pair; "
        "modality 1 {5}; all_reduce g=loss{0} n=1 step=1; modality 3 {6}; ",
        half, members, pair, rank / 2 * 2, rank / 2 * 2 + 1,
        differed_before ? has : std::string("image,text"), has);
    const bool skips = rank == 6, waits_in_shard = rank % 2 == 0 && !skips;
    const bool waits_in_pair = rank % 2 == 1 && rank != 7;
    const auto norm = [&](const std::string& group, bool waits) {
      return "all_reduce g=" + group + " n=1 step=3" + (waits ? open : "; ");
    };
    if (!skips) out += norm("shard" + half, waits_in_shard);
    if (waits_in_shard) return out;
    out += norm("pair" + pair, waits_in_pair);
    return waits_in_pair ? out : out + norm("loss" + half, true);
  };
  const auto of = [&](bool differed_before) {
    std::vector<std::string> ranks;
    for (int r = 0; r < 8; ++r) ranks.push_back(job(r, differed_before));
    return judge(ranks);
  };
  EXPECT_THAT(of(true), HasSubstr("missing-collective error proven culprits=6 group=shard0 seq=0"));
  // The first text-only batch: nothing shows that it makes that call.
  EXPECT_THAT(of(false),
              HasSubstr("modality-divergence error proven culprits=2 group=loss0 seq=1"));
}

}  // namespace
}  // namespace lockstep::verify
