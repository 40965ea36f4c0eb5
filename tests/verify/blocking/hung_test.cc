// VerifyOptions::hung: who took the traces knows that the job had hung, which no trace shows.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::string judge_hung(const trace::Run& run) { return summary(verify(run, {.hung = true})); }

// Killed while it hung: no trace has an end mark.
TEST(Hung, ARankThatStoppedBeforeACallIsNamed) {
  const trace::Run run =
      program({"all_reduce n=8; all_reduce n=8 open; cut",
               "all_reduce n=8; all_reduce n=8 open; cut", "all_reduce n=8; cut"});
  const Report as_recorded = verify(run);
  EXPECT_EQ(summary(as_recorded), "verdict inconclusive");
  EXPECT_THAT(as_recorded.unknown, Contains(HasSubstr("lockstep verify --hung")));
  EXPECT_EQ(judge_hung(run),
            "host-stall error proven culprits=2 group=world seq=1\nverdict findings");
}

// As DistributedDataParallel begins: a reduction, the new order of its buckets, and then one
// reduction a step. Who makes the next one made none too many; the other rank may wait for its
// data.
TEST(Hung, ALoopWithOneCallAStepMakesItAgain) {
  const auto judged = [](const std::string& calls, const std::string& next) {
    return summary(verify(program({calls + next + " open; hung", calls + "hung"})));
  };
  const std::string a = "all_reduce n=8; ", b = "broadcast n=7 root=0; ";
  EXPECT_THAT(judged(a + b + b + a + a, "all_reduce n=8"), Not(HasSubstr("extra-collective")));
  // The look-alike: it is seldom made twice in a row.
  EXPECT_THAT(judged(a + b + a + b + a + b + a, "all_reduce n=8"),
              HasSubstr("extra-collective error proven culprits=0 group=world seq=7"));
}

// Where it hung, its traces end there, and are not damaged.
TEST(Hung, TracesThatEndWhereTheJobHungAreWhole) {
  const trace::Run run = program({"all_reduce n=8 open; cut", "cut"});
  EXPECT_EQ(verify(run).ranks_damaged.size(), 2U);
  const Report report = verify(run, {.hung = true});
  EXPECT_TRUE(report.ranks_damaged.empty());
  EXPECT_TRUE(std::none_of(report.findings.begin(), report.findings.end(),
                           [](const Finding& f) { return f.rule == RuleId::damaged_trace; }));
}

// The same job killed by a signal that the recorder saw.
TEST(Hung, ARankThatWasKilledWithTheOthersIsNamed) {
  const trace::Run run =
      program({"all_reduce n=8; all_reduce n=8 open; killed",
               "all_reduce n=8; all_reduce n=8 open; killed", "all_reduce n=8; killed"});
  EXPECT_EQ(verify(run).verdict, Verdict::inconclusive);
  EXPECT_THAT(judge_hung(run), HasSubstr("culprits=2 group=world seq=1"));
}

TEST(Hung, RanksThatWaitInNoCallHungOutsideOfThem) {
  const trace::Run run = program({"all_reduce n=8; cut", "all_reduce n=8; cut"});
  EXPECT_EQ(verify(run).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_hung(run), "host-stall error observed culprits=0,1\nverdict findings");
}

TEST(Hung, AJobThatEndedWellStaysClean) {
  EXPECT_EQ(judge_hung(program({"all_reduce n=8; clean", "all_reduce n=8; clean"})),
            "verdict clean");
}

// Issue lines alone, as NCCL's logs: the ranks may be late, but each is past a call that the other
// one was to make before its own.
TEST(Hung, RanksThatWouldWaitForEachOtherAreNotClean) {
  const std::string discriminator = "all_reduce g=d n=3 async open; ";
  const std::string generator = "all_reduce g=g n=5 async open; ";
  const std::string begin =
      "backend nccl; group d 0,1; group g 0,1; " + repeated(discriminator + generator, 3);
  const Report report =
      verify(program({begin + discriminator + "cut", begin + generator + "cut"}, /*timed=*/false));
  EXPECT_EQ(report.verdict, Verdict::inconclusive);
  EXPECT_THAT(report.unknown, Contains(HasSubstr("they wait for each other")));
}

// Nothing is known about a missing rank, also in a job that hung.
TEST(Hung, NobodyButTheMissingRankIsWaitedFor) {
  const trace::Run run =
      run_of({{0, "all_reduce n=8 open; cut"}, {1, "all_reduce n=8 open; cut"}}, 3);
  EXPECT_EQ(judge_hung(run), "verdict inconclusive");
}

// Rank 1 stopped after its first step. In the next one, rank 0 makes the call that ended the first
// one once more; its later steps do so too, so that it is not one too many.
TEST(Hung, LaterStepsShowThatACallIsNotMadeTwice) {
  const std::string step = "all_reduce g=text n=5; all_reduce g=image n=5; all_reduce g=text n=5; ";
  const std::string open =
      "all_reduce g=text n=5 open; all_reduce g=image n=5 open; all_reduce g=text n=5 open; ";
  const std::string start = "backend nccl; group text 0,1; group image 0,1; broadcast n=9 root=0; ";
  EXPECT_THAT(judge({start + step + open + open + "hung", start + step + "hung"}),
              HasSubstr("culprits=1 "));
}

// Its process has no stack any more.
TEST(Hung, TheLogsTellOfAKilledRank) {
  const auto fix = [](const std::string& end) {
    return verify(program({"all_reduce n=8; all_reduce n=8 open; hung", "all_reduce n=8; " + end}))
        .findings.at(0)
        .fix;
  };
  EXPECT_THAT(fix("killed"), HasSubstr("its process is gone"));
  EXPECT_THAT(fix("hung"), HasSubstr("log and stack"));
}

}  // namespace
}  // namespace lockstep::verify
