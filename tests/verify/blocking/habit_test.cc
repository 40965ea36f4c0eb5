// Ties that the ranks' own past, their later calls or their sisters decide; and those that nothing
// decides.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string judge(const std::vector<std::string>& ranks) { return summary(verify(program(ranks))); }

// Rank 1 of two takes the groups in the order that `last` says, after so many usual rounds.
std::string two_groups(int usual_rounds, const std::string& last_of_0,
                       const std::string& last_of_1) {
  std::string head = "group image 0,1; group text 0,1; ";
  for (int i = 0; i < usual_rounds; ++i) head += "all_reduce g=image n=4; all_reduce g=text n=8; ";
  return judge({head + last_of_0, head + last_of_1});
}

TEST(Habit, ThePastTellsWhichOfTwoSwappedTheOrderOfTwoGroups) {
  const std::string as_always = "all_reduce g=image n=4 open; hung";
  const std::string swapped = "all_reduce g=text n=8 open; hung";
  EXPECT_THAT(two_groups(2, as_always, swapped),
              HasSubstr("cross-group-deadlock error proven culprits=1"));
  EXPECT_THAT(two_groups(2, swapped, as_always),
              HasSubstr("cross-group-deadlock error proven culprits=0"));
}

TEST(Habit, WithoutAPastNobodyIsNamed) {
  EXPECT_THAT(
      two_groups(0, "all_reduce g=image n=4 open; hung", "all_reduce g=text n=8 open; hung"),
      HasSubstr("cross-group-deadlock error proven group="));
}

TEST(Habit, WhoReceivesWhereItAlwaysSentIsNamed) {
  const std::string first = "send peer=1 n=4; recv peer=1 n=4; all_reduce n=2; ";
  const std::string second = "recv peer=0 n=4; send peer=0 n=4; all_reduce n=2; ";
  EXPECT_THAT(judge({first + first + "recv peer=1 n=4 open; hung",
                     second + second + "recv peer=0 n=4 open; hung"}),
              HasSubstr("p2p-cycle error proven culprits=0"));
  // It went on without the message: it left it out.
  EXPECT_THAT(judge({first + first + "all_reduce n=2 open; hung",
                     second + second + "recv peer=0 n=4 open; hung"}),
              HasSubstr("culprits=0"));
  // In the first round both may be wrong.
  EXPECT_THAT(judge({"recv peer=1 n=4 open; hung", "recv peer=0 n=4 open; hung"}),
              HasSubstr("p2p-cycle error proven group="));
}

// The first step of a pipeline: rank 0 has sent all of its micro-batches and waits for gradients,
// rank 1 expects one more. That rank 0 sent after each receive up to there is no habit of the end.
TEST(Habit, AStageThatOnlyReceivesGradientsAnyMoreLeftNoSendOut) {
  const std::string send = "send peer=1 n=4; ";
  const std::string recv = "recv peer=1 n=4; ";
  const std::string stage_0 = repeated(send, 3) + repeated(send + recv, 5) + recv;
  const std::string forward = "recv peer=0 n=4; ";
  const std::string stage_1 =
      repeated(forward, 2) + repeated(forward + "send peer=0 n=4; ", 6) + "recv peer=0 n=4 open; ";
  EXPECT_THAT(judge({stage_0 + "recv peer=1 n=4 open; hung", stage_1 + "hung"}),
              HasSubstr("p2p-cycle error proven group="));
  // Nothing is on its way to rank 1 that it has to answer: rank 0 left its send out.
  EXPECT_THAT(judge({repeated(send + recv, 6) + "recv peer=1 n=4 open; hung",
                     repeated(forward + "send peer=0 n=4; ", 6) + "recv peer=0 n=4 open; hung"}),
              HasSubstr("error proven culprits=0"));
}

