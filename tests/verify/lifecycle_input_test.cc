// Operations never waited for; missing, damaged and contradicting input.

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"
#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool says_rule(const Report& report, RuleId id) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [&](const Finding& f) { return f.rule == id; });
}

TEST(Lifecycle, AnOperationThatItsPeersWaitForAndTheRankDoesNot) {
  EXPECT_EQ(summary(verify(program({"all_reduce n=4 async; wait 0; barrier; clean",
                                    "all_reduce n=4 async; barrier; clean"}))),
            "never-waited warning observed culprits=1 group=world seq=0\nverdict findings");
}

TEST(Lifecycle, ARankThatStandsInForOthersUnderJoinNeedNotWait) {
  EXPECT_EQ(summary(verify(program({"all_reduce n=4 async; wait 0; barrier; clean",
                                    "all_reduce n=4 async tag=join; barrier; clean"}))),
            "verdict clean");
}

TEST(Lifecycle, AFunctionalCollectiveWaitsWhereItsResultIsUsed) {
  EXPECT_EQ(summary(verify(program({"all_reduce n=4 async tag=functional; wait 0; barrier; clean",
                                    "all_reduce n=4 async tag=functional; barrier; clean"}))),
            "verdict clean");
}

TEST(Lifecycle, WhereNobodyRecordsWaitsNothingIsSaid) {
  EXPECT_EQ(
      summary(verify(program({"all_reduce n=4 async; clean", "all_reduce n=4 async; clean"}))),
      "verdict clean");
}

TEST(Lifecycle, ARankThatDiedHadNoTimeToWait) {
  EXPECT_THAT(summary(verify(
                  program({"all_reduce n=4 async; wait 0; clean", "all_reduce n=4 async; cut"}))),
              ::testing::Not(HasSubstr("never-waited")));
}

TEST(Lifecycle, AnMpiRequestThatNobodyWaitsForIsAnError) {
  const std::string rank = "mpi; broadcast count=1 root=0 async open at=a.c:61; finalize; clean";
  const Report report = verify(program({rank, rank}));
  EXPECT_EQ(summary(report),
            "never-waited error observed culprits=0,1 group=world seq=0\nverdict findings");
  EXPECT_THAT(report.findings[0].message, HasSubstr("a.c:61"));
}

TEST(Lifecycle, AnMpiRequestForAMessage) {
  EXPECT_EQ(summary(verify(
                program({"mpi; send count=1 peer=1 ptag=0 async open; finalize; clean",
                         "mpi; recv count=1 peer=0 ptag=0 async open; wait 0; finalize; clean"}))),
            "never-waited error observed culprits=0 group=world seq=0\nverdict findings");
}

TEST(Lifecycle, AnMpiRequestThatATestCompletedIsOver) {
  EXPECT_EQ(summary(verify(program({"mpi; send count=1 peer=1 ptag=0 async; finalize; clean",
                                    "mpi; recv count=1 peer=0 ptag=0 async; finalize; clean"}))),
            "verdict clean");
}

TEST(Buffers, AWriteIntoWhatIsBeingSent) {
  const Report report =
      verify(program({"send n=4 peer=1 ptag=0 async open at=t.py:3; write 0; wait 0; clean",
                      "recv n=4 peer=0 ptag=0; clean"}));
  EXPECT_EQ(summary(report),
            "buffer-race error observed culprits=0 group=world seq=0\nverdict findings");
  EXPECT_THAT(report.findings[0].message, HasSubstr("wrote the buffer of send"));
  EXPECT_THAT(report.findings[0].message, HasSubstr("t.py:3"));
}

TEST(Buffers, AReadOfWhatIsBeingReceived) {
  EXPECT_EQ(summary(verify(program({"send n=4 peer=1 ptag=0; clean",
                                    "recv n=4 peer=0 ptag=0 async open; use 0; wait 0; clean"}))),
            "buffer-race error observed culprits=1 group=world seq=0\nverdict findings");
}

