// The arithmetic of a fingerprint (fingerprint.h) on one element. The host's code and the GPU's
// kernel, which NVRTC compiles, share this file. So it includes no standard headers, and its
// functions take and return integers only.
//
// An element is given as the bits of a float (`unsigned`) or of a double (`Word`).
#pragma once

namespace lockstep::trace::fingerprinting {

using Word = unsigned long long;  // 64 bits, for every compiler that reads this

inline constexpr Word kGolden = 0x9E3779B97F4A7C15ULL;
inline constexpr unsigned kSketchMost = 8;  // values of a sketch: a byte holds an element's signs

// The finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
// generators", 2014).
constexpr Word mix(Word x) {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

// hash_term(): the term of an element with these (canonical) bits at `index` of the flattened
// tensor. whole_hash(): the hash, from the sum of all terms (mod 2^64). salt() grows by kGolden
// from one index to the next.
constexpr Word salt(Word index) { return (index + 1) * kGolden; }
constexpr Word hash_term(Word bits, Word index) { return mix(bits ^ salt(index)); }
constexpr Word whole_hash(Word sum, Word elements) { return mix(sum + elements * kGolden); }

// The signs of eight consecutive elements, the first at a multiple of eight: one byte per element,
// in which bit j is the sign in the sketch's value j; 1 is minus.
constexpr Word sign_word(Word index) { return mix(index / 8 * kGolden + 1); }
constexpr unsigned sign_byte(Word word, Word index) {
  return static_cast<unsigned>(word >> (index % 8 * 8)) & 0xFFU;
}

constexpr bool is_finite(unsigned bits) { return (bits & 0x7FFFFFFFU) < 0x7F800000U; }
constexpr bool is_finite(Word bits) {
  return (bits & 0x7FFFFFFFFFFFFFFFULL) < 0x7FF0000000000000ULL;
}

// Equal for equal numbers: -0 is 0, and every NaN is one.
constexpr unsigned canonical(unsigned bits) {
  const unsigned magnitude = bits & 0x7FFFFFFFU;
  return magnitude == 0 ? 0U : magnitude > 0x7F800000U ? 0x7FC00000U : bits;
}
constexpr Word canonical(Word bits) {
  const Word magnitude = bits & 0x7FFFFFFFFFFFFFFFULL;
  return magnitude == 0 ? 0ULL : magnitude > 0x7FF0000000000000ULL ? 0x7FF8000000000000ULL : bits;
}

// Integers in the order of the floating-point numbers that the bits represent (no NaN), and back.
constexpr int order_key(unsigned bits) {
  const int key = static_cast<int>(bits);
  return key ^ (key >> 31 & 0x7FFFFFFF);
}
constexpr long long order_key(Word bits) {
  const long long key = static_cast<long long>(bits);
  return key ^ (key >> 63 & 0x7FFFFFFFFFFFFFFFLL);
}
constexpr unsigned bits_of_key(int key) {
  return static_cast<unsigned>(key ^ (key >> 31 & 0x7FFFFFFF));
}
constexpr Word bits_of_key(long long key) {
  return static_cast<Word>(key ^ (key >> 63 & 0x7FFFFFFFFFFFFFFFLL));
}

// Conversion from bfloat16 and from IEEE half to the bits of a float. A NaN becomes some NaN.
constexpr unsigned float_bits_of_bfloat16(unsigned short bits) {
  return static_cast<unsigned>(bits) << 16U;
}
constexpr unsigned float_bits_of_half(unsigned short bits) {
  const unsigned sign = (bits & 0x8000U) << 16U;
  unsigned exponent = bits >> 10U & 0x1FU;
  unsigned fraction = bits & 0x3FFU;
  if (exponent == 0x1FU) return sign | 0x7F800000U | fraction << 13U;
  if (exponent == 0) {
    if (fraction == 0) return sign;
    // Subnormal: fraction * 2^-24, which a float has as a normal number.
    for (exponent = 1; (fraction & 0x400U) == 0; --exponent) fraction <<= 1U;
    fraction &= 0x3FFU;
  }
  return sign | (exponent + 112U) << 23U | fraction << 13U;
}

}  // namespace lockstep::trace::fingerprinting