// What the stages of a pipeline exchange once, before their first micro-batch, is no habit either.
TEST(Habit, AMessageThatNobodyMissesWasNotLeftOut) {
  const std::string stage_0 = "send peer=1 n=4; recv peer=1 n=4; ";
  const std::string stage_1 = "recv peer=0 n=4; send peer=0 n=4; ";
  const std::string reduce = "all_reduce n=2; ";
  const Report report = verify(program(
      {reduce + "send peer=1 n=1; " + stage_0 + reduce + stage_0 + "send peer=1 n=4 open; hung",
       reduce + "recv peer=0 n=1; " + stage_1 + reduce + stage_1 + "barrier open; hung"}));
  EXPECT_THAT(summary(report), HasSubstr("deadlock error proven group="));
  EXPECT_THAT(report.findings.at(0).fix, HasSubstr("either rank 1 comes to barrier too early"));
  // Where rank 0 sends it in each round, rank 1 left it out.
  const std::string with_1 = "send peer=1 n=1; " + stage_0;
  EXPECT_THAT(judge({repeated(reduce + with_1, 2) + reduce + "send peer=1 n=1 open; hung",
                     repeated(reduce + "recv peer=0 n=1; " + stage_1, 2) + reduce +
                         "all_reduce n=2 open; hung"}),
              HasSubstr("culprits=1"));
}

// Its trace just ends; that its process is gone, the others say.
TEST(Stopped, ARankToWhichOthersLostTheConnectionDied) {
  const std::string step = "all_reduce n=4 at=t.py:3; ";
  const auto told = [&](const std::string& exception) {
    const std::string waits =
        step + "all_reduce n=4 at=t.py:3 open; raise 1 RuntimeError: " + exception + "; exception";
    return verify(program({waits, step + "cut", waits}));
  };
  const Report lost = told("gloo/transport/tcp/pair.cc:561 Connection closed by peer");
  EXPECT_THAT(lost.findings.at(0).headline, HasSubstr("rank 1 died"));
  EXPECT_THAT(lost.findings.at(0).fix, HasSubstr("its process is gone"));
  const Report late = told("gloo/transport/tcp/unbound_buffer.cc:78 Timed out waiting 4000ms");
  EXPECT_THAT(late.findings.at(0).headline, Not(HasSubstr("died")));
}

TEST(Habit, AFirstCallOfItsKindMayOpenANewPartOfTheProgram) {
  // Rank 1's barrier is new, but so is the end of the training that rank 0 has not come to.
  const std::string usual = "all_reduce g=image n=4; all_reduce g=image n=4; ";
  const std::string groups = "group image 0,1; ";
  EXPECT_THAT(judge({groups + usual + "all_reduce g=image n=4 open; hung",
                     groups + usual + "barrier open; hung"}),
              ::testing::Not(HasSubstr("culprits=0")));
}

TEST(Habit, ACallThatIsNewWhereItsPeerHasFinishedIsOneTooMany) {
  const std::string usual = "all_reduce n=4; all_reduce n=8; all_reduce n=4; all_reduce n=8; ";
  EXPECT_THAT(judge({usual + "all_reduce n=7 open; hung", usual + "clean"}),
              HasSubstr("extra-collective error proven culprits=0"));
  // A usual one: its peer ended too early.
  EXPECT_THAT(judge({usual + "all_reduce n=4 open; hung", usual + "clean"}),
              HasSubstr("unequal-iterations error proven culprits=1"));
}

// Rank 0 evaluates after the last step: the call is the usual one here, but not twice in a step.
TEST(Habit, ACallThatComesOnceMoreInItsStepIsOneTooMany) {
  const auto step = [](int n) {
    const std::string at = " step=" + std::to_string(n) + "; ";
    return "all_gather n=4 what=w" + at + "all_reduce n=8 what=w" + at;
  };
  const std::string steps = step(0) + step(1) + step(2);
  EXPECT_THAT(judge({steps + "all_gather n=4 what=w step=2 open; hung", steps + "clean"}),
              HasSubstr("extra-collective error proven culprits=0 "));
  // The look-alikes: the next step, and steps of which one has a micro-batch more.
  EXPECT_THAT(judge({steps + "all_gather n=4 what=w step=3 open; hung", steps + "clean"}),
              HasSubstr("unequal-iterations error proven "));
  const std::string uneven = step(0) + step(1) + step(1) + step(2) + step(2);
  EXPECT_THAT(judge({uneven + "all_gather n=4 what=w step=2 open; hung", uneven + "clean"}),
              Not(HasSubstr("extra-collective")));
  // One earlier step shows too little.
  EXPECT_THAT(judge({step(0) + step(1) + "all_gather n=4 what=w step=1 open; hung",
                     step(0) + step(1) + "clean"}),
              Not(HasSubstr("extra-collective")));
}

