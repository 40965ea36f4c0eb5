// NCCL's rules: a call returns once it is enqueued, a wait orders streams and does not block the
// host, calls of one group run in order on the device, and completion is what the device says.
// Each job that hangs stands beside one that does not.
#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/trace_text.h"
#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string judge_as_nccl(const std::vector<std::string>& programs) {
  std::vector<std::string> over_nccl;
  for (const std::string& p : programs) over_nccl.push_back("backend nccl; " + p);
  return summary(verify(program(over_nccl)));
}

Report report_of(const std::vector<std::string>& programs) {
  std::vector<std::string> over_nccl;
  for (const std::string& p : programs) over_nccl.push_back("backend nccl; " + p);
  return verify(program(over_nccl));
}

// One rank as our recorder sees it over NCCL: every call is followed by a wait that returns at
// once.
class Lane {
 public:
  Lane& batch(int step, const std::string& modalities) {
    text_ += fmt::format("modality {} {}; ", step, modalities);
    return *this;
  }
  Lane& done(const std::string& call) { return add(call, ""); }
  Lane& open(const std::string& call) { return add(call, " open"); }
  std::string ends(const std::string& mark) const { return text_ + mark; }

 private:
  Lane& add(const std::string& call, const std::string& state) {
    text_ += fmt::format("{}{}; wait {}; ", call, state, calls_++);
    return *this;
  }

  std::string text_ = "group img 0,1,2,3; group txt 0,1,2,3; ";
  int calls_ = 0;
};

std::string image(int step) {
  return fmt::format("all_reduce g=img n=4 what=image.w step={}", step);
}
std::string text(int step) { return fmt::format("all_reduce g=txt n=8 what=text.w step={}", step); }

// Manual synchronisation with a group per modality. Ranks 1 and 3 hold text only in step 2; their
// image calls of step 3 meet those of step 2 of ranks 0 and 2, and at the end one call is left
// over.
std::vector<std::string> a_group_per_modality(const std::string& end) {
  Lane whole;
  for (int s = 0; s < 4; ++s) whole.batch(s, "image,text").done(image(s)).done(text(s));
  whole.batch(4, "image,text").open(image(4)).done(text(4));
  Lane lacks;
  for (int s = 0; s < 5; ++s) {
    lacks.batch(s, s == 2 ? "text" : "image,text");
    if (s != 2) lacks.done(image(s));
    lacks.done(text(s));
  }
  return {whole.ends(end), lacks.ends(end), whole.ends(end), lacks.ends(end)};
}

TEST(NcclRules, CallsThatPairAcrossStepsAreTracedToTheFirstOneLeftOut) {
  const char* const cause =
      "modality-divergence error observed culprits=1,3 group=img seq=2 step=2\nverdict findings";
  EXPECT_EQ(judge_as_nccl(a_group_per_modality("hung")), cause);
  EXPECT_EQ(judge_as_nccl(a_group_per_modality("killed")), cause);
  EXPECT_EQ(judge_as_nccl(a_group_per_modality("cut")), cause);
}

TEST(NcclRules, AGroupPerModalityThatEveryRankCallsIsHealthy) {
  Lane lane;
  for (int s = 0; s < 5; ++s) lane.batch(s, "image,text").done(image(s)).done(text(s));
  const std::string rank = lane.ends("clean");
  EXPECT_EQ(judge_as_nccl({rank, rank, rank, rank}), "verdict clean");
}

// Four ranks that call `op` for the image and for the text in each of two steps; in the second one
// `lacking` has no image, and no call for it.
std::string judge_one_without_image(const std::string& op, std::size_t lacking) {
  const auto call = [&](const std::string& what, int step) {
    return fmt::format("{} g=img n=4 what={} step={}", op, what, step);
  };
  Lane whole;
  whole.batch(0, "image,text").done(call("image", 0)).done(call("text", 0));
  Lane lacks = whole;
  whole.batch(1, "image,text").done(call("image", 1)).open(call("text", 1));
  lacks.batch(1, "text").done(call("text", 1));
  std::vector<std::string> ranks(4, whole.ends("hung"));
  ranks[lacking] = lacks.ends("hung");
  return judge_as_nccl(ranks);
}

