// First rounds, and others that have no full past: what comes later, or came a few calls before,
// does not always show how they should have gone on.
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Calls by letter, of which those from the first '!' on do not complete.
std::string calls(const std::string& letters, const std::string& group) {
  std::string out = "backend nccl; " + group;
  const std::string in_group = group.empty() ? "" : " g=dp";
  bool open = false;
  for (const char c : letters) {
    if (c == '!') open = true;
    const char* const call = c == 'a'   ? "all_reduce n=8"
                             : c == 'b' ? "broadcast n=2"
                             : c == 'c' ? "all_reduce n=1"
                             : c == 'g' ? "all_gather_into_tensor n=4"
                             : c == 'x' ? "barrier"
                                        : nullptr;
    if (call != nullptr)
      out += fmt::format("{} async{}{}; ", call, c == 'x' ? "" : in_group, open ? " open" : "");
  }
  return out + "hung";
}

// What is said where rank 0 makes these calls and `others` ranks make those. `group`: declares the
// group "dp" of all calls but barriers.
std::string judge_one(const std::string& rank_0, const std::string& rest, int others,
                      const std::string& group = "") {
  std::vector<std::string> ranks(1 + static_cast<std::size_t>(others), calls(rest, group));
  ranks[0] = calls(rank_0, group);
  return judge(ranks);
}

TEST(FirstRounds, ManyAreNotBlamedByRoundsThatGoOnDifferently) {
  // Rank 0 makes a barrier alone, after the first step. The others' later ones end with an
  // evaluation, and with the program's end.
  EXPECT_THAT(judge_one("bac !x bac ggxx bac x", "bac !bac ggxx bac x", 15),
              HasSubstr("culprits=0 "));
}

TEST(FirstRounds, ManyAreNotBlamedByTheEndOfARowOfEqualRounds) {
  // Two micro-batches before each clipping; rank 0 clips after one.
  EXPECT_THAT(judge_one("bag !c", "bag !bag c", 4), HasSubstr("culprits=0 "));
}

TEST(FirstRounds, ManyAreBlamedByLaterRoundsThatAllHaveTheCall) {
  EXPECT_THAT(judge_one("bag !c bag c bag c", "bag !bag c bag c", 4), HasSubstr("culprits=1-4 "));
}

TEST(FirstRounds, ManyAreNotBlamedForTheEndOfALoopThatABarrierFollows) {
  // Six rounds and an evaluation; then three and a checkpoint, or four. Barriers are of all ranks.
  const std::string before = "bac bac bac bac bac bac g x ";
  EXPECT_THAT(
      judge_one(before + "bac bac bac !bac", before + "bac bac bac !x", 3, "group dp 0,1,2,3; "),
      HasSubstr("culprits=0 "));
}

TEST(FirstRounds, TheFirstEvaluationDoesNotShowHowLongItShouldBe) {
  const std::string said = judge_one("aaa ggg !g x", "aaa ggg !x aaa", 1);
  EXPECT_THAT(said, HasSubstr("error"));
  EXPECT_THAT(said, Not(HasSubstr("culprits")));
  // An evaluation as long as the one before does.
  EXPECT_THAT(judge_one("aaa ggg x aaa ggg !g x", "aaa ggg x aaa ggg !x aaa", 1),
              HasSubstr("culprits=0 "));
}

}  // namespace
}  // namespace lockstep::verify
