#include "base/amount.h"

#include <cstdio>
#include <string_view>

#include "base/text.h"

namespace lockstep {

std::string amount(double bytes) {
  constexpr std::string_view kPrefixes = " kMGTPE";
  std::size_t power = 0;
  for (; bytes >= 999.5 && power + 1 < kPrefixes.size(); ++power) bytes /= 1000;
  return fixed(bytes, power == 0 ? 0 : 2) + " " +
         (power == 0 ? "" : std::string(1, kPrefixes[power])) + "B";
}

std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

std::string milliseconds(double seconds) { return fixed(seconds * 1e3, 3) + " ms"; }

std::string scientific(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", x);
  return text;
}

}  // namespace lockstep
