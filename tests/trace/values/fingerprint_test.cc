// Hashes, norms and sketches of tensors.
#include "trace/values/fingerprint.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace lockstep::trace {
namespace {

std::vector<float> random_values(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& x : out) x = normal(random);
  return out;
}

template <class T>
Fingerprint of(const std::vector<T>& values) {
  Fingerprinter f;
  f.add(values, 0);
  return f.finish();
}

// What the header says, element by element, and with numbers of its own.
template <class T>
Fingerprint by_definition(std::span<const T> values, std::uint64_t first) {
  const auto mixed = [](std::uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31U);
  };
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ULL;
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  Fingerprint out;
  out.sketch.assign(kSketchValues, 0);
  bool any = false;
  double squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t index = first + i;
    T value = values[i] == T{0} ? T{0} : values[i];
    if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
    out.hash += mixed(std::bit_cast<Bits>(value) ^ (index + 1) * kGolden);
    if (!std::isfinite(value)) {
      ++out.non_finite;
      continue;
    }
    const auto x = static_cast<double>(value);
    squares += x * x;
    out.min = any ? std::min(out.min, x) : x;
    out.max = any ? std::max(out.max, x) : x;
    any = true;
    const std::uint64_t signs = mixed(index / 8 * kGolden + 1) >> index % 8 * 8;
    for (std::size_t j = 0; j < kSketchValues; ++j) {
      out.sketch[j] += (signs >> j & 1U) != 0 ? -x : x;
    }
  }
  out.hash = mixed(out.hash + values.size() * kGolden);
  out.norm = std::sqrt(squares);
  return out;
}

// Numbers of all sizes: small and large, subnormal, 0 and -0, and now and then one that is none.
template <class T>
std::vector<T> odd_values(std::size_t n, std::mt19937_64& random, bool finite) {
  using Limits = std::numeric_limits<T>;
  const T odd[] = {T{0},
                   -T{0},
                   Limits::denorm_min(),
                   -Limits::min() / 2,
                   static_cast<T>(1e-30),
                   static_cast<T>(3e18),
                   finite ? T{1} : Limits::infinity(),
                   finite ? -T{1} : -Limits::infinity(),
                   finite ? T{2} : -Limits::quiet_NaN(),
                   finite ? T{3} : Limits::signaling_NaN()};
  std::normal_distribution<T> normal;
  std::vector<T> out(n);
  for (T& x : out) {
    const std::uint64_t which = random() % (20 * std::size(odd));
    x = which < std::size(odd) ? odd[which] : normal(random);
  }
  return out;
}

template <class T>
void all_ways_agree() {
  std::mt19937_64 random(7);
  for (int round = 0; round < 400; ++round) {
    const std::size_t n = random() % (round % 10 == 0 ? 3000 : 40);
    const std::size_t offset = random() % 9;  // in memory
    const std::uint64_t first = round % 3 == 0 ? 0 : random() >> (random() % 64);
    const std::vector<T> values = odd_values<T>(offset + n, random, round % 2 == 0);
    const auto part = std::span(values).subspan(offset);
    SCOPED_TRACE(std::to_string(n) + " elements from place " + std::to_string(first));
    const Fingerprint expected = by_definition(part, first);
    Fingerprinter one_by_one(kSketchValues, fingerprint_methods().front());
    one_by_one.add(part, first);
    const Fingerprint plain = one_by_one.finish();
    EXPECT_EQ(plain.hash, expected.hash);
    EXPECT_EQ(plain.non_finite, expected.non_finite);
    EXPECT_EQ(plain.min, expected.min);
    EXPECT_EQ(plain.max, expected.max);
    // Sums in another order: as far apart as doubles are.
    const double close = 1e-13 * std::max(expected.norm, 1e-300) * std::sqrt(double(n + 1));
    EXPECT_NEAR(plain.norm, expected.norm, close);
    for (std::size_t j = 0; j < kSketchValues; ++j) {
      EXPECT_NEAR(plain.sketch[j], expected.sketch[j], close) << "value " << j << " of the sketch";
    }
    for (const FingerprintMethod& method : fingerprint_methods().subspan(1)) {
      Fingerprinter f(kSketchValues, method);
      f.add(part, first);
      EXPECT_EQ(f.finish(), plain) << method.name;  // to the last bit
    }
  }
}

TEST(Fingerprint, AllWaysToTakeFloatsAgree) { all_ways_agree<float>(); }
TEST(Fingerprint, AllWaysToTakeDoublesAgree) { all_ways_agree<double>(); }

