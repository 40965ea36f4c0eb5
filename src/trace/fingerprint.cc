#include "trace/fingerprint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/check.h"

namespace lockstep {

namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ULL;

// The finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
// generators", 2014).
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

using Signs = std::array<double, kSketchValues>;

// The signs that each byte stands for.
constexpr std::array<Signs, 256> make_signs() {
  std::array<Signs, 256> out{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    for (unsigned j = 0; j < kSketchValues; ++j) out[byte][j] = (byte >> j & 1U) != 0 ? -1 : 1;
  }
  return out;
}
constexpr std::array<Signs, 256> kSigns = make_signs();

// The sign bytes of eight places in a row, the first at a multiple of eight.
constexpr std::uint64_t sign_word(std::uint64_t place) { return mix(place / 8 * kGolden + 1); }

std::uint64_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
std::uint64_t bits_of(double x) { return std::bit_cast<std::uint64_t>(x); }

}  // namespace

Fingerprinter::Fingerprinter(std::uint32_t k)
    : k_(k),
      min_(std::numeric_limits<double>::infinity()),
      max_(-std::numeric_limits<double>::infinity()) {
  LOCKSTEP_CHECK(k <= kSketchValues, "a sketch of that many values");
}

template <class T>
void Fingerprinter::add_all(std::span<const T> values, std::uint64_t first) {
  std::uint64_t word = sign_word(first);
  Signs sums{};
  std::uint64_t hash = 0;
  double squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t place = first + i;
    if (place % 8 == 0) word = sign_word(place);
    T value = values[i] == T{0} ? T{0} : values[i];  // -0 is 0
    if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
    hash += mix(bits_of(value) ^ (place + 1) * kGolden);
    if (!std::isfinite(value)) {
      ++non_finite_;
      continue;
    }
    const auto x = static_cast<double>(value);
    squares += x * x;
    min_ = std::min(min_, x);
    max_ = std::max(max_, x);
    const Signs& signs = kSigns[word >> place % 8 * 8 & 0xFFU];
    for (std::size_t j = 0; j < kSketchValues; ++j) sums[j] += x * signs[j];
  }
  hash_ += hash;
  count_ += values.size();
  squares_ += squares;
  for (std::size_t j = 0; j < kSketchValues; ++j) sums_[j] += sums[j];
}

void Fingerprinter::add(std::span<const float> values, std::uint64_t first) {
  add_all(values, first);
}
void Fingerprinter::add(std::span<const double> values, std::uint64_t first) {
  add_all(values, first);
}

void Fingerprinter::merge(const Fingerprinter& other) {
  hash_ += other.hash_;
  count_ += other.count_;
  non_finite_ += other.non_finite_;
  squares_ += other.squares_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  for (std::size_t j = 0; j < kSketchValues; ++j) sums_[j] += other.sums_[j];
}

Fingerprint Fingerprinter::finish() const {
  Fingerprint out;
  out.hash = mix(hash_ + count_ * kGolden);
  out.norm = std::sqrt(squares_);
  out.non_finite = non_finite_;
  if (min_ <= max_) {
    out.min = min_;
    out.max = max_;
  }
  out.sketch.assign(sums_, sums_ + k_);
  return out;
}

}  // namespace lockstep