TEST(Habit, TheOneOfTwoFormsThatIsUsedNowhereElseIsWrong) {
  const std::string head = "backend nccl; group a 0,1; ";
  EXPECT_THAT(judge({head + "all_reduce n=4 redop=sum; all_reduce g=a n=8 redop=sum; clean",
                     head + "all_reduce n=4 redop=max; all_reduce g=a n=8 redop=sum; clean"}),
              HasSubstr("redop-mismatch error observed culprits=1"));
  // Both are in use.
  EXPECT_THAT(judge({head + "all_reduce n=4 redop=sum; all_reduce g=a n=8 redop=sum; "
                            "all_reduce g=a n=2 redop=max; clean",
                     head + "all_reduce n=4 redop=max; all_reduce g=a n=8 redop=sum; "
                            "all_reduce g=a n=2 redop=max; clean"}),
              HasSubstr("redop-mismatch error observed group="));
}

TEST(Habit, TheOneOfTwoSizesThatComesAgainLaterIsRight) {
  const std::string head = "backend nccl; ";
  EXPECT_THAT(judge({head + "all_reduce n=4; all_reduce n=4; clean",
                     head + "all_reduce n=5; all_reduce n=4; clean"}),
              HasSubstr("size-mismatch error observed culprits=1"));
}

// Parameters are not recorded; the line of the program tells the call of another size apart.
TEST(Habit, ACallFromALineThatIsNewIsOneTooMany) {
  std::string past;
  for (int s = 0; s < 2; ++s) past += "all_reduce n=1 at=a.py:1; all_reduce n=2 at=a.py:2; ";
  const std::string waits = past + "all_reduce n=1 at=a.py:1 open; hung";
  EXPECT_THAT(judge({past + "all_reduce n=7 at=a.py:9 open; hung", waits, waits}),
              HasSubstr("extra-collective error proven culprits=0 group=world seq=4"));
  // From the line of the others' call it is that call in another size.
  EXPECT_THAT(judge({past + "all_reduce n=7 at=a.py:1 open; hung", waits, waits}),
              HasSubstr("size-mismatch error proven culprits=0 group=world seq=4"));
  // Nothing is known of lines.
  EXPECT_THAT(judge({"all_reduce n=1; all_reduce n=7 open; hung",
                     "all_reduce n=1; all_reduce n=2 open; hung",
                     "all_reduce n=1; all_reduce n=2 open; hung"}),
              HasSubstr("size-mismatch error proven culprits=0"));
}

// A stage that leaves out the receive of its third round. Where it blocks in the all-reduce that
// ends the round, it may still come to the receive. Over NCCL its host goes on and posts those of
// later rounds.
TEST(Habit, AMessageThatAStageLeavesOutIsNoQuestionOfOrder) {
  const std::string groups = "group p 0,1; group e 0,1; ";
  const std::string first = "send g=p peer=1 n=4; recv g=p peer=1 n=4; all_reduce g=e n=8; ";
  const std::string second = "recv g=p peer=0 n=4; send g=p peer=0 n=4; all_reduce g=e n=8; ";
  EXPECT_THAT(judge({groups + first + first + "send g=p peer=1 n=4; all_reduce g=e n=8 open; hung",
                     groups + second + second +
                         "recv g=p peer=0 n=4; "
                         "send g=p peer=0 n=4 open; hung"}),
              HasSubstr("deadlock error proven culprits=0 group=e seq=2"));
  const auto open = [](int rank, int rounds) {
    std::string out;
    const std::string message =
        rank == 0 ? " g=p peer=1 n=4 async open; " : " g=p peer=0 n=4 async open; ";
    for (int i = 0; i < rounds; ++i) {
      out += (rank == 0 ? "send" : "recv") + message + (rank == 0 ? "recv" : "send") + message +
             "all_reduce g=e n=8 async open; ";
    }
    return out;
  };
  const std::string nccl = "backend nccl; " + groups;
  EXPECT_THAT(
      judge({nccl + first + first + "send g=p peer=1 n=4 async; all_reduce g=e n=8 async open; " +
                 open(0, 2) + "hung",
             nccl + second + second +
                 "recv g=p peer=0 n=4 async; send g=p peer=0 n=4 async open; "
                 "all_reduce g=e n=8 async open; " +
                 open(1, 2) + "hung"}),
      HasSubstr("p2p-unmatched error observed culprits=0 group=p seq=5"));
  // The rounds before are unknown: either of the two may be out of order.
  EXPECT_THAT(
      judge({groups + "all_reduce g=e n=8 open; hung", groups + "send g=p peer=0 n=4 open; hung"}),
      Not(HasSubstr("culprits")));
}

