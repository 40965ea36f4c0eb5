// Collectives that a rank left out, or made too often, between two calls of a larger group. All of
// them look alike, so that nothing else tells.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"

namespace lockstep::verify {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kVision = "all_reduce g=vit n=4; ";
const std::string kNorm = "all_reduce n=1; ";
const std::string kGroups = "backend nccl; group vit 0,1; ";

std::string rounds(int count, const std::string& calls = kVision) {
  return repeated(calls + kNorm, count);
}

// A job of two ranks of `vit` and one of the language model.
std::string judge_pair(const std::string& one, const std::string& other, int count) {
  return judge({kGroups + one, kGroups + other, kGroups + rounds(count, "") + "clean"});
}

TEST(UnevenRounds, NameTheRankThatLeftACallOutInOneOfThem) {
  // The last call of rank 0 has no partner; rank 1 left out the one of its fourth round.
  EXPECT_THAT(judge_pair(rounds(5) + "all_reduce g=vit n=4 open; all_reduce n=1; cut",
                         rounds(3) + rounds(1, "") + rounds(2) + "clean", 6),
              AllOf(HasSubstr("missing-collective error"), HasSubstr("culprits=1 "),
                    HasSubstr("group=vit seq=3")));
}

TEST(UnevenRounds, NameTheRankThatMadeACallTooMany) {
  EXPECT_THAT(judge_pair(rounds(6) + "clean",
                         rounds(2) + rounds(1, kVision + kVision) + rounds(2) +
                             "all_reduce g=vit n=4 open; all_reduce n=1; cut",
                         6),
              AllOf(HasSubstr("extra-collective error"), HasSubstr("culprits=1 "),
                    HasSubstr("group=vit seq=3")));
}

// Steps of one to three micro-batches: nothing tells how many the fourth one was to have.
TEST(UnevenRounds, NameNobodyWhereRoundsDiffer) {
  const std::string begin =
      rounds(1) + rounds(1, kVision + kVision) + rounds(1, repeated(kVision, 3));
  EXPECT_THAT(judge_pair(begin + rounds(1, kVision + kVision) + rounds(1) +
                             "all_reduce g=vit n=4 open; all_reduce n=1; cut",
                         begin + rounds(1) + rounds(2) + "clean", 6),
              Not(HasSubstr("seq=6")));
}

// Rank 1 makes its call once more and waits in it, for rank 0 alone. How many messages there are in
// a round differs, so that the programs of the two show nothing.
TEST(UnevenRounds, NameTheRankThatStandsInACallTooMany) {
  const auto round = [](const std::string& message, int peer, int messages) {
    return repeated(fmt::format("{} n=8 peer={}; ", message, peer), messages);
  };
  std::vector<std::string> ranks = {"group vit 0,1; ", "group vit 0,1; ", "", ""};
  const auto add = [&](int of_first, int of_second, const std::string& then) {
    ranks[0] += round("send", 2, of_first) + kVision + then;
    ranks[1] += round("send", 3, of_second) + kVision + then;
    ranks[2] += round("recv", 0, of_first) + then;
    ranks[3] += round("recv", 1, of_second) + then;
  };
  add(1, 1, kNorm);
  add(2, 1, kNorm);
  add(1, 1, kNorm);
  add(1, 2, kNorm);
  add(2, 1, "");
  const std::string waits = "all_reduce n=1 open; hung";
  EXPECT_THAT(judge({ranks[0] + waits, ranks[1] + "all_reduce g=vit n=4 open; hung",
                     ranks[2] + waits, ranks[3] + waits}),
              AllOf(HasSubstr("extra-collective error"), HasSubstr("culprits=1 "),
                    HasSubstr("group=vit seq=5")));
}

// One rank makes its call just before the larger group's, the other one just after it.
TEST(UnevenRounds, AccuseNobodyWhoIsLateInEveryRound) {
  EXPECT_THAT(judge_pair(rounds(5) + "clean",
                         rounds(2) + kNorm + kVision + kVision + kNorm + rounds(1) + "clean", 5),
              HasSubstr("verdict clean"));
}

}  // namespace
}  // namespace lockstep::verify
