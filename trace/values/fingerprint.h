// What a trace keeps of a tensor's values: a content hash, the norm, the range, and a sketch.
//
// The hash is a sum (mod 2^64) of one mixed word per element, made of its bits and its index. So
// threads can take parts in any order and get the same result. -0 counts as 0, and all NaNs are
// equal.
//
// The sketch is k sums of the elements, each with signs +1 or -1 that depend only on the element's
// index (Achlioptas, "Database-friendly random projections", 2003). It is linear: the sketch of a
// sum is the sum of the sketches. It is the same projection on every rank and for every tensor, so
// tensors of one size can be compared. The mean square of its values estimates the squared 2-norm.
//
// Sums of doubles depend on their order. Adding the same pieces in the same order, and merging them
// in the same order, gives the same bits on every processor.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace lockstep::trace {

// There are several implementations: one element at a time, or in blocks whose loops compilers turn
// into vector instructions, for any processor or for one with AVX2. All give the same sums to the
// last bit: each sum adds the elements at certain indices, in the order of the indices.

// The sums over the elements added so far. Squares are summed by index mod 8. Elements are summed
// by their byte of signs (bit j: the sign in the sketch's value j), which is one addition per
// element however many values the sketch has; finish() combines the 256 sums to the sketch.
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

struct FingerprintMethod {
  const char* name;
  // `first`: the index of the first value. Without `sketch`, by_signs does not change.
  void (*floats)(std::span<const float> values, std::uint64_t first, bool sketch,
                 FingerprintSums& sums);
  void (*doubles)(std::span<const double> values, std::uint64_t first, bool sketch,
                  FingerprintSums& sums);
};

// The implementations that this processor can run; the first adds the elements one by one, the last
// is the fastest.
std::span<const FingerprintMethod> fingerprint_methods();

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
  // `k`: 0 (no sketch) to kSketchValues. `method`: one of fingerprint_methods().
  explicit Fingerprinter(std::uint32_t k = kSketchValues,
                         const FingerprintMethod& method = fingerprint_methods().back());

  // The elements from index `first` of the flattened tensor on.
  void add(std::span<const float> values, std::uint64_t first) {
    method_->floats(values, first, k_ > 0, sums_);
  }
  void add(std::span<const double> values, std::uint64_t first) {
    method_->doubles(values, first, k_ > 0, sums_);
  }
  // Adds what `other` has taken of the same tensor.
  void merge(const Fingerprinter& other);

  Fingerprint finish() const;

 private:
  std::uint32_t k_;
  const FingerprintMethod* method_;
  FingerprintSums sums_;
};

}  // namespace lockstep::trace
