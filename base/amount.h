// Figures as tables write them.
#pragma once

#include <string>

namespace lockstep {

// "1.25 MB", in powers of 1000; below 1000 without decimals. `bytes` >= 0.
std::string amount(double bytes);

std::string percent(double share);         // "45.3 %" of 0.453
std::string milliseconds(double seconds);  // "12.345 ms"
std::string scientific(double x);          // "1.2e-03"

}  // namespace lockstep
