// Which remedies a scenario could take.
#include <gmock/gmock.h>

#include "runtime/job/scenario_variants.h"

namespace lockstep::runtime {
namespace {

using ::testing::Contains;
using ::testing::Not;

std::vector<std::string> names_of_choices(const std::string& rest) {
  std::vector<std::string> out;
  const auto choices = remedy_choices("lockstep: 1\nname: x\n" + rest, "job.yaml");
  for (const RemedyChoice& choice : *choices) {
    EXPECT_TRUE(parse_scenario(choice.text, "changed.yaml")) << choice.name;
    out.push_back(choice.name);
  }
  return out;
}

TEST(RemedyChoices, AreThoseThatTheStrategyTakes) {
  EXPECT_THAT(names_of_choices("strategy: ddp"), Contains("find unused"));
  EXPECT_THAT(names_of_choices("strategy: manual"), Not(Contains("find unused")));
  EXPECT_THAT(names_of_choices("strategy: pipeline"),
              testing::ElementsAre("alternating", "balanced sampler", "dealt groups"));
  EXPECT_THAT(names_of_choices(""), Contains("find unused"));
}

TEST(RemedyChoices, WhatTheScenarioHasIsNone) {
  EXPECT_THAT(names_of_choices("remedy: dummy-image"), Not(Contains("dummy images")));
  EXPECT_THAT(names_of_choices("remedy: dummy-image\nfault: dummy-outside-graph"),
              Contains("dummy images"));
  EXPECT_THAT(names_of_choices("data: {sampler: balanced}"), Not(Contains("balanced sampler")));
}

TEST(RemedyChoices, RulesGiveWayWhereTheRemedySaysWhoHasWhat) {
  const auto choices = remedy_choices(
      "lockstep: 1\nname: x\ndata: {modality: [{ranks: [1], has: [text]}]}\n", "job.yaml");
  ASSERT_TRUE(choices);
  for (const RemedyChoice& choice : *choices) {
    const Scenario s = parse_scenario(choice.text, "changed.yaml").value();
    EXPECT_EQ(s.data.modality.empty(), choice.name == "alternating" ||
                                           choice.name == "balanced sampler" ||
                                           choice.name == "dealt groups")
        << choice.name;
  }
}

}  // namespace
}  // namespace lockstep::runtime
