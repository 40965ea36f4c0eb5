#include "sim/sweep/scenario_grid.h"

#include <gmock/gmock.h>

#include "runtime/job/scenario.h"
#include "sim/sweep/variation.h"

namespace lockstep::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kScenario =
    "lockstep: 1\nname: a job\nranks: 4\nstrategy: ddp\n"
    "data: {modality: [{ranks: [3], has: [text]}, {has: [image, text]}]}\n"
    "train: {steps: 5}\nexpect: {verdict: findings, culprits: [3]}\n";
constexpr const char* kMachine =
    "machine: 1\nname: small\ncompute: {float32: {peak: 1TFLOP/s}}\n"
    "memory: {bandwidth: 1GB/s}\nlinks: [{alpha: 1us, beta: 1GB/s}]\n";

Result<ScenarioGrid> planned(const std::vector<std::string>& varied,
                             const std::vector<SourceFile>& machines = {{"m.yaml", kMachine}},
                             std::optional<int> steps = std::nullopt) {
  std::vector<Axis> axes;
  for (const std::string& text : varied) {
    Result<Axis> axis = parse_axis(text);
    if (!axis) return axis.error();
    axes.push_back(std::move(*axis));
  }
  return ScenarioGrid::make({"job.yaml", kScenario}, machines, axes, steps);
}

std::string why_not(const std::vector<std::string>& varied) {
  const Result<ScenarioGrid> made = planned(varied);
  return made ? "it is possible" : made.error().message + " / " + made.error().fix;
}

runtime::Scenario scenario_at(const ScenarioGrid& made, PointId point) {
  const Result<std::string> text = made.scenario_text(point);
  EXPECT_TRUE(text) << text.error().str();
  const Result<runtime::Scenario> out = runtime::parse_scenario(*text, "changed");
  EXPECT_TRUE(out) << out.error().str();
  return *out;
}