TEST(NcclRules, OneGroupForAllParts) {
  EXPECT_EQ(judge_one_without_image("all_reduce", 1),
            "modality-divergence error observed culprits=1 group=img seq=2 step=1\n"
            "verdict findings");
}

// DDP: the ranks without an image gradient never launch the bucket, and raise when the next step
// begins. The others stay on the device.
TEST(NcclRules, DdpRaisesAStepAfterTheBucketThatWasNotLaunched) {
  const std::string bucket = "all_reduce g=img n=4 async step=0 what=";
  const std::string waits = "group img 0,1,2,3; modality 0 image,text; " + bucket + "text; " +
                            bucket + "image open; hung";
  const std::string raises =
      "group img 0,1,2,3; modality 0 text; " + bucket +
      "text; modality 1 image,text; raise Expected to have finished reduction in the prior "
      "iteration before starting a new one.; exception";
  const Report report = report_of({waits, raises, waits, raises});
  ASSERT_FALSE(report.findings.empty());
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.rule, RuleId::modality_divergence);
  EXPECT_THAT(f.culprits, testing::ElementsAre(trace::Rank(1), trace::Rank(3)));
  EXPECT_EQ(f.step, 0);
  EXPECT_TRUE(std::any_of(f.consequences.begin(), f.consequences.end(), [](const Finding& c) {
    return c.message.find("Expected to have finished reduction") != std::string::npos;
  }));
  // Without modalities DDP's own words are what is known.
  const std::string plain = "group img 0,1; all_reduce g=img n=4 async; ";
  EXPECT_THAT(
      judge_as_nccl({plain + "all_reduce g=img n=4 async open; hung",
                     plain + "raise Expected to have finished reduction in the prior iteration; "
                             "exception"}),
      StartsWith("unused-parameter error observed culprits=1 group=img seq=1"));
}

// Its last call was a checkpoint's barrier, for which the other one's device has no time: a cycle
// of devices. But the host that raised never comes to the bucket.
TEST(NcclRules, ARankThatRaisedDoesNotComeHoweverItsDeviceWaits) {
  const std::string step = "all_reduce g=img n=4 async; all_reduce g=img n=8 async; ";
  const std::string next = "all_reduce g=img n=4 async open; all_reduce g=img n=8 async open; ";
  const std::string barrier = "barrier async open; ";
  const auto judged = [&](const std::string& end) {
    return judge_as_nccl({"group img 0,1; " + step + next + barrier + "hung",
                          "group img 0,1; " + step + barrier + end});
  };
  EXPECT_THAT(judged("raise Expected to have finished reduction in the prior iteration; exception"),
              StartsWith("unused-parameter error observed culprits=1 group=img seq=2"));
  EXPECT_THAT(judged("raise no batch; exception"),
              StartsWith("rank-exception error observed culprits=1 group=img seq=2"));
  // A victim of the wait.
  EXPECT_THAT(judged("raise Watchdog caught collective operation timeout; exception"),
              Not(AnyOf(HasSubstr("rank-exception error"), HasSubstr("unused-parameter error"))));
  EXPECT_THAT(judged("hung"), Not(HasSubstr("rank-exception error")));
}

TEST(NcclRules, AFullyShardedBlockThatOneRankSkips) {
  EXPECT_EQ(judge_one_without_image("all_gather_into_tensor", 0),
            "modality-divergence error observed culprits=0 group=img seq=2 step=1\n"
            "verdict findings");
}

TEST(NcclRules, SendsThatCrossAreACycle) {
  const std::string step = "all_reduce n=4 async; ";
  const std::string first = "send n=4 peer=1 async open; recv n=4 peer=1 async open; hung";
  const std::string second = "send n=4 peer=0 async open; recv n=4 peer=0 async open; hung";
  EXPECT_THAT(judge_as_nccl({step + first, step + second}), StartsWith("p2p-cycle error observed"));
  // In one batch they post together.
  const std::string one = "send n=4 peer=1 async; recv n=4 peer=1 async; clean";
  const std::string other = "recv n=4 peer=0 async; send n=4 peer=0 async; clean";
  EXPECT_EQ(judge_as_nccl({one, other}), "verdict clean");
}

