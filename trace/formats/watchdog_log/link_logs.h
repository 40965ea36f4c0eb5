// What the watchdog's messages of all ranks tell together.
#pragma once

#include <span>
#include <string_view>

#include "trace/run.h"

namespace lockstep::trace {

// How the name of a group begins that no message names.
inline constexpr std::string_view kUnnamedGroup = "unnamed group (";

// Adds calls about which nothing else is known: those that timed out on other ranks and that a
// rank, by its counters, had issued too, and the last call that all ranks completed. Members of a
// group that said nothing are known where the group ranks of the others leave no choice: group
// ranks 0 and 2 of ranks 4 and 6 are those of 4, 5, 6, since PyTorch sorts them. Before, a trace's
// membership of a group holds the rank itself, and as description its group rank. Calls of groups
// without a name are told apart where their numbers cannot be of one group.
// O(groups x ranks x calls): a rank has few calls, those that timed out.
void link_watchdog_log(std::span<RankTrace> traces, Tables& tables);

}  // namespace lockstep::trace
