// Calibrations as files, and fitting them: what was put in is found again.
#include "sim/transformer/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "sim/machine/machine.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/evaluation.h"
#include "sim/transformer/predict.h"

namespace lockstep::sim {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

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
  Calibration written = *shipped_calibration("dgx-h100");
  written.name = "mine";
  written.cost.gemm_efficiency = 0.123;
  written.fitted_on = {"8 GPUs, B 16"};
  const Calibration read = *parse_calibration(calibration_yaml(written), "mine.yaml");
  EXPECT_EQ(read.name, "mine");
  EXPECT_EQ(read.cost.gemm_efficiency, 0.123);
  EXPECT_EQ(read.fitted_on, written.fitted_on);
  // The rest of the machine comes along: calls cost the same.
  ASSERT_EQ(read.machine.measured.size(), written.machine.measured.size());
  EXPECT_EQ(collective_seconds(read.cost, trace::Op::all_reduce, 65536, {32, 8}),
            collective_seconds(written.cost, trace::Op::all_reduce, 65536, {32, 8}));
}

TEST(Calibration, RefusesFilesThatAreWrong) {
  const std::string good = calibration_yaml(*shipped_calibration("dgx-a100"));
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
  EXPECT_THAT(changed("fp8_gain", "fp9_gain"), HasSubstr("did you mean \"fp8_gain\"?"));
  EXPECT_THAT(changed("fp8_gain: 1.5", "fp8_gain: fast"), HasSubstr("should be a number"));
  EXPECT_THAT(changed("fp8_gain: 1.5", "fp8_gain: 0"), HasSubstr("0.5"));
  EXPECT_THAT(changed("  fp8_gain: 1.5", "  # none"), HasSubstr("fp8_gain is missing"));
  EXPECT_THAT(refused(good.substr(0, good.find("\ntransformer:") + 1)),
              HasSubstr("no section \"transformer\""));
}

// The ranges of the schema and those of a fit are the same.
TEST(Calibration, ParametersHaveTheRangesOfTheSchema) {
  const nlohmann::json schema = nlohmann::json::parse(machine_schema());
  const nlohmann::json& keys = schema["properties"]["transformer"]["properties"];
  EXPECT_EQ(keys.size(), cost_parameters().size() + 1);  // and fitted_to
  for (const CostParameter& parameter : cost_parameters()) {
    const nlohmann::json& key = keys.at(std::string(parameter.name));
    EXPECT_EQ(key["minimum"].get<double>(), parameter.low) << parameter.name;
    EXPECT_EQ(key["maximum"].get<double>(), parameter.high) << parameter.name;
  }
}

TEST(Calibration, TheShippedOnesAreWellFormed) {
  EXPECT_THAT(shipped_calibration_names(), Contains("a100-node"));
  EXPECT_THAT(shipped_calibration_names(), Not(Contains("v100-node")));  // for its calls alone
  for (const std::string& name : shipped_calibration_names()) {
    const Result<Calibration> shipped = shipped_calibration(name);
    ASSERT_TRUE(shipped) << shipped.error().str();
  }
  EXPECT_THAT(shipped_calibration("b300").error().fix, HasSubstr("a100-node"));
}

}  // namespace
}  // namespace lockstep::sim
