#include "base/quantities.h"

#include <string>

#include <gtest/gtest.h>

#include "base/rational.h"

namespace lockstep {
namespace {

TEST(Units, DurationsAreExactPicoseconds) {
  EXPECT_EQ(parse_duration("500ns")->value, 500'000);
  EXPECT_EQ(parse_duration("1us")->value, 1'000'000);
  EXPECT_EQ(parse_duration("1.5 ms")->value, 1'500'000'000);
  EXPECT_EQ(parse_duration("0.001ns")->value, 1);
  EXPECT_EQ(parse_duration("0ns")->value, 0);
  EXPECT_EQ(parse_duration("2h")->value, 7'200'000'000'000'000);
}

TEST(Units, DecimalAndBinaryPrefixesDiffer) {
  EXPECT_EQ(parse_bytes("1MiB")->value, 1'048'576);
  EXPECT_EQ(parse_bytes("1MB")->value, 1'000'000);
  EXPECT_EQ(parse_bytes("0.5KiB")->value, 512);
  EXPECT_EQ(parse_bandwidth("50GB/s")->bits_per_second, 400'000'000'000);
  EXPECT_EQ(parse_bandwidth("50GiB/s")->bits_per_second, 50LL * 8 * 1024 * 1024 * 1024);
  EXPECT_EQ(parse_bandwidth("400Gb/s")->bits_per_second, 400'000'000'000);
  EXPECT_EQ(parse_bandwidth("46.566GB/s")->bits_per_second, 372'528'000'000);
  EXPECT_EQ(parse_flop_rate("989TFLOP/s")->per_second, 989'000'000'000'000);
}

TEST(Units, ImpossibleQuantitiesAreRefusedWithReasonAndFix) {
  const auto refused = [](const auto& result, const std::string& why) {
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find(why), std::string::npos) << result.error().message;
    EXPECT_NE(result.error().fix.find("a number and a unit"), std::string::npos);
  };
  refused(parse_duration("500"), "has no unit");
  refused(parse_duration("500 parsecs"), "unknown unit");
  refused(parse_duration("-1ns"), "is negative");
  refused(parse_duration(""), "is empty");
  refused(parse_duration("ns"), "does not begin with a number");
  refused(parse_duration("."), "does not begin with a number");
  refused(parse_duration("0.5ps"), "not a whole number of picoseconds");
  refused(parse_duration("1e3ns"), "unknown unit");
  refused(parse_duration("99999999h"), "too large");
  refused(parse_duration("99999999999999999999ns"), "too large");
  refused(parse_bytes("1Mb"), "unknown unit");
  refused(parse_bytes("0.3KiB"), "not a whole number of bytes");
  refused(parse_bandwidth("0GB/s"), "is zero");
  refused(parse_bandwidth("-3GB/s"), "is negative");
  refused(parse_bandwidth("50GB"), "unknown unit");
}

TEST(Units, EscapesWhatItQuotesAndCutsItShort) {
  const auto refused = parse_bytes("1\x1b[2J" + std::string(5000, 'x'));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message.find('\x1b'), std::string::npos);
  EXPECT_LT(refused.error().message.size(), 200U);
}

TEST(Units, ListsAreSeparatedByCommas) {
  EXPECT_EQ(parse_durations("1us,2us")->size(), 2U);
  EXPECT_FALSE(parse_durations("1us,"));
  EXPECT_FALSE(parse_sizes(""));
}

TEST(Figures, HaveThreeDigitsAndNoTrailingZeros) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(0.004), "0");
  EXPECT_EQ(number_text(0.046), "0.05");
  EXPECT_EQ(number_text(1.5), "1.5");
  EXPECT_EQ(number_text(9.996), "10");
  EXPECT_EQ(number_text(-12.34), "-12.3");
  EXPECT_EQ(number_text(-0.001), "0");
  EXPECT_EQ(number_text(999.4), "999");
  EXPECT_EQ(number_text(1234.5), "1,235");
  EXPECT_EQ(number_text(1e30), "1,000,000,000,000,000,000");
  EXPECT_EQ(percent(0.453), "45.3 %");
  EXPECT_EQ(percent(1), "100 %");
  EXPECT_EQ(scientific(0.00123), "1.2e-03");
}

TEST(Figures, ADurationHasTheUnitThatFits) {
  EXPECT_EQ(duration_text(Picos{104'287'680}), "104 us");
  EXPECT_EQ(duration_text(Picos{0}), "0 s");
  EXPECT_EQ(duration_text(Picos::forever()), "forever");
  EXPECT_EQ(duration_text(25.1646), "25.2 s");
  EXPECT_EQ(duration_text(25164.559e-3), "25.2 s");
  EXPECT_EQ(duration_text(0.0009996), "1 ms");
  EXPECT_EQ(duration_text(59.94), "59.9 s");
  EXPECT_EQ(duration_text(59.96), "1 min");
  EXPECT_EQ(duration_text(200), "3 min 20 s");
  EXPECT_EQ(duration_text(3900), "1 h 5 min");
}

TEST(Figures, ASizeIsInBinaryUnits) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(300), "300 B");
  EXPECT_EQ(bytes_text(1024 + 512), "1.5 KiB");
  EXPECT_EQ(bytes_text((1U << 20U) - 1), "1 MiB");
  EXPECT_EQ(bytes_text(Bytes{80'000'000'000}), "74.5 GiB");
  EXPECT_EQ(bytes_text(UINT64_MAX), "16,384 PiB");
}

TEST(Picos, OverflowIsForeverAndStays) {
  const Picos almost{Picos::forever().value - 1};
  EXPECT_FALSE(almost.is_forever());
  EXPECT_TRUE((almost + Picos{1}).is_forever());
  EXPECT_TRUE((almost * 2).is_forever());
  EXPECT_TRUE((Picos::forever() + Picos{5}).is_forever());
  EXPECT_TRUE((Picos::forever() - Picos{5}).is_forever());
  EXPECT_EQ(Picos{3} - Picos{5}, Picos{0});
  EXPECT_EQ(Picos::forever() * 0, Picos{0});
}

TEST(Rational, IsExactAndRoundsOnceHalvesUp) {
  EXPECT_EQ(Rational(1, 3) + Rational(1, 6), Rational(1, 2));
  EXPECT_EQ((Rational(2, 3) * Rational(9, 4)), Rational(3, 2));
  EXPECT_EQ(Rational(3, 2).rounded(), 2);
  EXPECT_EQ(Rational(4, 3).rounded(), 1);
  EXPECT_EQ(Rational(0, 7), Rational());
}

TEST(Rational, WhatDoesNotFitSaysSo) {
  Rational huge = INT64_MAX;
  huge = huge * huge;
  EXPECT_FALSE(huge.too_large());
  EXPECT_EQ(huge.rounded(), std::nullopt);
  huge = huge * huge;
  EXPECT_TRUE(huge.too_large());
  EXPECT_TRUE((huge + 1).too_large());
  EXPECT_TRUE((Rational(0) * huge).too_large());
}

}  // namespace
}  // namespace lockstep
