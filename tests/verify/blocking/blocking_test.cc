// Who waits for whom at the end, and who is to blame.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"
#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Blocking, TwoGroupsInOppositeOrdersAreADeadlock) {
  const std::string groups = "group a 0,1; group b 0,1; ";
  EXPECT_EQ(
      judge({groups + "all_reduce g=a n=4 open; hung", groups + "all_reduce g=b n=4 open; hung"}),
      "cross-group-deadlock error proven group=a seq=0\nverdict findings");
}

TEST(Blocking, OneLineInTwoGroupsMayBeGroupsThatWereMadeInOtherOrders) {
  const auto judged = [](const std::string& other_line) {
    const auto rank = [](int r, const std::string& group, const std::string& at) {
      return header_line(r, 2) + json_line({{"group", "a"}, {"ranks", {0, 1}}}) +
             json_line({{"group", "b"}, {"ranks", {0, 1}}}) +
             issue_line(0, group, "all_reduce", {{"in", {{4}}}, {"at", at}}) +
             event_line("wait", 0) + end_line("hung");
    };
    const Report report =
        verify(run_from_text({rank(0, "a", "train.py:7"), rank(1, "b", other_line)}));
    EXPECT_EQ(report.findings.at(0).rule, RuleId::cross_group_deadlock);
    return report.findings[0].fix;
  };
  EXPECT_THAT(judged("train.py:7"), HasSubstr("made these two groups in different orders"));
  EXPECT_THAT(judged("train.py:9"), Not(HasSubstr("different orders")));
}

// torch.distributed.checkpoint saves in a thread and a group of its own. The rank that left out a
// save comes to the job's end; the other one waits for it there.
TEST(Blocking, WhoDoesNotComeToACheckpointMayNotHaveSavedIt) {
  const auto advice = [](const std::string& at) {
    const std::string begin = "group saves 0,1; all_reduce n=8; all_reduce n=8; ";
    const Report report =
        verify(program({begin + "all_gather g=saves n=1 thread=1 at=" + at + " open; hung",
                        begin + "barrier open; hung"}));
    return report.findings.empty() ? "" : report.findings[0].fix;
  };
  EXPECT_THAT(advice("torch/distributed/checkpoint/_async_thread_executor.py:30"),
              HasSubstr("let every rank save the checkpoint"));
  EXPECT_THAT(advice("metrics.py:30"), Not(HasSubstr("checkpoint")));
}

TEST(Blocking, ThoseWhoseFilesEndBesideACycleAreNotItsCause) {
  const std::string groups = "group a 0,1; group b 0,1; barrier; ";
  EXPECT_EQ(judge({groups + "all_reduce g=a n=4 open; hung",
                   groups + "all_reduce g=b n=4 open; hung", "barrier; cut", "barrier; cut"}),
            "cross-group-deadlock error proven group=a seq=0\nverdict findings");
}