TEST(NcclRules, ARankThatRaisesWhileTheOthersWaitOnTheDevice) {
  const std::string step = "all_reduce n=4 async step=0; ";
  const std::string waits = step + "all_reduce n=4 async step=1 open; hung";
  EXPECT_THAT(judge_as_nccl({waits, step + "raise ValueError: bad batch; exception", waits}),
              StartsWith("rank-exception error observed culprits=1 group=world seq=1"));
  // It raised after the last call that the others need.
  const std::string ends = step + "clean";
  EXPECT_THAT(judge_as_nccl({ends, step + "raise ValueError: bad batch; exception", ends}),
              Not(HasSubstr("group=world")));
}

TEST(NcclRules, WhatAllIssuedAndNoneCompletedIsAStallAndNoDivergence) {
  const std::string rank = "all_reduce n=4 async; all_reduce n=4 async open; hung";
  EXPECT_EQ(judge_as_nccl({rank, rank, rank}),
            "device-stall error observed group=world seq=1\nverdict findings");
  // Behind it on every rank: one cause, placed at the oldest open call.
  const std::string queue =
      "group a 0,1,2; all_reduce n=4 async; all_reduce n=4 async open; "
      "all_reduce g=a n=4 async open; hung";
  EXPECT_EQ(judge_as_nccl({queue, queue, queue}),
            "device-stall error observed group=world seq=1\nverdict findings");
}

TEST(NcclRules, ACallAfterAnOpenOneHasNotStarted) {
  const std::string groups = "group a 0,1,2; group b 0,1,2; all_reduce g=a n=4 async; ";
  const std::string whole =
      groups + "all_reduce g=a n=4 async open; all_reduce g=b n=4 async open; hung";
  const std::string skips = groups + "all_reduce g=b n=4 async open; hung";
  const Report report = report_of({whole, skips, whole});
  EXPECT_THAT(summary(report),
              StartsWith("missing-collective error observed culprits=1 group=a seq=1"));
  EXPECT_THAT(report.findings[0].message, Not(HasSubstr("completed")));
}

// Issue lines alone. Rank 1 left out its reduction and waits in the next round's message; its next
// reduction is queued behind that. So rank 2 hangs in the reduction, and not outside of any call.
TEST(NcclRules, ANewestCallThatAMemberQueuedBehindAnOpenOneIsOpen) {
  const auto rank = [](int r, bool skips) {
    const std::string next = std::to_string((r + 1) % 4), last = std::to_string((r + 3) % 4);
    const auto pass = [&](const std::string& batch) {
      const std::string together = " async open coalesced=" + batch + "; ";
      return "send n=8 peer=" + next + together + "recv n=8 peer=" + last + together;
    };
    const std::string all = "all_reduce n=4 async open; ";
    return "backend nccl; " + pass("1") + all + pass("2") + (skips ? pass("3") : "") + all + "hung";
  };
  const std::string found = judge({rank(0, false), rank(1, true), rank(2, false), rank(3, false)});
  EXPECT_THAT(found, HasSubstr("culprits=1 "));
  EXPECT_THAT(found, Not(HasSubstr("host-stall")));
  // The look-alike: nobody left out anything, and rank 2 stopped before its newest reduction.
  const std::string stopped = rank(2, false);
  const std::string cut = stopped.substr(0, stopped.rfind("all_reduce")) + "hung";
  EXPECT_THAT(judge({rank(0, false), rank(1, false), cut, rank(3, false)}),
              HasSubstr("host-stall error observed culprits=2 "));
}

// The call of the next step takes the place of the one left out, so that all of them issued both
// calls. Ranks of the other pairs, which do as ranks 1 and 3, show the order.
TEST(NcclRules, OthersShowWhoTookTheSecondOfTwoCallsFirst) {
  const auto rank = [](int r, bool skips) {
    const std::string dp = r % 2 == 0 ? "even" : "odd";
    const std::string groups = "backend nccl; group " + dp + (r % 2 == 0 ? " 0,2,4; " : " 1,3,5; ");
    const std::string all = "all_reduce n=4 async", own = "all_reduce n=8 async g=" + dp;
    const std::string round = all + "; " + own + "; ";
    if (!skips) return groups + round + all + " open; " + own + " open; hung";
    return groups + round + own + " open; " + all + " open; " + own + " open; hung";
  };
  const auto programs = [&](const std::vector<int>& skips) {
    std::vector<std::string> out;
    for (int r = 0; r < 6; ++r)
      out.push_back(rank(r, std::find(skips.begin(), skips.end(), r) != skips.end()));
    return summary(verify(program(out)));
  };
  EXPECT_THAT(programs({0, 4}), HasSubstr("error observed culprits=0,4 "));
  EXPECT_THAT(programs({2}), HasSubstr("error observed culprits=2 "));
  EXPECT_THAT(programs({}), StartsWith("device-stall error observed group=world"));
}

