// Sizes as data sheets write them.
#pragma once

#include <string>

namespace lockstep {

// "1.25 MB", in powers of 1000; below 1000 without decimals. `bytes` >= 0.
std::string amount(double bytes);

}  // namespace lockstep
