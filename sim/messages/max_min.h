// Max-min fair shares: how flows divide links when none can get more without taking it from one
// that has no more than it (progressive filling; Bertsekas and Gallager, Data Networks,
// section 6.5.2).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rational.h"

namespace lockstep::sim {

// Rates are whole multiples of 1/720,720 bit/s: what up to 16 flows get of one link is exact.
inline constexpr std::int64_t kRateScale = 720'720;

struct SharedFlow {
  std::array<std::uint32_t, 2> links = {};  // into the capacities; twice the same counts once
  Int128 rate = 0;                          // the answer, in bit/s · kRateScale
};

// Fills in every flow's rate. `capacities`: of the links, in bit/s, above zero.
// O(links · (links + flows)).
void share_fairly(std::span<const std::int64_t> capacities, std::vector<SharedFlow>& flows);

}  // namespace lockstep::sim