TEST(NcclRules, QueuesInOppositeOrdersBlockEachOther) {
  const std::string round = "all_reduce g=a n=4 async; all_reduce g=b n=4 async; ";
  const std::string groups = "group a 0,1; group b 0,1; " + round + round;
  const std::string first = "all_reduce g=a n=4 async open; all_reduce g=b n=4 async open; hung";
  const std::string second = "all_reduce g=b n=4 async open; all_reduce g=a n=4 async open; hung";
  // Rank 1 issued them the other way round than before.
  EXPECT_THAT(judge_as_nccl({groups + first, groups + second}),
              StartsWith("cross-group-deadlock error observed culprits=1"));
}

TEST(NcclRules, HostsThatBlockInCallsThatLackEachOtherAreInTwoOrders) {
  // As above, but each host waits for its first call, and never comes to the second. Nobody left
  // out the other call, and nobody made one too many: one of them came to `b` first, as never
  // before.
  const std::string groups = "group a 0,1,2; group b 0,1,2; ";
  std::string rounds;
  for (int i = 0; i < 4; ++i) {
    rounds += fmt::format("all_reduce g=a n=4 async step={}; ", i / 2);
    rounds += fmt::format("all_reduce g=b n=4 async step={}; ", i / 2);
  }
  const auto stands = [&](const std::string& group) {
    return groups + rounds + "all_reduce g=" + group + " n=4 async open step=2; wait 8 open; hung";
  };
  EXPECT_THAT(judge({stands("a"), stands("b"), stands("a")}),
              StartsWith("cross-group-deadlock error proven culprits=1"));
  // The past decides, and not the number.
  EXPECT_THAT(judge({stands("b"), stands("a"), stands("b")}),
              StartsWith("cross-group-deadlock error proven culprits=0,2"));
  // Where the host of the one goes on, and has issued all calls but one, that one was left out.
  const std::string goes_on = groups + rounds +
                              "all_reduce g=b n=4 async open step=2; "
                              "all_reduce g=a n=4 async open step=3; wait 9 open; hung";
  EXPECT_THAT(judge({stands("a"), goes_on, stands("a")}), Not(HasSubstr("cross-group-deadlock")));
}

TEST(NcclRules, AHostThatBlocksInAWaitIsStuck) {
  // The wait did not return: TORCH_NCCL_BLOCKING_WAIT, or a host that reads a value.
  const std::string step = "all_reduce n=4 async step=0; wait 0; ";
  const std::string waits = step + "all_reduce n=4 async step=1 open; wait 1 open; hung";
  EXPECT_THAT(judge_as_nccl({waits, step + "clean", waits}),
              StartsWith("unequal-iterations error proven culprits=1 group=world seq=1"));
}

TEST(NcclRules, ARankThatDiedHeldUpTheOldestOpenCallOfItsDevice) {
  // Its host had issued two calls more, which no device has begun.
  const std::string done = "all_reduce n=4 async step=0; ";
  const std::string open = done +
                           "all_reduce n=8 async open step=1; all_reduce n=4 async open "
                           "step=1; all_reduce n=8 async open step=1; ";
  EXPECT_EQ(judge_as_nccl({open + "hung", open + "cut", open + "hung"}),
            "host-stall error observed culprits=1 group=world seq=1 step=1\nverdict findings");
  // Where calls block, a rank dies in its last one.
  const std::string blocking = "backend gloo; " + done +
                               "all_reduce n=8 step=1; all_reduce n=4 "
                               "open step=1; ";
  EXPECT_EQ(summary(verify(program({blocking + "hung", blocking + "cut", blocking + "hung"}))),
            "host-stall error observed culprits=1 group=world seq=2 step=1\nverdict findings");
}

