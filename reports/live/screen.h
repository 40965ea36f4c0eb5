// Draws a WatchState as a screen of text: a headline, a row for each kind of rank, who is late, and
// the findings. Ranks in the same state at the same call share a row, so a thousand ranks that wait
// for one are two rows.
//
//     /tmp/job
//       4 of 4 ranks, step 12, watched for 31 s
//
//     rank          step   doing  call                              for      behind
//     rank 1        12     works  all_reduce(text.weight) world 36           2.1 s
//     ranks 0,2,3   12     waits  all_reduce(head.weight) world 37  rank 1
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/terminal.h"
#include "reports/live/state.h"

namespace lockstep::reports {

// On a narrower screen, lines are wider than the screen.
inline constexpr std::size_t kMinWidth = 50;

// What the user chose by keys. The default is a picture that nobody controls.
struct WatchView {
  enum class Sort : std::uint8_t {
    attention,  // ranks that others wait for first, ended ones last
    rank,       // by rank: rows keep their places while the job runs
    behind,     // the latest first
    step,       // the slowest first
  };
  Sort sort = Sort::attention;
  bool interactive = false;  // a line of keys is at the end
  std::optional<trace::Rank> selected =
      std::nullopt;     // the row that holds this rank; always on the screen
  bool detail = false;  // of the selected rank, instead of the table
  bool help = false;    // the keys, instead of everything
};
std::string_view to_string(WatchView::Sort sort);
// The order that the key `s` chooses next.
WatchView::Sort sort_after(WatchView::Sort sort);

// Lines, each ending in a line break, at most `size.width` wide without colours, and at most as
// many as the height, if given. The most important ones stay: findings first, then the rows of
// ranks that others wait for.
std::string watch_screen(const WatchState& state, const ScreenSize& size, const Paint& paint,
                         const WatchView& view = {});

// The first rank of the row that is `rows` below the selected one (above, if negative), within the
// table; without a selection that of the first row. Nothing for a job without ranks.
std::optional<trace::Rank> row_from(const WatchState& state, const WatchView& view,
                                    std::ptrdiff_t rows);

// "4 of 4 ranks, step 12, 3.1 steps/s, loss 2.31, quiet for 3.4 s".
std::string progress_text(const WatchState& state);

// What changed between two polls of a running job, as lines: `lockstep watch` without a terminal.

// What is new in `now`: ranks that began, ended, or became late by `late` or more, and findings.
// Lines without line breaks, safe to print; none if nothing happened. `before`: the previous state;
// at first one without ranks.
std::vector<std::string> watch_news(const WatchState& before, const WatchState& now,
                                    trace::Nanos late);

}  // namespace lockstep::reports
