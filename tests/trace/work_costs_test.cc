#include "trace/work_costs.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace lockstep::trace {
namespace {

using testing::HasSubstr;

RankCosts some_costs() {
  WorkCost one;
  one.before = WorkCost::Before::call;
  one.id = 17;
  one.step = -1;
  one.flops = {{"float32", 1.5e12, 0}, {"bfloat16", 0, 3}};
  one.product_bytes = 1e9;
  one.kernels = 12;
  one.memory.emplace();
  one.memory->peak[MemoryCategory::parameters] = 4096;
  one.memory->peak[MemoryCategory::temporary] = std::int64_t{1} << 40;
  one.memory->end[MemoryCategory::parameters] = 4096;
  WorkCost two;
  two.before = WorkCost::Before::wait;
  two.id = 17;
  two.step = 3;
  two.memory_bytes = 0.25;
  two.operations = 77;
  two.nanos = 123456789;
  WorkCost three;
  three.before = WorkCost::Before::step;
  three.id = 3;
  three.step = 3;
  three.memory.emplace();  // nothing is held
  WorkCost four;
  four.before = WorkCost::Before::checkpoint;
  four.id = 3;
  four.step = 3;
  WorkCost five = four;
  five.before = WorkCost::Before::evaluation;
  return {5, 4096, 99, {one, two, three, four, five}};
}

TEST(WorkCosts, ReadsWhatItWrites) {
  const RankCosts costs = some_costs();
  const auto read = parse_work_costs(work_costs_text(costs), "f");
  ASSERT_TRUE(read) << read.error().str();
  EXPECT_EQ(*read, costs);
}

TEST(WorkCosts, AmountsBeyondWholeNumbersAreReadAsWritten) {
  RankCosts costs = some_costs();
  for (const double amount : {18446744073709551616.0, 18446744073709552e3, 9223372036854775808.0,
                              999999999999999999.0, 12345678901234567890.0, 1e308, 5e-324}) {
    costs.work[0].memory_bytes = amount;
    const auto read = parse_work_costs(work_costs_text(costs), "f");
    ASSERT_TRUE(read) << amount << read.error().str();
    EXPECT_EQ(*read, costs) << amount;
  }
}

TEST(WorkCosts, ARankThatDoesNothingHasNone) {
  const auto read = parse_work_costs(work_costs_text({2, 0, 0, {}}), "f");
  ASSERT_TRUE(read) << read.error().str();
  EXPECT_TRUE(read->work.empty());
}

TEST(WorkCosts, AFileThatWasCutOffAnywhereIsRefused) {
  const std::string text = work_costs_text(some_costs());
  // Except for the line break at its end.
  for (std::size_t length = 0; length + 1 < text.size(); ++length) {
    const auto read = parse_work_costs(text.substr(0, length), "f");
    ASSERT_FALSE(read) << length;
    EXPECT_EQ(read.error().location.file, "f");
  }
}

TEST(WorkCosts, EveryBitThatFlipsIsReadOrRefused) {
  const std::string text = work_costs_text(some_costs());
  int refused = 0;
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    const auto read = parse_work_costs(damaged, "f");
    if (!read) {
      ++refused;
      continue;
    }
    for (const WorkCost& work : read->work) {
      EXPECT_GE(work.product_bytes, 0);
      EXPECT_GE(work.kernels, 0);
      if (!work.memory) continue;
      EXPECT_GE(work.memory->peak.total(), work.memory->end.total());
      for (const std::int64_t bytes : work.memory->peak.bytes) EXPECT_GE(bytes, 0);
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(WorkCosts, WhatMakesNoSenseIsRefusedWithTheReason) {
  const auto refusal = [](const std::string& text) {
    const auto read = parse_work_costs(text, "costs.json");
    return read ? std::string("accepted") : read.error().str();
  };
  const std::string good = work_costs_text(some_costs());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  EXPECT_EQ(refusal(good), "accepted");
  EXPECT_THAT(refusal("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(with("\"work_costs\":2", "\"work_costs\":1")), HasSubstr("version"));
  EXPECT_THAT(refusal(with("\"work_costs\":2", "\"work_costs\":3")), HasSubstr("version"));
  EXPECT_THAT(refusal(with("\"kernels\":12", "\"kernels\":-12")), HasSubstr("kernels"));
  EXPECT_THAT(refusal(with("\"before\":\"wait\"", "\"before\":\"rest\"")), HasSubstr("rest"));
  EXPECT_THAT(refusal(with("\"product_bytes\":1000000000.0", "\"product_bytes\":-1")),
              HasSubstr("product_bytes"));
  EXPECT_THAT(refusal(with("float32", "FLOAT 32")), HasSubstr("names of types"));
  EXPECT_THAT(refusal(with("\"temporary\":1", "\"temporary\":-1")), HasSubstr("by category"));
  EXPECT_THAT(refusal(with("\"temporary\":1", "\"temporary\":1.5e3,\"other\":1")),
              HasSubstr("by category"));
  EXPECT_THAT(refusal(with("\"temporary\":", "\"pets\":")), HasSubstr("by category"));
  EXPECT_THAT(refusal(with("\"temporary\":1", "\"temporary\":9000000")), HasSubstr("by category"));
  EXPECT_THAT(refusal(with("\"end\":{\"parameters\":4096", "\"end\":{\"inputs\":9000000000000")),
              HasSubstr("above its peak"));
  EXPECT_THAT(refusal(with("\"end\"", "\"beginning\"")), HasSubstr("no \"end\""));
  EXPECT_THAT(refusal(with("\"memory\":{", "\"memory\":7,\"x\":{")), HasSubstr("not an object"));
  EXPECT_THAT(refusal(with("\"rank\":5", "\"rank\":4294967296")), HasSubstr("rank"));
}

TEST(WorkCosts, AFileThatIsNotThereIsAnError) {
  EXPECT_FALSE(read_work_costs(TempDir().file("none")));
  EXPECT_EQ(costs_file("folder", 3), "folder/rank_3.costs.json");
}

}  // namespace
}  // namespace lockstep::trace
