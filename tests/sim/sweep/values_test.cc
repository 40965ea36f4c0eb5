#include <gmock/gmock.h>

#include "sim/sweep/variation.h"

namespace lockstep::sim {
namespace {

using ::testing::HasSubstr;

// The values as one JSON list.
std::string values(const std::string& text) {
  const auto out = parse_values(text);
  return out ? nlohmann::json(*out).dump() : "error: " + out.error().message;
}

TEST(Values, AreWhatYamlSaysTheyAre) {
  EXPECT_EQ(values("ddp,fsdp"), R"(["ddp","fsdp"])");
  EXPECT_EQ(values("8, 16,0.5,true,\"8\""), R"([8,16,0.5,true,"8"])");
  EXPECT_EQ(values("{kind: fsdp, shard_ranks: 2},ddp"),
            R"([{"kind":"fsdp","shard_ranks":2},"ddp"])");
  EXPECT_EQ(values("[text],[image, text]"), R"([["text"],["image","text"]])");
  EXPECT_EQ(values("900GB/s,1us"), R"(["900GB/s","1us"])");
}

TEST(Values, RangesMultiplyAndAdd) {
  EXPECT_EQ(values("2..16*2"), "[2,4,8,16]");
  EXPECT_EQ(values("2..17*2"), "[2,4,8,16]");
  EXPECT_EQ(values("1..4"), "[1,2,3,4]");
  EXPECT_EQ(values("3..3"), "[3]");
  EXPECT_EQ(values("2..9+3"), "[2,5,8]");
  EXPECT_EQ(values("-2..2+2"), "[-2,0,2]");
  EXPECT_EQ(values("1,4..16*2"), "[1,4,8,16]");
}

TEST(Values, RangesOfFractionsReachTheirEnd) {
  EXPECT_EQ(values("0.1..0.5+0.1"), "[0.1,0.2,0.3,0.4,0.5]");
  EXPECT_EQ(values("0.001..0.1*10"), "[0.001,0.01,0.1]");
  EXPECT_EQ(values("1e-3..1e-1*10"), "[0.001,0.01,0.1]");
  EXPECT_EQ(values("1..10*1.5"), "[1.0,1.5,2.25,3.375,5.0625,7.59375]");
}

TEST(Values, RangesOfQuantitiesKeepTheirUnit) {
  EXPECT_EQ(values("25GB/s..100GB/s*2"), R"(["25GB/s","50GB/s","100GB/s"])");
  EXPECT_EQ(values("1us..2us+500us"), R"(["1us"])");
  EXPECT_EQ(values("1us..2us+0.5us"), R"(["1us","1.5us","2us"])");
  EXPECT_EQ(values("1us..2us+0.5"), R"(["1us","1.5us","2us"])");
}

TEST(Values, WhatOnlyLooksLikeARangeIsText) {
  EXPECT_EQ(values("a..b,../data"), R"(["a..b","../data"])");
}

TEST(Values, WhatIsWrongIsSaid) {
  EXPECT_THAT(values(""), HasSubstr("no value"));
  EXPECT_THAT(values("8,8"), HasSubstr("8 is given twice"));
  EXPECT_THAT(values("2..8*2,4"), HasSubstr("4 is given twice"));
  EXPECT_THAT(values("8..2"), HasSubstr("ends before it starts"));
  EXPECT_THAT(values("2..8*1"), HasSubstr("factor be above 1"));
  EXPECT_THAT(values("0..8*2"), HasSubstr("start above 0"));
  EXPECT_THAT(values("2..8+0"), HasSubstr("step should be above 0"));
  EXPECT_THAT(values("2..8+-1"), HasSubstr("step should be above 0"));
  EXPECT_THAT(values("0.5..2"), HasSubstr("need a step"));
  EXPECT_THAT(values("1GB/s..2Gb/s*2"), HasSubstr("different units"));
  EXPECT_THAT(values("1us..2us+1ms"), HasSubstr("another unit"));
  EXPECT_THAT(values("2..x"), HasSubstr("should be a number"));
  EXPECT_THAT(values("2..8*"), HasSubstr("should be a number"));
  EXPECT_THAT(values("1..2000"), HasSubstr("more than 1000"));
  EXPECT_THAT(values("1.0..1.1+1e-300"), HasSubstr("more than 1000"));
  EXPECT_THAT(values("{a"), HasSubstr("not a list of values"));
  EXPECT_THAT(values("1]\n---\n[2"), HasSubstr("not a list of values"));
}

TEST(Values, TheEndsOfNumbersDoNotOverflow) {
  EXPECT_EQ(values("9223372036854775806..9223372036854775807"),
            "[9223372036854775806,9223372036854775807]");
  EXPECT_EQ(values("-9223372036854775808..9223372036854775807+9223372036854775807"),
            "[-9223372036854775808,-1,9223372036854775806]");
  EXPECT_EQ(values("3..9223372036854775807*9223372036854775807"), "[3]");
  EXPECT_THAT(values("1e308..1.5e308*1.5"), HasSubstr("1e+308"));
}

}  // namespace
}  // namespace lockstep::sim
