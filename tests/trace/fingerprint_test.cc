// Hashes, norms and sketches of tensors.
#include "trace/fingerprint.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace lockstep {
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

TEST(Fingerprint, PartsInAnyOrderComeToTheWhole) {
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

TEST(Fingerprint, EveryBitAndEveryPlaceCounts) {
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
}  // namespace lockstep
