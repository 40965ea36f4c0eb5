// Which rank computes which item, so that the ranks finish at about the same time.
//
// Longest processing time first (Graham, 1969, doi:10.1137/0117039): the items in order of falling
// cost, each to the rank that has least so far. The longest rank then takes at most 4/3 - 1/(3 m)
// times what it would in the best of all splits over m ranks, and at most one item's cost more than
// any other rank.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

// The items of each rank, as places in `costs`, ascending. Ties go to the rank with fewer items,
// then to the lower one, so every rank gets an item where there are as many. `ranks` >= 1, costs
// >= 0. Deterministic. Cost: O(items log items).
std::vector<std::vector<std::size_t>> longest_first(std::span<const double> costs, int ranks);

// Of the time of `ranks` that wait for the longest of them, the share spent waiting:
// 1 - mean / largest. 0 where nothing takes any time.
double idle_share(std::span<const double> times);

}  // namespace lockstep