// Rank 1's second call of `a` is of the step before, in which such a call was made already.
TEST(Habit, StepsTellACallTooManyFromOneThatCameEarly) {
  const std::string groups = "group a 0,1; group b 0,1; ";
  std::string rounds;
  for (int step = 0; step < 3; ++step) {
    const std::string at = fmt::format(" step={}; ", step);
    rounds += "all_reduce g=a n=4" + at + "all_reduce g=b n=8" + at;
  }
  const std::string begins = groups + rounds + "all_reduce g=a n=4 step=3; ";
  const std::string usual = begins + "all_reduce g=b n=8 step=3 open; hung";
  EXPECT_THAT(judge({usual, begins + "all_reduce g=a n=4 step=3 open; hung"}),
              HasSubstr("extra-collective error proven culprits=1 group=a seq=4 step=3"));
  // The call is of the next step: b of this one was left out, or comes later.
  EXPECT_THAT(judge({usual, begins + "all_reduce g=a n=4 step=4 open; hung"}),
              Not(HasSubstr("extra-collective")));
}

// Pipelines of two stages, side by side: ranks 0 and 1 of the first, 2 and 3 of the others.
std::string pipelines(const std::string& first, const std::string& second) {
  const std::string other_first = "group q 2,3; send g=q peer=3 n=4; recv g=q peer=3 n=4; clean";
  const std::string other_second = "group q 2,3; recv g=q peer=2 n=4; send g=q peer=2 n=4; clean";
  return judge({"group p 0,1; " + first, "group p 0,1; " + second, other_first, other_second});
}

TEST(Sisters, ShowWhoOfACycleOfMessagesLeftTheProgram) {
  EXPECT_THAT(pipelines("recv g=p peer=1 n=4 open; hung", "recv g=p peer=0 n=4 open; hung"),
              HasSubstr("p2p-cycle error proven culprits=0"));
  EXPECT_THAT(pipelines("send g=p peer=1 n=4 open; hung", "send g=p peer=0 n=4 open; hung"),
              HasSubstr("culprits=1"));
}

TEST(Sisters, ShowAMessageLeftOutInTheFirstRound) {
  // Stage 0 of each pipeline sends and receives, and then all meet.
  const auto pipeline = [](int first, bool whole) {
    const std::string g = first == 0 ? "p" : "q";
    const std::string peer = std::to_string(first + 1);
    return std::string("group p 0,1; group q 2,3; send g=") + g + " peer=" + peer + " n=4; " +
           (whole ? "recv g=" + g + " peer=" + peer + " n=4; " : "") + "all_reduce n=2 open; hung";
  };
  const auto stage_1 = [](int first, bool blocks) {
    const std::string g = first == 0 ? "p" : "q";
    const std::string peer = std::to_string(first);
    return std::string("group p 0,1; group q 2,3; recv g=") + g + " peer=" + peer +
           " n=4; send g=" + g + " peer=" + peer + " n=4" +
           (blocks ? " open; hung" : "; all_reduce n=2 open; hung");
  };
  EXPECT_THAT(judge({pipeline(0, false), stage_1(0, true), pipeline(2, true), stage_1(2, false)}),
              HasSubstr("deadlock error proven culprits=0 group=world"));
}

// Ranks 0 and 2 are a pipeline and share the embedding, ranks 1 and 3 beside them. Messages are the
// pipelines' business: rank 1 alone sends one to the other member of its embedding group.
TEST(Sisters, AreForTheSamePurpose) {
  const std::string groups[] = {"group pp_0 0,2; group embedding_0 0,2; ",
                                "group pp_1 1,3; group embedding_1 1,3; "};
  const auto first = [&](int pipeline, const std::string& more) {
    const std::string n = std::to_string(pipeline);
    return fmt::format("backend nccl; {}send g=pp_{} n=4 peer={}; {}all_reduce g=embedding_{} n=8",
                       groups[pipeline], n, pipeline + 2, more, n);
  };
  const auto second = [&](int pipeline) {
    const std::string n = std::to_string(pipeline);
    return "backend nccl; " + groups[pipeline] + "recv g=pp_" + n + " n=4 peer=" + n +
           "; all_reduce g=embedding_" + n + " n=8";
  };
  EXPECT_THAT(judge({first(0, "") + "; clean",
                     first(1, "send g=embedding_1 n=4 peer=3 open; ") + " open; hung",
                     second(0) + "; clean", second(1) + " open; hung"}),
              HasSubstr("p2p-unmatched error observed culprits=1"));
}

