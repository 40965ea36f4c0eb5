#include "reports/live/state.h"

#include <gtest/gtest.h>

#include "tests/reports/inline_run.h"
#include "tests/support/trace_lines.h"
#include "verify/verify.h"

namespace lockstep::reports {
namespace {

using Doing = WatchedRank::Doing;

std::string at(const char* event, int id, long t) { return event_line(event, id, {{"t", t}}); }
std::string issue(int id, long t, const std::string& what = "w") {
  return all_reduce(id, what, 8, {{"t", t}, {"async", true}, {"at", "a.py:3"}});
}
// Issued, waited for, and done.
std::string whole(int id, long t) {
  return issue(id, t) + at("wait", id, t + 1) + at("complete", id, t + 2) + at("waited", id, t + 3);
}
std::string step(int n, long t) { return json_line({{"ev", "step"}, {"n", n}, {"t", t}}); }

WatchState state_of(const trace::Run& run, trace::Nanos now, bool live = true) {
  return watch_state(run, verify::verify(run, {.live = live}), now, live);
}

TEST(WatchState, RanksAtWorkWaitForNobody) {
  const auto run = inline_run({whole(0, 10) + step(0, 20), whole(0, 10) + step(0, 25)});
  const WatchState state = state_of(run, 100);
  ASSERT_EQ(state.ranks.size(), 2U);
  for (const WatchedRank& r : state.ranks) {
    EXPECT_EQ(r.doing, Doing::works);
    EXPECT_EQ(r.steps, 1);
    EXPECT_EQ(r.call, "all_reduce(w)");
    EXPECT_EQ(r.group, "world");
    EXPECT_EQ(r.at, "a.py:3");
    EXPECT_TRUE(r.waits_for.empty());
    EXPECT_EQ(r.behind, 0);
  }
  EXPECT_EQ(state.ranks[0].quiet, 80);
  EXPECT_EQ(state.ranks[1].quiet, 75);
  EXPECT_EQ(state.steps(), 1);
}

TEST(WatchState, AnAwaitedRankIsBehindByAtLeastTheWait) {
  const std::string waits = whole(0, 10) + issue(1, 50, "v") + at("wait", 1, 51);
  const auto run = inline_run({waits, whole(0, 10), waits});
  const WatchState state = state_of(run, 1050);
  EXPECT_EQ(state.ranks[0].doing, Doing::waits);
  EXPECT_EQ(state.ranks[0].waits_for, ranks_of({1}));
  EXPECT_EQ(state.ranks[0].call, "all_reduce(v)");
  EXPECT_EQ(state.ranks[0].seq, 1U);
  EXPECT_EQ(state.ranks[1].doing, Doing::works);
  EXPECT_EQ(state.ranks[1].behind, 1000);
  EXPECT_EQ(state.ranks[1].behind_in, "all_reduce(v), a.py:3");
  EXPECT_TRUE(state.findings.empty()) << "rank 1 may still come";
}

TEST(WatchState, AStragglerIsBehindTheMedianOfTheLastCallOfAll) {
  const auto run = inline_run({whole(0, 10), whole(0, 12), whole(0, 5012)});
  const WatchState state = state_of(run, 6000);
  EXPECT_EQ(state.ranks[0].behind, 0);
  EXPECT_EQ(state.ranks[1].behind, 0) << "it is the median";
  EXPECT_EQ(state.ranks[2].behind, 5000);
}

TEST(WatchState, ClocksOfDifferentHostsAreNotCompared) {
  const auto trace = [](int rank, const char* host, long t) {
    return header_line(rank, 2, {{"host", host}}) + world_line(2) + whole(0, t);
  };
  const WatchState same = state_of(run_from_text({trace(0, "a", 10), trace(1, "a", 900)}), 1000);
  EXPECT_EQ(same.ranks[1].behind, 890);
  const WatchState other = state_of(run_from_text({trace(0, "a", 10), trace(1, "b", 900)}), 1000);
  EXPECT_EQ(other.ranks[1].behind, 0);
  EXPECT_EQ(other.ranks[0].quiet, trace::kNoTime);
}

TEST(WatchState, WhoWaitsForOneThatEndedIsStuck) {
  const std::string waits = whole(0, 10) + step(0, 20) +
                            all_reduce(1, "w", 8, {{"t", 50}, {"async", true}, {"step", 1}}) +
                            at("wait", 1, 51);
  const WatchState state = state_of(inline_run({waits, whole(0, 10) + step(0, 20) + kClean}), 1000);
  EXPECT_EQ(state.ranks[0].doing, Doing::stuck);
  EXPECT_EQ(state.ranks[1].doing, Doing::ended);
  EXPECT_EQ(state.ranks[1].behind, 0) << "it will not come: it is not late";
  ASSERT_FALSE(state.findings.empty());
  EXPECT_EQ(state.findings[0].culprits, ranks_of({1}));
}

TEST(WatchState, ShowsHowARankEnded) {
  for (const auto& [mark, doing] : {std::pair("clean", Doing::ended),
                                    {"hung", Doing::hung},
                                    {"exception", Doing::raised},
                                    {"killed", Doing::killed}}) {
    const auto run = inline_run({whole(0, 1) + "{\"end\":\"" + mark + "\"}\n"});
    EXPECT_EQ(state_of(run, 10).ranks[0].doing, doing) << mark;
  }
}

TEST(WatchState, ListsRanksThatHaveNotBegun) {
  const WatchState state = state_of(inline_run({whole(0, 1), ""}), 10);
  EXPECT_EQ(state.absent, ranks_of({1}));
  EXPECT_EQ(state.steps(), 0);
}

}  // namespace
}  // namespace lockstep::reports