TEST(Buffers, AReadOfWhatIsOnlySentIsNone) {
  EXPECT_EQ(summary(verify(program({"send n=4 peer=1 ptag=0 async open; use 0; wait 0; clean",
                                    "recv n=4 peer=0 ptag=0; clean"}))),
            "verdict clean");
}

TEST(Buffers, AfterTheWaitTheyAreTheProgramsOwn) {
  const std::string rank = "all_reduce n=4 async; wait 0; use 0; write 0; clean";
  EXPECT_EQ(summary(verify(program({rank, rank}))), "verdict clean");
}

TEST(Buffers, ACompletionThatOnlyTheRecorderSawOrdersNothing) {
  const std::string rank = "all_reduce n=4 async; use 0; wait 0; clean";
  EXPECT_EQ(summary(verify(program({rank, rank}))),
            "buffer-race error observed culprits=0,1 group=world seq=0\nverdict findings");
}

TEST(Buffers, ALoopIsOneFinding) {
  std::string rank;
  for (int i = 0; i < 50; ++i) {
    rank += "all_reduce n=4 async at=t.py:9; write " + std::to_string(i) + "; wait " +
            std::to_string(i) + "; ";
  }
  const Report report = verify(program({rank + "clean", rank + "clean"}));
  EXPECT_EQ(report.findings.size(), 1U);
  EXPECT_THAT(report.findings[0].message, HasSubstr("100 such accesses"));
}

TEST(Input, AMissingRankIsANoteAndTheVerdictInconclusive) {
  const Report report = verify(run_of({{0, "barrier; clean"}}, 2));
  EXPECT_TRUE(says_rule(report, RuleId::missing_rank));
  EXPECT_EQ(report.verdict, Verdict::inconclusive);
  EXPECT_EQ(report.ranks_missing, std::vector<trace::Rank>{trace::Rank(1)});
}

TEST(Input, ADefectAmongThosePresentIsStillFound) {
  const Report report = verify(run_of({{0, "all_reduce n=4 redop=sum; clean"},
                                       {1, "all_reduce n=4 redop=sum; clean"},
                                       {2, "all_reduce n=4 redop=max; clean"}},
                                      4));
  EXPECT_THAT(summary(report), HasSubstr("redop-mismatch error observed culprits=2"));
}

TEST(Input, LostLinesAccuseNobody) {
  std::string damaged =
      program_text(1, 2, "all_reduce n=4 what=a; all_reduce n=4 what=b; barrier; clean");
  const std::size_t line = damaged.find("\"what\":[\"a\"]");
  damaged.replace(line, 4, std::string("\0\0\0\0", 4));
  const Report report = verify(run_from_text(
      {program_text(0, 2, "all_reduce n=4 what=a; all_reduce n=4 what=b; barrier; clean"),
       damaged}));
  EXPECT_TRUE(says_rule(report, RuleId::damaged_trace));
  EXPECT_EQ(report.verdict, Verdict::inconclusive) << summary(report);
}

// The text with its line that holds `part` made unreadable.
std::string without_line(std::string text, const std::string& part) {
  text.replace(text.find(part), part.size(), part.size(), '\0');
  return text;
}

// Of two receives that pair by their order, a line that was a call moves all later ones.
TEST(Input, LostLinesAccuseNoMessage) {
  const std::string sends = "send peer=1 n=4; send peer=1 n=8; send peer=1 n=16; clean";
  const std::string receives =
      program_text(1, 2, "recv peer=0 n=4; recv peer=0 n=8; recv peer=0 n=16; clean");
  const Report report =
      verify(run_from_text({program_text(0, 2, sends), without_line(receives, "\"id\":1")}));
  EXPECT_EQ(summary(report), "verdict inconclusive");
  EXPECT_THAT(report.unknown.at(0), HasSubstr("or lost records of rank 1 only make it look so"));
}

