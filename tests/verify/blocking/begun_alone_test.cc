// Few ranks alone in a collective of all, while the others wait elsewhere.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two stages of two ranks: in each round a stage reduces over its pair, sends on, and reduces
// over the ranks that hold the same.
constexpr const char* kMeshGroups[] = {
    "group tp0 0,1 TP; group dp0 0 DP; group pp 0,1,2,3 PP; ",
    "group tp0 0,1 TP; group dp1 1 DP; group pp 0,1,2,3 PP; ",
    "group tp1 2,3 TP; group dp2 2 DP; group pp 0,1,2,3 PP; ",
    "group tp1 2,3 TP; group dp3 3 DP; group pp 0,1,2,3 PP; ",
};
const std::string kMeshRounds[] = {
    "all_reduce g=tp0 n=8 at=a.py:1; send g=pp n=8 peer=2 at=a.py:2; all_reduce g=dp0 n=4 "
    "at=a.py:3; ",
    "all_reduce g=tp0 n=8 at=a.py:1; send g=pp n=8 peer=3 at=a.py:2; all_reduce g=dp1 n=4 "
    "at=a.py:3; ",
    "recv g=pp n=8 peer=0 at=a.py:2; all_reduce g=tp1 n=8 at=a.py:1; all_reduce g=dp2 n=4 "
    "at=a.py:3; ",
    "recv g=pp n=8 peer=1 at=a.py:2; all_reduce g=tp1 n=8 at=a.py:1; all_reduce g=dp3 n=4 "
    "at=a.py:3; ",
};

// `rounds` rounds of each rank, and then what it is in.
std::vector<std::string> two_stages_of_pairs(int rounds, const std::vector<std::string>& last) {
  std::vector<std::string> out;
  for (std::size_t r = 0; r < 4; ++r)
    out.push_back(kMeshGroups[r] + repeated(kMeshRounds[r], rounds) + last[r] + " open; hung");
  return out;
}

TEST(BegunAlone, ACallThatOneRankMakesIsOneTooManyWhereTheOthersGoOn) {
  const std::string barrier = "barrier at=a.py:9";
  const std::string reduce = "all_reduce g=tp0 n=8 at=a.py:1";
  const std::string from_0 = "recv g=pp n=8 peer=0 at=a.py:2";
  const std::string from_1 = "recv g=pp n=8 peer=1 at=a.py:2";
  EXPECT_THAT(judge(two_stages_of_pairs(3, {barrier, reduce, from_0, from_1})),
              HasSubstr("extra-collective error proven culprits=0 group=world seq=0"));
  // Where most came to it, who goes on has missed it.
  EXPECT_THAT(judge(two_stages_of_pairs(3, {barrier, reduce, barrier, barrier})),
              Not(HasSubstr("culprits=0")));
}

TEST(BegunAlone, ACallMoreOfAnotherRankBeforeSpeaksAgainstIt) {
  // Rank 1 reduced once more in its last round, and waits in the last of these for rank 0.
  std::vector<std::string> ranks = two_stages_of_pairs(
      2, {kMeshRounds[0] + "barrier at=a.py:9",
          "all_reduce g=tp0 n=8 at=a.py:1; all_reduce g=tp0 n=8 at=a.py:1",
          kMeshRounds[2] + "barrier at=a.py:9", "recv g=pp n=8 peer=1 at=a.py:2"});
  EXPECT_THAT(judge(ranks), Not(HasSubstr("extra-collective error proven culprits=0")));
}

// Three stages of a pipeline: forwards to the next one, gradients back; four micro-batches in each
// round, and two in the second round of the last stage.
TEST(BegunAlone, ALastStageThatMadeFewerMicroBatchesIsNamed) {
  const std::string first = "send g=pp n=8 peer=1 at=a.py:1; recv g=pp n=8 peer=1 at=a.py:1; ";
  const std::string middle =
      "recv g=pp n=8 peer=0 at=a.py:1; send g=pp n=8 peer=2 at=a.py:1; recv g=pp n=8 peer=2 "
      "at=a.py:1; send g=pp n=8 peer=0 at=a.py:1; ";
  const std::string last = "recv g=pp n=8 peer=1 at=a.py:1; send g=pp n=8 peer=1 at=a.py:1; ";
  const auto groups = [](const std::string& own) {
    return "group pp 0,1,2 PP; group dp" + own + " " + own + " DP; ";
  };
  const auto reduce = [](const std::string& own) {
    return "all_reduce g=dp" + own + " n=4 at=a.py:2; ";
  };
  const auto ten = [&](const std::string& own, const std::string& micro_batch) {
    return groups(own) + repeated(repeated(micro_batch, 4) + reduce(own), 2) +
           repeated(micro_batch, 2);
  };
  const Report report = verify(program(
      {ten("0", first) +
           "send g=pp n=8 peer=1 at=a.py:1; recv g=pp n=8 peer=1 at=a.py:1 open; hung",
       ten("1", middle) + "recv g=pp n=8 peer=0 at=a.py:1; send g=pp n=8 peer=2 at=a.py:1 open; "
                          "hung",
       groups("2") + repeated(last, 4) + reduce("2") + repeated(last, 2) + reduce("2") +
           repeated(last, 4) + reduce("2") + "barrier at=a.py:9 open; hung"}));
  EXPECT_THAT(summary(report), HasSubstr("cross-group-deadlock error proven culprits=2 "));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_THAT(report.findings[0].fix,
              HasSubstr("make as many steps and micro-batches on every rank"));
}

