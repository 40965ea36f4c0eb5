// Operations never waited for; missing, damaged and contradicting input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/trace_text.h"
#include "verify/program.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

bool says(const Report& report, RuleId id) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [&](const Finding& f) { return f.rule == id; });
}

TEST(Lifecycle, AnOperationThatItsPeersWaitForAndTheRankDoesNot) {
  EXPECT_EQ(summary(verify(program({"all_reduce n=4 async; wait 0; barrier; clean",
                                    "all_reduce n=4 async; barrier; clean"}))),
            "never-waited warning observed culprits=1 group=world seq=0\nverdict findings");
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

TEST(Input, AMissingRankIsANoteAndTheVerdictInconclusive) {
  const Report report = verify(run_of({{0, "barrier; clean"}}, 2));
  EXPECT_TRUE(says(report, RuleId::missing_rank));
  EXPECT_EQ(report.verdict, Verdict::inconclusive);
  EXPECT_EQ(report.ranks_missing, std::vector<Rank>{Rank(1)});
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
  EXPECT_TRUE(says(report, RuleId::damaged_trace));
  EXPECT_EQ(report.verdict, Verdict::inconclusive) << summary(report);
}

TEST(Input, ACutOffTraceOfARunThatWentWellIsInconclusive) {
  EXPECT_EQ(summary(verify(program({"barrier; clean", "barrier; cut"}))), "verdict inconclusive");
}

TEST(Input, ContradictingWorldSizes) {
  const Report report = verify(
      run_from_text({program_text(0, 2, "barrier; clean"), program_text(1, 3, "barrier; clean")}));
  EXPECT_TRUE(says(report, RuleId::inconsistent_header));
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

}  // namespace
}  // namespace lockstep
