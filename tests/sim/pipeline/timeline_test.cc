// The picture of a pipeline's run.
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/forecasts/pipeline.h"

namespace lockstep::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string picture(PipelineSchedule schedule, PipelineShape shape, PieceCost cost,
                    std::size_t width = 80) {
  const PipelineProgram program = *make_pipeline(schedule, shape);
  PipelineCosts costs;
  costs.pieces.assign(static_cast<std::size_t>(shape.pieces()), cost);
  return reports::pipeline_timeline(program, *run_pipeline(program, costs), width);
}

PieceCost micros(std::int64_t forward, std::int64_t backward, std::int64_t weight = 0) {
  return {.forward = Picos{forward * 1'000'000},
          .backward = Picos{backward * 1'000'000},
          .weight = Picos{weight * 1'000'000}};
}

TEST(PipelineTimeline, OneColumnIsOneUnit) {
  EXPECT_EQ(picture(PipelineSchedule::one_f_one_b, {3, 4, 1}, micros(1, 2)),
            "stage 0 012....aa3bb.cc.dd\n"
            "stage 1 .01..aa2bb3cc.dd..\n"
            "stage 2 ..0aa1bb2cc3dd....\n"
            "One column is 1 us. 0-9: forward of micro-batch 0, 1, ..; a-j: its backward;\n"
            "dots: idle.\n");
}

TEST(PipelineTimeline, WeightPartsAreCapitals) {
  EXPECT_THAT(picture(PipelineSchedule::zb_h1, {2, 3, 1}, micros(1, 1, 1)),
              StartsWith("stage 0 01.aA2bBcC\nstage 1 .0a1bA2cBC\n"));
}

TEST(PipelineTimeline, ALongRunIsFittedIntoTheWidth) {
  const std::string text = picture(PipelineSchedule::gpipe, {12, 300, 1}, micros(1, 2), 60);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 60U) << line;
  EXPECT_THAT(text, HasSubstr("One column is about"));
  EXPECT_THAT(text, HasSubstr("Micro-batch 10 is 0"));
}

TEST(PipelineTimeline, ManyStagesAreCutAndNoTimeIsSaidSo) {
  EXPECT_THAT(picture(PipelineSchedule::gpipe, {40, 2, 1}, micros(1, 1)),
              HasSubstr("and 8 stages more\n"));
  EXPECT_EQ(picture(PipelineSchedule::gpipe, {2, 2, 1}, micros(0, 0)), "nothing takes any time\n");
}

}  // namespace
}  // namespace lockstep::sim
