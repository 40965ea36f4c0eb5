// Lists of ranks: values that are shared, and what is known of them.
#include "trace/rank_list.h"

#include <initializer_list>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"

namespace lockstep::trace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Rank> ranks(std::initializer_list<std::int32_t> values) {
  std::vector<Rank> out;
  for (const std::int32_t value : values) out.emplace_back(value);
  return out;
}

TEST(RankList, KnowsItsMembers) {
  const RankList list(ranks({1, 4, 9, 12}));
  EXPECT_THAT(list, ElementsAre(Rank(1), Rank(4), Rank(9), Rank(12)));
  EXPECT_TRUE(list.contains(Rank(9)));
  EXPECT_FALSE(list.contains(Rank(5)));
  EXPECT_FALSE(list.contains(Rank(0)));
  EXPECT_FALSE(list.contains(Rank(13)));
  EXPECT_EQ(list.index_of(Rank(1)), 0U);
  EXPECT_EQ(list.index_of(Rank(9)), 2U);
  EXPECT_EQ(list.index_of(Rank(12)), 3U);
  EXPECT_EQ(list.index_of(Rank(5)), std::nullopt);
  EXPECT_EQ(list.index_of(Rank(-1)), std::nullopt);
  EXPECT_EQ(list.lowest(), Rank(1));
  EXPECT_EQ(list.highest(), Rank(12));
  EXPECT_TRUE(list.distinct());
}

TEST(RankList, ItsOrderIsTheGroupsOrder) {
  const RankList list(ranks({9, 1, 12, 4}));
  EXPECT_THAT(list, ElementsAre(Rank(9), Rank(1), Rank(12), Rank(4)));
  EXPECT_TRUE(list.contains(Rank(4)));
  EXPECT_FALSE(list.contains(Rank(5)));
  EXPECT_EQ(list.index_of(Rank(9)), 0U);
  EXPECT_EQ(list.index_of(Rank(1)), 1U);
  EXPECT_EQ(list.index_of(Rank(4)), 3U);
  EXPECT_EQ(list.index_of(Rank(5)), std::nullopt);
  EXPECT_EQ(list.lowest(), Rank(1));
  EXPECT_EQ(list.highest(), Rank(12));
  EXPECT_TRUE(list.distinct());
  EXPECT_NE(list, RankList(ranks({1, 4, 9, 12})));
}

TEST(RankList, ARankTwice) {
  EXPECT_FALSE(RankList(ranks({0, 1, 1})).distinct());
  const RankList twice(ranks({1, 0, 2, 1}));
  EXPECT_FALSE(twice.distinct());
  EXPECT_EQ(twice.index_of(Rank(1)), 0U);
  EXPECT_EQ(twice.index_of(Rank(2)), 2U);
}

TEST(RankList, AnEmptyOneHoldsNobody) {
  const RankList none;
  EXPECT_THAT(none, IsEmpty());
  EXPECT_FALSE(none.contains(Rank(0)));
  EXPECT_EQ(none.index_of(Rank(0)), std::nullopt);
  EXPECT_TRUE(none.distinct());
  EXPECT_EQ(none, RankList(std::vector<Rank>{}));
  EXPECT_LT(none, RankList(ranks({0})));
}

TEST(RankList, OrderAndEqualityAreThoseOfTheRanks) {
  const RankList a(ranks({0, 2}));
  const RankList b(ranks({0, 2}));
  EXPECT_NE(a.identity(), b.identity());
  EXPECT_EQ(a, b);
  EXPECT_LT(a, RankList(ranks({0, 2, 3})));
  EXPECT_LT(a, RankList(ranks({1})));
}

TEST(RankLists, GiveEqualListsAsOneObject) {
  RankLists lists;
  const std::vector<Rank> some = ranks({0, 1, 2, 3, 4});
  const RankList a = lists.intern(some);
  EXPECT_EQ(lists.intern(ranks({0, 1, 2, 3, 4})).identity(), a.identity());
  EXPECT_NE(lists.intern(ranks({0, 1, 2, 4, 3})).identity(), a.identity());
  EXPECT_NE(lists.intern(ranks({0, 1, 2, 3})).identity(), a.identity());
  EXPECT_EQ(lists.share(RankList(some)).identity(), a.identity());
  const RankList fresh(ranks({7}));
  EXPECT_EQ(lists.share(fresh).identity(), fresh.identity());
  EXPECT_EQ(lists.intern(ranks({7})).identity(), fresh.identity());
  EXPECT_EQ(lists.size(), 4U);
}

TEST(RankLists, GiveEmptyListsWithoutKeepingThem) {
  RankLists lists;
  EXPECT_THAT(lists.intern(std::vector<Rank>{}), IsEmpty());
  EXPECT_THAT(lists.share(RankList()), IsEmpty());
  EXPECT_EQ(lists.size(), 0U);
}

// A gigabyte in a world of 16,384 ranks, if each had its own.
TEST(RankLists, ARunHoldsEachListOnce) {
  const auto rank = [](int r) {
    return header_line(r, 3) + world_line(3) + group_line("all again", {0, 1, 2}) +
           end_line("clean");
  };
  const trace::Run run = run_from_text({rank(0), rank(1), rank(2)});
  const void* const one = run.ranks[0].groups[0].ranks.identity();
  for (const RankTrace& trace : run.ranks) {
    for (const auto& membership : trace.groups) EXPECT_EQ(membership.ranks.identity(), one);
  }
}

TEST(RankRanges, AreFewWhereRanksHaveOneDistance) {
  const auto ranges_of = [](std::initializer_list<std::int32_t> values) {
    return as_ranges(RankList(ranks(values)));
  };
  EXPECT_THAT(ranges_of({}), IsEmpty());
  EXPECT_THAT(ranges_of({7}), ElementsAre(RankRange{7, 7, 1}));
  EXPECT_THAT(ranges_of({0, 1, 2, 3}), ElementsAre(RankRange{0, 3, 1}));
  EXPECT_THAT(ranges_of({1, 4, 7, 8, 9}), ElementsAre(RankRange{1, 7, 3}, RankRange{8, 9, 1}));
  EXPECT_THAT(ranges_of({5, 1}), ElementsAre(RankRange{5, 5, 1}, RankRange{1, 1, 1}));
}

TEST(RankRanges, GiveTheirListBack) {
  RankLists lists;
  for (const auto& values : {ranks({0, 2, 4, 9, 10, 11, 3}), ranks({8, 8, 1}), ranks({6})}) {
    const RankList list = lists.intern(values);
    EXPECT_EQ(lists.intern(as_ranges(list)).value().identity(), list.identity());
  }
}

TEST(RankRanges, DoNotNameMoreThanFitsIntoMemory) {
  RankLists lists;
  const auto most = static_cast<std::int32_t>(RankLists::kMaxExpanded);
  ASSERT_TRUE(lists.intern(std::vector<RankRange>{{0, most - 2, 1}}));
  ASSERT_TRUE(lists.intern(std::vector<RankRange>{{0, most - 2, 1}}));  // known
  EXPECT_FALSE(lists.intern(std::vector<RankRange>{{0, 1, 1}}));
  EXPECT_TRUE(lists.intern(std::vector<RankRange>{{3, 3, 1}}));
}

}  // namespace
}  // namespace lockstep::trace
