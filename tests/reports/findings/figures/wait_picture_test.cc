#include "reports/findings/figures/wait_picture.h"

#include <algorithm>
#include <set>
#include <utility>

#include <gmock/gmock.h>

#include "reports/findings/figures/figures.h"
#include "tests/reports/inline_run.h"
#include "verify/verify.h"

namespace lockstep::reports {
namespace {

WaitPicture picture(const trace::Run& run) { return wait_picture(verify::verify(run), run); }

std::string on_group(int id, const std::string& group) { return issue_line(id, group, "barrier"); }
const std::string kTwoGroups = group_line("a", {0, 1}) + group_line("b", {0, 1});

TEST(WaitPicture, OfACleanRunIsEmpty) {
  const std::string rank = all_reduce(0, "w", 8) + complete(0) + kClean;
  const WaitPicture empty = picture(inline_run({rank, rank}));
  EXPECT_TRUE(empty.nodes.empty());
  EXPECT_TRUE(empty.edges.empty());
}

TEST(WaitPicture, RanksThatWaitForTheSameShareANode) {
  const std::string waits = all_reduce(0, "w", 8) + kHung;
  const WaitPicture hang = picture(inline_run({waits, kClean, waits, waits}));
  ASSERT_EQ(hang.nodes.size(), 2U);
  EXPECT_EQ(hang.nodes[0].ranks, ranks_of({0, 2, 3}));
  EXPECT_EQ(hang.nodes[0].call, "all_reduce(w)");
  EXPECT_EQ(hang.nodes[0].location, "group world, seq 0");
  EXPECT_EQ(hang.nodes[0].state, "waits");
  EXPECT_FALSE(hang.nodes[0].culprit);
  EXPECT_EQ(hang.nodes[1].ranks, ranks_of({1}));
  EXPECT_EQ(hang.nodes[1].state, "finished");
  EXPECT_TRUE(hang.nodes[1].culprit);
  ASSERT_EQ(hang.edges.size(), 1U);
  EXPECT_EQ(hang.edges[0].from, 0U);
  EXPECT_EQ(hang.edges[0].to, 1U);
  EXPECT_EQ(hang.edges[0].kind, WaitEdge::Kind::missing);
}

// Over NCCL, rank 0 has issued b, in which rank 2 waits, but its device is held up by a.
TEST(WaitPicture, ARankWhoseDeviceIsBehindIsWaitedFor) {
  const LineKeys nccl = {{"backend", "nccl"}};
  const std::string a = group_line("a", {0, 1}, nccl), b = group_line("b", {0, 2}, nccl);
  const auto call = [](int id, const std::string& group) {
    return issue_line(id, group, "all_reduce",
                      {{"in", {{8}}}, {"dtype", "float32"}, {"async", true}});
  };
  const std::string before = call(0, "a") + complete(0), first = call(0, "b") + complete(0);
  trace::Run run =
      inline_run({a + b + before + call(1, "b") + complete(1) + call(2, "a") + call(3, "b") + kHung,
                  a + before + kHung, b + first + call(1, "b") + kHung});
  for (trace::RankTrace& trace : run.ranks) trace.snapshot = true;
  const WaitPicture hang = picture(run);
  const auto node_of = [&](std::int32_t rank) {
    const auto found =
        std::find_if(hang.nodes.begin(), hang.nodes.end(),
                     [&](const WaitNode& node) { return node.ranks == ranks_of({rank}); });
    return static_cast<std::size_t>(found - hang.nodes.begin());
  };
  ASSERT_EQ(hang.nodes.size(), 3U);
  ASSERT_EQ(hang.edges.size(), 2U);
  std::set<std::pair<std::size_t, std::size_t>> edges;
  for (const WaitEdge& edge : hang.edges) edges.insert({edge.from, edge.to});
  EXPECT_TRUE(edges.contains({node_of(2), node_of(0)}));
  EXPECT_TRUE(edges.contains({node_of(0), node_of(1)}));
}

TEST(WaitFigure, ASizeIsNotCutForWhatIsReduced) {
  WaitPicture two;
  two.nodes = {{.ranks = {trace::Rank(1)},
                .call = "all_reduce of 134217728 bfloat16 (sum)",
                .location = "group world, seq 3",
                .state = "waits"},
               {.ranks = {trace::Rank(0)},
                .call = "",
                .location = "",
                .state = "no trace",
                .culprit = true}};
  two.edges = {{0, 1, WaitEdge::Kind::missing}};
  EXPECT_THAT(html::wait_figure(two), testing::HasSubstr(">all_reduce of 134217728 bfloat16<"));
}

TEST(WaitPicture, ACycleHasItsEdgesInBothDirections) {
  const WaitPicture cycle = picture(
      inline_run({kTwoGroups + on_group(0, "a") + kHung, kTwoGroups + on_group(0, "b") + kHung}));
  ASSERT_EQ(cycle.nodes.size(), 2U);
  EXPECT_EQ(cycle.nodes[0].location, "group a, seq 0");
  EXPECT_EQ(cycle.nodes[1].location, "group b, seq 0");
  ASSERT_EQ(cycle.edges.size(), 2U);
  EXPECT_NE(cycle.edges[0].from, cycle.edges[1].from);
}

TEST(WaitPicture, CallsThatDoNotFitSplitTheNode) {
  const WaitPicture mismatch =
      picture(inline_run({all_reduce(0, "w", 8) + kHung, all_reduce(0, "w", 9) + kHung}));
  ASSERT_EQ(mismatch.nodes.size(), 2U);
  ASSERT_EQ(mismatch.edges.size(), 1U);
  EXPECT_EQ(mismatch.edges[0].kind, WaitEdge::Kind::mismatch);
}

TEST(WaitPicture, ARankWithoutATraceMayBeThere) {
  const WaitPicture missing = picture(inline_run({all_reduce(0, "w", 8) + kHung, ""}));
  ASSERT_EQ(missing.nodes.size(), 2U);
  EXPECT_EQ(missing.nodes[1].state, "no trace");
  EXPECT_EQ(missing.nodes[1].ranks, ranks_of({1}));
  ASSERT_EQ(missing.edges.size(), 1U);
  EXPECT_EQ(missing.edges[0].kind, WaitEdge::Kind::unknown);
}

TEST(WaitPicture, SaysWhatBecameOfThoseWaitedFor) {
  const std::string waits = all_reduce(0, "w", 8) + kHung;
  for (const auto& [end, words] : std::vector<std::pair<std::string, std::string>>{
           {"{\"end\":\"killed\"}\n", "killed"},
           {"{\"end\":\"exception\"}\n", "raised an exception"},
           {kHung, "hung outside of a recorded call"},
           {"", "trace ends here"}}) {
    const WaitPicture hang = picture(inline_run({waits, R"({"ev":"step","n":0})"
                                                        "\n" +
                                                            end}));
    ASSERT_EQ(hang.nodes.size(), 2U) << words;
    EXPECT_EQ(hang.nodes[1].state, words);
  }
}

}  // namespace
}  // namespace lockstep::reports