// One call fewer, and the splits fit those of another round.
TEST(Input, LostLinesAccuseNoExchange) {
  const auto rounds = [](int first) {
    std::string out;
    for (int i = 0; i < 4; ++i) {
      const int to_self = first + i, to_other = 4 + i;
      out += fmt::format("all_to_all_single in={0} out={0} in_splits={1} out_splits={1}; ",
                         to_self + to_other,
                         first == 1 ? fmt::format("{},{}", to_self, to_other)
                                    : fmt::format("{},{}", to_other, to_self));
    }
    return out + "barrier; clean";
  };
  EXPECT_EQ(summary(verify(program({rounds(1), rounds(2)}))), "verdict clean");
  const std::string damaged = without_line(program_text(1, 2, rounds(2)), "\"id\":1");
  const Report report = verify(run_from_text({program_text(0, 2, rounds(1)), damaged}));
  EXPECT_EQ(summary(report), "verdict inconclusive");
}

// The look-alikes: another rank's trace is damaged, and a rank that recorded how it ended.
TEST(Input, LostLinesExcuseNobodyElse) {
  const std::string reduces = "all_reduce n=4; all_reduce n=4; all_reduce n=4; barrier open; hung";
  const std::string stalls = "all_reduce n=4; all_reduce n=4; all_reduce n=4; hung";
  const std::string damaged = without_line(program_text(1, 4, reduces), "\"id\":0");
  const auto judged = [&](const std::string& last) {
    return verify(run_from_text({program_text(0, 4, reduces), damaged, program_text(2, 4, reduces),
                                 program_text(3, 4, last)}));
  };
  EXPECT_THAT(summary(judged(stalls)), HasSubstr("host-stall error proven culprits=3"));
  const Report raised = verify(run_from_text(
      {program_text(0, 2, reduces),
       without_line(program_text(1, 2,
                                 "all_reduce n=4; all_reduce n=4; all_reduce n=4; raise "
                                 "KeyError; exception"),
                    "\"id\":0")}));
  EXPECT_THAT(summary(raised), HasSubstr("culprits=1"));
}

// Its peers completed calls that the end of rank 1's file does not hold: the rank did not stop
// there. One whose file holds all of them did, and so did rank 2 in the last case.
TEST(Input, ATraceThatLostItsEndIsNoRankThatStopped) {
  const std::string steps = "all_reduce n=4; all_reduce n=4; all_reduce n=4; ";
  const auto judged = [&](const std::string& lost, const std::string& end) {
    return summary(verify(program({steps + "barrier open; hung", lost + "cut", steps + end})));
  };
  const std::string two = "all_reduce n=4; all_reduce n=4; ";
  EXPECT_EQ(judged(two, "barrier open; hung"), "verdict inconclusive");
  EXPECT_THAT(judged(steps, "barrier open; hung"), HasSubstr("culprits=1"));
  EXPECT_THAT(judged(two, "hung"), HasSubstr("culprits=2"));
  // A file that ends before it declares its groups: others name the rank as a member.
  const std::string header = header_line(1, 3);
  const auto beside = [&](const std::string& end) {
    return summary(verify(run_from_text({program_text(0, 3, steps + "barrier open; hung"), header,
                                         program_text(2, 3, steps + end)})));
  };
  EXPECT_EQ(beside("barrier open; hung"), "verdict inconclusive");
  EXPECT_THAT(beside("hung"), HasSubstr("culprits=2 "));
}

