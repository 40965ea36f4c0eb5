#include "trace/values/fingerprint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "trace/values/fingerprint_arithmetic.h"

namespace lockstep {

namespace {

using fingerprinting::bits_of_key;
using fingerprinting::whole_hash;

static_assert(kSketchValues == fingerprinting::kSketchMost);

using Lanes = std::array<double, 8>;

double sum(const Lanes& x) {
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

// The sums of the elements by their byte of signs, folded once for each bit: the difference of the
// halves is a value of the sketch, their sum what the bits below are looked up in.
std::vector<double> fold(std::array<double, 256> by_signs, std::uint32_t k) {
  std::vector<double> out(k);
  for (std::size_t bit = kSketchValues; bit-- > 0;) {
    const std::size_t half = std::size_t{1} << bit;
    Lanes difference{};
    for (std::size_t i = 0; i < half; i += difference.size()) {
      const std::size_t n = std::min(difference.size(), half - i);
      for (std::size_t lane = 0; lane < n; ++lane) {
        const double plus = by_signs[i + lane];
        const double minus = by_signs[i + lane + half];
        difference[lane] += plus - minus;
        by_signs[i + lane] = plus + minus;
      }
    }
    if (bit < k) out[bit] = sum(difference);
  }
  return out;
}

}  // namespace

Fingerprinter::Fingerprinter(std::uint32_t k, const FingerprintWay& way) : k_(k), way_(&way) {
  LOCKSTEP_CHECK(k <= kSketchValues, "a sketch of that many values");
}

void Fingerprinter::merge(const Fingerprinter& other) {
  const FingerprintSums& theirs = other.sums_;
  sums_.hash += theirs.hash;
  sums_.count += theirs.count;
  sums_.non_finite += theirs.non_finite;
  sums_.lowest = std::min(sums_.lowest, theirs.lowest);
  sums_.highest = std::max(sums_.highest, theirs.highest);
  for (std::size_t i = 0; i < sums_.squares.size(); ++i) sums_.squares[i] += theirs.squares[i];
  if (k_ == 0) return;
  for (std::size_t i = 0; i < sums_.by_signs.size(); ++i) {
    sums_.by_signs[i] += theirs.by_signs[i];
  }
}

Fingerprint Fingerprinter::finish() const {
  Fingerprint out;
  out.hash = whole_hash(sums_.hash, sums_.count);
  out.norm = std::sqrt(sum(sums_.squares));
  out.non_finite = sums_.non_finite;
  if (sums_.lowest <= sums_.highest) {
    out.min = std::bit_cast<double>(bits_of_key(sums_.lowest));
    out.max = std::bit_cast<double>(bits_of_key(sums_.highest));
  }
  if (k_ > 0) out.sketch = fold(sums_.by_signs, k_);
  return out;
}

}  // namespace lockstep