TEST(Sisters, WhereThereAreNoneNobodyIsNamed) {
  EXPECT_THAT(judge({"group p 0,1; recv g=p peer=1 n=4 open; hung",
                     "group p 0,1; recv g=p peer=0 n=4 open; hung"}),
              HasSubstr("p2p-cycle error proven group="));
}

// The last stage receives one message less than was sent. Its first stage has another role than the
// others, and nothing to do with it.
TEST(Habit, AStageOfItsOwnKindIsNotBlamed) {
  const auto stages = [](int rounds) {
    std::vector<std::string> out(3);
    for (int round = 0; round < rounds; ++round) {
      const bool last = round + 1 == rounds;
      for (int i = 0; i < 3; ++i) {
        const bool lost = last && i == 2;
        out[0] += "send peer=1 n=4; ";
        out[1] += "recv peer=0 n=4; send peer=2 n=4" + std::string(lost ? " open; hung" : "; ");
        if (!lost) out[2] += "recv peer=1 n=4; ";
      }
      out[0] += std::string("all_reduce n=1") + (last ? " open; hung" : "; ");
      if (!last) out[1] += "all_reduce n=1; ";
      out[2] += std::string("all_reduce n=1") + (last ? " open; hung" : "; ");
    }
    return out;
  };
  EXPECT_THAT(judge(stages(2)), HasSubstr("culprits=2 "));
  EXPECT_THAT(judge(stages(3)), HasSubstr("culprits=2 "));
}

// The ranks of the first replica save, and wait for all; those of the second train on. Nobody else
// has listed the group of all ranks.
TEST(Habit, RanksThatListNoGroupThatTheyDidNotCallInArePartners) {
  const auto rank = [](int r) {
    const std::string group = r < 2 ? "s0 0,1" : "s1 2,3";
    const std::string name = r < 2 ? "s0" : "s1";
    const std::string across = r % 2 == 0 ? "r0" : "r1";
    std::string out = r < 2 ? "group all 0,1,2,3; " : "";
    out += "group " + group + "; group " + across + (r % 2 == 0 ? " 0,2; " : " 1,3; ");
    for (int step = 0; step < 3; ++step) {
      out += "all_reduce g=" + name + " n=4 at=t.py:9; ";
      if (step < 2) out += "all_reduce g=" + across + " n=2 at=t.py:9; ";
      if (step == 1 && r < 2)
        return out + "all_reduce g=" + name + " n=1 at=s.py:3; barrier g=all at=s.py:5 open; hung";
    }
    return out + "all_reduce g=" + across + " n=2 at=t.py:9 open; hung";
  };
  EXPECT_THAT(judge({rank(0), rank(1), rank(2), rank(3)}), HasSubstr("culprits=0,1"));
}

// The second half of the first round, which is new in its turn, is not a checkpoint between two
// rounds: that its calls came there once does not say that they come there again.
TEST(Habit, TheRestOfAFirstRoundIsNotPredictedAfterItself) {
  const std::string first = "all_reduce n=1 what=d0; all_reduce n=2 what=d1; ";
  const std::string second = "all_reduce n=3 what=g0; all_reduce n=4 what=g1; ";
  const std::string round = first + first + first + second;
  const std::string usual = round + "all_reduce n=1 what=d0 open; hung";
  EXPECT_THAT(judge({usual, usual, usual, round + "all_reduce n=3 what=g0 open; hung"}),
              Not(HasSubstr("culprits=0,1,2")));
}

// The host of rank 0 goes on over NCCL.
TEST(Habit, LaterRoundsShowACallLeftOutOfTheFirst) {
  const std::string head = "backend nccl; group a 0,1; ";
  const std::string norm = "all_reduce n=1 ", loss = "all_reduce n=2 ";
  const std::string round = "all_reduce g=a n=4 open; " + norm + "open; " + loss + "open; ";
  EXPECT_THAT(judge({head + "all_reduce g=a n=4; " + loss + "open; " + round + "hung",
                     head + "all_reduce g=a n=4; " + norm + "open; " + loss + "open; hung"}),
              HasSubstr(" error observed culprits=0 group=world seq=0"));
}