TEST(Fingerprint, IsWhatEarlierTracesHold) {
  std::vector<float> values(1000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.25F * static_cast<float>(i) - 100;
  const Fingerprint f = of(values);
  EXPECT_EQ(f.hash, 0xF62DC08B7ACA4F11ULL);
  EXPECT_EQ(f.norm, 2413.9373956256613);
  EXPECT_EQ(f.sketch,
            (std::vector<double>{19, 186.5, 6327, -2197.5, -4652.5, -2611.5, -2513, 2541}));
  EXPECT_EQ(of(std::vector<double>(values.begin(), values.end())).hash, 0x69B27617D9D51A41ULL);
  EXPECT_EQ(of(std::vector<double>{}).hash, 0x0ULL);
}

TEST(Fingerprint, WithoutASketchAllElseIsTheSame) {
  const std::vector<float> values = random_values(300, 5);
  Fingerprinter f(0);
  f.add(values, 0);
  const Fingerprint without = f.finish();
  Fingerprint with = of(values);
  with.sketch.clear();
  EXPECT_EQ(without, with);
}

TEST(Fingerprint, AShorterSketchIsItsBeginning) {
  const std::vector<float> values = random_values(300, 6);
  const std::vector<double> all = of(values).sketch;
  for (std::uint32_t k = 1; k < kSketchValues; ++k) {
    Fingerprinter f(k);
    f.add(values, 0);
    EXPECT_EQ(f.finish().sketch, std::vector<double>(all.begin(), all.begin() + k));
  }
}

TEST(Fingerprint, OfNothingIsEmpty) {
  const Fingerprint f = of(std::vector<float>{});
  EXPECT_EQ(f.norm, 0);
  EXPECT_EQ(f.min, 0);
  EXPECT_EQ(f.max, 0);
  EXPECT_EQ(f.sketch, std::vector<double>(kSketchValues));
}

TEST(Fingerprint, PartsInAnyOrderGiveTheWhole) {
  const std::vector<float> values = random_values(1003, 1);
  const std::span<const float> all = values;
  Fingerprinter back;
  back.add(all.subspan(500), 500);
  Fingerprinter front;
  front.add(all.first(500), 0);
  back.merge(front);
  const Fingerprint parts = back.finish();
  const Fingerprint whole = of(values);
  EXPECT_EQ(parts.hash, whole.hash);
  EXPECT_NEAR(parts.norm, whole.norm, 1e-9);
  for (std::size_t j = 0; j < kSketchValues; ++j) {
    EXPECT_NEAR(parts.sketch[j], whole.sketch[j], 1e-9);
  }
}

TEST(Fingerprint, EveryBitAndEveryIndexCounts) {
  std::vector<float> values = random_values(64, 2);
  const std::uint64_t before = of(values).hash;
  std::swap(values[3], values[4]);
  EXPECT_NE(of(values).hash, before);
  std::swap(values[3], values[4]);
  values[63] = std::nextafter(values[63], 10.0F);
  EXPECT_NE(of(values).hash, before);
  values.pop_back();
  EXPECT_NE(of(values).hash, before);
}

TEST(Fingerprint, EqualNumbersHaveOneHash) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(of<float>({0.0F, nan}).hash, of<float>({-0.0F, -nan}).hash);
}

TEST(Fingerprint, WhatIsNotFiniteIsCountedAndLeftOut) {
  const float inf = std::numeric_limits<float>::infinity();
  const Fingerprint f = of<float>({3, inf, -4, std::nanf("")});
  EXPECT_EQ(f.non_finite, 2U);
  EXPECT_EQ(f.norm, 5);
  EXPECT_EQ(f.min, -4);
  EXPECT_EQ(f.max, 3);
}

TEST(Fingerprint, SketchesAreLinear) {
  const std::vector<float> a = random_values(777, 3);
  const std::vector<float> b = random_values(777, 4);
  std::vector<double> sum(a.begin(), a.end());
  for (std::size_t i = 0; i < b.size(); ++i) sum[i] += static_cast<double>(b[i]);
  const Fingerprint whole = of(sum);
  for (std::size_t j = 0; j < kSketchValues; ++j) {
    EXPECT_NEAR(whole.sketch[j], of(a).sketch[j] + of(b).sketch[j], 1e-9);
  }
}

TEST(Fingerprint, TheMeanSquareOfSketchesIsTheSquareOfTheNorm) {
  double ratio = 0;
  constexpr int kTensors = 200;
  for (std::uint64_t seed = 0; seed < kTensors; ++seed) {
    const Fingerprint f = of(random_values(500, seed));
    double squares = 0;
    for (const double s : f.sketch) squares += s * s;
    ratio += squares / kSketchValues / (f.norm * f.norm) / kTensors;
  }
  EXPECT_NEAR(ratio, 1, 0.1);
}

}  // namespace
}  // namespace lockstep::trace
