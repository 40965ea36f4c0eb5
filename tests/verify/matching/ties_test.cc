// Who deviates in a pair, or in a group of which half does each: what tells, and what does not.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Ties, ATieHasBothReadings) {
  const Report tie =
      verify(program({"barrier; all_reduce n=8 async open; clean", "barrier; clean"}));
  ASSERT_FALSE(tie.findings.empty());
  EXPECT_TRUE(tie.findings[0].culprits.empty());
  EXPECT_THAT(
      tie.findings[0].message,
      HasSubstr("and rank 1 did not: either rank 1 left it out, or rank 0 made one too many"));
}

// What differs later in the group follows from it, although it seems to name one of the two.
TEST(Ties, ATieIsOneFinding) {
  const Report report = verify(program(
      {"all_reduce n=2; all_reduce n=20; all_reduce n=32; all_reduce n=32; all_reduce n=6 open; "
       "hung",
       "all_reduce n=2; all_reduce n=596; all_reduce n=288; all_reduce n=32; all_reduce n=7 open; "
       "hung"}));
  EXPECT_EQ(report.findings.size(), 1U);
  EXPECT_TRUE(report.findings[0].culprits.empty());
}

// After "a b a" a round may end or begin again: one round does not show which.
TEST(Ties, ARoundThatBeginsAsItEndsIsNoHabit) {
  const std::string round = "all_reduce n=32; all_gather n=8; all_reduce n=32; ";
  EXPECT_EQ(judge({round + "all_reduce n=32; all_gather n=8 open; hung",
                   round + "all_reduce n=32; all_reduce n=32 open; hung"})
                .find("culprits"),
            std::string::npos);
  // Two rounds do.
  EXPECT_THAT(judge({round + round + "all_reduce n=32; all_gather n=8 open; hung",
                     round + round + "all_reduce n=32; all_reduce n=32 open; hung"}),
              HasSubstr("culprits=1"));
}

// A Trainer's first steps, all from one line: DDP arranges its buckets after the first one, and the
// loss is gathered after every second one. Rank 1's backward reduced nothing, as where an adapter
// got no gradient. That a gather followed a reduction once does not show that it is to come now.
TEST(Ties, WhatFollowedOnceIsNoHabitWhereSomethingElseDid) {
  const std::string past =
      "broadcast n=9; all_reduce n=608; broadcast n=7; broadcast n=1; all_reduce n=608; "
      "all_gather n=1; all_gather n=1; all_reduce n=608; ";
  EXPECT_THAT(judge({past + "all_reduce n=608 open; hung", past + "all_gather n=1 open; hung"}),
              AllOf(HasSubstr("error"), Not(HasSubstr("culprits"))));
  // Two steps later, it does.
  const std::string steps = past +
                            "all_reduce n=608; all_gather n=1; all_gather n=1; "
                            "all_reduce n=608; ";
  EXPECT_THAT(judge({steps + "all_reduce n=608 open; hung", steps + "all_gather n=1 open; hung"}),
              HasSubstr("culprits=1"));
}

// A framework makes all calls from one line, and rank 0 saves at the end of the first epoch. Its
// barrier is none of those that the framework made there.
TEST(Ties, ABarrierFromALineOfItsOwnIsNotTheUsualOne) {
  const std::string at = " at=t.py:57; ";
  const auto calls = [&](const std::string& list) {
    std::string out;
    for (const char c : list)
      out += (c == 'b'   ? "barrier"
              : c == 'r' ? "all_reduce n=1"
              : c == 'g' ? "all_reduce n=577"
                         : "broadcast n=1") +
             at;
    return out;
  };
  const std::string past = calls("cbbbbrbrbrbbrbrcgccgcgcgbrbr");
  const Report report =
      verify(program({past + "barrier at=t.py:38 open; hung",
                      past + "broadcast n=1 at=t.py:57; all_reduce n=577 at=t.py:57 open; hung"}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].culprits, std::vector<trace::Rank>{trace::Rank(0)});
  EXPECT_EQ(report.findings[0].rule, RuleId::op_mismatch) << report.findings[0].message;
}

