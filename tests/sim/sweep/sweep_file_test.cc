#include "sim/sweep/sweep_file.h"

#include <gmock/gmock.h>

namespace lockstep::sim {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kHead = "sweep: 1\nscenario: job.yaml\nmachines: [m.yaml]\n";

std::string why_no_file(const std::string& text) {
  const auto read = parse_sweep_file(text, "s.yaml");
  return read ? "it is read" : read.error().str();
}

TEST(SweepFile, SaysWhatTheCommandLineSays) {
  const auto read = parse_sweep_file(
      std::string(kHead) +
          "vary:\n  strategy: [ddp, {kind: fsdp, shard_ranks: 2}]\n  ranks: 2..8*2\n"
          "  data.seed: 4\n  model.text: bert-small,minilm\n"
          "best: step_time\nmemory_limit: 80GB\ntrials: 20\nseed: 3\nsteps: 4\n",
      "s.yaml");
  ASSERT_TRUE(read) << read.error().str();
  ASSERT_TRUE(*read);
  const SweepFile& file = **read;
  EXPECT_EQ(file.scenario, "job.yaml");
  EXPECT_THAT(file.machines, ElementsAre("m.yaml"));
  std::string axes;
  for (const Axis& axis : file.axes) axes += axis.key + nlohmann::json(axis.values).dump() + " ";
  EXPECT_EQ(axes,
            "strategy[\"ddp\",{\"kind\":\"fsdp\",\"shard_ranks\":2}] ranks[2,4,8] data.seed[4] "
            "model.text[\"bert-small\",\"minilm\"] ");
  EXPECT_EQ(file.best, "step_time");
  EXPECT_EQ(file.memory_limit, "80GB");
  EXPECT_EQ(file.trials, 20);
  EXPECT_EQ(file.seed, 3);
  EXPECT_EQ(file.steps, 4);
}

TEST(SweepFile, AScenarioIsNone) {
  const auto read = parse_sweep_file("lockstep: 1\nname: a job\n", "s.yaml");
  ASSERT_TRUE(read);
  EXPECT_FALSE(*read);
}

TEST(SweepFile, WhatIsWrongIsSaidWithItsLine) {
  EXPECT_THAT(why_no_file(std::string(kHead) + "varry: {ranks: 2}\n"),
              AllOf(HasSubstr("s.yaml:4:1"), HasSubstr("did you mean \"vary\"?")));
  EXPECT_THAT(why_no_file("sweep: 1\nscenario: job.yaml\n"), HasSubstr("\"machines\" is missing"));
  EXPECT_THAT(why_no_file(std::string(kHead) + "vary:\n  ranks: 8..2\n"),
              AllOf(HasSubstr("s.yaml:5:3"), HasSubstr("ends before it starts")));
  EXPECT_THAT(why_no_file(std::string(kHead) + "vary: {ranks: {a: 1}}\n"),
              HasSubstr("should be text"));
  EXPECT_THAT(why_no_file(std::string(kHead) + "vary: {ranks: }\n"), HasSubstr("s.yaml:4"));
  EXPECT_THAT(why_no_file(std::string(kHead) + "vary: [ranks]\n"),
              HasSubstr("should be a mapping"));
  EXPECT_THAT(why_no_file(std::string(kHead) + "vary: {ranks: []}\n"), HasSubstr("no value"));
  EXPECT_THAT(why_no_file(std::string(kHead) + "best: speed\n"), HasSubstr("one of step_time"));
  EXPECT_THAT(why_no_file(std::string(kHead) + "trials: 0\n"), HasSubstr("at least 1"));
  EXPECT_THAT(why_no_file("sweep: 2\nscenario: a\nmachines: [m]\n"), HasSubstr("should be 1"));
}

}  // namespace
}  // namespace lockstep::sim
