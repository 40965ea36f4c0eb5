// Calibrations as files, and fitting them: what was put in is found again.
#include "sim/transformer/fit.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/collectives/nccl_curves.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/evaluation.h"

namespace lockstep::sim {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

MeasuredStep measured(std::int64_t hidden, std::int64_t micro_batch, const CostParameters& truth) {
  MeasuredStep step;
  step.model.layers = 12;
  step.model.hidden = hidden;
  step.model.heads = step.model.kv_heads = 16;
  step.model.ffn = 4 * hidden;
  step.model.vocabulary = 51200;
  step.plan.sequence = 1024;
  step.plan.global_batch = 16;
  step.plan.micro_batch = micro_batch;
  step.seconds = predict_step(step.model, step.plan, truth)->seconds;
  return step;
}

TEST(Fit, FindsTheParametersThatMadeTheRows) {
  CostParameters truth;
  truth.gemm_efficiency = 0.65;
  truth.launch_forward = 2e-3;
  const std::vector<MeasuredStep> rows = {measured(1024, 1, truth), measured(2048, 2, truth),
                                          measured(4096, 8, truth)};
  FitOptions options;
  options.parameters = {"gemm_efficiency", "launch_forward"};
  options.stiffness = 1e-4;
  const Fit fit = *fit_parameters(rows, {}, options);
  EXPECT_GT(fit.before, 0.05);
  EXPECT_LT(fit.after, 1e-4);
  EXPECT_NEAR(fit.cost.gemm_efficiency, 0.65, 1e-3);
  EXPECT_NEAR(fit.cost.launch_forward, 2e-3, 1e-5);
  EXPECT_EQ(fit.cost.memory_bandwidth, CostParameters{}.memory_bandwidth);
}

TEST(Fit, OneRowThatSomethingElseSlowedDownDoesNotPullTheRestAlong) {
  const CostParameters truth;
  std::vector<MeasuredStep> rows;
  for (const std::int64_t hidden : {2048, 3072, 4096, 5120, 6144})
    rows.push_back(measured(hidden, 8, truth));
  rows[2].seconds *= 2;
  FitOptions options;
  options.parameters = {"gemm_efficiency"};
  const Fit fit = *fit_parameters(rows, truth, options);
  EXPECT_NEAR(fit.cost.gemm_efficiency / truth.gemm_efficiency, 1, 0.03);
}

TEST(Fit, RefusesWhatCannotBeFitted) {
  const std::vector<MeasuredStep> rows = {measured(1024, 1, {})};
  EXPECT_THAT(fit_parameters({}, {}, {{"gemm_efficiency"}}).error().message, HasSubstr("no rows"));
  EXPECT_THAT(fit_parameters(rows, {}, {}).error().message, HasSubstr("no parameter"));
  EXPECT_THAT(fit_parameters(rows, {}, {{"gemm_eficiency"}}).error().fix,
              HasSubstr("did you mean gemm_efficiency?"));
}

TEST(Calibration, IsReadBackAsItWasWritten) {
  Calibration written;
  written.name = "mine";
  written.cost.gemm_efficiency = 0.123;
  written.fitted_on = {"8 GPUs, B 16"};
  const Calibration read = *parse_calibration(calibration_yaml(written), "mine.yaml");
  EXPECT_EQ(read.name, "mine");
  EXPECT_EQ(read.cost.gemm_efficiency, 0.123);
  EXPECT_EQ(read.fitted_on, written.fitted_on);
}

TEST(Calibration, RefusesFilesThatAreWrong) {
  const std::string good = calibration_yaml({"x", "", {}, {}});
  const auto refused = [](const std::string& text) {
    const Result<Calibration> read = parse_calibration(text, "c.yaml");
    return read ? std::string("fine") : read.error().str();
  };
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return refused(text);
  };
  EXPECT_EQ(refused(good), "fine");
  EXPECT_THAT(refused("a: ["), HasSubstr("c.yaml:1"));
  EXPECT_THAT(refused("[]"), HasSubstr("has \"name\" and \"parameters\""));
  EXPECT_THAT(changed("fp8_gain", "fp9_gain"), HasSubstr("no parameter \"fp9_gain\""));
  EXPECT_THAT(changed("fp8_gain: 1.5", "fp8_gain: fast"), HasSubstr("fp8_gain is not a number"));
  EXPECT_THAT(changed("fp8_gain: 1.5", "fp8_gain: 0"), HasSubstr("outside of what is possible"));
  EXPECT_THAT(changed("  fp8_gain: 1.5", "  # none"), HasSubstr("fp8_gain is missing"));
  EXPECT_THAT(changed("name: \"x\"", "name: x\nnmae: y"), HasSubstr("has no \"nmae\""));
}