// Texts have lengths of their own, so that the past does not tell which of two ranks left a loop
// too early or too late. Where the lengths are equal, it does.
TEST(Ties, NobodyOfTwoWhoseLoopsVaryIsNamed) {
  const auto step = [](int number, int calls) {
    std::string out;
    for (int i = 0; i < calls; ++i) out += fmt::format("all_reduce n=2 step={}; ", number);
    return out;
  };
  const auto pair = [&](const std::string& past) {
    return judge({past + step(3, 4) + step(4, 1) + "all_reduce n=2 step=4 open; hung",
                  past + step(3, 2) + step(4, 4) + "hung"});
  };
  EXPECT_THAT(pair(step(0, 2) + step(1, 4) + step(2, 2)), Not(HasSubstr("culprits")));
  EXPECT_THAT(pair(step(0, 4) + step(1, 4) + step(2, 4)), HasSubstr("culprits=1"));
}

// Four pairs of tensor parallelism, two in each stage of a pipeline. In the first step, rank 1
// leaves out a call. After that it issues what the pairs of the other stage do, which are more than
// those of its own.
TEST(Ties, OnlyGroupsOfOneStageShowWhatIsUsual) {
  std::vector<std::string> ranks;
  for (int r = 0; r < 8; ++r) {
    const bool first_stage = r % 4 < 2;
    const std::string group = fmt::format("tp{}", r / 2);
    const auto reduce = [&](const char* what, int line) {
      return fmt::format("all_reduce g={} n=5 what={} at=tp.py:{}; ", group, what, line);
    };
    const int peer = first_stage ? r + 2 : r - 2;
    const std::string act = reduce("act", 1), grad = reduce("grad", 2);
    const std::string send = fmt::format("send peer={} n=3; ", peer);
    const std::string recv = fmt::format("recv peer={} n=3; ", peer);
    std::string calls =
        fmt::format("backend nccl; group {} {},{}; ", group, r / 2 * 2, r / 2 * 2 + 1);
    if (first_stage) {
      calls += act + send + (r == 1 ? "" : act) + send + recv + grad + recv;
      calls += r == 0 ? fmt::format("all_reduce g={} n=5 what=grad at=tp.py:2 open; hung", group)
                      : grad + "clean";
    } else {
      calls += recv + act + grad + send + recv + act + grad + send + "clean";
    }
    ranks.push_back(calls);
  }
  EXPECT_THAT(judge(ranks), HasSubstr("missing-collective error observed culprits=1"));
}

TEST(Ties, ATieNamesNobody) {
  EXPECT_EQ(judge({"all_reduce n=8 redop=sum; clean", "all_reduce n=8 redop=max; clean"}),
            "redop-mismatch error observed group=world seq=0\nverdict findings");
}

TEST(Ties, TheOneOfTwoThatLeftItsHabitDeviates) {
  const std::string usual =
      "all_reduce n=8 redop=sum; barrier; all_reduce n=8 redop=sum; barrier; ";
  EXPECT_EQ(judge({usual + "all_reduce n=8 redop=max; barrier; clean",
                   usual + "all_reduce n=8 redop=sum; barrier; clean"}),
            "redop-mismatch error observed culprits=0 group=world seq=4\nverdict findings");
}

// DDP arranges its buckets once, after the first step, so two reductions follow each other first
// after the second one. That is not a reason to think that rank 1 should have come to a barrier.
TEST(Ties, WhatComesOnceIsNoHabit) {
  const std::string steps =
      "all_reduce n=8 at=t.py:3; broadcast n=2 root=0 at=t.py:3; all_reduce n=8 at=t.py:3; ";
  EXPECT_THAT(judge({steps + "barrier at=t.py:9 open; hung",
                     steps + "all_reduce n=8 at=t.py:3 open; hung"}),
              HasSubstr("op-mismatch error proven culprits=0 group=world seq=3"));
}

