// Ranks without a trace: who waits for them, and for whom nobody does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

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
  EXPECT_THAT(note, HasSubstr("beside others rank 5"));
  EXPECT_LT(note.find("only rank 4"), note.find("rank 5 has not come"));
}

TEST(MissingRanks, NobodyWaitsWhereAllIsComplete) {
  const std::string done = "backend nccl; all_reduce n=4 async; all_reduce n=4 async; clean";
  const Report report = verify(run_of({{0, done}, {1, done}}, 3));
  EXPECT_THAT(note_of(report), HasSubstr("nobody waits for rank 2"));
  EXPECT_THAT(note_of(report), Not(HasSubstr("has not come")));
}

}  // namespace
}  // namespace lockstep::verify
