// Loops that run as long as their data ask for: texts are generated token by token until they end,
// layers are dropped at random, parameters are averaged every few steps. How often a loop ran the
// last time is not a rule then.
#include <array>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string verdict_on(const std::vector<std::string>& ranks) {
  return summary(verify(program(ranks)));
}

// The calls of so many tokens of two layers in a tensor-parallel pair, then one of all ranks.
std::string text_of(int pair, int tokens, bool lines) {
  std::string out;
  for (int t = 0; t < tokens; ++t) {
    for (const int layer : {1, 2}) {
      out += fmt::format("all_reduce g=tp{} n=8{}; ", pair,
                         lines ? fmt::format(" at=attention.py:{}", layer) : "");
    }
  }
  return out + "all_gather_into_tensor n=16; ";
}

// Two pairs that generate texts of the given lengths; rank 1 makes a token more in the last one.
std::vector<std::string> pairs_that_generate(const std::vector<std::array<int, 2>>& lengths,
                                             bool lines) {
  std::vector<std::string> out;
  for (const int rank : {0, 1, 2, 3}) {
    const auto pair = static_cast<std::size_t>(rank / 2);
    std::string text =
        fmt::format("backend nccl; group tp{0} {1},{2} tp; ", pair, 2 * pair, 2 * pair + 1);
    for (std::size_t i = 0; i + 1 < lengths.size(); ++i)
      text += text_of(static_cast<int>(pair), lengths[i][pair], lines);
    const int last = lengths.back()[pair];
    std::string now = text_of(static_cast<int>(pair), last, lines);
    const std::string layer = fmt::format("all_reduce g=tp{} n=8", pair);
    const std::string line_1 = lines ? " at=attention.py:1" : "";
    const std::string line_2 = lines ? " at=attention.py:2" : "";
    if (rank == 1) {
      now = text_of(static_cast<int>(pair), last, lines);
      now.resize(now.rfind("all_gather"));
      now += layer + line_1 + " open; " + layer + line_2 + " open; ";
      now += "all_gather_into_tensor n=16 open; ";
    } else {
      now.insert(now.rfind(';'), " open");
    }
    out.push_back(text + now + "hung");
  }
  return out;
}

TEST(Loops, NobodyOfAPairIsBlamedForTheLengthOfAText) {
  for (const bool lines : {false, true}) {
    // One text before, shorter or longer; and several, each of its own length.
    for (const auto& lengths : std::vector<std::vector<std::array<int, 2>>>{
             {{3, 5}, {6, 4}}, {{9, 4}, {5, 6}, {7, 8}}, {{4, 6}, {7, 3}, {5, 9}, {6, 5}}}) {
      const std::string said = verdict_on(pairs_that_generate(lengths, lines));
      EXPECT_THAT(said, HasSubstr("error")) << lines;
      EXPECT_THAT(said, Not(HasSubstr("culprits"))) << lines;
    }
  }
}

// Ranks 0 and 1 send as many messages as a request needs to ranks 2 and 3; the last one is not
// received.
TEST(Loops, NobodyIsBlamedForTheNumberOfMessagesOfARequest) {
  const std::vector<int> requests = {2, 4, 1, 3};
  std::vector<std::string> ranks;
  for (const int rank : {0, 1, 2, 3}) {
    std::string text = "backend nccl; ";
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const bool last = i + 1 == requests.size();
      for (int k = 0; k < requests[i]; ++k) {
        if (last && rank == 3 && k + 1 == requests[i]) continue;
        const bool open = last && rank == 1 && k + 1 == requests[i];
        text += fmt::format("{} peer={} n=6{}; ", rank < 2 ? "send" : "recv", (rank + 2) % 4,
                            open ? " open" : "");
      }
      text += fmt::format("all_reduce n=4{}; ", last ? " open" : "");
    }
    ranks.push_back(text + "hung");
  }
  const std::string said = verdict_on(ranks);
  EXPECT_THAT(said, HasSubstr("error"));
  EXPECT_THAT(said, Not(HasSubstr("culprits=1 ")));
  EXPECT_THAT(said, Not(HasSubstr("culprits=0 ")));
}

TEST(Loops, OfOneLengthShowWhoMadeARoundTooMany) {
  for (const bool lines : {false, true}) {
    EXPECT_THAT(verdict_on(pairs_that_generate({{4, 4}, {4, 4}, {4, 4}}, lines)),
                HasSubstr("culprits=1 "))
        << lines;
  }
}