// Rank 0 sums a metric once more, before a checkpoint that both make for the first time. That sums
// are the more common operation, or that one came after the last, says nothing.
TEST(Habit, ACallBeforeTheOneOfTheOtherRankIsNotInItsPlace) {
  const auto step = [](int n) {
    return fmt::format("all_reduce g=a n=8 step={0}; all_reduce n=1 step={0}; ", n);
  };
  const std::string head = "backend nccl; group a 0,1; broadcast n=4 root=0; " + step(0) + step(1);
  EXPECT_THAT(judge({head + "all_reduce n=1 step=1; barrier step=1 open; hung",
                     head + "barrier step=1; all_reduce g=a n=8 step=2 open; hung"}),
              Not(HasSubstr("culprits=1")));
}

// At the end of a first step one rank makes a call more and the other goes on: nothing shows
// whether it was skipped. A step to come in which the other makes it does.
TEST(Habit, ACallAtTheEndOfAFirstStepMayBeTooMany) {
  const std::string head = "backend nccl; broadcast n=9 root=0; all_reduce n=4 step=0; ";
  const std::string metric = "all_reduce n=7 step=0 open; hung";
  EXPECT_THAT(judge({head + metric, head + "all_reduce n=4 step=1 open; hung"}),
              Not(HasSubstr("culprits=")));
  EXPECT_THAT(
      judge({head + metric, head + "all_reduce n=4 step=1 open; all_reduce n=7 step=1 open; "
                                   "all_reduce n=4 step=2 open; hung"}),
      HasSubstr("missing-collective error observed culprits=1 group=world seq=2"));
}

// Rows of calls, of which rank 1 leaves out one in the second step. That what follows the row comes
// again later, and the call left out does not, says nothing.
TEST(Habit, TheLastCallOfARowIsNotTooMany) {
  const auto step = [](int gathers, int n, const std::string& open) {
    const std::string end = fmt::format(" step={}{}; ", n, open);
    return repeated("all_gather_into_tensor g=dp n=4" + end, gathers) + "all_reduce g=ep n=2" +
           end + repeated("reduce_scatter_tensor g=dp n=8" + end, 3);
  };
  const std::string head = "backend nccl; group dp 0,1; group ep 0,1; broadcast n=9 root=0; ";
  EXPECT_THAT(judge({head + step(3, 0, "") + step(3, 1, " open") + "hung",
                     head + step(3, 0, "") + step(2, 1, " open") + "hung"}),
              Not(HasSubstr("culprits=0")));
}

// Two ranks average their loss every second step, and one of them leaves it out the first time.
// Earlier steps have no such call, but later ones of both ranks have it now and then.
TEST(Habit, ACallOfEverySecondStepIsNotTooManyTheFirstTime) {
  const auto job = [](bool left_out, bool with_steps, int losses) {
    const auto step = [&](int n) { return with_steps ? fmt::format(" step={}", n) : ""; };
    std::string out = "backend nccl; ";
    for (int s = 0; s < 6; ++s) {
      out += "all_reduce n=8" + step(s) + "; ";
      if (s == 1) out += "broadcast n=2 root=0" + step(s) + "; ";
      out += s == 0 ? "all_reduce n=9" : "all_reduce n=5";
      out += step(s) + "; all_reduce n=5" + step(s) + "; ";
      const bool loss = s % 2 == 1 && s / 2 < losses && !(left_out && s == 1);
      if (loss) out += "all_reduce n=1" + step(s) + "; ";
    }
    return out + (left_out ? "clean" : "all_reduce n=7" + step(6) + " open; hung");
  };
  const auto of = [&](bool with_steps, int losses) {
    return judge({job(false, with_steps, losses), job(true, with_steps, losses)});
  };
  EXPECT_THAT(of(true, 3),
              HasSubstr("missing-collective error observed culprits=1 group=world seq=7 step=1"));
  EXPECT_THAT(of(false, 3),
              HasSubstr("missing-collective error observed culprits=1 group=world seq=7"));
  // A call that never comes again.
  EXPECT_THAT(of(true, 1),
              HasSubstr("extra-collective error observed culprits=0 group=world seq=7 step=1"));
}

