// What has changed between two looks at a running job, a line each: `lockstep watch` where nobody
// sits at a terminal.
#pragma once

#include <string>
#include <vector>

#include "reports/live/state.h"

namespace lockstep {

// What `now` shows that `before` did not: ranks that began, ended, or became late by `late` or
// more, and findings. Lines without their newline, safe to print; none where nothing happened.
// `before`: the look before; a state without ranks at first.
std::vector<std::string> watch_news(const WatchState& before, const WatchState& now, Nanos late);

}  // namespace lockstep