TEST(NcclRules, AStragglerThatComesIsHealthy) {
  const std::string rank = "all_reduce n=4 async step=0; all_reduce n=4 async step=1; clean";
  EXPECT_EQ(judge_as_nccl({rank, rank, rank}), "verdict clean");
  // Looked at while the others wait for it: nothing tells whether it will come.
  const std::string waits = "all_reduce n=4 async step=0; all_reduce n=4 async step=1 open; ";
  const std::string late = "all_reduce n=4 async step=0; ";
  EXPECT_EQ(judge_as_nccl({waits + "killed", late + "killed", waits + "killed"}),
            "verdict inconclusive");
}

TEST(NcclRules, CallsThatPairAcrossStepsAndEndAreWrongNumbers) {
  const auto calls = [](const std::vector<int>& steps) {
    std::string out;
    for (const int s : steps) out += fmt::format("all_reduce n=4 what=w async step={}; ", s);
    return out + "clean";
  };
  // Together again in step 4. Rank 1 has no call of step 1, as it has of its other steps.
  EXPECT_EQ(judge_as_nccl({calls({0, 1, 2, 4}), calls({0, 2, 3, 4})}),
            "step-mismatch error observed culprits=1 group=world seq=1 step=1\nverdict findings");
  EXPECT_EQ(judge_as_nccl({calls({0, 1, 2, 3, 4}), calls({0, 1, 2, 3, 4})}), "verdict clean");
}

TEST(NcclRules, StartsShowWhoseDeviceStalls) {
  const auto rank = [](bool begins) {
    return std::string("{\"header\":1,\"rank\":") + "R" +
           ",\"world_size\":2,\"backend\":\"nccl\"}\n"
           "{\"group\":\"world\",\"ranks\":[0,1]}\n"
           "{\"ev\":\"issue\",\"id\":0,\"g\":\"world\",\"op\":\"all_reduce\",\"async\":true}\n"
           "{\"ev\":\"start\",\"id\":0}\n{\"ev\":\"complete\",\"id\":0}\n"
           "{\"ev\":\"issue\",\"id\":1,\"g\":\"world\",\"op\":\"all_reduce\",\"async\":true}\n" +
           (begins ? "{\"ev\":\"start\",\"id\":1}\n" : "") + "{\"end\":\"hung\"}\n";
  };
  const auto run = [&](bool first, bool second) {
    std::string a = rank(first);
    std::string b = rank(second);
    a.replace(a.find('R'), 1, "0");
    b.replace(b.find('R'), 1, "1");
    return summary(verify(run_from_text({a, b})));
  };
  EXPECT_EQ(run(true, false),
            "device-stall error observed culprits=1 group=world seq=1\n"
            "verdict findings");
  EXPECT_EQ(run(true, true), "device-stall error observed group=world seq=1\nverdict findings");
}

TEST(NcclRules, WithoutCompletionsACallThatAMemberNeverIssuedIsOpen) {
  const auto issues = [](const std::string& calls, const std::string& end) {
    std::string out = "group a 0,1,2; ";
    for (const char c : calls) {
      out += c == 'a' ? "all_reduce g=a n=4 async open; " : "all_reduce n=4 async open; ";
    }
    return out + end;
  };
  EXPECT_THAT(
      judge_as_nccl({issues("wawa", "hung"), issues("waw", "hung"), issues("wawa", "hung")}),
      StartsWith("host-stall error observed culprits=1 group=a seq=1"));
  EXPECT_EQ(judge_as_nccl({issues("wawa", "hung"), issues("wawa", "hung"), issues("wawa", "hung")}),
            "verdict inconclusive");
}

// A log of issued calls of a job that hung: each call was issued by all its members.
std::string issued(const std::string& calls) {
  return "group tp 0,1; group pp 0,1; " + calls + "hung";
}

