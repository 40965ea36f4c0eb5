// One rank's trace for many: what is shared, and what is a rank's own.
#include "trace/spread.h"

#include <gmock/gmock.h>

#include "tests/support/trace_lines.h"
#include "tests/support/trace_text.h"

namespace lockstep::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Column, IsSharedUntilOneOfItsCopiesIsChanged) {
  Column<int> a(std::vector<int>{1, 2});
  Column<int> b = a;
  EXPECT_EQ(a.identity(), b.identity());
  EXPECT_TRUE(a.is_shared());
  b.push_back(3);
  EXPECT_NE(a.identity(), b.identity());
  EXPECT_THAT(a, ElementsAre(1, 2));
  EXPECT_THAT(b, ElementsAre(1, 2, 3));
  EXPECT_FALSE(a.is_shared());
  const void* const own = b.identity();
  b.own()[0] = 7;
  EXPECT_EQ(b.identity(), own);
  b.clear();
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(Column<int>().identity(), nullptr);
}

// Rank 2 of six, in copies of two: groups of its copy and across the copies, a message, a root.
std::string rank_2() {
  return R"({"header":1,"rank":2,"world_size":6}
{"group":"world","ranks":[0,1,2,3,4,5]}
{"group":"shard1","ranks":[2,3]}
{"group":"place0","ranks":[0,2,4]}
{"ev":"data","n":0,"indices":[5]}
{"ev":"issue","id":0,"g":"shard1","op":"broadcast","root":3,"in":[[1]]}
{"ev":"issue","id":1,"g":"place0","op":"all_reduce","in":[[1]]}
{"ev":"issue","id":2,"g":"world","op":"send","peer":3,"in":[[1]]}
{"end":"clean"})";
}

TEST(Spread, MovesARankToItsCopy) {
  const auto one = [](int rank, int other) {
    return header_line(rank, 6) + world_line(6) +
           issue_line(0, "world", "recv", {{"peer", other}, {"in", {{1}}}}) + end_line("clean");
  };
  trace::Run run = run_from_text({one(0, 1), one(1, 0), rank_2(), one(3, 2)});
  const Result<trace::Run> all = spread(std::move(run), {0, 1, 2, 3, 2, 3}, 2);
  ASSERT_TRUE(all) << all.error().str();
  const RankTrace& moved = all->ranks[4];
  EXPECT_EQ(moved.rank, Rank(4));
  const auto name = [&](GroupId group) { return all->tables.str(group); };
  EXPECT_EQ(name(moved.groups[1].group), "shard2");
  EXPECT_THAT(moved.groups[1].ranks, ElementsAre(Rank(4), Rank(5)));
  EXPECT_EQ(name(moved.groups[2].group), "place0");
  EXPECT_EQ(name(moved.calls[0].group), "shard2");
  EXPECT_EQ(all->tables.signatures[moved.calls[0].signature].root, 5);
  EXPECT_EQ(name(moved.calls[1].group), "place0");
  EXPECT_EQ(moved.calls[2].peer, Rank(5));
  EXPECT_TRUE(moved.data.empty());
  EXPECT_EQ(moved.events.size(), 3U);
  EXPECT_EQ(all->ranks[2].events.size(), 4U);  // what was traced stays as it is
  EXPECT_EQ(all->ranks[2].calls[2].peer, Rank(3));
}

TEST(Spread, RanksThatDoTheSameShareTheirColumns) {
  const std::string text = R"({"header":1,"rank":0,"world_size":4}
{"ev":"issue","id":0,"g":"world","op":"barrier"}
{"end":"clean"})";
  const Result<trace::Run> all = spread(run_from_text({text}), {0, 0, 0, 0});
  ASSERT_TRUE(all) << all.error().str();
  EXPECT_EQ(all->ranks[1].calls.identity(), all->ranks[3].calls.identity());
  EXPECT_EQ(all->ranks[1].events.identity(), all->ranks[3].events.identity());
}

TEST(Spread, RefusesARankThatCannotRepresentAnother) {
  const auto refused = [](const std::string& lines, std::int32_t copy_ranks) {
    const std::string text = "{\"header\":1,\"rank\":0,\"world_size\":4}\n" + lines;
    const Result<trace::Run> all = spread(run_from_text({text}), {0, 0, 0, 0}, copy_ranks);
    return all ? std::string("accepted") : all.error().message;
  };
  const std::string message = R"({"ev":"issue","id":0,"g":"world","op":"send","peer":1})";
  EXPECT_THAT(refused(message, 0), HasSubstr("messages to single ranks"));
  EXPECT_THAT(refused(R"({"group":"g","ranks":[0,1]})", 0), HasSubstr("does not include it"));
  EXPECT_THAT(refused("", 2), HasSubstr("another index in its copy"));
  EXPECT_EQ(refused(message, 1),
            "the trace of rank 0 cannot be used for rank 1: it sends messages to another copy of "
            "the model");
}

}  // namespace
}  // namespace lockstep::trace