TEST(Calibration, TheShippedOnesAreWellFormed) {
  EXPECT_THAT(shipped_calibration_names(), Contains("a100-node"));
  for (const std::string& name : shipped_calibration_names()) {
    const Result<Calibration> shipped = shipped_calibration(name);
    ASSERT_TRUE(shipped) << shipped.error().str();
    EXPECT_EQ(shipped->name, name);
  }
  EXPECT_THAT(shipped_calibration("b300").error().fix, HasSubstr("a100-node"));
}

constexpr const char* kCurves = R"(curves:
  - {machine: m, ranks: 2, points: [[1000000, 10], [2000000, 15]]}
  - {machine: m, ranks: 4, points: [[1500000, 20], [3000000, 30]]}
  - {machine: m, ranks: 8, points: [[100, 10], [10000, 100], [1000000, 1000]]}
)";

TEST(NcclCurves, AreStraightBetweenTheirPoints) {
  const std::vector<NcclCurve> curves = *parse_nccl_curves(kCurves, "c.yaml");
  const auto micros = [&](std::int64_t ranks, double bytes) {
    return *nccl_seconds(curves, "m", ranks, bytes) * 1e6;
  };
  EXPECT_NEAR(micros(2, 1e6), 10, 1e-9);
  EXPECT_NEAR(micros(2, 1.5e6), 12.5, 1e-9);
  EXPECT_NEAR(micros(2, 4e6), 25, 1e-9);  // goes on as it was
  EXPECT_NEAR(micros(8, 1000), std::sqrt(1000), 1e-9);
  EXPECT_NEAR(micros(8, 1), 10, 1e-9);        // no less than the smallest size takes
  EXPECT_NEAR(micros(8, 1e8), 100000, 1e-6);  // a hundred times the bytes of the last point
  // Three ranks move 4/3 of the bytes: as 4/3 on two ranks and 8/9 on four.
  EXPECT_NEAR(micros(3, 1.5e6), (15 + 20 - (1.5 - 4.0 / 3) / 1.5 * 10) / 2, 1e-6);
}

TEST(NcclCurves, RefuseWhatTheyDoNotHave) {
  const std::vector<NcclCurve> curves = *parse_nccl_curves(kCurves, "c.yaml");
  EXPECT_THAT(nccl_seconds(curves, "m", 16, 1).error().message, HasSubstr("16 ranks"));
  EXPECT_THAT(nccl_seconds(curves, "x", 2, 1).error().fix, HasSubstr("m with 2 ranks"));
  for (const char* text :
       {"curves: 3", "curves: [{machine: m, ranks: 2, points: [[1, 2]]}]",
        "curves: [{machine: m, ranks: 2, points: [[1, 2], [1, 3]]}]",
        "curves: [{machine: m, ranks: 2, points: [[1, 2], [2, 1]]}]",
        "curves: [{machine: m, points: []}]", "curves: [{machine: m, ranks: 2, points: [[1]]}]"})
    EXPECT_FALSE(parse_nccl_curves(text, "c.yaml")) << text;
  EXPECT_TRUE(parse_nccl_curves(std::string(shipped_nccl_curves()), "shipped"));
}

}  // namespace
}  // namespace lockstep::sim