// An evaluation gathers twice in a row, after the first round. That the second one follows the
// first does not show that it was to come there: rank 0 may as well have left out the call before.
TEST(Habit, ACallThatFollowsItselfIsNotMadeAgain) {
  const std::string round = "backend nccl; all_reduce n=9; all_reduce n=8; ";
  const std::string evaluation =
      "all_gather_into_tensor n=2; all_gather_into_tensor n=2; all_reduce n=3 open; hung";
  EXPECT_THAT(judge({round + evaluation, round + "all_reduce n=5; " + evaluation}),
              Not(HasSubstr("culprits")));
}

// Two ranks average a loss and take its maximum in the next line. One of them left the maximum out
// in the first step. That it averages again, in the next step, does not make the maximum unusual.
TEST(Habit, AnotherLineIsAnotherCallAndNotARarerForm) {
  const auto job = [](const std::string& second_line) {
    const std::string head =
        "backend nccl; group dp 0,1; group loss 0,1; all_reduce g=dp n=8 at=a.py:1 step=0; "
        "all_reduce g=loss n=1 redop=avg at=a.py:5 step=0; ";
    const std::string skips =
        "all_reduce g=dp n=8 at=a.py:1 step=1 open; "
        "all_reduce g=loss n=1 redop=avg at=a.py:5 step=1 open; hung";
    return judge({head + skips, head + "all_reduce g=loss n=1 redop=max at=" + second_line +
                                    " step=0 open; hung"});
  };
  EXPECT_THAT(job("a.py:7"), Not(HasSubstr("culprits=1")));
}

// A first barrier after a round may be of a checkpoint, that the other one of two leaves out. What
// its later rounds hold tells, or its peer's round.
TEST(Habit, AFirstBarrierOfTwoAfterARoundIsNotTooMany) {
  const std::string head = "backend nccl; group tp 0,1; broadcast n=9 root=0; ";
  const std::string round = "all_reduce g=tp n=4; all_reduce g=tp n=6; all_reduce n=1; ";
  const std::string open =
      "all_reduce g=tp n=4 open; all_reduce g=tp n=6 open; all_reduce n=1 open; ";
  EXPECT_THAT(
      judge({head + round + round + "barrier open; hung", head + round + round + open + "hung"}),
      Not(HasSubstr("culprits=")));
  // It comes again: rank 1 left out the first one.
  const std::string barrier = "barrier open; ";
  EXPECT_THAT(judge({head + round + round + barrier + repeated(open + open + barrier, 2) + "hung",
                     head + round + round + repeated(open + open + barrier, 2) + "hung"}),
              Not(HasSubstr("culprits=0")));
  // Within a round it belongs to none.
  const std::string half = "all_reduce g=tp n=4; ";
  const std::string rest = "all_reduce g=tp n=6 open; all_reduce n=1 open; ";
  EXPECT_THAT(judge({head + round + round + half + barrier + "hung",
                     head + round + round + half + rest + "hung"}),
              HasSubstr("culprits=0"));
  // A metric of its own, after which the rank goes on as before, is one too many.
  EXPECT_THAT(judge({head + round + round + "all_reduce n=7 open; " + open + "hung",
                     head + round + round + open + "hung"}),
              HasSubstr("culprits=0"));
}

// In a first step, rank 1 blocks in a call which rank 0 left out, or which is one too many. That
// rank 0 begins its next step as its first one says nothing.
TEST(Habit, ThatTheNextStepBeginsAsTheFirstOneSaysNothing) {
  const std::string gathers =
      "all_gather_into_tensor n=4 what=a at=fsdp.py:10 step=0; "
      "all_gather_into_tensor n=6 what=b at=fsdp.py:10 step=0; "
      "reduce_scatter_tensor n=6 what=b at=fsdp.py:20 step=0; ";
  const auto job = [&](const std::string& end) { return "broadcast n=9 root=0; " + gathers + end; };
  EXPECT_THAT(judge({job("all_gather_into_tensor n=4 what=a at=fsdp.py:10 step=1 open; hung"),
                     job("reduce_scatter_tensor n=4 what=a at=fsdp.py:20 step=0 open; hung")}),
              Not(HasSubstr("culprits=")));
}

}  // namespace
}  // namespace lockstep::verify
