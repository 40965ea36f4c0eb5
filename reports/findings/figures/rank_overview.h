// Every rank at a glance: a cell per rank in the rows of its group, and a table with its host, its
// last call and what it waits for.
#pragma once

#include <cstddef>
#include <string>

#include "reports/findings/figures/wait_picture.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports::html {

// Of larger jobs the page shows kinds of ranks only: it grows by 400 bytes per rank.
inline constexpr std::size_t kMostRanksShown = 4096;

// Markup; empty for no or too many ranks. The cells stand in the groups that the first finding is
// about, TENSOR_PARALLEL say, else by host. A cell links to its row; the table is folded away. Both
// are left out where nothing is wrong. O(ranks · groups).
std::string rank_overview(const verify::Report& report, const trace::Run& run,
                          const WaitPicture& waits);

}  // namespace lockstep::reports::html
