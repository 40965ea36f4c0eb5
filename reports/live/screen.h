// Draws a WatchState as a screen of text: a headline, a row for each kind of rank, who is late, and
// what was found. Ranks that stand at the same call in the same way share a row, so that a thousand
// ranks that wait for one are two rows.
//
//     /tmp/job
//       4 of 4 ranks, step 12, watched for 31 s
//
//     rank          step   doing  call                              for      behind
//     rank 1        12     works  all_reduce(text.weight) world 36           2.1 s
//     ranks 0,2,3   12     waits  all_reduce(head.weight) world 37  rank 1
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "reports/live/state.h"

namespace lockstep::reports {

// A narrower screen is not drawn for: lines are then longer than the screen is wide.
inline constexpr std::size_t kLeastWidth = 50;

// Lines, each ending in a newline; none is wider than `size.width`, colours aside, and where a
// height is given there are no more than that. What matters most stays: what was found, then the
// rows of those whom others wait for.
std::string watch_screen(const WatchState& state, const ScreenSize& size, const Paint& paint);

// "2.1 s", "3 min 20 s", "1 h 5 min".
std::string duration_words(double seconds);

// "4 of 4 ranks, step 12, quiet for 3.4 s".
std::string progress_words(const WatchState& state);

// What has changed between two looks at a running job, a line each: `lockstep watch` where nobody
// sits at a terminal.

// What `now` shows that `before` did not: ranks that began, ended, or became late by `late` or
// more, and findings. Lines without their newline, safe to print; none where nothing happened.
// `before`: the look before; a state without ranks at first.
std::vector<std::string> watch_news(const WatchState& before, const WatchState& now,
                                    trace::Nanos late);

}  // namespace lockstep::reports