// The record in which a file was cut off may be the very call that others wait for.
TEST(Input, ATraceThatEndsWithinARecordIsNoRankThatStopped) {
  const auto judged = [](std::size_t size_of_last) {
    std::string cut = program_text(1, 3, "all_reduce n=4; all_reduce n=4; cut");
    const std::size_t last = cut.rfind("\"issue\"");
    cut.resize(cut.rfind('\n', last) + 1 + size_of_last);
    const std::string waits = "all_reduce n=4; all_reduce n=4 open; hung";
    return verify(run_from_text({program_text(0, 3, waits), cut, program_text(2, 3, waits)}));
  };
  EXPECT_THAT(summary(judged(0)), HasSubstr("host-stall error proven culprits=1"));
  const Report report = judged(20);
  EXPECT_EQ(summary(report), "verdict inconclusive");
  EXPECT_THAT(report.unknown.at(0),
              AllOf(HasSubstr("rank 1 stopped"), HasSubstr("or lost records of rank 1")));
}

TEST(Input, ACutOffTraceOfARunThatWentWellIsInconclusive) {
  EXPECT_EQ(summary(verify(program({"barrier; clean", "barrier; cut"}))), "verdict inconclusive");
}

// Ranks 0 and 1 were killed when the job hung because of rank 2.
TEST(Input, ARankThatWasKilledWhileItWaitedLeftAWholeTrace) {
  const std::string waits = "all_reduce n=8; all_reduce n=16 open; cut";
  const auto judged = [&](const std::string& other) {
    return verify(program({waits, waits, "all_reduce n=8; all_reduce n=12 open; " + other}));
  };
  const Report hung = judged("hung");
  EXPECT_THAT(summary(hung), HasSubstr("size-mismatch error proven culprits=2"));
  EXPECT_FALSE(says_rule(hung, RuleId::damaged_trace));
  EXPECT_TRUE(hung.ranks_damaged.empty());
  // The look-alikes: a rank that was killed outside of a call, and one in a call that no error is
  // about.
  const Report killed = verify(program({waits, waits, "all_reduce n=8; cut"}));
  EXPECT_TRUE(says_rule(killed, RuleId::damaged_trace)) << summary(killed);
  const Report apart =
      verify(program({waits, "all_reduce n=8; all_reduce n=12 open; hung", "all_reduce n=8; cut"}));
  EXPECT_EQ(apart.ranks_damaged, std::vector{trace::Rank(2)}) << summary(apart);
}

TEST(Input, ATraceWithoutAnEndSaysHowFarItGoes) {
  const std::string steps = "all_reduce n=4 step=0; all_reduce n=4 step=1; ";
  const Report report = verify(program({steps + "cut", steps + "step 1; cut"}));
  EXPECT_EQ(summary(report), "verdict inconclusive");
  ASSERT_TRUE(says_rule(report, RuleId::damaged_trace));
  EXPECT_THAT(
      report.findings[0].message,
      HasSubstr("the traces of ranks 0, 1 have no end mark: killed, crashed, or still at work "
                "when they were copied, last seen in step 1"));
}

TEST(Input, ARankThatLeftNothingAtAllIsNotClean) {
  EXPECT_EQ(summary(verify(program({"cut", "cut"}))), "verdict inconclusive");
  EXPECT_EQ(summary(verify(program({"cut", "cut"}), {.live = true})), "verdict clean");
  EXPECT_EQ(summary(verify(program({"clean", "clean"}))), "verdict clean");
  // Without times: a program, or a log that knows no end.
  EXPECT_EQ(summary(verify(program({"barrier; cut", "barrier; cut"}, /*timed=*/false))),
            "verdict clean");
}

TEST(Interrupted, AHealthyJobHasNoFindingAndIsNotClean) {
  const Report report = verify(program(
      {"all_reduce n=4 step=6; step 7; interrupted", "all_reduce n=4 step=6; interrupted"}));
  EXPECT_EQ(summary(report), "verdict inconclusive");
  EXPECT_TRUE(report.findings.empty());
  ASSERT_FALSE(report.unknown.empty());
  EXPECT_EQ(report.unknown[0],
            "the job was interrupted in steps 6 to 7: what would have come later is not known");
}

