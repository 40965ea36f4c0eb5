// Several threads of a rank in one group: where it is a race, and what only looks like one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;

TEST(ThreadOrder, ARaceIsNoRanksFault) {
  const Report report = verify(program(
      {"all_reduce n=3 thread=1 at=log.py:5 open; all_reduce n=500 at=train.py:9 open; hung",
       "all_reduce n=500 at=train.py:9 open; all_reduce n=3 thread=1 at=log.py:5 open; "
       "hung"}));
  EXPECT_EQ(summary(report), "order-swap error proven group=world seq=0\nverdict findings");
  EXPECT_THAT(report.findings[0].message,
              HasSubstr("several threads of each rank issue calls in group world"));
  EXPECT_THAT(report.findings[0].message, HasSubstr("log.py:5"));
  EXPECT_THAT(report.findings[0].message, HasSubstr("train.py:9"));
}

// Which thread has which number depends on which of them came first.
TEST(ThreadOrder, ThreadsAreKnownByWhatTheyDo) {
  EXPECT_EQ(judge({"broadcast n=3 thread=1 root=0 open; all_reduce n=9 thread=2 open; hung",
                   "all_reduce n=9 thread=1 open; broadcast n=3 thread=2 root=0 open; hung"}),
            "order-swap error proven group=world seq=0\nverdict findings");
}

TEST(ThreadOrder, EqualSizesPairTheWrongTensors) {
  const std::string log = "all_reduce n=3 thread=1 at=log.py:5";
  const std::string train = "all_reduce n=3 at=train.py:9";
  EXPECT_EQ(judge({log + " open; " + train + "; wait 0; clean", train + "; " + log + "; clean"}),
            "order-swap error observed group=world seq=0\nverdict findings");
  EXPECT_EQ(judge({log + " open; " + train + "; wait 0; clean", log + "; " + train + "; clean"}),
            "verdict clean");
}

TEST(ThreadOrder, AGroupForEachThreadIsRight) {
  const std::string group = "group log 0,1; ";
  const std::string log = "all_reduce n=3 g=log thread=1 at=log.py:5";
  const std::string train = "all_reduce n=3 at=train.py:9";
  EXPECT_EQ(judge({group + log + " open; " + train + "; wait 0; clean",
                   group + train + "; " + log + "; clean"}),
            "verdict clean");
}

// The program waits for the thread's end before it goes on: the order is the program's.
TEST(ThreadOrder, ThreadsThatWorkInTurnsDoNotRace) {
  const std::string train = "all_reduce n=9 at=train.py:9; ";
  const std::string save = "all_gather n=3 thread=1 at=save.py:2; ";
  EXPECT_EQ(judge({train + save + train + save + train + "clean",
                   train + save + train + "all_reduce n=9 at=train.py:9 open; hung",
                   train + save + train + save + train + "clean"}),
            "missing-collective error proven culprits=1 group=world seq=3\nverdict findings");
}

TEST(ThreadOrder, ACallThatAThreadLeavesOutIsNoRace) {
  const std::string log = "all_reduce n=3 thread=1 at=log.py:5 open; ";
  const std::string right = log +
                            "all_reduce n=500 at=train.py:9; wait 0; "
                            "broadcast n=7 root=0 at=train.py:10; ";
  const Report report = verify(program(
      {right + "all_reduce n=500 at=train.py:9 open; hung",
       right + "all_reduce n=500 at=train.py:9 open; hung",
       log + "all_reduce n=500 at=train.py:9; wait 0; all_reduce n=500 at=train.py:9 open; hung"}));
  EXPECT_EQ(summary(report),
            "missing-collective error proven culprits=2 group=world seq=2\nverdict findings");
}

TEST(ThreadOrder, AThreadThatWaitsKeepsNoOtherFromGoingOn) {
  VerifyOptions running;
  running.live = true;
  const std::string groups = "group a 0,1; group b 0,1; ";
  const std::string a = "all_reduce n=3 g=a thread=1";
  const std::string b = "all_reduce n=3 g=b";
  // Rank 0's thread waits in a, rank 1's program in b; their others have not come there yet.
  const trace::Run run = program({groups + a + "; " + b + "; " + a + " open; cut",
                                  groups + a + "; " + b + "; " + b + " open; cut"});
  EXPECT_EQ(summary(verify(run, running)), "verdict clean");
  // One thread alone does not come there any more.
  const std::string alone = "all_reduce n=3 g=a";
  const trace::Run stuck = program({groups + alone + "; " + b + "; " + alone + " open; cut",
                                    groups + alone + "; " + b + "; " + b + " open; cut"});
  EXPECT_THAT(summary(verify(stuck, running)), HasSubstr("error proven"));
}

}  // namespace
}  // namespace lockstep::verify
