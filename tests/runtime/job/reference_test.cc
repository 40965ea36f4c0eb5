// The job in one process that a distributed one is measured against.
#include <gmock/gmock.h>

#include "runtime/job/scenario_variants.h"

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;

Scenario parsed_for_reference(const std::string& rest) {
  return parse_scenario("lockstep: 1\nname: x\nranks: 4\nwatch: {every: 1}\n" + rest, "job.yaml")
      .value();
}

Scenario reference(const std::string& rest) {
  return reference_of(parsed_for_reference(rest)).value();
}

TEST(Reference, IsOneProcessWithoutStrategyThatKeepsRemedyAndPrecision) {
  const Scenario s = reference(
      "strategy: {kind: ddp, find_unused_parameters: true}\n"
      "remedy: {kind: gradient-mask, average: contributors}\ntrain: {precision: bfloat16}");
  EXPECT_EQ(s.ranks, 1);
  EXPECT_EQ(s.strategy.kind, Scenario::Strategy::Kind::manual);
  EXPECT_FALSE(s.strategy.find_unused_parameters);
  EXPECT_EQ(s.remedy.kind, Scenario::Remedy::Kind::gradient_mask);
  EXPECT_EQ(s.remedy.average, Scenario::Remedy::Average::contributors);
  EXPECT_EQ(s.train.precision, Scenario::Train::Precision::bfloat16);
}

TEST(Reference, PutsRightWhatIsWrongOnPurpose) {
  const Scenario dummy = reference("remedy: dummy-image\nfault: dummy-outside-graph");
  EXPECT_EQ(dummy.remedy.kind, Scenario::Remedy::Kind::dummy_image);
  EXPECT_EQ(dummy.fault, Fault::none);
  const Scenario mask =
      reference("remedy: {kind: gradient-mask, average: contributors}\nfault: diluted-average");
  EXPECT_EQ(mask.remedy.average, Scenario::Remedy::Average::contributors);
  EXPECT_EQ(mask.fault, Fault::none);
}

TEST(Reference, APipelinesMicroBatchesAreAccumulated) {
  const Scenario s = reference("strategy: {kind: pipeline, micro_batches: 2}");
  EXPECT_EQ(s.train.accumulation.steps, 2);
}

TEST(Reference, IsRefusedWithTheReason) {
  const auto why = [](const Scenario& s) {
    const auto made = reference_of(s);
    return made ? std::string("made") : made.error().str();
  };
  EXPECT_THAT(why(parsed_for_reference("model: {negatives: global}")),
              HasSubstr("features of all ranks"));
  EXPECT_THAT(why(parsed_for_reference("data: {balance: cost}")), HasSubstr("distribute"));
  EXPECT_THAT(why(parsed_for_reference("model: {head: fusion}")), HasSubstr("dropout"));
  EXPECT_THAT(why(parsed_for_reference("model: {text: minilm}")), HasSubstr("dropout"));
  EXPECT_THAT(why(parsed_for_reference("strategy: {kind: manual, process_groups: image-ranks}")),
              HasSubstr("among themselves"));
  EXPECT_EQ(why(parse_scenario("lockstep: 1\nname: x\n", "job.yaml").value()), "made")
      << "losses are recorded whether values are watched or not";
}

}  // namespace
}  // namespace lockstep::runtime
