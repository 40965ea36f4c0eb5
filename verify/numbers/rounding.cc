#include "verify/numbers/rounding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace lockstep::verify {

std::optional<double> unit_roundoff(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, double>, 8> kTypes = {{
      {"float64", 0x1p-53},
      {"double", 0x1p-53},
      {"float32", 0x1p-24},
      {"float", 0x1p-24},
      {"float16", 0x1p-11},
      {"half", 0x1p-11},
      {"bfloat16", 0x1p-8},
      {"float8_e4m3fn", 0x1p-4},
  }};
  for (const auto& [name, u] : kTypes) {
    if (dtype == name) return u;
  }
  if (dtype.starts_with("int") || dtype.starts_with("uint") || dtype == "long") return 0.0;
  return std::nullopt;
}

double rounding_bound(std::uint64_t terms, double roundoff, double norms) {
  constexpr double kChance = 1e-12;  // p of Hoeffding's inequality: see rounding.h
  const double sign_sum = std::sqrt(2 * std::log(2 / kChance));
  // One term more than there are: programs may divide before they add, and the sketch is rounded.
  const double m = (static_cast<double>(terms) + 1) * roundoff;
  // gamma(m) = m / (1 - m) has a pole at m = 1, which float8 over 16 ranks reaches. From a half on
  // the bound is the size of the terms themselves.
  const double gamma = m < 0.5 ? m / (1 - m) : 1;
  // 2^-48: the sketch itself is a sum of doubles. For integers that is the only rounding.
  return (gamma + 0x1p-48) * norms * sign_sum;
}

double norm_tolerance(std::int64_t elements) {
  // If the size is unknown, that of a large embedding: a missed difference is better than a false
  // one.
  constexpr double kUnknown = 1e8;
  const double n = elements > 0 ? static_cast<double>(elements) : kUnknown;
  // The errors of n additions have random signs, so their sum grows as sqrt(n); the factor 4 leaves
  // room. At most a percent: 10^9 elements give 0.8 %.
  return std::min(1e-2, 4 * std::sqrt(n) * 0x1p-24);
}

}  // namespace lockstep::verify