TEST(Interrupted, ARankThatWaitsForOneThatWorkedIsNoHang) {
  const Report report = verify(program({"all_reduce n=4 step=6; interrupted", "interrupted"}));
  EXPECT_EQ(summary(report), "verdict inconclusive");
  ASSERT_FALSE(report.unknown.empty());
  EXPECT_THAT(report.unknown[0], HasSubstr("the job was interrupted in step 6"));
}

// Ctrl-C raises where the program is: that is where it stood, and not what held the others up.
TEST(Interrupted, ARankForWhichOthersHungIsNamedWithItsLine) {
  const std::string waits = "all_reduce n=4; all_reduce n=4 open; hung";
  const Report report = verify(program(
      {waits, "all_reduce n=4; raise KeyboardInterrupt (train.py:15); interrupted", waits}));
  ASSERT_FALSE(report.findings.empty());
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.rule, RuleId::host_stall) << summary(report);
  EXPECT_EQ(f.culprits, std::vector{trace::Rank(1)});
  EXPECT_THAT(f.headline, HasSubstr("rank 1 stopped before call 1"));
  ASSERT_FALSE(f.evidence.empty());
  EXPECT_THAT(f.evidence[0].text, HasSubstr("it was interrupted: KeyboardInterrupt (train.py:15)"));
}

// The signal reaches one rank first, and its end fails the calls of the others.
TEST(Interrupted, RanksThatLoseOneThatWasInterruptedAreNoFinding) {
  const std::string loses =
      "all_reduce n=4; all_reduce n=4 open; raise 1 Connection closed by peer; exception";
  const Report report = verify(program(
      {loses, "all_reduce n=4; raise KeyboardInterrupt (train.py:15); interrupted", loses}));
  EXPECT_EQ(summary(report), "verdict inconclusive");
  ASSERT_FALSE(report.unknown.empty());
  EXPECT_THAT(report.unknown[0], HasSubstr("the job was interrupted"));
  // Killed by who knows whom: that is a finding.
  EXPECT_THAT(judge({loses, "all_reduce n=4; killed", loses}), HasSubstr("culprits=1"));
}

TEST(Interrupted, AProvenErrorStaysOne) {
  const Report report = verify(program({"all_reduce n=4; interrupted", "barrier; interrupted"}));
  EXPECT_TRUE(says_rule(report, RuleId::op_mismatch)) << summary(report);
  EXPECT_EQ(report.verdict, Verdict::findings);
}

TEST(Killed, AJobThatWasKilledOutsideOfItsCallsIsNotClean) {
  const Report report =
      verify(program({"all_reduce n=4 step=6; step 7; killed", "all_reduce n=4 step=6; killed",
                      "all_reduce n=4 step=6; "
                      "killed"}));
  EXPECT_EQ(summary(report), "verdict inconclusive");
  ASSERT_EQ(report.findings.size(), 1U);
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.rule, RuleId::rank_killed);
  EXPECT_EQ(f.severity, Severity::note);
  EXPECT_TRUE(f.culprits.empty());
  EXPECT_THAT(f.message, HasSubstr("ranks 0-2 were killed in steps 6 to 7; nobody waits for them"));
  EXPECT_THAT(f.evidence[0].text, HasSubstr("its last call was all_reduce"));
}

TEST(Killed, OneRankOfAJobWhoseOthersEndedIsNotCleanEither) {
  const Report report = verify(program({"barrier; clean", "barrier; killed"}));
  EXPECT_EQ(summary(report), "verdict inconclusive");
  EXPECT_TRUE(says_rule(report, RuleId::rank_killed));
}

TEST(Killed, WhileOthersRunThatIsNotTheLastWord) {
  const auto run = program({"barrier; killed", "barrier; cut"});
  EXPECT_FALSE(says_rule(verify(run, {.live = true}), RuleId::rank_killed));
  EXPECT_TRUE(says_rule(verify(run), RuleId::rank_killed));
}

