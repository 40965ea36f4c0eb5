#include "trace/values/fingerprint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "trace/values/fingerprint_arithmetic.h"

namespace lockstep::trace {

namespace {

using fingerprinting::bits_of_key;
using fingerprinting::canonical;
using fingerprinting::hash_term;
using fingerprinting::is_finite;
using fingerprinting::kGolden;
using fingerprinting::mix;
using fingerprinting::order_key;
using fingerprinting::salt;
using fingerprinting::sign_byte;
using fingerprinting::sign_word;
using fingerprinting::Word;

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == sizeof(float), unsigned, Word>;

constexpr std::size_t kBlock = 256;  // elements; what is kept of them stays in the first cache

template <class T>
void take_one_by_one(std::span<const T> values, std::uint64_t first, bool sketch,
                     FingerprintSums& sums) {
  Word signs = sign_word(first);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t index = first + i;
    if (index % 8 == 0) signs = sign_word(index);
    const BitsOf<T> bits = canonical(std::bit_cast<BitsOf<T>>(values[i]));
    sums.hash += hash_term(bits, index);
    if (!is_finite(bits)) {
      ++sums.non_finite;
      continue;
    }
    const auto x = static_cast<double>(std::bit_cast<T>(bits));
    const long long key = order_key(std::bit_cast<Word>(x));
    sums.lowest = std::min(sums.lowest, key);
    sums.highest = std::max(sums.highest, key);
    sums.squares[index % 8] += x * x;
    if (sketch) sums.by_signs[sign_byte(signs, index)] += x;
  }
  sums.count += values.size();
}

// Functions with more than the processor's common instructions inline what is below, so that it is
// compiled with them, too.

// `n` elements, a multiple of 8 and at most kBlock; `index`: of the first, a multiple of 8. False,
// and nothing was taken, where one of them is not finite.
template <class T>
[[gnu::always_inline]] inline bool take_block(const T* values, std::size_t n, Word index,
                                              bool sketch, FingerprintSums& sums) {
  using Bits = BitsOf<T>;
  constexpr Bits kSign = Bits{1} << (sizeof(Bits) * 8 - 1);
  alignas(64) std::array<Bits, kBlock> bits;  // canonical, where all are finite
  Bits greatest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Bits given = std::bit_cast<Bits>(values[i]);
    greatest = std::max<Bits>(greatest, given & ~kSign);
    bits[i] = given == kSign ? 0 : given;
  }
  if (!is_finite(greatest)) return false;

  // A loop each: together they are too much for the compiler to make vectors of.
  Word hash = 0;
  Word salted = salt(index);
  for (std::size_t i = 0; i < n; ++i, salted += kGolden) hash += mix(bits[i] ^ salted);
  using Key = decltype(order_key(Bits{}));
  Key low = std::numeric_limits<Key>::max();
  Key high = std::numeric_limits<Key>::min();
  for (std::size_t i = 0; i < n; ++i) {
    low = std::min(low, order_key(bits[i]));
    high = std::max(high, order_key(bits[i]));
  }
  sums.hash += hash;
  sums.count += n;
  const auto widened = [](auto key) {
    return order_key(std::bit_cast<Word>(static_cast<double>(std::bit_cast<T>(bits_of_key(key)))));
  };
  sums.lowest = std::min(sums.lowest, widened(low));
  sums.highest = std::max(sums.highest, widened(high));

  // In sums that begin with 0, -0 is 0.
  alignas(64) std::array<double, kBlock> x;
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<double>(values[i]);
  for (std::size_t i = 0; i < n; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) sums.squares[lane] += x[i + lane] * x[i + lane];
  }
  if (!sketch) return true;
  for (std::size_t i = 0; i < n; i += 8) {
    const Word signs = sign_word(index + i);
    for (std::size_t lane = 0; lane < 8; ++lane) {
      sums.by_signs[sign_byte(signs, lane)] += x[i + lane];
    }
  }
  return true;
}

template <class T>
[[gnu::always_inline]] inline void take_blocks(std::span<const T> values, std::uint64_t first,
                                               bool sketch, FingerprintSums& sums) {
  const std::size_t head = std::min<std::size_t>(values.size(), (8 - first % 8) % 8);
  if (head > 0) take_one_by_one(values.first(head), first, sketch, sums);
  std::size_t i = head;
  while (values.size() - i >= 8) {
    const std::size_t n = std::min(kBlock, (values.size() - i) / 8 * 8);
    if (!take_block(values.data() + i, n, first + i, sketch, sums)) {
      take_one_by_one(values.subspan(i, n), first + i, sketch, sums);
    }
    i += n;
  }
  if (i < values.size()) take_one_by_one(values.subspan(i), first + i, sketch, sums);
}

template <class T>
void take_common(std::span<const T> values, std::uint64_t first, bool sketch,
                 FingerprintSums& sums) {
  take_blocks(values, first, sketch, sums);
}

#if defined(__x86_64__)
template <class T>
[[gnu::target("avx2")]] void take_avx2(std::span<const T> values, std::uint64_t first, bool sketch,
                                       FingerprintSums& sums) {
  take_blocks(values, first, sketch, sums);
}

bool has_avx2() { return __builtin_cpu_supports("avx2") != 0; }
#endif

constexpr std::array kWays = {
    FingerprintMethod{"one by one", take_one_by_one<float>, take_one_by_one<double>},
    FingerprintMethod{"blocks", take_common<float>, take_common<double>},
#if defined(__x86_64__)
    FingerprintMethod{"blocks, AVX2", take_avx2<float>, take_avx2<double>},
#endif
};

}  // namespace

std::span<const FingerprintMethod> fingerprint_methods() {
#if defined(__x86_64__)
  static const bool avx2 = has_avx2();
  return std::span(kWays).first(avx2 ? kWays.size() : kWays.size() - 1);
#else
  return kWays;
#endif
}

namespace {

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

Fingerprinter::Fingerprinter(std::uint32_t k, const FingerprintMethod& method)
    : k_(k), method_(&method) {
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
  out.hash = fingerprinting::whole_hash(sums_.hash, sums_.count);
  out.norm = std::sqrt(sum(sums_.squares));
  out.non_finite = sums_.non_finite;
  if (sums_.lowest <= sums_.highest) {
    out.min = std::bit_cast<double>(bits_of_key(sums_.lowest));
    out.max = std::bit_cast<double>(bits_of_key(sums_.highest));
  }
  if (k_ > 0) out.sketch = fold(sums_.by_signs, k_);
  return out;
}

}  // namespace lockstep::trace
