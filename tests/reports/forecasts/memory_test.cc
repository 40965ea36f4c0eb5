// What is said of memory, of timelines made by hand.
#include "reports/forecasts/memory.h"

#include <regex>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/tables.h"

namespace lockstep::reports {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Category = trace::MemoryCategory;

constexpr std::int64_t kGiga = 1'000'000'000;

sim::MemoryTimeline timeline(std::vector<std::int32_t> ranks, std::int64_t activations) {
  sim::MemoryTimeline out;
  out.ranks = std::move(ranks);
  for (std::int64_t s = -1; s < 2; ++s) {
    sim::MemorySegment segment;
    segment.begin = Picos{(s + 1) * kGiga};
    segment.end = Picos{(s + 2) * kGiga};
    segment.step = s;
    segment.memory.end[Category::parameters] = 20 * kGiga;
    segment.memory.peak = segment.memory.end;
    if (s == 1) segment.memory.peak[Category::activations] = activations;
    out.segments.push_back(segment);
  }
  out.peak = 2;
  return out;
}

sim::MemoryForecast forecast(std::vector<sim::MemoryTimeline> classes) {
  sim::MemoryForecast out;
  for (const auto& own : classes)
    out.peaks_before.push_back("all_reduce(image_proj.weight of rank " +
                               std::to_string(own.ranks.front()) + ")");
  out.classes = std::move(classes);
  return out;
}

sim::Machine machine(std::int64_t per_device) {
  sim::Machine out;
  out.per_device = Bytes{per_device};
  return out;
}

TEST(SimulateMemory, WhatDoesNotFitSaysByHowMuchOnWhichRankAndWhatFor) {
  const sim::MemoryForecast memory =
      forecast({timeline({0, 1, 2}, 30 * kGiga), timeline({3}, 70 * kGiga)});
  std::string text = memory_text(memory, machine(80 * kGiga));
  text = std::regex_replace(text, std::regex("\\s+"), " ");  // as if it were one line
  EXPECT_THAT(text, AllOf(HasSubstr("memory at its peak: rank 3, step 1, at 3 ms"),
                          HasSubstr("all_reduce(image_proj.weight of rank 3)"),
                          HasSubstr("does not fit: rank 3 needs 83.8 GiB of 74.5 GiB, 9.31 GiB too "
                                    "much"),
                          HasSubstr("activations are 77.8 %"), HasSubstr("ranks 0-2")));
  EXPECT_FALSE(sim::fits(memory, machine(80 * kGiga)));
  EXPECT_TRUE(sim::fits(memory, machine(90 * kGiga)));
  EXPECT_THAT(memory_text(memory, machine(90 * kGiga)), Not(HasSubstr("fit")));
  EXPECT_TRUE(sim::fits(memory, sim::Machine()));
}

TEST(SimulateMemory, WhatTheMachineFileAddsIsPartOfTheNeed) {
  sim::Machine own = machine(80 * kGiga);
  own.reserved = Bytes{2 * kGiga};
  own.fragmentation = 1.1;
  const sim::MemoryForecast memory = forecast({timeline({0}, 50 * kGiga)});
  EXPECT_THAT(memory_text(memory, own),
              AllOf(HasSubstr("fragmentation"), HasSubstr("6.52 GiB"), HasSubstr("reserved")));
  EXPECT_EQ(memory_headline(memory, own), "73.6 GiB of 74.5 GiB");
  EXPECT_TRUE(sim::fits(memory, own));
  own.reserved = Bytes{4 * kGiga};
  EXPECT_FALSE(sim::fits(memory, own));
  EXPECT_THAT(memory_assumption(own), AllOf(HasSubstr("1.1 times"), HasSubstr("3.73 GiB")));
  EXPECT_THAT(memory_assumption(sim::Machine()), HasSubstr("left out"));
}

TEST(SimulateMemory, NoLineIsWiderThanATerminalHoweverManyRanksAndLongNames) {
  std::vector<sim::MemoryTimeline> classes;
  for (std::int32_t c = 0; c < 40; ++c) {
    std::vector<std::int32_t> ranks;
    for (std::int32_t r = 0; r < 50; ++r) ranks.push_back(c + 80 * r);
    classes.push_back(timeline(std::move(ranks), c * kGiga));
  }
  sim::MemoryForecast memory = forecast(std::move(classes));
  for (std::string& before : memory.peaks_before)
    before =
        "all_reduce(\x1b[31m image_encoder.block17.attention.out_proj.weight and "
        "text_encoder.block17.attention.out_proj.weight)";
  const std::string text = memory_text(memory, machine(kGiga));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("\x1b")), HasSubstr("31 other kinds of ranks")));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), 80U) << line;
}

TEST(SimulateMemory, RanksOfEqualPeaksShareARowWheneverTheyCome) {
  sim::MemoryTimeline late = timeline({1}, 70 * kGiga);
  for (sim::MemorySegment& segment : late.segments) segment.end.value += kGiga / 2;
  const sim::MemoryForecast memory =
      forecast({timeline({0}, 70 * kGiga), late, timeline({2}, kGiga)});
  const std::string text = memory_text(memory, machine(80 * kGiga));
  EXPECT_THAT(text, AllOf(HasSubstr("memory at its peak: ranks 0,1, step 1, at 3 ms"),
                          HasSubstr("ranks 0,1 need"), HasSubstr("  rank 2 ")));
  EXPECT_EQ(memory_json(memory, machine(80 * kGiga))["classes"].size(), 3U);
}

TEST(SimulateMemory, JsonHasThePeakAndTheTimelineOfEachKindOfRanks) {
  const sim::MemoryForecast memory =
      forecast({timeline({0, 1, 2}, 30 * kGiga), timeline({3}, 70 * kGiga)});
  const auto json = memory_json(memory, machine(80 * kGiga));
  EXPECT_EQ(json["needed_bytes"], 90 * kGiga);
  EXPECT_EQ(json["per_device_bytes"], 80 * kGiga);
  EXPECT_EQ(json["fits"], false);
  ASSERT_EQ(json["classes"].size(), 2U);
  const auto& own = json["classes"][1];
  EXPECT_EQ(own["ranks"], "3");
  EXPECT_EQ(own["fits"], false);
  EXPECT_EQ(json["classes"][0]["fits"], true);
  EXPECT_EQ(own["peak"]["bytes"], 90 * kGiga);
  EXPECT_EQ(own["peak"]["by_category"]["activations"], 70 * kGiga);
  EXPECT_EQ(own["peak"]["step"], 1);
  EXPECT_EQ(own["timeline"]["end_ps"].size(), 3U);
  EXPECT_EQ(own["timeline"]["peak_bytes"][2], 90 * kGiga);
  EXPECT_EQ(own["timeline"]["end_bytes"]["parameters"][2], 20 * kGiga);
  EXPECT_TRUE(memory_json(memory, sim::Machine())["per_device_bytes"].is_null());
}

TEST(SimulateMemory, NothingIsSaidOfWhatWasNotCounted) {
  EXPECT_EQ(memory_text({}, machine(1)), "");
  EXPECT_EQ(memory_headline({}, machine(1)), "");
  EXPECT_TRUE(memory_json({}, machine(1)).is_null());
  EXPECT_TRUE(sim::fits(sim::MemoryForecast(), machine(1)));
}

}  // namespace
}  // namespace lockstep::reports