TEST(Killed, WhoseDeathOthersWaitForIsToldOnce) {
  const Report waited_for = verify(program({"barrier; barrier open; hung", "barrier; killed"}));
  EXPECT_THAT(summary(waited_for), HasSubstr("host-stall error proven culprits=1"));
  EXPECT_FALSE(says_rule(waited_for, RuleId::rank_killed));
  // Gloo aborts the process whose buffer is too small.
  const Report of_a_mismatch =
      verify(program({"all_reduce n=4 open; killed", "all_reduce n=5 open; hung"}));
  EXPECT_THAT(summary(of_a_mismatch), HasSubstr("size-mismatch error"));
  EXPECT_FALSE(says_rule(of_a_mismatch, RuleId::rank_killed));
}

// All traces just end. Rank 0's call failed because a peer was gone; rank 1 never came to it.
TEST(Killed, ARankThatOthersLostEndedFirst) {
  const auto judged = [](const std::string& what, const std::string& other) {
    const std::string failed =
        R"({"ev":"exception","id":1,"what":"RuntimeError: )" + what + "\"}\n";
    return verify(run_from_text(
        {program_text(0, 2, "all_reduce n=8; all_reduce n=8 step=2 open; cut") + failed,
         program_text(1, 2, other)}));
  };
  const Report lost = judged("Connection closed by peer [127.0.0.1]", "all_reduce n=8; cut");
  EXPECT_EQ(summary(lost), "verdict inconclusive");
  ASSERT_TRUE(says_rule(lost, RuleId::rank_killed));
  EXPECT_THAT(lost.findings[0].message,
              AllOf(HasSubstr("rank 0 lost the connection in all_reduce"),
                    HasSubstr("to which rank 1 never came: its process ended first")));
  // The look-alikes: an exception of its own; and both were in the call when somebody ended them.
  EXPECT_FALSE(says_rule(judged("no batch", "all_reduce n=8; cut"), RuleId::rank_killed));
  EXPECT_FALSE(says_rule(judged("Connection closed by peer [127.0.0.1]",
                                "all_reduce n=8; all_reduce n=8 step=2 open; cut"),
                         RuleId::rank_killed));
}

// A stack that a rank left while it was slow to start says less than the traces.
TEST(Killed, AStackIsNoHeadlineForWhoEndedFirst) {
  const auto headline = [](const std::string& other) {
    trace::Run run = run_from_text(
        {program_text(0, 2, "all_reduce n=8; all_reduce n=8 step=2 open; cut") +
             R"({"ev":"exception","id":1,"what":"Connection closed by peer [127.0.0.1]"})" + "\n",
         program_text(1, 2, other)});
    run.notes.push_back({.kind = trace::RankNote::Kind::stack,
                         .rank = trace::Rank(0),
                         .text = "its process was in import",
                         .location = {"rank_0.stack", 4},
                         .says = trace::RankNote::Says::where_it_was,
                         .content = "import"});
    const Report report = verify(run);
    std::string out;
    for (const Finding& f : report.findings) out += f.headline;
    return out;
  };
  EXPECT_EQ(headline("all_reduce n=8; cut"), "");
  EXPECT_EQ(headline("all_reduce n=8; all_reduce n=8 step=2 open; cut"), "rank 0 was in import");
}

TEST(RankException, TextOfSeveralLinesIsToldInOne) {
  const Report report = verify(
      run_from_text({program_text(0, 2, "all_reduce n=8 open; hung"),
                     program_text(1, 2, "") +
                         R"({"ev":"exception","what":"no piece [PAD]\n  fix: name a file"})" +
                         "\n" + end_line("exception")}));
  ASSERT_TRUE(says_rule(report, RuleId::rank_exception)) << summary(report);
  EXPECT_THAT(report.findings[0].message + report.findings[0].why,
              HasSubstr("raised an exception: no piece [PAD]; fix: name a file"));
}

