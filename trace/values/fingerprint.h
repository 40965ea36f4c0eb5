// What a trace keeps of a tensor's values: a content hash, the norm, the range, and a sketch.
//
// The hash is a sum (mod 2^64) of one mixed word for each element and its place, so that parts can
// be taken by any thread in any order and come to one result; -0 counts as 0, every NaN as one NaN.
//
// The sketch is k sums of the elements, each with signs +1 or -1 that depend on the element's place
// only (Achlioptas, "Database-friendly random projections", 2003): linear, the same projection on
// every rank and for every tensor, and the mean square of its values is the square of the 2-norm.
// Sketches of a sum are sums of sketches; sketches of tensors of one size can be compared.
//
// Sums of doubles depend on their order. Taking the same pieces in the same order, and merging them
// in the same order, gives the same bits on every processor.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

// How a processor takes elements into a fingerprint: one by one, or in blocks whose loops compilers
// turn into vector instructions, for any processor of the kind or for one with AVX2.
//
// All ways come to the same sums, to the last bit: each sum is of the elements of some places, in
// the order of the places.

namespace lockstep::trace {

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

struct Fingerprint {
  std::uint64_t hash = 0;
  double norm = 0;               // 2-norm of the finite elements
  double min = 0, max = 0;       // of the finite elements; 0 where there are none
  std::uint64_t non_finite = 0;  // elements that are infinite or NaN
  std::vector<double> sketch;    // k values; infinite elements and NaN count as 0

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

inline constexpr std::uint32_t kSketchValues = 8;  // the default k, and the most
                                                   // (signs are taken a byte at a time)

// Takes a tensor in pieces; 2.3 KB. About 300 ns and 1.5 ns an element with AVX2; see bench/trace.
class Fingerprinter {
 public:
  // `k`: 0 (no sketch) to kSketchValues. `way`: one of fingerprint_ways().
  explicit Fingerprinter(std::uint32_t k = kSketchValues,
                         const FingerprintWay& way = fingerprint_ways().back());

  // The elements from place `first` of the flattened tensor on.
  void add(std::span<const float> values, std::uint64_t first) {
    way_->floats(values, first, k_ > 0, sums_);
  }
  void add(std::span<const double> values, std::uint64_t first) {
    way_->doubles(values, first, k_ > 0, sums_);
  }
  // What another has taken of the same tensor.
  void merge(const Fingerprinter& other);

  Fingerprint finish() const;

 private:
  std::uint32_t k_;
  const FingerprintWay* way_;
  FingerprintSums sums_;
};

}  // namespace lockstep::trace
