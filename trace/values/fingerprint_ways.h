// How a processor takes elements into a fingerprint: one by one, or in blocks whose loops compilers
// turn into vector instructions, for any processor of the kind or for one with AVX2.
//
// All ways come to the same sums, to the last bit: each sum is of the elements of some places, in
// the order of the places.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>

namespace lockstep {

// What was taken of a tensor so far. The elements' squares are summed by place mod 8; the elements
// by their byte of signs, from which finish() makes the sketch's values, each the difference of two
// sums of sums: one addition an element, however many values a sketch has.
struct FingerprintSums {
  std::uint64_t hash = 0;
  std::uint64_t count = 0;
  std::uint64_t non_finite = 0;
  // order_key() of the least and the greatest finite element, as doubles.
  long long lowest = std::numeric_limits<long long>::max();
  long long highest = std::numeric_limits<long long>::min();
  std::array<double, 8> squares{};
  std::array<double, 256> by_signs{};
};

struct FingerprintWay {
  const char* name;
  // `first`: the place of the first value. Without `sketch`, by_signs is left alone.
  void (*floats)(std::span<const float> values, std::uint64_t first, bool sketch,
                 FingerprintSums& sums);
  void (*doubles)(std::span<const double> values, std::uint64_t first, bool sketch,
                  FingerprintSums& sums);
};

// The ways that this processor can go; the first takes the elements one by one, the last is
// fastest.
std::span<const FingerprintWay> fingerprint_ways();

}  // namespace lockstep