TEST(Killed, AWarningDoesNotExplainIt) {
  const Report report = verify(program({"all_reduce n=4 async; barrier; wait 0; killed",
                                        "all_reduce n=4 async; barrier; wait 0; clean",
                                        "all_reduce n=4 async; barrier; clean"}));
  EXPECT_THAT(summary(report), HasSubstr("never-waited warning"));
  EXPECT_TRUE(says_rule(report, RuleId::rank_killed));
}

TEST(Input, ContradictingWorldSizes) {
  const Report report = verify(
      run_from_text({program_text(0, 2, "barrier; clean"), program_text(1, 3, "barrier; clean")}));
  EXPECT_TRUE(says_rule(report, RuleId::inconsistent_header));
}

TEST(Input, NothingAtAllIsNotClean) {
  EXPECT_EQ(verify(program({})).verdict, Verdict::inconclusive);
}

TEST(Dropped, StreamsThatStartMidRunAreLinedUpByStep) {
  const std::string whole =
      "all_reduce n=1 step=0; all_reduce n=2 step=0; all_reduce n=1 step=1; "
      "all_reduce n=2 step=1; all_reduce n=1 step=2; all_reduce n=2 step=2; clean";
  std::string cut =
      program_text(1, 2,
                   "group other 1; all_reduce g=other n=7 step=0; all_reduce n=2 step=0; "
                   "all_reduce n=1 step=1; all_reduce n=2 step=1; "
                   "all_reduce n=1 step=2; all_reduce n=2 step=2; clean");
  cut.replace(cut.find("\"world_size\""), 0, "\"dropped\":9,");
  EXPECT_EQ(summary(verify(run_from_text({program_text(0, 2, whole), cut}))), "verdict clean");
}

// Ranks without a trace: who waits for them, and for whom nobody does.

using ::testing::HasSubstr;
using ::testing::Not;

std::string note_of(const Report& report) {
  for (const Finding& f : report.findings) {
    if (f.rule == RuleId::missing_rank) return f.message;
  }
  return "";
}

TEST(MissingRanks, TheOneThatAllWaitForIsNamed) {
  const std::string waits = "backend nccl; all_reduce n=4 async; all_reduce n=4 async open; hung";
  const Report report = verify(run_of({{0, waits}, {1, waits}}, 3));
  EXPECT_EQ(report.verdict, Verdict::inconclusive);
  EXPECT_THAT(note_of(report), HasSubstr("ranks 0, 1 wait in all_reduce of 4"));
  EXPECT_THAT(note_of(report), HasSubstr("and only rank 2 has not come"));
}

TEST(MissingRanks, ThoseThatAloneHoldUpMostComeFirst) {
  const std::string groups = "backend nccl; group a 0,1,4; group b 2,3,5,6; ";
  const Report report =
      verify(run_of({{0, groups + "all_reduce g=a n=4 async; all_reduce g=a n=4 async open; hung"},
                     {1, groups + "all_reduce g=a n=4 async; all_reduce g=a n=4 async open; hung"},
                     {2, groups + "all_reduce g=b n=4 async; all_reduce g=b n=4 async open; hung"},
                     {3, groups + "all_reduce g=b n=4 async; all_reduce g=b n=4 async open; hung"}},
                    7));
  const std::string note = note_of(report);
  ASSERT_THAT(note, HasSubstr("only rank 4"));
  EXPECT_THAT(note, HasSubstr("and among others ranks 5, 6 have not come"));
  EXPECT_LT(note.find("only rank 4"), note.find("ranks 5, 6 have not come"));
}

TEST(MissingRanks, NobodyWaitsWhereAllIsComplete) {
  const std::string done = "backend nccl; all_reduce n=4 async; all_reduce n=4 async; clean";
  const Report report = verify(run_of({{0, done}, {1, done}}, 3));
  EXPECT_THAT(note_of(report), HasSubstr("nobody waits for rank 2"));
  EXPECT_THAT(note_of(report), Not(HasSubstr("has not come")));
}

}  // namespace
}  // namespace lockstep::verify