// A measured call, and the same on links twice as fast.
TEST(ScenarioGrid, MeasurementsOfCallsAreScaledByTheChangeOfTheLinks) {
  const std::string measured = std::string(kMachine) +
                               "measured: [{from: m, ranks: 4, points: [[1MB, 10ms], [2MB, 15ms]]}]"
                               "\nranks_per_node: 4\n";
  const Result<ScenarioGrid> made =
      planned({"machine.links.0.beta=1GB/s,2GB/s"}, {{"m.yaml", measured}});
  ASSERT_TRUE(made) << made.error().str();
  const auto price_at = [&](PointId point) {
    return *price({trace::Op::all_reduce, Bytes{1'000'000}}, {4, 1, 4}, *made->machine(point));
  };
  EXPECT_EQ(price_at(0).source, PriceSource::measured);
  EXPECT_EQ(price_at(0).time, Picos{10'000'000'000});
  EXPECT_EQ(price_at(1).source, PriceSource::measured);
  // By the ring's formula: 6 us + 1.5 ms, and 6 us + 0.75 ms.
  EXPECT_NEAR(price_at(1).time.seconds(), 10e-3 * 756 / 1506, 1e-9);
}

TEST(Document, ChangesWhatTheKeyNamesAndNothingElse) {
  const nlohmann::json document = {{"a", {{"b", 1}, {"c", {1, 2}}}}, {"strategy", "ddp"}};
  EXPECT_EQ(with_value(document, "a.b", 7)->dump(), R"({"a":{"b":7,"c":[1,2]},"strategy":"ddp"})");
  EXPECT_EQ(with_value(document, "a.c.1", "x")->dump(),
            R"({"a":{"b":1,"c":[1,"x"]},"strategy":"ddp"})");
  EXPECT_EQ(with_value(document, "d.e", 7)->dump(),
            R"({"a":{"b":1,"c":[1,2]},"d":{"e":7},"strategy":"ddp"})");
  EXPECT_EQ(with_value(document, "strategy.bucket", 7)->at("strategy").dump(),
            R"({"bucket":7,"kind":"ddp"})");
  EXPECT_THAT(with_value(document, "a.c.2", 7).error().message, HasSubstr("has no \"2\""));
  EXPECT_THAT(with_value(document, "a.c.x", 7).error().message, HasSubstr("has no \"x\""));
  EXPECT_THAT(with_value(document, "a.c.-1", 7).error().message, HasSubstr("has no \"-1\""));
}

TEST(ScenarioGrid, APointIsAJobOnAMachine) {
  const Result<ScenarioGrid> made =
      planned({"train.batch_size=4,8", "machine.links.0.beta=1GB/s,2GB/s"},
              {{"a.yaml", kMachine}, {"b.yaml", kMachine}});
  ASSERT_TRUE(made) << made.error().str();
  EXPECT_EQ(made->variation().grid().size(), 8U);
  EXPECT_THAT(made->variation().keys(), ElementsAre("train.batch_size", "machine.links.0.beta"));
  EXPECT_EQ(made->variation().values(5).dump(),
            R"({"train.batch_size":8,"machine.links.0.beta":"2GB/s"})");
  EXPECT_EQ(made->variation().machine_file(5), "a.yaml");
  EXPECT_EQ(made->variation().machine_file(6), "b.yaml");
  EXPECT_EQ(scenario_at(*made, 3).train.batch_size, 4);
  EXPECT_EQ(scenario_at(*made, 5).train.batch_size, 8);
  EXPECT_EQ(made->variation().job(3), made->variation().job(0));
  EXPECT_NE(made->variation().job(4), made->variation().job(0));
  EXPECT_EQ(made->machine(5)->links[0].beta.bytes_per_second(), 2e9);
  EXPECT_EQ(made->machine(4)->links[0].beta.bytes_per_second(), 1e9);
}

TEST(ScenarioGrid, WhatIsNotVariedStays) {
  const Result<ScenarioGrid> made = planned({}, {{"m.yaml", kMachine}}, 2);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->variation().grid().size(), 1U);
  EXPECT_EQ(made->variation().values(0).dump(), "{}");
  EXPECT_EQ(scenario_at(*made, 0).train.steps, 2);
  EXPECT_EQ(scenario_at(*made, 0).ranks, 4);
}

TEST(ScenarioGrid, TheWholeIsSetBeforeItsPart) {
  const Result<ScenarioGrid> made = planned({"strategy.shard_ranks=2", "strategy=fsdp"});
  ASSERT_TRUE(made) << made.error().str();
  EXPECT_THAT(made->variation().keys(), ElementsAre("strategy", "strategy.shard_ranks"));
  EXPECT_EQ(scenario_at(*made, 0).strategy.shard_ranks, 2);
}

TEST(ScenarioGrid, ElementsOfListsAreCounted) {
  const Result<ScenarioGrid> made = planned({"data.modality.0.has=[text],[image,text]"});
  ASSERT_TRUE(made) << made.error().str();
  EXPECT_EQ(scenario_at(*made, 0).data.modality[0].has, (std::vector{runtime::Modality::text}));
  EXPECT_EQ(scenario_at(*made, 1).data.modality[0].has,
            (std::vector{runtime::Modality::image, runtime::Modality::text}));
}

TEST(ScenarioGrid, AnUnknownKeyIsRefusedWithNearNames) {
  EXPECT_THAT(why_not({"train.batchsize=8"}),
              testing::AllOf(HasSubstr("train.batchsize=8: unknown key"),
                             HasSubstr("did you mean \"batch_size\"?")));
  EXPECT_THAT(why_not({"rank=8"}), HasSubstr("did you mean \"ranks\"?"));
  EXPECT_THAT(why_not({"machine.links.0.betta=8GB/s"}), HasSubstr("did you mean \"beta\"?"));
  EXPECT_THAT(why_not({"data.modality.2.has=[text]"}), HasSubstr("list of 2 elements"));
  EXPECT_THAT(why_not({"machine.links.1.beta=8GB/s"}), HasSubstr("list of 1 element"));
}

TEST(ScenarioGrid, AValueThatNoScenarioTakesIsRefused) {
  EXPECT_THAT(why_not({"strategy=dpp"}), HasSubstr("did you mean \"ddp\"?"));
  EXPECT_THAT(why_not({"train.batch_size=8,many"}),
              HasSubstr("train.batch_size=many: \"train.batch_size\" should be a whole number"));
  EXPECT_THAT(why_not({"ranks=0"}), HasSubstr("at least 1"));
  EXPECT_THAT(why_not({"machine.links.0.beta=8"}), HasSubstr("should be text"));
  EXPECT_THAT(why_not({"machine.links.0.beta=8GB"}), HasSubstr("machine.links.0.beta=8GB"));
}

TEST(ScenarioGrid, WhatMakesNoDifferenceIsRefused) {
  for (const char* key : {"expect.verdict=clean", "watch.every=1", "train.evaluate=true", "name=x",
                          "train.checkpoint.every=1", "limits.total_s=1"})
    EXPECT_THAT(why_not({key}), HasSubstr("makes no difference")) << key;
}

TEST(ScenarioGrid, UnknownOptionsAreRefused) {
  EXPECT_THAT(why_not({"ranks"}), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(why_not({"=2"}), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(why_not({"ranks="}), HasSubstr("ranks: there is no value"));
  EXPECT_THAT(why_not({"ranks=2", "ranks=4"}), HasSubstr("varied twice"));
  EXPECT_THAT(why_not({"machine.=2"}), HasSubstr("unknown key"));
  EXPECT_THAT(why_not({"train..steps=2"}), HasSubstr("unknown key"));
}

// Rank 3's rule is there, and rank 3 is not.
TEST(ScenarioGrid, AnImpossiblePointSaysWhy) {
  const Result<ScenarioGrid> made = planned({"ranks=2,4"});
  ASSERT_TRUE(made) << made.error().str();
  const Result<std::string> text = made->scenario_text(0);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().location.file, "job.yaml");
  EXPECT_EQ(text.error().location.line, 0);
  EXPECT_TRUE(made->scenario_text(1));
}

}  // namespace
}  // namespace lockstep::sim