TEST(BegunAlone, OfTwoStagesNobodyIsTheOddOne) {
  const std::string g = "group pp 0,1 PP; ";
  const std::string text = judge(
      {g + repeated("send g=pp n=8 peer=1; recv g=pp n=8 peer=1; ", 3) +
           "send g=pp n=8 peer=1 open; hung",
       g + repeated("recv g=pp n=8 peer=0; send g=pp n=8 peer=0; ", 3) + "barrier open; hung"});
  EXPECT_THAT(text, Not(HasSubstr("culprits=0 ")));
}

// Rank 0 has posted more to rank 1 than it took: rank 1 is behind, and rank 2 does not expect too
// much.
TEST(BegunAlone, WhoWaitsForARankThatIsBehindExpectsNotTooMuch) {
  const std::string text = judge(
      {"send n=8 peer=1; send n=8 peer=1; send n=8 peer=1 async open; recv n=8 peer=1 open; hung",
       "recv n=8 peer=0; send n=8 peer=2; recv n=8 peer=0; send n=8 peer=2; recv n=8 peer=2 open; "
       "hung",
       "recv n=8 peer=1; recv n=8 peer=1; recv n=8 peer=1 open; hung"});
  EXPECT_THAT(text, Not(HasSubstr("culprits=2 ")));
}

// The loop of rank 1 ends a round earlier: its barrier meets the others' next call.
TEST(BegunAlone, WhereALoopEndsEarlierTheAdviceSaysSo) {
  const std::string rounds = repeated("all_reduce n=8 at=a.py:1; all_gather n=4 at=a.py:2; ", 3);
  const Report report = verify(program({rounds + "all_reduce n=8 at=a.py:1 open; hung",
                                        rounds + "barrier at=a.py:9 open; hung",
                                        rounds + "all_reduce n=8 at=a.py:1 open; hung"}));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].rule, RuleId::op_mismatch);
  EXPECT_THAT(report.findings[0].fix, HasSubstr("make as many iterations on every rank"));
  // Within a round it is another branch.
  const Report within = verify(program({rounds + "all_reduce n=8 at=a.py:1 open; hung",
                                        rounds + "all_reduce n=8 redop=max at=a.py:7 open; hung",
                                        rounds + "all_reduce n=8 at=a.py:1 open; hung"}));
  for (const Finding& f : within.findings)
    EXPECT_THAT(f.fix, Not(HasSubstr("if a loop ended early"))) << f.message;
}

// Runs of barriers have no usual length: of two ranks, nothing tells which one is wrong.
TEST(BegunAlone, HowManyBarriersCameInARowTellsNothing) {
  const std::string start =
      "broadcast n=3 root=0 at=a.py:1; barrier at=a.py:1; barrier at=a.py:1; all_gather n=1 "
      "at=a.py:1; barrier at=a.py:1; barrier at=a.py:1; barrier at=a.py:1; all_reduce n=1 "
      "at=a.py:1; barrier at=a.py:1; ";
  const std::string text = judge(
      {start + "all_reduce n=1 at=a.py:1 open; hung", start + "barrier at=a.py:1 open; hung"});
  EXPECT_THAT(text, Not(HasSubstr("culprits=0")));
  // Nor is a barrier more usual than a reduction of a type that did not come before.
  const std::string metrics =
      "barrier at=a.py:1; all_reduce n=1 dtype=int32 at=a.py:1; barrier at=a.py:1; ";
  EXPECT_THAT(judge({metrics + "all_reduce n=1 at=a.py:1 open; hung",
                     metrics + "barrier at=a.py:1 open; hung"}),
              Not(HasSubstr("culprits=0")));
}

}  // namespace
}  // namespace lockstep::verify