// Kernels of a device may keep each other from running, so two orders explain the hang. Where all
// ranks issue the calls in one order, nothing does.
TEST(NcclRules, WithoutCompletionsTwoOrdersAreWhatMayHaveHung) {
  const std::string layer = "all_reduce g=tp n=4 async open; ";
  const std::string loss = "all_reduce n=1 async open; ";
  const std::string usual = repeated(layer + layer + loss, 4);
  const std::string late = repeated(layer + layer + loss, 2) + repeated(layer, 4) + loss + loss;
  EXPECT_THAT(judge_as_nccl({issued(usual), issued(late)}),
              StartsWith("missing-collective error observed culprits=1 group=world seq=2"));
  EXPECT_EQ(judge_as_nccl({issued(usual), issued(usual)}), "verdict inconclusive");
}

// A rank that stands in a call that all issued may just not have come to its side of a message,
// unless it went past it.
TEST(NcclRules, WithoutCompletionsAMessageIsNotLateWhereTheRoundIsOver) {
  const std::string head = "group dp 0,2; ";
  const std::string reduce = "all_reduce n=8 g=dp async open; ";
  const auto sends = [&](int n) {
    return repeated("send peer=1 n=4 g=pp async open; ", n) + reduce;
  };
  const std::string receives = repeated("recv peer=0 n=4 g=pp async open; ", 8);
  const std::string replica = head + issued(repeated(reduce, 4));
  EXPECT_THAT(
      judge_as_nccl({head + issued(repeated(sends(2), 3) + sends(1)), issued(receives), replica}),
      StartsWith("p2p-unmatched error observed culprits=0"));
  EXPECT_THAT(judge_as_nccl({head + issued(sends(2) + sends(1) + repeated(sends(2), 2)),
                             issued(receives), replica}),
              StartsWith("p2p-unmatched error observed culprits=0"));
  // It may come to the send in its next round.
  EXPECT_EQ(judge_as_nccl({head + issued(repeated(sends(2), 4)),
                           issued(receives + "recv peer=0 n=4 g=pp async open; "), replica}),
            "verdict inconclusive");
}

// A message as no rank sent one before, after which both went on.
TEST(NcclRules, WithoutCompletionsALoneSendIsNoneThatIsLate) {
  const std::string head = "group dp 1,2; ";
  const std::string layers = repeated("all_reduce g=tp n=4 async open; ", 3);
  const std::string reduce = "all_reduce n=8 g=dp async open; ";
  const std::string send = "send peer=1 n=2 g=tp async open; ";
  const std::string peer = head + issued(layers + layers + reduce);
  const std::string replica = head + issued(reduce);
  EXPECT_THAT(judge_as_nccl({issued(layers + send + layers), peer, replica}),
              StartsWith("p2p-unmatched error observed culprits=0"));
  // The peer may come to it after the call in which it stands.
  EXPECT_EQ(judge_as_nccl({issued(layers + layers + send), peer, replica}), "verdict inconclusive");
}

// Two stages of a pipeline. Rank 1 leaves out its second send; rank 0 waits for it, and has issued
// nothing after it, when rank 1 waits for a message of the next step.
std::string messages(const std::string& letters, int peer, const std::string& state) {
  std::string out;
  for (const char c : letters) {
    out += fmt::format("{} peer={} n=4 g=pp async{}; ", c == 's' ? "send" : "recv", peer, state);
  }
  return out;
}
std::string stage(int peer, const std::string& done, const std::string& open) {
  return messages(done, peer, "") + messages(open, peer, " open") + "hung";
}

TEST(NcclRules, OtherRoundsTellWhichOfTwoMessagesThatCrossWasLeftOut) {
  EXPECT_THAT(judge_as_nccl({stage(1, "ssr", "r"), stage(0, "rrs", "rrss")}),
              StartsWith("p2p-unmatched error observed culprits=1"));
  // Rank 0 left out a send: rank 1 does what it always does.
  EXPECT_THAT(judge_as_nccl({stage(1, "ssrrs", "r"), stage(0, "rrssr", "rss")}),
              StartsWith("p2p-unmatched error observed culprits=0"));
  // Its only round tells nothing: a receive too many, or a send left out.
  EXPECT_THAT(judge_as_nccl({stage(1, "s", "r"), stage(0, "r", "rs")}),
              StartsWith("p2p-unmatched error observed group=pp"));
}