// FSDP's layers are gathered in each step, and for each token of a text between the steps. Rank 1's
// text ends early: its step's gathers meet those of rank 0's next tokens.
TEST(Loops, NobodyOfAPairIsBlamedForTheLengthOfTheFirstText) {
  const auto gathers = [](int rounds, const std::string& line) {
    std::string out;
    for (int i = 0; i < 3 * rounds; ++i) out += "all_gather_into_tensor n=536 at=" + line + "; ";
    return out;
  };
  const std::string backward =
      "all_gather_into_tensor n=536 at=t.py:40; all_gather_into_tensor n=536 at=t.py:40; "
      "reduce_scatter_tensor n=1072 at=t.py:40";
  const std::string step = "all_gather_into_tensor n=68 at=t.py:39; " + gathers(1, "t.py:27") +
                           backward + "; all_reduce n=14 at=t.py:41; ";
  const std::string begin = step + step + "all_gather_into_tensor n=68 at=t.py:105; ";
  const std::string said = verdict_on({begin + gathers(4, "t.py:27") +
                                           "all_gather_into_tensor n=536 at=t.py:27; "
                                           "all_gather_into_tensor n=536 at=t.py:27; "
                                           "all_gather_into_tensor n=536 at=t.py:27 open; hung",
                                       begin + gathers(4, "t.py:27") + backward + " open; hung"});
  EXPECT_THAT(said, HasSubstr("error"));
  EXPECT_THAT(said, Not(HasSubstr("culprits")));
  // Where steps alone have such a loop, a longer one is a round too many.
  const std::string steps = step + step + step + "all_gather_into_tensor n=68 at=t.py:39; ";
  EXPECT_THAT(verdict_on({steps + gathers(1, "t.py:27") + backward + "; all_reduce n=14 open; hung",
                          steps + gathers(1, "t.py:27") +
                              "all_gather_into_tensor n=536 at=t.py:27; "
                              "all_gather_into_tensor n=536 at=t.py:27; "
                              "all_gather_into_tensor n=536 at=t.py:27 open; hung"}),
              HasSubstr("culprits=1 "));
}

// Four layers of FSDP, without those that all ranks drop in that step.
std::string layers_without(int dropped) {
  std::string out;
  for (int l = 0; l < 4; ++l)
    if (l != dropped) out += fmt::format("all_gather_into_tensor n=10{}; ", l);
  for (int l = 3; l >= 0; --l)
    if (l != dropped) out += fmt::format("reduce_scatter_tensor n=10{}; ", l);
  return out;
}

TEST(Loops, TheFewThatDropALayerAreNotRightBecauseAllDroppedItBefore) {
  const std::string past =
      layers_without(-1) + layers_without(1) + "all_gather_into_tensor n=100; ";
  const std::string usual = past + "all_gather_into_tensor n=101 open; hung";
  const std::string drops = past + "all_gather_into_tensor n=102 open; hung";
  EXPECT_THAT(verdict_on({usual, drops, usual, usual, drops, drops, usual, usual}),
              HasSubstr("culprits=1,4,5 "));
}

// Four ranks that average in pairs every third step, over NCCL, where hosts go on.
std::vector<std::string> averaging(const std::string& of_rank_0, const std::string& of_others,
                                   const std::string& end_of_0, const std::string& end_of_others) {
  std::vector<std::string> out;
  for (const int rank : {0, 1, 2, 3}) {
    std::string text =
        fmt::format("backend nccl; group dp{0} {1} dp; group outer{2} {3} outer; ", rank / 2,
                    rank < 2 ? "0,1" : "2,3", rank % 2, rank % 2 == 0 ? "0,2" : "1,3");
    std::string calls = rank == 0 ? of_rank_0 : of_others;
    for (std::size_t at = 0; (at = calls.find_first_of("*#", at)) != std::string::npos;) {
      const bool inner = calls[at] == '*';
      const std::string call = inner ? fmt::format("all_reduce g=dp{} n=30", rank / 2)
                                     : fmt::format("all_reduce g=outer{} n=90", rank % 2);
      calls.replace(at, 1, call);
      at += call.size();
    }
    out.push_back(text + calls + (rank == 0 ? end_of_0 : end_of_others));
  }
  return out;
}

TEST(Loops, ACallLeftOutAmongEqualOnesIsToldWhereItWasLeftOut) {
  // Rank 0 leaves out the second average. Its third one meets the second one of rank 2.
  std::vector<std::string> ranks =
      averaging("*; *; #; *; *; *; *; #; ", "*; *; #; *; *; #; *; *; #; ", "clean", "clean");
  ranks[2].replace(ranks[2].rfind("n=90"), 4, "n=90 open");
  ranks[2].replace(ranks[2].rfind("clean"), 5, "hung");
  EXPECT_THAT(verdict_on(ranks),
              HasSubstr("missing-collective error observed culprits=0 group=outer0 seq=1"));
}

