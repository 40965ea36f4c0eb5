#include "sim/sweep/row.h"

#include <gmock/gmock.h>

namespace lockstep::sim {
namespace {

using ::testing::HasSubstr;

Row trains() {
  Row out;
  out.machine = "machines/dgx-h100.yaml";
  out.values = {{"train.lr", 0.1}, {"ranks", 4}, {"strategy", {{"kind", "fsdp"}}}};
  out.outcome = Outcome::trains;
  out.ranks = 4;
  out.step_seconds = 0.0123;
  out.samples_per_second = 2601.6260162601625;
  out.memory_bytes = 2.5e9;
  out.memory_counted = true;
  out.device_bytes = 8e10;
  out.sent_bytes = 1e6;
  out.calls = 12.5;
  return out;
}

TEST(Row, IsReadAsItWasWritten) {
  Row hangs;
  hangs.machine = "m.yaml";
  hangs.outcome = Outcome::hangs;
  hangs.reason = "modality-divergence: \"so\"\n\x01\xff";
  hangs.ranks = 4;
  Row wrong = hangs;
  wrong.outcome = Outcome::wrong;
  Row refused = hangs;
  refused.outcome = Outcome::refused;
  refused.ranks = 0;
  for (const Row& row : {trains(), hangs, wrong, refused}) {
    const std::string line = row_line(row, true);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    const auto read = parse_row(line.substr(0, line.size() - 1));
    ASSERT_TRUE(read) << read.error().str();
    EXPECT_EQ(row_line(*read, true), line);
    EXPECT_EQ(point_key(read->machine, read->values), point_key(row.machine, row.values));
  }
}

TEST(Row, SaysWhetherItFits) {
  EXPECT_THAT(row_line(trains(), true), HasSubstr(R"("verdict":"ok")"));
  EXPECT_THAT(row_line(trains(), false), HasSubstr(R"("verdict":"does-not-fit")"));
  EXPECT_THAT(row_line(trains(), false), HasSubstr(R"("fits":false)"));
}

TEST(Row, ThePointIsTheSameInAnyOrderOfItsKeys) {
  Row other = trains();
  other.values = {{"strategy", {{"kind", "fsdp"}}}, {"ranks", 4}, {"train.lr", 0.1}};
  EXPECT_EQ(point_key(other.machine, other.values), point_key(trains().machine, trains().values));
  other.values["ranks"] = "4";
  EXPECT_NE(point_key(other.machine, other.values), point_key(trains().machine, trains().values));
}

TEST(Row, CutAnywhereItIsNoRow) {
  const std::string line = row_line(trains(), true);
  for (std::size_t size = 0; size + 2 < line.size(); ++size)
    EXPECT_FALSE(parse_row(line.substr(0, size))) << size;
}

TEST(Row, WhatIsMissingOrOfAnotherTypeIsNamed) {
  const auto why = [](const std::string& line) {
    const auto row = parse_row(line);
    return row ? "read" : row.error().message;
  };
  EXPECT_THAT(why("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(why("{}"), HasSubstr("verdict"));
  EXPECT_THAT(why(R"({"machine":"m","values":{},"verdict":"good"})"), HasSubstr("good"));
  EXPECT_THAT(why(R"({"machine":1,"values":{},"verdict":"hangs","reason":"r"})"),
              HasSubstr("machine"));
  EXPECT_THAT(why(R"({"machine":"m","values":[],"verdict":"hangs","reason":"r"})"),
              HasSubstr("values"));
  EXPECT_THAT(why(R"({"machine":"m","values":{},"verdict":"ok","ranks":0})"),
              HasSubstr("at least one rank"));
  EXPECT_THAT(
      why(R"({"machine":"m","values":{},"verdict":"ok","ranks":2,"step_time_s":-1,)"
          R"("samples_per_s":1,"memory_bytes":1,"memory_counted":true,"bytes_sent_per_step":1,)"
          R"("calls_per_step":1})"),
      HasSubstr("step_time_s"));
  const std::string deep(5000, '[');
  EXPECT_THAT(why(R"({"values":)" + deep + std::string(5000, ']') + "}"), HasSubstr("too deep"));
}

}  // namespace
}  // namespace lockstep::sim
