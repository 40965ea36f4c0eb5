#include "reports/findings/comparison_report.h"

#include <sstream>

#include <gmock/gmock.h>

#include "base/tables.h"

namespace lockstep::reports {
namespace {

using ::testing::HasSubstr;

verify::FinalLoss ended(double loss, double reference, double apart) {
  return {.step = 5, .loss = loss, .reference = reference, .apart = apart, .tolerance = 2.4e-4};
}

verify::TensorDifference first_difference() {
  verify::TensorDifference d;
  d.n = 3;
  d.phase = verify::Phase::synced_grad;
  d.name = "image.stem.weight";
  return d;
}

TEST(ComparisonText, ShowsAsMuchOfANameAsTheTerminalHolds) {
  verify::TensorDifference gradient = first_difference();
  gradient.name = "model.image_encoder.layers.11.attention.output.dense.weight";
  verify::Comparison c;
  c.compared = 1;
  c.steps.emplace_back().gradient = gradient;
  const auto has_whole_name = [&](std::size_t width) {
    return comparison_text(c, 24, width).find(gradient.name) != std::string::npos;
  };
  EXPECT_TRUE(has_whole_name(200));
  EXPECT_FALSE(has_whole_name(80));
  for (const std::size_t width : {60U, 80U, 200U}) {
    std::istringstream lines(comparison_text(c, 24, width));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), width) << line;
  }
}

TEST(Comparison, LossesAreEqualOrSoFarApart) {
  verify::Comparison c;
  c.compared = 1;
  c.max_loss_difference = 0;
  EXPECT_THAT(comparison_text(c, 24, 80), HasSubstr("\nlosses equal\n"));
  c.max_loss_difference = 3e-5;
  EXPECT_THAT(comparison_text(c, 24, 80), HasSubstr("\nlosses at most 3.0e-05 apart\n"));
}

TEST(ReferenceTable, HasALineForEachAndTheReasonsBelow) {
  const std::string text = reference_table({
      {"ddp_ok", "", ended(5.0744, 5.0744, 0), {}},
      {"fsdp_ok", "", ended(5.06592, 5.06577, 3e-5), {}},
      {"sum_bad", "", ended(5.2, 5.06577, 2.6e-2), first_difference()},
      {"mean_bad", "", ended(5.1, 5.1, 0), first_difference()},
      {"global_ok", "its losses need all", {}, {}},
      {"silent", "", {}, {}},
  });
  EXPECT_EQ(text,
            "scenario   steps  loss     reference  apart    tolerance  verdict\n"
            "ddp_ok     6      5.07440  5.07440    equal    2.4e-04    agrees\n"
            "fsdp_ok    6      5.06592  5.06577    3.0e-05  2.4e-04    agrees\n"
            "sum_bad    6      5.20000  5.06577    2.6e-02  2.4e-04    LOSS DIFFERS\n"
            "mean_bad   6      5.10000  5.10000    equal    2.4e-04    VALUES DIFFER\n"
            "global_ok  -      -        -          -        -          no reference\n"
            "silent     -      -        -          -        -          no loss\n"
            "mean_bad: the gradient of image.stem.weight first differs in step 3\n"
            "global_ok: its losses need all\n"
            "silent: the two have no loss of one last step\n");
}

TEST(ReferenceTable, FitsATerminal) {
  std::istringstream lines(reference_table({
      {std::string(90, 'x'), "", ended(123456.78901, 123456.78901, 1e-9), {}},
      {"y", "a reason " + std::string(60, 'w') + " of many words " + std::string(60, 'w'), {}, {}},
  }));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), 80U) << line;
}

TEST(ReferenceTable, TextOfFilesIsMadePrintable) {
  EXPECT_THAT(reference_table({{"a\x1b[31m", "why", {}, {}}}), testing::Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace lockstep::reports
