// The picture of a step is of the step that the figures are of: for every shipped plan, and for
// layouts that none of them has.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reports/forecasts/plan.h"
#include "sim/sweep/plan_grid.h"

namespace lockstep::sim {
namespace {

using Kind = StepWork::Kind;

void expect_same_step(const PlanForecast& f) {
  const Result<StepPicture> picture = draw_step(f);
  ASSERT_TRUE(picture) << picture.error().str();
  EXPECT_EQ(picture->end.seconds(), f.step.seconds);
  ASSERT_EQ(picture->stages.size(), static_cast<std::size_t>(f.plan.plan.pipeline));
  std::map<Kind, double> means;
  double exchanged = 0;
  for (const StepPicture::Stage& stage : picture->stages) {
    Picos now;
    for (const StepInterval& one : stage.host) {
      EXPECT_EQ(one.begin, now);
      now = one.end;
      means[one.work.kind] +=
          (one.end - one.begin).seconds() / static_cast<double>(picture->stages.size());
    }
    EXPECT_EQ(now, picture->end);
    for (const StepInterval& one : stage.calls) {
      EXPECT_LE(one.end, picture->end);
      if (one.work.kind != Kind::message) exchanged += (one.end - one.begin).seconds();
    }
  }
  const StepParts& parts = f.step.parts;
  const double tolerance = 1e-9 * f.step.seconds;
  EXPECT_NEAR(means[Kind::message] + means[Kind::norm], parts.bubble, tolerance);
  EXPECT_NEAR(means[Kind::update], parts.optimizer + parts.overhead, tolerance);
  // What the tasks and the waiting for the exchange take is all the rest.
  EXPECT_NEAR(means[Kind::forward] + means[Kind::backward] + means[Kind::weight] +
                  means[Kind::gather] + means[Kind::reduce] + means[Kind::slowed],
              parts.total() - parts.bubble - parts.optimizer - parts.overhead, tolerance);
  const bool once = f.plan.plan.data * f.plan.plan.context > 1 &&
                    !(f.plan.plan.sharding == Sharding::zero3 && f.plan.plan.pipeline == 1);
  EXPECT_EQ(exchanged > 0, once);
  double path = 0;
  for (const StepPicture::PathSum& part : picture->path) path += part.time.seconds();
  EXPECT_NEAR(path, f.step.seconds, tolerance);
  const std::string page = reports::plan_html(f);
  EXPECT_NE(page.find("what each stage does during one step"), std::string::npos);
  EXPECT_NE(page.find("Critical path"), std::string::npos);
}

Result<PlanGrid> plans_of(const std::string& file, const std::vector<Axis>& axes = {}) {
  const Result<PlanInputs> inputs = load_plan(file, {});
  if (!inputs) return inputs.error();
  return PlanGrid::make(inputs->plan, inputs->calibrations, axes, inputs->manifest.text);
}

TEST(StepPicture, OfEveryShippedPlanIsThePredictedStep) {
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/sim/plans")) {
    const Result<PlanGrid> plans = plans_of(entry.path().string());
    ASSERT_TRUE(plans) << plans.error().str();
    if (plans->multimodal()) continue;
    SCOPED_TRACE(entry.path().string());
    const Result<PlanForecast> forecast = plans->forecast(0);
    ASSERT_TRUE(forecast) << forecast.error().str();
    expect_same_step(*forecast);
    ++seen;
  }
  EXPECT_GE(seen, 4);
}

TEST(StepPicture, OfEveryLayoutIsThePredictedStep) {
  std::vector<Axis> axes;
  for (const char* axis :
       {"pipeline.schedule=gpipe,1f1b,zb-h1,zb-h2", "pipeline.stages=1,4", "zero=0,1,3",
        "overlap.gradients=false,true", "overlap.pipeline=false,true", "recompute=none,full"})
    axes.push_back(*parse_axis(axis));
  const Result<PlanGrid> plans = plans_of(LOCKSTEP_SOURCE_DIR "/sim/plans/llama3-70b.yaml", axes);
  ASSERT_TRUE(plans) << plans.error().str();
  for (PointId point = 0; point < plans->variation().grid().size(); ++point) {
    SCOPED_TRACE(point);
    const Result<PlanForecast> forecast = plans->forecast(point);
    ASSERT_TRUE(forecast) << forecast.error().str();
    expect_same_step(*forecast);
  }
}

// Exchange in buckets beside the tasks costs no more than after them, apart from the slowdown.
TEST(StepPicture, OverlapHidesTheExchange) {
  const Result<PlanGrid> plans = plans_of(LOCKSTEP_SOURCE_DIR "/sim/plans/llama3-70b.yaml",
                                          {*parse_axis("overlap.gradients=false,true")});
  ASSERT_TRUE(plans) << plans.error().str();
  const double after = plans->forecast(0)->step.parts.data;
  const double beside = plans->forecast(1)->step.parts.data;
  EXPECT_LT(beside, after / 2);
  EXPECT_GT(beside, 0);
}

}  // namespace
}  // namespace lockstep::sim
