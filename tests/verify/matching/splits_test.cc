// All-to-alls: their splits, and exchanges that were left out or made in another order.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/program.h"
#include "trace/ids.h"
#include "verify/verify.h"

namespace lockstep::verify {
namespace {

using ::testing::HasSubstr;

TEST(Splits, SplitsThatDoNotFitThoughTotalsDo) {
  EXPECT_THAT(judge({"all_to_all_single n=4 in_splits=1,3 out_splits=2,2; clean",
                     "all_to_all_single n=4 in_splits=1,3 out_splits=3,1; clean"}),
              HasSubstr("splits-mismatch error observed culprits=0,1 group=world seq=0"));
}

// Not every source records splits. What comes back in another size than it went was split unevenly.
TEST(Splits, ExchangesOfDifferentSizesHaveSplitsThatWereNotRecorded) {
  EXPECT_EQ(judge({"all_to_all_single in=4 out=6; clean", "all_to_all_single in=5 out=3; clean"}),
            "verdict clean");
  EXPECT_THAT(judge({"all_to_all_single in=4 out=4; clean", "all_to_all_single in=8 out=8; clean"}),
              HasSubstr("size-mismatch"));
}

// Rank 3 has not come to the barrier of the checkpoint. All go on alike in the world.
TEST(Splits, RanksThatGoOnAlikeMadeNoExchangeMore) {
  const std::string begin = "backend nccl; group save 0,1,2,3; all_reduce n=8; ";
  const std::string barrier = "barrier g=save async open; ";
  const std::string end = "all_reduce n=8 async open; hung";
  const auto exchanges = [](int in, int out) {
    return fmt::format(
        "all_to_all_single in={0} out={1} async open; all_to_all_single in={1} out={0} async "
        "open; ",
        in, out);
  };
  EXPECT_THAT(
      judge({begin + barrier + exchanges(4, 6) + end, begin + barrier + exchanges(5, 4) + end,
             begin + barrier + exchanges(7, 9) + end, begin + exchanges(5, 4) + end}),
      HasSubstr("splits-mismatch error observed group=world seq=1"));
}

TEST(Splits, SplitsThatDoNotFitWithinOneRankNameItOnce) {
  const Report report =
      verify(program({"all_to_all_single n=4 in_splits=2,2 out_splits=1,3; clean",
                      "all_to_all_single n=4 in_splits=3,1 out_splits=2,1; clean"}));
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].ranks, std::vector{trace::Rank(0)});
  EXPECT_EQ(report.findings[0].culprits, std::vector{trace::Rank(0)});
  EXPECT_THAT(report.findings[0].message, HasSubstr("rank 0 sends 2 to itself, and expects 1"));
}

// Ranks 0 and 1 exchange 4, then 8; rank 2 the other way round.
TEST(Splits, ExchangesInTheOtherOrderAreASwap) {
  const std::string four = "all_to_all_single n=4 in_splits=2,1,1 out_splits=2,1,1; ";
  const std::string eight = "all_to_all_single n=8 in_splits=2,3,3 out_splits=2,3,3; ";
  const std::string four_2 = "all_to_all_single n=4 in_splits=1,1,2 out_splits=1,1,2; ";
  const std::string eight_2 = "all_to_all_single n=8 in_splits=3,3,2 out_splits=3,3,2; ";
  const std::string four_1 = "all_to_all_single n=4 in_splits=1,2,1 out_splits=1,2,1; ";
  const std::string eight_1 = "all_to_all_single n=8 in_splits=3,2,3 out_splits=3,2,3; ";
  EXPECT_THAT(judge({four + eight + four + "clean", four_1 + eight_1 + four_1 + "clean",
                     eight_2 + four_2 + four_2 + "clean"}),
              HasSubstr("order-swap error observed culprits=2 group=world seq=0"));
  // The look-alike: of exchanges that alternate, rank 2 left out the first.
  EXPECT_THAT(
      judge({four + eight + four + eight + "clean", four_1 + eight_1 + four_1 + eight_1 + "clean",
             eight_2 + four_2 + eight_2 + "clean"}),
      HasSubstr("missing-collective error observed culprits=2 group=world seq=0"));
}

// Rows of four exchanges, of which ranks 0 and 1 leave out the first one in the third round. That
// rank 2 makes one more is what its rounds before show.
TEST(Splits, ThePastTellsThatMostLeftOutAnExchange) {
  const auto row = [](const std::string& four, const std::string& eight) {
    const std::string pair = "all_to_all_single n=4 in_splits=" + four + " out_splits=" + four +
                             "; all_to_all_single n=8 in_splits=" + eight + " out_splits=" + eight +
                             "; ";
    return pair + pair;
  };
  const auto rank = [&](const std::string& four, const std::string& eight, bool leaves_out) {
    const std::string whole = row(four, eight);
    const std::string last = leaves_out ? whole.substr(whole.find(';') + 2) : whole;
    const std::string reduce = "all_reduce g=dp n=1";
    return "group dp 0,1,2; " + whole + reduce + "; " + whole + reduce + "; " + last +
           (leaves_out ? reduce + " open; hung" : "hung");
  };
  const auto judge_ranks = [&](bool one, bool other) {
    return judge(
        {rank("2,1,1", "2,3,3", one), rank("1,2,1", "3,2,3", one), rank("1,1,2", "3,3,2", other)});
  };
  EXPECT_THAT(judge_ranks(true, false),
              HasSubstr("missing-collective error proven culprits=0,1 group=world seq=8"));
  EXPECT_THAT(judge_ranks(false, true),
              HasSubstr("missing-collective error proven culprits=2 group=world seq=8"));
}

TEST(Splits, SplitsThatFit) {
  EXPECT_EQ(judge({"all_to_all_single n=4 in_splits=1,3 out_splits=1,2; clean",
                   "all_to_all_single n=4 in_splits=2,2 out_splits=3,2; clean"}),
            "verdict clean");
}

// The exchanges of five ranks: how much each sends to each differs from round to round.
std::string exchange(std::size_t rank, std::size_t round) {
  const auto sent = [&](std::size_t from, std::size_t to) {
    return std::to_string(1 + (from * 7 + to * 3 + round * (5 + from + 2 * to)) % 11);
  };
  std::string given, taken;
  for (std::size_t peer = 0; peer < 5; ++peer) {
    given += (peer == 0 ? "" : ",") + sent(rank, peer);
    taken += (peer == 0 ? "" : ",") + sent(peer, rank);
  }
  return "all_to_all_single in_splits=" + given + " out_splits=" + taken;
}

std::string exchanges(const std::vector<std::size_t>& skips, const std::string& more = "") {
  std::vector<std::string> programs;
  for (std::size_t r = 0; r < 5; ++r) {
    std::string text = "backend nccl; " + exchange(r, 0) + " async; ";
    const bool skip = std::find(skips.begin(), skips.end(), r) != skips.end();
    if (!skip) text += exchange(r, 1) + " async open; ";
    programs.push_back(text + exchange(r, 2) + " async open; " + more + "hung");
  }
  return judge(programs);
}

TEST(Splits, OfSeveralRanksThatLeftOutAnExchangeFitThoseOfTheNextOne) {
  EXPECT_THAT(exchanges({3}), HasSubstr("missing-collective error observed culprits=3 "));
  EXPECT_THAT(exchanges({1, 3}), HasSubstr("missing-collective error observed culprits=1,3 "));
  // The look-alike: nobody left out one, and nothing shows why it does not complete.
  EXPECT_THAT(exchanges({}), HasSubstr("device-stall error observed group=world seq=1"));
}

}  // namespace
}  // namespace lockstep::verify
