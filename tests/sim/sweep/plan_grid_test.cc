#include "sim/sweep/plan_grid.h"

#include <gmock/gmock.h>

#include "sim/sweep/ranking.h"
#include "sim/sweep/search.h"
#include "sim/transformer/calibration.h"

namespace lockstep::sim {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kPlan =
    "plan: 1\nname: small\ncalibration: a100-cluster\nmodel: gpt-1.7b\n"
    "sequence: 2048\ngpus: 64\ngpu_memory: 80GB\nglobal_batch: 128\n";

SourceFile shipped(const std::string& name) {
  return {name, std::string(*shipped_calibration_text(name))};
}

Result<PlanGrid> plans(const std::vector<std::string>& varied,
                       const std::vector<std::string>& calibrations = {"a100-cluster"}) {
  std::vector<Axis> axes;
  for (const std::string& text : varied) {
    Result<Axis> axis = parse_axis(text);
    if (!axis) return axis.error();
    axes.push_back(std::move(*axis));
  }
  std::vector<SourceFile> files;
  for (const std::string& name : calibrations) files.push_back(shipped(name));
  return PlanGrid::make({"p.yaml", kPlan}, files, axes);
}

Row row_of(const PlanGrid& plans, PointId point) {
  ModalityChecks checks;
  return plans.row(point, checks);
}

std::string why_no_plan(const std::vector<std::string>& varied) {
  const Result<PlanGrid> made = plans(varied);
  return made ? "it is possible" : made.error().message + " / " + made.error().fix;
}

TEST(PlanGrid, APointIsAPlanOnACalibration) {
  const Result<PlanGrid> made =
      plans({"tensor=1,2", "calibration.network_speed=1,2"}, {"a100-cluster", "h100-cluster"});
  ASSERT_TRUE(made) << made.error().str();
  EXPECT_EQ(made->variation().grid().size(), 8U);
  EXPECT_THAT(made->variation().keys(), ElementsAre("tensor", "calibration.network_speed"));
  EXPECT_EQ(made->variation().machine_file(5), "a100-cluster");
  EXPECT_EQ(made->variation().machine_file(6), "h100-cluster");
  const Result<PlanForecast> last = made->forecast(7);
  ASSERT_TRUE(last) << last.error().str();
  EXPECT_EQ(last->plan.plan.tensor, 2);
  EXPECT_EQ(last->calibration.cost.network_speed, 2);
  EXPECT_EQ(last->calibration.name, "h100-cluster");
  EXPECT_EQ(last->calibration.origin, "h100-cluster");
}

// What was measured of calls is scaled by the change, not forgotten.
TEST(PlanGrid, AValueThatTheFileHasChangesNothing) {
  const double as_it_is = plans({}, {"dgx-h100"})->forecast(0)->step.seconds;
  const auto made = plans({"tensor=1,8", "calibration.links.0.speed=1,1.01,2"}, {"dgx-h100"});
  ASSERT_TRUE(made) << made.error().str();
  EXPECT_EQ(made->forecast(0)->step.seconds, as_it_is);
  for (const PointId first : {PointId{0}, PointId{3}}) {
    EXPECT_LE(made->forecast(first + 1)->step.seconds, made->forecast(first)->step.seconds);
    EXPECT_LE(made->forecast(first + 2)->step.seconds, made->forecast(first + 1)->step.seconds);
  }
}

TEST(PlanGrid, APublishedModelIsChanged) {
  const Result<PlanGrid> made = plans({"model.layers=12", "model=gpt-1.7b,gpt-7.5b"});
  ASSERT_TRUE(made) << made.error().str();
  for (const PointId point : {PointId{0}, PointId{1}}) {
    const Result<PlanForecast> f = made->forecast(point);
    ASSERT_TRUE(f) << f.error().str();
    EXPECT_EQ(f->plan.model.layers, 12);
    EXPECT_EQ(f->plan.model.hidden, point == 0 ? 2304 : 4096);
  }
}

TEST(PlanGrid, WhatCannotBeVariedIsRefused) {
  EXPECT_THAT(why_no_plan({"tensors=2"}), HasSubstr("did you mean \"tensor\"?"));
  EXPECT_THAT(why_no_plan({"tensor=two"}), HasSubstr("should be a whole number"));
  EXPECT_THAT(why_no_plan({"pipeline.stage=2"}), HasSubstr("did you mean \"stages\"?"));
  EXPECT_THAT(why_no_plan({"calibration=h100-cluster"}), HasSubstr("--calibration"));
  EXPECT_THAT(why_no_plan({"name=x"}), HasSubstr("makes no difference"));
  EXPECT_THAT(why_no_plan({"calibration.networks=2"}), HasSubstr("did you mean \"network\"?"));
  EXPECT_THAT(why_no_plan({"calibration.gemm_efficiency=fast"}), HasSubstr("should be a number"));
  EXPECT_THAT(why_no_plan({"calibration.gemm_efficiency.x=1"}), HasSubstr("unknown key"));
}

TEST(PlanGrid, AnImpossiblePointIsARowThatSaysWhy) {
  const Result<PlanGrid> made = plans({"tensor=1,3,128"});
  ASSERT_TRUE(made) << made.error().str();
  EXPECT_EQ(row_of(*made, 0).outcome, Outcome::trains);
  for (const PointId point : {PointId{1}, PointId{2}}) {
    const Row row = row_of(*made, point);
    EXPECT_EQ(row.outcome, Outcome::refused);
    EXPECT_THAT(row.reason, HasSubstr("64 GPUs do not divide by tensor x context"));
  }
}

TEST(PlanGrid, ARowHasThePlansFigures) {
  const Result<PlanGrid> made = plans({"pipeline.stages=4"});
  ASSERT_TRUE(made) << made.error().str();
  const Result<PlanForecast> f = made->forecast(0);
  ASSERT_TRUE(f) << f.error().str();
  const Row row = row_of(*made, 0);
  EXPECT_EQ(row.ranks, 64);
  EXPECT_EQ(row.step_seconds, f->step.seconds);
  EXPECT_EQ(row.memory_bytes, f->step.memory_bytes);
  EXPECT_TRUE(row.memory_counted);
  EXPECT_EQ(row.device_bytes, 80e9);
  ASSERT_TRUE(row.transformer);
  EXPECT_EQ(row.transformer->mfu, f->mfu);
  EXPECT_EQ(row.transformer->bubble, f->bubble_share);
  const Result<Row> read = parse_row(row_line(row, true).substr(0, row_line(row, true).size() - 1));
  ASSERT_TRUE(read) << read.error().str();
  EXPECT_EQ(read->transformer->tokens_per_second_per_rank,
            row.transformer->tokens_per_second_per_rank);
}

// Every point computed apart from the search, and the least time of those that fit.
TEST(PlanGrid, TheSearchFindsTheBruteForceBest) {
  const Result<PlanGrid> made =
      plans({"tensor=1,2,3,4,8", "pipeline.stages=1..16*2", "micro_batch=1,2,4,8", "zero=0,1,3",
             "recompute=none,selective,full"});
  ASSERT_TRUE(made) << made.error().str();
  const Grid& grid = made->variation().grid();
  EXPECT_EQ(grid.size(), 900U);
  Goal goal;
  goal.objective = Objective::step_time;
  goal.memory_limit = 40e9;
  std::optional<double> least;
  std::size_t refused = 0;
  for (PointId point = 0; point < grid.size(); ++point) {
    const Result<PlanForecast> f = made->forecast(point);
    refused += f ? 0U : 1U;
    if (f && f->step.memory_bytes <= 40e9 && (!least || f->step.seconds < *least))
      least = f->step.seconds;
  }
  ASSERT_TRUE(least);
  EXPECT_GE(refused, 180U);  // tensor 3, and more
  Search search(grid, 450, 1);
  EXPECT_FALSE(search.exhaustive());
  std::optional<double> found;
  for (auto points = search.next(); !points.empty(); points = search.next()) {
    std::vector<Score> scores;
    for (const PointId point : points) {
      const Row row = row_of(*made, point);
      scores.push_back(score(row, goal));
      if (row.outcome == Outcome::trains && fits(row, goal) &&
          (!found || row.step_seconds < *found))
        found = row.step_seconds;
    }
    search.add_scores(scores);
  }
  EXPECT_EQ(found, least);
}

}  // namespace
}  // namespace lockstep::sim
