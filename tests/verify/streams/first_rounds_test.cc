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

// The messages of a stage in one step, of two micro-batches; "!" opens them.
std::string messages(const std::string& text, bool open) {
  std::string out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 3) {
    out += fmt::format("{} n=64 peer={} async{}; ", text[i] == 's' ? "send" : "recv", text[i + 1],
                       open ? " open" : "");
  }
  return out;
}

TEST(FirstRounds, StagesAreNotBlamedForBeginningTheSecondRoundAsTheThird) {
  // Rank 3 leaves out the first all-reduce of the embeddings that it shares with rank 0. The hosts
  // go on, and the messages of the second step do not follow from those of the first.
  const std::string embedding = "all_reduce n=640 g=embedding async open; ";
  const std::string group = "backend nccl; group embedding 0,3; broadcast n=8 async; ";
  const auto stage = [&](const std::string& text, const std::string& first,
                         const std::string& later) {
    return group + messages(text, false) + first + repeated(messages(text, true) + later, 3) +
           "hung";
  };
  EXPECT_THAT(
      judge({stage("s1 s1 r1 r1 ", embedding, embedding), stage("r0 s2 r0 s2 r2 s0 r2 s0 ", "", ""),
             stage("r1 s3 r1 s3 r3 s1 r3 s1 ", "", ""), stage("r2 r2 s2 s2 ", "", embedding)}),
      Not(HasSubstr("culprits")));
}

}  // namespace
}  // namespace lockstep::verify