// Nothing in a group of two tells which rank left out the call; but one of the two left out a call
// of all ranks just after.
TEST(Ties, ARankThatDeviatesFromMostDeviatesInItsPairToo) {
  const auto rank = [](const std::string& group, bool leaves_out) {
    const std::string own = group.substr(0, group.find(' '));
    const std::string pair = fmt::format("all_reduce g={} n=8; ", own);
    const std::string all = "all_reduce n=1; ";
    const std::string sized = fmt::format("all_reduce g={} n=9; all_reduce n=2; ", own);
    return "group " + group + "; " + (leaves_out ? "" : pair + all) + sized + "hung";
  };
  const std::string said = judge(
      {rank("a 0,1", false), rank("a 0,1", true), rank("b 2,3", false), rank("b 2,3", false)});
  EXPECT_THAT(said, HasSubstr("culprits=1"));
  EXPECT_THAT(said, Not(HasSubstr("culprits=0")));
}

// The other group of the same two ranks is that of another modality, and no sister: rank 1 left out
// the first of two calls in the first step, after which it does as in all other steps of both.
TEST(Ties, AGroupOfTheSameRanksIsNoWitness) {
  const auto rank = [](bool left_out) {
    std::string out = "backend nccl; group text_0 0,1; group image_0 0,1; broadcast n=9 root=0; ";
    for (int s = 0; s < 4; ++s) {
      const std::string open = fmt::format("at=t.py:6 step={} open; ", s);
      if (s > 0 || !left_out) out += "all_reduce g=text_0 n=5 what=text.1.weight " + open;
      out += "all_reduce g=image_0 n=5 what=image.0.weight " + open;
      out += "all_reduce g=text_0 n=5 what=text.0.weight " + open;
      out += fmt::format("all_reduce n=2 what=loss at=t.py:8 step={} open; ", s);
    }
    return out + "hung";
  };
  EXPECT_THAT(judge({rank(false), rank(true)}),
              HasSubstr("missing-collective error observed culprits=1 group=text_0 seq=0 step=0"));
}

// Hosts go on over NCCL: what a rank does later shows which of two calls its first round lacks,
// even if the programs of the two, stages of a pipeline, differ before it.
TEST(Ties, LaterRoundsShowWhatTheFirstOneLacks) {
  const std::string start = "backend nccl; broadcast n=9 root=0; ";
  const std::string first = "send peer=1 n=6; recv peer=1 n=6; ";
  const std::string second = "recv peer=0 n=6; send peer=0 n=6; ";
  const std::string norm = "all_reduce n=1 open; ", loss = "all_reduce n=2 open; ";
  const std::string blocks = start + second + norm + loss + "hung";
  EXPECT_THAT(judge({start + first + loss + first + norm + loss + "hung", blocks}),
              HasSubstr("missing-collective error observed culprits=0 group=world seq=1"));
  // No later round, and later rounds like the first one, in which rank 1 makes one more.
  EXPECT_THAT(judge({start + first + loss + "hung", blocks}), Not(HasSubstr("culprits")));
  EXPECT_THAT(judge({start + first + loss + first + loss + "hung", blocks}),
              Not(HasSubstr("culprits=0 ")));
}

// How long a row of equal calls was so far does not show whether one more belongs to it.
TEST(Ties, OneMoreOfARowIsNoHabit) {
  const std::string start = "backend nccl; broadcast n=9 root=0; all_reduce n=1; all_reduce n=1; ";
  EXPECT_THAT(judge({start + "barrier open; all_reduce n=1 open; hung",
                     start + "all_reduce n=1 open; barrier open; hung"}),
              Not(HasSubstr("culprits")));
  const std::string gather = "backend nccl; all_gather n=3; all_gather n=4; ";
  EXPECT_THAT(judge({gather + "reduce_scatter n=8 open; hung",
                     gather + "all_gather n=4 open; reduce_scatter n=8 open; hung"}),
              Not(HasSubstr("culprits")));
  // A row that came before shows it.
  const std::string row = "all_reduce n=1; all_reduce n=1; ";
  EXPECT_THAT(judge({"backend nccl; " + row + "barrier; " + row + "barrier open; hung",
                     "backend nccl; " + row + "barrier; " + row + "all_reduce n=1 open; hung"}),
              HasSubstr("culprits=1 "));
}

}  // namespace
}  // namespace lockstep::verify