// Two stages, each with the norm of all gradients at the end of its step. Rank 1 may have left it
// out after its first exchange, or rank 0 its second exchange.
TEST(NcclRules, NothingTellsAnExchangeFromACollectiveLeftOutInAFirstRound) {
  const std::string norm = "all_reduce n=1";
  const auto judged = [&](const std::string& of_zero, const std::string& of_one) {
    return judge_as_nccl(
        {"broadcast n=9 root=0; " + of_zero + messages("sr", 1, "") + norm + " open; hung",
         "broadcast n=9 root=0; " + of_one + messages("rs", 0, "") + messages("rs", 0, " open") +
             norm + " open; hung"});
  };
  EXPECT_THAT(judged("", ""), StartsWith("p2p-unmatched error observed group=pp"));
  // Earlier steps with one exchange each.
  const std::string steps_of_zero =
      messages("sr", 1, "") + norm + "; " + messages("sr", 1, "") + norm + "; ";
  const std::string steps_of_one =
      messages("rs", 0, "") + norm + "; " + messages("rs", 0, "") + norm + "; ";
  EXPECT_THAT(judged(steps_of_zero, steps_of_one), HasSubstr("culprits=1"));
}

// The host of rank 0 went on into the next round after it had left out a receive.
TEST(NcclRules, ADumpThatHoldsAllCallsShowsAMessageLeftOutInAnEarlierRound) {
  const auto judge_dump = [](const std::vector<std::string>& programs) {
    std::vector<std::string> over_nccl;
    for (const std::string& p : programs) over_nccl.push_back("backend nccl; " + p);
    trace::Run run = program(over_nccl);
    for (trace::RankTrace& trace : run.ranks) trace.snapshot = true;
    return summary(verify(run));
  };
  const std::string first = "ssrrssrrssr", second = "rrssrrssrrs";
  EXPECT_THAT(judge_dump({stage(1, first, "ssrr"), stage(0, second, "s")}),
              StartsWith("p2p-unmatched error observed culprits=0"));
  // Rank 1 left out its last send, and went on.
  EXPECT_THAT(judge_dump({stage(1, first, "r"), stage(0, second, "rrss")}),
              StartsWith("p2p-unmatched error observed culprits=1"));
}

// Rank 1 has not come to the barrier of the thread that saves a checkpoint. What the main threads
// issued after it still completes.
TEST(NcclRules, AnotherThreadsOpenCallHoldsUpNoStreamThatWentOn) {
  const std::string group = "backend nccl; group save 0,1; ";
  const std::string reductions =
      "all_reduce n=8 async; all_reduce n=8 async open; all_reduce n=4 async open; ";
  const auto judge_with = [&](const std::string& barrier) {
    return judge({group + barrier + reductions + "wait 0 open; wait 2 open; wait 3 open; cut",
                  group + reductions + "wait 1 open; wait 2 open; cut"});
  };
  EXPECT_EQ(judge_with("barrier g=save thread=1 async open; "), "verdict inconclusive");
  EXPECT_THAT(judge_with("barrier g=save async open; "), HasSubstr("error proven"));
}

// Rank 3 makes a micro-batch more. On ranks 0 and 2, the thread that saves a checkpoint has come to
// its barrier: how far the others' main threads came since says nothing about theirs.
TEST(NcclRules, AMainThreadThatGoesOnPassesNoCallOfAnotherThread) {
  const auto judge_with = [](const std::string& thread) {
    const std::string begin = "backend nccl; group save 0,1,2,3; group shard 0,1,2,3; ";
    const std::string saves = "all_gather g=save n=4 async open" + thread + "; ";
    const std::string barrier = "barrier g=save async open" + thread + "; ";
    const std::string batch =
        "all_gather g=shard n=4 async open; reduce_scatter g=shard n=16 async open; ";
    const std::string end = "all_reduce n=1 async open; hung";
    const std::string even = begin + saves + batch + barrier + batch + batch + end;
    const std::string odd = begin + saves + batch + batch + batch;
    return judge({even, odd + end, even, odd + batch + end});
  };
  EXPECT_THAT(judge_with(" thread=1"),
              HasSubstr("extra-collective error observed culprits=3 group=shard seq=6"));
  EXPECT_THAT(judge_with(""), HasSubstr("group=save seq=1"));
}

}  // namespace
}  // namespace lockstep::verify