TEST(Loops, TheOneOfTwoUnlikeSisterGroupsIsNamed) {
  const std::string usual =
      "* step=0; * step=1; # step=1; * step=2; * step=3; # step=3; * step=4; * step=5; # step=5; ";
  const std::string early =
      "* step=0; * step=1; # step=1; * step=2; # step=2; * step=3; * step=4; # step=4; * step=5; ";
  const std::string said = verdict_on(averaging(early, usual, "clean", "clean"));
  EXPECT_THAT(said, HasSubstr("step-mismatch"));
  EXPECT_THAT(said, HasSubstr("culprits=0 "));
  EXPECT_EQ(verdict_on(averaging(usual, usual, "clean", "clean")), "verdict clean");
}

TEST(Loops, StagesOfAPipelineThatLeftOutACallAreJudgedByTheirOwnPasts) {
  // Most ranks leave out the norm of the last step; their programs differ from the first message.
  const auto stage = [](int rank, bool skips) {
    std::string out = "group pp 0,1,2; ";
    for (int s = 0; s < 4; ++s) {
      const std::string step = fmt::format(" step={}", s);
      const bool now = s == 3;
      if (rank > 0)
        out +=
            fmt::format("recv g=pp peer={} n=4{}{}; ", rank - 1, step, now && skips ? " open" : "");
      if (now && skips) break;
      if (rank < 2) out += fmt::format("send g=pp peer={} n=4{}; ", rank + 1, step);
      if (s == 2 && skips) continue;
      out += "all_reduce n=1" + step + (s == 2 ? " open; " : "; ");
      if (s == 2) break;
    }
    return out + "hung";
  };
  EXPECT_THAT(verdict_on({stage(0, false), stage(1, true), stage(2, true)}),
              HasSubstr("culprits=1,2 "));
}

// Two expert groups of four. Three ranks of the second one leave out an exchange that the fourth
// makes, as all ranks of the first group do.
TEST(Loops, MostOfAGroupMayBeFewOfThoseThatRunTheProgram) {
  std::vector<std::string> ranks;
  for (int r = 0; r < 8; ++r) {
    const std::string g = fmt::format("ep{}", r / 4);
    const std::string round = fmt::format(
        "all_to_all_single g={0} n=4 at=moe.py:1; all_to_all_single g={0} n=4 "
        "at=moe.py:2; all_to_all_single g={0} n=4 at=moe.py:2; ",
        g);
    std::string text =
        fmt::format("backend nccl; group {} {} ep; ", g, r < 4 ? "0,1,2,3" : "4,5,6,7");
    for (int s = 0; s < 2; ++s) text += round + "all_reduce n=9; ";
    const bool skips = r > 4;
    text += fmt::format(
        "all_to_all_single g={0} n=4 at=moe.py:1; all_to_all_single g={0} n=4 "
        "at=moe.py:2; ",
        g);
    if (!skips)
      text += fmt::format("all_to_all_single g={} n=4 at=moe.py:2{}; ", g, r == 4 ? " open" : "");
    ranks.push_back(text + "all_reduce n=9 open; hung");
  }
  EXPECT_THAT(verdict_on(ranks), HasSubstr("missing-collective error observed culprits=5-7 "));
}

// The later steps show that each generates as many tokens as its texts need, so that nothing tells
// which of the two generated the wrong number in step 1.
TEST(Loops, ThatVaryInLaterStepsTellNothingOfAnEarlierOne) {
  const auto step = [](int number, int tokens) {
    return repeated(fmt::format("all_reduce n=64 at=decode.py:1 step={}; ", number), tokens);
  };
  const std::string begin = step(0, 1);
  const std::string hangs = "all_reduce n=64 at=decode.py:1 step=2 open; hung";
  EXPECT_THAT(verdict_on({begin + step(1, 2) + step(2, 4) + "clean",
                          begin + step(1, 3) + step(2, 3) + hangs}),
              Not(HasSubstr("culprits")));
  // Steps of one length: rank 1 made a call too many.
  const std::string two = step(0, 2);
  EXPECT_THAT(
      verdict_on({two + step(1, 2) + step(2, 2) + "clean", two + step(1, 3) + step(2, 1) + hangs}),
      HasSubstr("extra-collective error proven culprits=1 "));
}

}  // namespace
}  // namespace lockstep::verify
