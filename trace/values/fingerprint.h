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
// in the same order, gives the same bits on every processor (fingerprint_ways.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trace/values/fingerprint_ways.h"

namespace lockstep {

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

}  // namespace lockstep
