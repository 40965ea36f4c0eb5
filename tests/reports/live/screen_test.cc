#include "reports/live/screen.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/terminal.h"
#include "tests/reports/inline_run.h"

namespace lockstep::reports {
namespace {

using Doing = WatchedRank::Doing;

WatchedRank at_call(int rank, Doing doing, const std::string& call, std::uint64_t seq) {
  WatchedRank out;
  out.rank = trace::Rank(rank);
  out.doing = doing;
  out.steps = 12;
  out.call = call;
  out.group = "world";
  out.seq = seq;
  return out;
}

// Ranks 0, 2, 3 … wait for rank 1, which is late.
WatchState one_late(int ranks) {
  WatchState state;
  state.folder = "/tmp/job";
  state.watched_s = 31;
  for (int r = 0; r < ranks; ++r) {
    state.ranks.push_back(at_call(r, Doing::waits, "all_reduce(head.weight)", 37));
    state.ranks.back().waits_for = {trace::Rank(1)};
  }
  state.ranks[1] = at_call(1, Doing::works, "all_reduce(text.weight)", 36);
  state.ranks[1].behind = 2'100'000'000;
  state.ranks[1].behind_in = "all_reduce(head.weight), train.py:33";
  return state;
}

verify::Finding hang() {
  verify::Finding f;
  f.rule = verify::RuleId::missing_collective;
  f.certainty = verify::Certainty::proven;
  f.message = "rank 1 never issued all_reduce(head.weight), which all other ranks of world wait in";
  f.fix = "make rank 1 issue it too";
  f.fingerprint = "1";
  return f;
}

TEST(WatchScreen, ASinglePollDoesNotShowTheTimeWatched) {
  WatchState state = one_late(3);
  state.watched_s = 0.0035;
  EXPECT_THAT(watch_screen(state, {}, {}), testing::HasSubstr("  3 of 3 ranks, step 12\n"));
}

TEST(WatchScreen, RanksInOneSituationShareARow) {
  EXPECT_EQ(watch_screen(one_late(3), {}, {}),
            "/tmp/job\n"
            "  3 of 3 ranks, step 12, watched for 31 s\n"
            "\n"
            "rank          step   doing  call                              for      behind\n"
            "rank 1        12     works  all_reduce(text.weight) world 36           2.1 s\n"
            "ranks 0,2     12     waits  all_reduce(head.weight) world 37  rank 1\n"
            "\n"
            "latest: rank 1, 2.1 s behind the median in all_reduce(head.weight), train.py:33\n");
}

TEST(WatchScreen, AThousandRanksAreTwoRows) {
  const std::string screen = watch_screen(one_late(1000), {}, {});
  EXPECT_NE(screen.find("ranks 0,2-999"), std::string::npos) << screen;
  EXPECT_LT(std::count(screen.begin(), screen.end(), '\n'), 10);
}

TEST(WatchScreen, FitsEveryWidthAndHeight) {
  WatchState state = one_late(40);
  for (std::size_t r = 2; r < state.ranks.size(); ++r) {
    state.ranks[r].call = "all_gather_into_tensor(" + std::string(r, 'x') + ")";
    state.ranks[r].seq = 1'000'000 * r;
  }
  state.findings = {hang(), hang(), hang(), hang()};
  state.folder = std::string(200, 'd');
  for (std::size_t width = kMinWidth; width < 200; width += 7) {
    EXPECT_LE(widest_line(watch_screen(state, {.width = width}, {})), width);
    for (std::size_t height = 4; height < 60; height += 3) {
      const std::string screen = watch_screen(state, {width, height}, {});
      EXPECT_LE(std::count(screen.begin(), screen.end(), '\n'), static_cast<long>(height));
    }
  }
}

TEST(WatchScreen, WhereTheRowsDoNotFitThoseOthersWaitForStay) {
  WatchState state = one_late(40);
  for (std::size_t r = 0; r < state.ranks.size(); ++r) state.ranks[r].steps = static_cast<int>(r);
  const std::string screen = watch_screen(state, {.width = 80, .height = 9}, {});
  EXPECT_NE(screen.find("\nrank 1 "), std::string::npos) << screen;
  EXPECT_NE(screen.find("rows more"), std::string::npos) << screen;
}

WatchView by_rank() { return {.sort = WatchView::Sort::rank, .interactive = true}; }

// Nobody can read rows that move while they are looked at.
TEST(WatchScreen, RowsKeepTheirPlacesWhileSomebodyLooks) {
  WatchState state = one_late(4);
  const auto first_row = [&] {
    const std::string screen = watch_screen(state, {100, 24}, {}, by_rank());
    const std::size_t head = screen.find("behind\n") + 7;
    return screen.substr(head, screen.find(' ', head + 6) - head);
  };
  EXPECT_EQ(first_row(), "ranks 0,2,3");
  state.ranks[1].doing = Doing::ended;
  EXPECT_EQ(first_row(), "ranks 0,2,3");
}

TEST(WatchScreen, ShowsSpeedLossAndHowLongARankWaits) {
  WatchState state = one_late(3);
  state.steps_per_s = 3.14;
  state.ranks[0].loss = 2;
  state.ranks[2].loss = 3;
  state.ranks[0].waiting = state.ranks[2].waiting = 200'000'000'000;
  const std::string screen = watch_screen(state, {.width = 120}, {});
  EXPECT_NE(screen.find("3 of 3 ranks, step 12, 3.1 steps/s, loss 2.500"), std::string::npos)
      << screen;
  EXPECT_NE(screen.find("3 min 20 s"), std::string::npos) << screen;
}

TEST(WatchScreen, TheSelectedRowIsOnTheScreenAndMarked) {
  WatchState state = one_late(40);
  for (std::size_t r = 0; r < state.ranks.size(); ++r) state.ranks[r].steps = static_cast<int>(r);
  WatchView view = by_rank();
  view.selected = row_from(state, view, 0);
  EXPECT_EQ(view.selected, trace::Rank(0));
  view.selected = row_from(state, view, 25);
  EXPECT_EQ(view.selected, trace::Rank(25));
  const std::string screen = watch_screen(state, {80, 12}, {.on = true}, view);
  EXPECT_NE(screen.find("\x1b[7mrank 25 "), std::string::npos) << screen;
  EXPECT_EQ(row_from(state, view, 1000), trace::Rank(39));
  EXPECT_EQ(row_from(state, view, -1000), trace::Rank(0));
  EXPECT_EQ(row_from({}, view, 1), std::nullopt);
}

TEST(WatchScreen, ARanksDetailSaysWhoWaitsForItAndWhatToTypeNext) {
  WatchState state = one_late(4);
  state.ranks[1].pid = 4711;
  state.ranks[1].host = "node4";
  state.ranks[1].at = "train.py:12";
  WatchView view = by_rank();
  view.selected = trace::Rank(1);
  view.detail = true;
  const std::string screen = watch_screen(state, {80, 24}, {}, view);
  for (const char* said : {"rank 1\n", "waited for by  ranks 0,2,3", "4711 on node4",
                           "py-spy dump --pid 4711", "train.py:12", "2.1 s, in all_reduce"})
    EXPECT_NE(screen.find(said), std::string::npos) << said << "\n" << screen;
}

TEST(WatchScreen, InteractiveScreensFillTheHeightAndEndWithTheKeys) {
  for (const bool help : {false, true}) {
    for (std::size_t height = 4; height < 40; height += 5) {
      WatchView view = by_rank();
      view.help = help;
      for (std::size_t width = kMinWidth; width <= 200; width += 30) {
        const std::string screen = watch_screen(one_late(30), {width, height}, {}, view);
        EXPECT_EQ(std::count(screen.begin(), screen.end(), '\n'), static_cast<long>(height));
        if (width >= 80) {
          EXPECT_LE(widest_line(screen), width);
        }
      }
    }
  }
}

TEST(WatchScreen, TheKeyForSortingGoesThroughAllOrders) {
  std::set<WatchView::Sort> seen;
  WatchView::Sort sort = WatchView::Sort::rank;
  for (int i = 0; i < 4; ++i) seen.insert(sort = sort_after(sort));
  EXPECT_EQ(seen.size(), 4U);
  EXPECT_EQ(sort, WatchView::Sort::rank);
}

TEST(WatchScreen, ShowsAProofAndWhatToDo) {
  WatchState state = one_late(3);
  state.findings = {hang()};
  const std::string screen = watch_screen(state, {}, {});
  EXPECT_NE(screen.find("proven missing-collective\n  rank 1 never issued"), std::string::npos)
      << screen;
  EXPECT_NE(screen.find("  fix: make rank 1 issue it too\n"), std::string::npos) << screen;
}

TEST(WatchScreen, HasNoEscapeCodesUnlessPainted) {
  WatchState state = one_late(3);
  state.findings = {hang()};
  EXPECT_EQ(watch_screen(state, {}, {}).find('\x1b'), std::string::npos);
  EXPECT_NE(watch_screen(state, {}, {.on = true}).find('\x1b'), std::string::npos);
}

TEST(WatchScreen, SaysThatNoRankHasBegun) {
  WatchState state;
  state.folder = "/tmp/job";
  EXPECT_NE(watch_screen(state, {}, {}).find("no rank has begun to record"), std::string::npos);
  state.problem = "/tmp/job: cannot read the folder";
  EXPECT_NE(watch_screen(state, {}, {}).find(state.problem), std::string::npos);
}

TEST(TerminalScreen, ErasesWhatStoodThere) {
  EXPECT_EQ(drawn_over("a\nb\n"), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
  EXPECT_EQ(drawn_over(""), "\x1b[H\x1b[K\x1b[J");
}

TEST(WatchNews, SaysWhatChangedAndNothingTwice) {
  const trace::Nanos late = 100'000'000;
  WatchState now = one_late(3);
  EXPECT_EQ(watch_news({}, now, late),
            (std::vector<std::string>{
                "ranks 0-2 began",
                "rank 1 is 2.1 s behind the median in all_reduce(head.weight), train.py:33"}));
  EXPECT_TRUE(watch_news(now, now, late).empty());
  const WatchState before = now;
  now.ranks[1].doing = Doing::killed;
  now.ranks[1].behind = 0;
  now.findings = {hang()};
  EXPECT_EQ(watch_news(before, now, late),
            (std::vector<std::string>{"rank 1 gone: killed",
                                      "proven missing-collective: " + hang().message}));
}

TEST(WatchNews, SmallDelaysAreNoNews) {
  WatchState before = one_late(3);
  before.ranks[1].behind = 0;
  EXPECT_TRUE(watch_news(before, one_late(3), 3'000'000'000).empty());
}

}  // namespace
}  // namespace lockstep::reports
