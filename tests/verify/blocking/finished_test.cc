// Ranks that finished while another one waits for them: who went on too long, or ended too early.
#include <cstddef>
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

// Rank 0 gets what rank 2 generated, and trains with rank 1.
constexpr const char* kGroups = "backend nccl; group train 0,1; ";
constexpr const char* kTrains = "recv peer=2 n=8; all_reduce g=train n=4; ";
constexpr const char* kHelps = "all_reduce g=train n=4; ";
constexpr const char* kGenerates = "send peer=0 n=8; ";

// A trace that just ends may have been cut off anywhere. A rank that finished comes no more.
TEST(Finished, ARankThatFinishedIsNamedBeforeOneWhoseTraceJustEnds) {
  const std::string step = "all_reduce n=4; ", waits = "all_reduce n=4 open; hung";
  for (const bool cut_is_first : {true, false}) {
    const std::string cut = step + step + "cut", early = step + step + "clean";
    EXPECT_THAT(judge({cut_is_first ? cut : early, cut_is_first ? early : cut, step + step + waits,
                       step + step + waits, step + step + waits}),
                AllOf(HasSubstr(cut_is_first ? "culprits=1" : "culprits=0"),
                      HasSubstr("unequal-iterations"), Not(HasSubstr("host-stall"))));
  }
  // Where nobody finished, the process of the other one may have died.
  EXPECT_THAT(judge({step + step + "cut", step + step + waits, step + step + waits}),
              AllOf(HasSubstr("host-stall"), HasSubstr("culprits=0")));
}

// Had rank 2 left out its message, rank 1 would lack the rest of the round.
TEST(Finished, ARankThatBeginsARoundAfterAllOthersWentOnAlone) {
  EXPECT_THAT(
      judge({kGroups + repeated(kTrains, 2) + "recv peer=2 n=8 open; hung",
             kGroups + repeated(kHelps, 2) + "clean", kGroups + repeated(kGenerates, 2) + "clean"}),
      HasSubstr("unequal-iterations error observed culprits=0"));
}

// The same where the message and the rest of the round are of one group.
TEST(Finished, AMessageOfTheGroupThatReducesMayBeginTheRound) {
  const std::string start = "backend nccl; ", reduces = "all_reduce n=4; ";
  EXPECT_THAT(
      judge({start + repeated("recv peer=2 n=8; " + reduces, 2) + "recv peer=2 n=8 open; hung",
             start + repeated(reduces, 2) + "clean",
             start + repeated("send peer=0 n=8; " + reduces, 2) + "clean"}),
      HasSubstr("unequal-iterations error observed culprits=0"));
}

TEST(Finished, ARankForWhichAWholeRoundWaitsEndedTooEarly) {
  EXPECT_THAT(judge({kGroups + repeated(kTrains, 2) + "recv peer=2 n=8 open; hung",
                     kGroups + repeated(kHelps, 2) + "all_reduce g=train n=4 open; hung",
                     kGroups + repeated(kGenerates, 2) + "clean"}),
              HasSubstr("culprits=2"));
}

// Where the message is the last call of a round, no rest of it is lacking.
TEST(Finished, AMessageThatEndsTheRoundMayHaveBeenLeftOut) {
  const std::string round = "all_reduce g=train n=4; recv peer=2 n=8; ";
  EXPECT_THAT(
      judge({kGroups + round + "all_reduce g=train n=4; recv peer=2 n=8 open; hung",
             kGroups + repeated(kHelps, 2) + "clean", std::string(kGroups) + kGenerates + "clean"}),
      Not(HasSubstr("culprits=0")));
}

// Rank 0 issued a whole round more, of which its two partners lack different calls.
TEST(Finished, OneRankThatWentOnExplainsWhatSeveralLack) {
  const std::string more = "recv peer=2 n=8 open; all_reduce g=train n=4 open; hung";
  EXPECT_THAT(judge({kGroups + repeated(kTrains, 2) + more, kGroups + repeated(kHelps, 2) + "clean",
                     kGroups + repeated(kGenerates, 2) + "clean"}),
              HasSubstr("culprits=0"));
}

// Ranks 0 and 1 generate texts, whose lengths differ, for ranks 2 and 3. Alone, the two would be a
// tie; that rank 3 waits for rank 1, too, tells who left out calls.
TEST(Finished, ARankForWhichOthersWaitInAnotherCallLeftItOut) {
  const auto text = [](int peer, int tokens) {
    const std::string prompt = fmt::format("recv peer={} n=8; ", peer);
    return prompt + prompt + repeated("all_reduce g=pair n=2; ", tokens) +
           fmt::format("send peer={} n=1; ", peer);
  };
  const auto prompts = [](int peer, int texts) {
    return repeated(fmt::format("send peer={0} n=8; send peer={0} n=8; recv peer={0} n=1; ", peer),
                    texts);
  };
  const std::string groups = "backend nccl; group pair 0,1; ";
  const auto past = [&](int peer) { return text(peer, 2) + text(peer, 1) + text(peer, 3); };
  EXPECT_THAT(judge({groups + past(2) +
                         "recv peer=2 n=8; recv peer=2 n=8; "
                         "all_reduce g=pair n=2 open; send peer=2 n=1; hung",
                     groups + past(3) + "recv peer=3 n=8; clean", groups + prompts(0, 4) + "clean",
                     groups + prompts(1, 3) + "send peer=1 n=8; send peer=1 n=8 open; hung"}),
              HasSubstr("culprits=1"));
}

// Five stages of a pipeline, whose rounds end with a reduction of all. Ranks 0 and 1 make one more
// reduction, after the messages of a round or, with `last`, after that.
std::string stages_that_finish_without(const std::string& last) {
  std::vector<std::string> out;
  for (int r = 0; r < 5; ++r) {
    std::string passes = "recv peer=P n=8; send peer=N n=8; recv peer=N n=8; send peer=P n=8; ";
    if (r == 0) passes = "send peer=N n=8; recv peer=N n=8; ";
    if (r == 4) passes = "recv peer=P n=8; send peer=P n=8; ";
    for (std::size_t at; (at = passes.find_first_of("PN")) != std::string::npos;)
      passes.replace(at, 1, std::to_string(passes[at] == 'P' ? r - 1 : r + 1));
    const std::string end = r < 2 ? "all_reduce n=4 open; hung" : "clean";
    out.push_back("backend nccl; " + repeated(passes + "all_reduce n=4; ", 2) +
                  (last.empty() ? passes : last) + end);
  }
  return judge(out);
}

// Rank 0 runs no program of those that finished, but rank 1 does: they ended before a call that
// came at the end of each of their rounds.
TEST(Finished, MostStagesThatEndWithinARoundMayHaveLeftOutACall) {
  EXPECT_THAT(stages_that_finish_without(""),
              HasSubstr("missing-collective error observed culprits=2-4"));
}

// The rounds were over: the few made one call more.
TEST(Finished, TheFewStagesThatGoOnAfterARoundWentOn) {
  EXPECT_THAT(stages_that_finish_without(" "), HasSubstr("culprits=0,1"));
}

}  // namespace
}  // namespace lockstep::verify
