// Exact non-negative fractions of 128-bit integers, for values finer than a picosecond: a chunk of
// B/n bytes, a third of a picosecond. They are rounded once, at the end.
//
// A result that does not fit is "too large", and so is every sum and product with it.
#pragma once

#include <cstdint>
#include <optional>

#include "base/check.h"

namespace lockstep {

__extension__ typedef __int128 Int128;

class Rational {
 public:
  constexpr Rational() = default;
  // `denominator` > 0, `numerator` >= 0.
  constexpr Rational(Int128 numerator, Int128 denominator = 1)  // NOLINT: integers are rationals
      : numerator_(numerator), denominator_(denominator) {
    LOCKSTEP_CHECK(denominator > 0 && numerator >= 0, "a rational below zero or over zero");
    reduce();
  }

  constexpr bool too_large() const { return denominator_ == 0; }
  // In lowest terms. Must not be too large.
  constexpr Int128 numerator() const { return numerator_; }
  constexpr Int128 denominator() const { return denominator_; }

  friend constexpr Rational operator*(const Rational& a, const Rational& b) {
    if (a.too_large() || b.too_large()) return overflown();
    // Cross-cancel first, so that the products stay small.
    const Int128 left = gcd(a.numerator_, b.denominator_);
    const Int128 right = gcd(b.numerator_, a.denominator_);
    const auto numerator = product(a.numerator_ / left, b.numerator_ / right);
    const auto denominator = product(a.denominator_ / right, b.denominator_ / left);
    if (!numerator || !denominator) return overflown();
    return {*numerator, *denominator};
  }
  friend constexpr Rational operator+(const Rational& a, const Rational& b) {
    if (a.too_large() || b.too_large()) return overflown();
    const Int128 shared = gcd(a.denominator_, b.denominator_);
    const auto left = product(a.numerator_, b.denominator_ / shared);
    const auto right = product(b.numerator_, a.denominator_ / shared);
    const auto denominator = product(a.denominator_, b.denominator_ / shared);
    if (!left || !right || !denominator || *left > kMax - *right) return overflown();
    return {*left + *right, *denominator};
  }
  friend constexpr bool operator==(const Rational&, const Rational&) = default;

  // The nearest integer, halves up; empty if it does not fit.
  constexpr std::optional<std::int64_t> rounded() const {
    if (too_large()) return std::nullopt;
    const Int128 whole = numerator_ / denominator_;
    const Int128 rest = numerator_ % denominator_;
    const Int128 value = whole + (rest >= denominator_ - rest ? 1 : 0);
    if (value > INT64_MAX) return std::nullopt;
    return static_cast<std::int64_t>(value);
  }

  static constexpr Int128 gcd(Int128 a, Int128 b) {
    while (b != 0) {
      const Int128 rest = a % b;
      a = b, b = rest;
    }
    return a == 0 ? 1 : a;
  }

 private:
  static constexpr Int128 kMax = ~(static_cast<Int128>(1) << 127);

  static constexpr Rational overflown() {
    Rational value;
    value.denominator_ = 0;
    return value;
  }
  static constexpr std::optional<Int128> product(Int128 a, Int128 b) {
    if (b != 0 && a > kMax / b) return std::nullopt;
    return a * b;
  }
  constexpr void reduce() {
    const Int128 shared = gcd(numerator_, denominator_);
    numerator_ /= shared, denominator_ /= shared;
  }

  Int128 numerator_ = 0;
  Int128 denominator_ = 1;  // 0: too large
};

}  // namespace lockstep
