// Published training steps on today's GPUs: no layout that ran is refused for memory, and no step
// is off by more than a fifth. The rows that dgx-h100.yaml was fitted to are marked in its
// `fitted_to`.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/files/read_file.h"
#include "sim/measured/evaluation.h"
#include "sim/transformer/plan_forecast.h"
#include "tests/sim/plan_text.h"

namespace lockstep::sim {
namespace {

// A table of sim/tables: figures, layouts and their sources.
MeasuredTable shipped_table(const std::string& name) {
  const Result<std::string> text =
      read_file(LOCKSTEP_SOURCE_DIR "/sim/tables/" + name + ".json", 1 << 20U);
  EXPECT_TRUE(text) << name;
  const Result<MeasuredTable> table = parse_measured_table(*text, name);
  EXPECT_TRUE(table) << table.error().str();
  return *table;
}

// NeMo 24.09 with Megatron at 700 W.
MeasuredTable nemo_table() { return shipped_table("nemo_h100_2409"); }

TEST(PublishedSteps, OfNemoOnDgxH100) {
  const MeasuredTable table = nemo_table();
  const Result<TableAnswer> answer = predict_steps(table, *shipped_calibration("dgx-h100"));
  ASSERT_TRUE(answer) << answer.error().str();
  ASSERT_EQ(answer->rows.size(), 44U);
  std::vector<Comparison> unseen;
  std::size_t fitted = 0, within = 0, well_within = 0;
  const double spread = shipped_calibration("dgx-h100")->cost.spread;
  for (const ComparedRow& row : answer->rows) {
    EXPECT_LT(std::abs(row.figure.error()), 0.2) << row.label;
    fitted += row.fitted ? 1 : 0;
    if (row.fitted) continue;
    unseen.push_back(row.figure);
    const double factor = row.figure.predicted / row.figure.measured;
    if (std::max(factor, 1 / factor) <= 1 + spread + 1e-9) ++within;
    if (std::max(factor, 1 / factor) <= 1 + spread - 2e-3) ++well_within;
  }
  EXPECT_EQ(fitted, 4U);
  EXPECT_LT(summarize(unseen).mean, 0.05);
  // The interval is the smallest that holds four of five.
  EXPECT_GE(within * 5, unseen.size() * 4);
  EXPECT_LT(well_within * 5, unseen.size() * 4);
}

TEST(PublishedSteps, NoLayoutOfNemoIsRefusedForMemory) {
  const Calibration machine = *shipped_calibration("dgx-h100");
  for (const MeasuredStep& step : nemo_table().steps) {
    const Result<StepPrediction> prediction = predict_step(step.model, step.plan, machine.cost);
    ASSERT_TRUE(prediction) << prediction.error().str();
    EXPECT_LE(prediction->memory_bytes, static_cast<double>(machine.machine.per_device->value))
        << step.label;
  }
}

// Llama 3 405B as trained (arXiv 2407.21783, table 4): 8,192 GPUs at 43 % MFU (430 TFLOP/s), 16,384
// at 41 % (400 TFLOP/s), and the latter with 131,072 tokens and context parallelism of 16 at 38 %.
TEST(PublishedSteps, OfLlama3) {
  struct Case {
    const char* layout;
    double mfu;
  };
  for (const Case& c :
       {Case{"gpus: 8192\nsequence: 8192\nglobal_batch: 2048\n", 0.43},
        Case{"gpus: 16384\nsequence: 8192\nglobal_batch: 2048\n", 0.41},
        Case{"gpus: 16384\nsequence: 131072\nglobal_batch: 128\ncontext: 16\n", 0.38}}) {
    const Result<PlanFile> plan =
        parse_plan(std::string("plan: 1\nname: Llama 3\ncalibration: dgx-h100\nmodel: llama3-405b\n"
                               "tensor: 8\nsequence_parallel: true\nzero: 2\n"
                               "pipeline: {stages: 16, schedule: interleaved, chunks: 8, "
                               "split: short_ends}\n"
                               "overlap: {gradients: true, pipeline: true}\n") +
                       c.layout,
                   "llama3.yaml");
    ASSERT_TRUE(plan) << plan.error().str();
    const Result<PlanForecast> forecast = forecast_plan(*plan, *shipped_calibration("dgx-h100"));
    ASSERT_TRUE(forecast) << forecast.error().str();
    EXPECT_NEAR(forecast->mfu / c.mfu, 1, 0.2) << c.layout;
    // How many pieces a stage had is not published.
    EXPECT_FALSE(forecast->need.surely_too_large()) << c.layout;
  }
}

// Mixtral 8x7B on 64 H100: 468 TFLOP/s a GPU in bfloat16, the layout as in the plan (Megatron-LM,
// megatron/core/transformer/moe/README.md, commit 022bcb5). Its count of operations includes what
// the causal mask hides.
TEST(PublishedSteps, OfAMixtureOfExperts) {
  const Result<PlanFile> plan = parse_plan(
      *read_file(LOCKSTEP_SOURCE_DIR "/sim/plans/mixtral-8x7b.yaml", 1 << 20U), "mixtral.yaml");
  ASSERT_TRUE(plan) << plan.error().str();
  const Result<PlanForecast> forecast = forecast_plan(*plan, *shipped_calibration("dgx-h100"));
  ASSERT_TRUE(forecast) << forecast.error().str();
  Transformer counted = plan->model;
  counted.causal = false;
  const double flops = model_flops(counted, plan->plan) / forecast->step.seconds / 64;
  EXPECT_NEAR(flops * 1e-12, 468, 0.05 * 468);
  EXPECT_EQ(forecast->need.missing(), 0);
}

// MLPerf Training 5.1: Llama 3.1 8B and 405B in float8. The machine files are data sheets with the
// shares of dgx-h100, which was fitted to another version of NeMo: nothing of these rows.
std::vector<ComparedRow> mlperf_steps(const std::string& machine) {
  const Result<TableAnswer> answer = predict_steps(shipped_table("mlperf_training_5.1_" + machine),
                                                   *shipped_calibration("dgx-" + machine));
  EXPECT_TRUE(answer) << answer.error().str();
  return answer->rows;
}

TEST(PublishedSteps, OfMlperfTraining) {
  const std::vector<ComparedRow> b200 = mlperf_steps("b200"), h200 = mlperf_steps("h200");
  ASSERT_EQ(b200.size(), 12U);
  ASSERT_EQ(h200.size(), 3U);
  std::vector<Comparison> figures;
  for (const ComparedRow& row : b200) {
    EXPECT_FALSE(row.fitted);
    // The 8B's steps have one micro-batch, behind which the exchange hides less than predicted.
    const bool of_405b = row.label.starts_with("llama3-405b");
    EXPECT_LT(std::abs(row.figure.error()), of_405b ? 0.03 : 0.14) << row.label;
    figures.push_back(row.figure);
  }
  EXPECT_LT(summarize(figures).mean, 0.05);
  for (const ComparedRow& row : h200) EXPECT_LT(std::abs(row.figure.error()), 0.12) << row.label;
}

// … and FLUX.1, a diffusion transformer. One row decided what its layers read and write besides.
TEST(PublishedSteps, OfMlperfTrainingTextToImage) {
  const auto rows_of = [](const char* table, const char* machine) {
    const Result<TableAnswer> answer =
        predict_steps(shipped_table(std::string("mlperf_training_5.1_flux1_") + table),
                      *shipped_calibration(machine));
    EXPECT_TRUE(answer) << answer.error().str();
    return answer->rows;
  };
  const std::vector<ComparedRow> b200 = rows_of("b200", "dgx-b200");
  const std::vector<ComparedRow> gb200 = rows_of("gb200", "gb200-nvl72");
  ASSERT_EQ(b200.size(), 8U);
  ASSERT_EQ(gb200.size(), 4U);
  std::vector<Comparison> unseen;
  for (const ComparedRow& row : b200) {
    EXPECT_EQ(row.fitted, row.label.find("64 GPUs") != std::string::npos) << row.label;
    EXPECT_LT(std::abs(row.figure.error()), 0.04) << row.label;
    if (!row.fitted) unseen.push_back(row.figure);
  }
  for (const ComparedRow& row : gb200) {
    EXPECT_FALSE(row.fitted);
    const bool of_few_images = row.label.find("1152 GPUs") != std::string::npos;
    EXPECT_LT(std::abs(row.figure.error()), of_few_images ? 0.25 : 0.1) << row.label;
    unseen.push_back(row.figure);
  }
  EXPECT_LT(summarize(unseen).mean, 0.08);
}

// GPUs of the next generations are faster than those before them, on the same work.
TEST(PublishedSteps, NewerGpusAreFaster) {
  const MeasuredStep step = nemo_table().steps[10];  // Llama 3 70B on 64
  double before = 1e9;
  for (const char* name : {"dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72"}) {
    const Result<StepPrediction> prediction =
        predict_step(step.model, step.plan, shipped_calibration(name)->cost);
    ASSERT_TRUE(prediction) << prediction.error().str();
    EXPECT_LT(prediction->seconds, before) << name;
    before = prediction->seconds;
  }
}

}  // namespace
}  // namespace lockstep::sim