TEST(Blocking, StalledRanksAreReportedAfterACycle) {
  const std::string groups = "group a 0,1; group b 0,1; group c 2,3; barrier; ";
  const Report report = verify(program(
      {groups + "all_reduce g=a n=4 open; hung", groups + "all_reduce g=b n=4 open; hung",
       "group c 2,3; barrier; all_reduce g=c n=4 open; hung", "group c 2,3; barrier; hung"}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::cross_group_deadlock) << summary(report);
}

TEST(Blocking, ReportsTheWaitsWhereAllFilesJustEnd) {
  const std::string waits = "all_reduce n=4; all_reduce n=8 open at=train.py:7; cut";
  const Report report = verify(program({waits, waits, "all_reduce n=4; cut"}));
  EXPECT_EQ(report.verdict, Verdict::inconclusive) << summary(report);
  EXPECT_THAT(report.unknown,
              ::testing::Contains(::testing::AllOf(HasSubstr("ranks 0, 1 wait in all_reduce"),
                                                   HasSubstr("train.py:7) for rank 2"))));
}

TEST(Blocking, TheSameTwoGroupsAsynchronouslyAreNot) {
  const std::string groups = "group a 0,1; group b 0,1; ";
  EXPECT_EQ(
      judge({groups + "all_reduce g=a n=4 async; all_reduce g=b n=4 async; wait 0; wait 1; clean",
             groups + "all_reduce g=b n=4 async; all_reduce g=a n=4 async; wait 0; wait 1; clean"}),
      "verdict clean");
}

TEST(Blocking, AProgramThatNeverRanIsReplayed) {
  const std::string groups = "group a 0,1; group b 0,1; ";
  const std::vector<std::string> opposite = {
      groups + "all_reduce g=a n=4; all_reduce g=b n=4; clean",
      groups + "all_reduce g=b n=4; all_reduce g=a n=4; clean"};
  EXPECT_THAT(summary(verify(program(opposite, /*timed=*/false))),
              HasSubstr("cross-group-deadlock error proven"));
  EXPECT_EQ(summary(verify(program({opposite[0], opposite[0]}, false))), "verdict clean");
}

TEST(Blocking, ARankThatFinishedEarlyHoldsTheOthersUp) {
  EXPECT_EQ(
      judge({"all_reduce n=4 step=0; all_reduce n=4 step=1 open; hung",
             "all_reduce n=4 step=0; clean",
             "all_reduce n=4 step=0; all_reduce n=4 step=1 open; hung"}),
      "unequal-iterations error proven culprits=1 group=world seq=1 step=1\nverdict findings");
}

TEST(Blocking, ARankThatContinuesAloneIsTheDeviant) {
  EXPECT_THAT(judge({"all_reduce n=4 step=0; clean",
                     "all_reduce n=4 step=0; all_reduce n=4 step=1 open; hung",
                     "all_reduce n=4 step=0; clean"}),
              HasSubstr("unequal-iterations error proven culprits=1 group=world seq=1 step=1"));
}

TEST(Blocking, RanksThatStoppedAlikeAreReportedOnce) {
  const std::string waits = "all_reduce n=4; all_reduce n=8 open; hung";
  const Report killed =
      verify(program({waits, "all_reduce n=4; killed", "all_reduce n=4; killed"}));
  ASSERT_EQ(killed.findings.size(), 1U) << summary(killed);
  EXPECT_THAT(killed.findings[0].message, HasSubstr("ranks 1, 2 were killed before call"));
  const Report one = verify(program({waits, "all_reduce n=4; killed", waits}));
  ASSERT_EQ(one.findings.size(), 1U) << summary(one);
  EXPECT_THAT(one.findings[0].message, HasSubstr("rank 1 was killed before call"));
}

TEST(Blocking, ADeadRankIsNamedAndItsVictimsAreNot) {
  EXPECT_EQ(judge({"all_reduce n=4; all_reduce n=4 open; hung", "all_reduce n=4; cut",
                   "all_reduce n=4; all_reduce n=4 open; hung"}),
            "host-stall error proven culprits=1 group=world seq=1\nverdict findings");
}

TEST(Blocking, ACallInWhichARankDiedStallsForThatReason) {
  const std::string in_call = "all_reduce n=4; all_reduce n=4 open; ";
  EXPECT_EQ(judge({in_call + "cut", in_call + "hung", in_call + "hung"}),
            "host-stall error observed culprits=0 group=world seq=1\nverdict findings");
  // Most of a job that hung were ended.
  EXPECT_EQ(judge({in_call + "cut", in_call + "cut", in_call + "hung"}),
            "device-stall error observed group=world seq=1\nverdict findings");
  // With nobody dead, nobody can be singled out.
  EXPECT_EQ(judge({in_call + "hung", in_call + "hung", in_call + "hung"}),
            "device-stall error observed group=world seq=1\nverdict findings");
}

TEST(Blocking, TheRootOfAChainIsNamed) {
  // 0 waits for 1 in group a, 1 waits for 2 in group b, 2 is stuck outside of any call.
  EXPECT_EQ(judge({"group a 0,1; all_reduce g=a n=4 open; hung",
                   "group a 0,1; group b 1,2; all_reduce g=b n=4 open; hung",
                   "group b 1,2; modality 0 text; hung"}),
            "host-stall error proven culprits=2 group=b seq=0\nverdict findings");
}

TEST(Blocking, ExceptionsAreRootsAndLostConnectionsVictims) {
  const std::string out =
      judge({"all_reduce n=4; all_reduce n=4 open; raise 1 Connection closed by peer; exception",
             "all_reduce n=4; raise CUDA out of memory; exception",
             "all_reduce n=4; all_reduce n=4 open; raise 1 Connection closed by peer; exception"});
  EXPECT_EQ(out, "rank-exception error observed culprits=1 group=world seq=1\nverdict findings");
}

TEST(Blocking, AllWhoCameAndNothingCompletes) {
  EXPECT_THAT(judge({"all_reduce n=4 open; hung", "all_reduce n=4; hung", "all_reduce n=4; hung"}),
              HasSubstr("device-stall error observed culprits=0"));
}

TEST(Blocking, ACallThatOneMemberDidNotCompleteHoldsUpTheNext) {
  const std::string out =
      judge({"all_reduce n=4 open; hung", "all_reduce n=4; all_reduce n=8 open; hung"});
  EXPECT_EQ(out, "device-stall error observed culprits=0 group=world seq=0\nverdict findings");
}

TEST(Blocking, SkewBetweenRunningRanksIsNoError) {
  const auto run =
      program({"all_reduce n=4; all_reduce n=4; all_reduce n=4 open; cut", "all_reduce n=4; cut"});
  EXPECT_EQ(summary(verify(run, {.live = true})), "verdict clean");
}

TEST(Blocking, ALiveDeadlockIsProvenWithoutAnEndMark) {
  const std::string groups = "group a 0,1; group b 0,1; ";
  const Report report = verify(
      program({groups + "all_reduce g=a n=4 open; cut", groups + "all_reduce g=b n=4 open; cut"}),
      {.live = true});
  EXPECT_TRUE(proves_stuck(report)) << summary(report);
}

TEST(Blocking, ALiveRankThatMayStillComeProvesNothing) {
  const Report report = verify(
      program({"all_reduce n=4 open; cut", "all_reduce n=4 open; cut", "modality 0 text; cut"}),
      {.live = true});
  EXPECT_FALSE(proves_stuck(report)) << summary(report);
}

TEST(Blocking, ALiveRankThatEndedProvesIt) {
  EXPECT_TRUE(proves_stuck(verify(program({"all_reduce n=4 open; cut", "clean"}), {.live = true})));
}

TEST(Blocking, ARankWithoutATraceMayHaveCome) {
  const Report report =
      verify(run_of({{0, "all_reduce n=4 open; hung"}, {2, "all_reduce n=4 open; hung"}}, 3));
  EXPECT_EQ(summary(report), "verdict inconclusive");
}

TEST(Blocking, ADeadRankIsNamedAlthoughItLeftAnAsynchronousCallOpen) {
  EXPECT_EQ(judge({"all_reduce n=4 async; wait 0; all_reduce n=4 async open; wait 1 open; hung",
                   "all_reduce n=4 async open; cut"}),
            "host-stall error proven culprits=1 group=world seq=1\nverdict findings");
}

TEST(Blocking, AnExceptionWithoutItsCallEndsTheOneTheRankWasIn) {
  EXPECT_EQ(judge({"all_reduce n=4 open; raise Connection closed by peer; exception",
                   "modality 0 text; cut",
                   "all_reduce n=4 open; raise Connection closed by peer; exception"}),
            "host-stall error observed culprits=1 group=world seq=0\nverdict findings");
}

TEST(Blocking, TracesCopiedWhileTheJobRanAccuseNobodyForBeingBehind) {
  EXPECT_EQ(judge({"all_reduce n=4; all_reduce n=4 open; cut", "all_reduce n=4; cut"}),
            "verdict inconclusive");
}

TEST(Blocking, ARankKilledInsideACallIsTheCauseOfItsPeersLostConnections) {
  const std::string lost =
      "barrier; all_reduce n=4 step=0 open; raise 1 Connection closed by peer; exception";
  EXPECT_EQ(judge({lost, "barrier; all_reduce n=4 step=0 open; killed", lost}),
            "host-stall error observed culprits=1 group=world seq=1 step=0\nverdict findings");
}

// Hybrid sharding: rank 2 leaves a call of its shard out, which ends rank 3's process; the job's
// launcher ends rank 0, which waits for rank 2 in another group.
TEST(Blocking, RanksThatDieOfADeviationOrWhileItHoldsThemUpAreNoCauseOfTheirOwn) {
  const std::string lost = "open; raise Connection closed by peer; exception";
  EXPECT_EQ(judge({"group s0 0,1; group r0 0,2; all_gather n=4 g=s0; all_reduce n=4 g=r0 open; cut",
                   "group s0 0,1; group r1 1,3; all_gather n=4 g=s0; all_reduce n=4 g=r1 " + lost,
                   "group s1 2,3; group r0 0,2; all_gather n=8 g=s1 " + lost,
                   "group s1 2,3; group r1 1,3; all_gather n=4 g=s1 open; cut"}),
            "size-mismatch error observed culprits=2 group=s1 seq=0\nverdict findings");
  // A death beside a deviation that concerns neither the dead nor whom it left.
  EXPECT_EQ(judge({"group s0 0,1; all_gather n=4 g=s0 open; hung",
                   "group s0 0,1; all_gather n=8 g=s0 open; hung",
                   "group s1 2,3; all_gather n=4 g=s1 " + lost,
                   "group s1 2,3; all_gather n=4 g=s1 open; cut"}),
            "size-mismatch error proven culprits=1 group=s0 seq=0\n"
            "host-stall error observed culprits=3\nverdict findings");
}

TEST(Blocking, RanksThatStandInTheCreationOfAGroup) {
  const std::string goes_on = "all_reduce n=1; all_reduce n=2 open; hung";
  const auto judged = [&](const std::string& second, bool creates) {
    trace::Run run = program({"all_reduce n=1; cut", second, goes_on});
    trace::RankNote stack;
    stack.kind = trace::RankNote::Kind::stack;
    stack.rank = trace::Rank(0);
    stack.text = "its process was in the creation of a process group";
    stack.creates_group = creates;
    run.notes.push_back(stack);
    return summary(verify(run));
  };
  EXPECT_EQ(judged(goes_on, true),
            "group-divergence error observed group=world seq=1\nverdict findings");
  EXPECT_EQ(judged(goes_on, false),
            "host-stall error proven culprits=0 group=world seq=1\nverdict findings");
  // The one that stands elsewhere may be the one that does not come to create it.
  EXPECT_EQ(judged("all_reduce n=1; hung", true),
            "host-stall error proven culprits=1 group=world seq=1\nverdict findings");
}

TEST(Blocking, RanksThatAllStandInTheCreationOfAGroup) {
  const auto judged = [](const std::string& second, int creators) {
    trace::Run run = program({"barrier; cut", second});
    for (int r = 0; r < creators; ++r) {
      trace::RankNote stack;
      stack.kind = trace::RankNote::Kind::stack;
      stack.rank = trace::Rank(r);
      stack.text = "its process was in the creation of a process group";
      stack.creates_group = true;
      run.notes.push_back(stack);
    }
    return summary(verify(run));
  };
  EXPECT_EQ(judged("barrier; cut", 2), "group-divergence error observed\nverdict findings");
  // Rank 1 may still come, or has ended.
  EXPECT_EQ(judged("barrier; cut", 1), "verdict inconclusive");
}

TEST(Blocking, ARankThatWaitsWasNotDeadBecauseItsWatchdogWasLater) {
  const std::string groups = "group a 0,1; group b 1,2; ";
  const auto job = [&](const std::string& end) {
    return judge({groups + "all_reduce n=1 g=a open; hung",
                  groups + "all_reduce n=1 g=b open; " + end, groups + "barrier open; hung"});
  };
  EXPECT_EQ(job("cut"), job("hung"));
}

}  // namespace
}  // namespace lockstep::verify
