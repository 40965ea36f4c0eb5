// Published training steps on today's GPUs: no layout that ran is refused for memory, and no step
// is off by more than a fifth. Figures only; the rows that dgx-h100.yaml was fitted to are marked
// in its `fitted_to`.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/files/read_file.h"
#include "sim/transformer/evaluation.h"
#include "sim/transformer/plan_forecast.h"

namespace lockstep::sim {
namespace {

// NeMo 24.09 on DGX H100 (700 W), seconds a step: github.com/NVIDIA/dgxc-benchmarking,
// llama3.1/README_{8b,70b,405b}.md (commit 143b90d), nemo_megatron/README_175b.md (0b71cfd).
struct NemoSteps {
  const char* model;
  int layers, tp, pp, cp, vp, sequence;
  int gpus, batch;  // of the first step; each step after it has twice of both
  std::vector<double> bf16, fp8;
};

const std::vector<NemoSteps>& nemo_steps() {
  static const std::vector<NemoSteps> out = {
      {"llama3-8b",
       32,
       1,
       1,
       2,
       1,
       8192,
       8,
       128,
       {12.91, 13.00, 13.05, 13.08, 13.10},
       {9.67, 9.73, 9.75, 9.80, 9.82}},
      {"llama3-70b",
       80,
       4,
       4,
       2,
       5,
       8192,
       64,
       128,
       {14.72, 14.73, 14.8, 14.89, 14.92, 14.98},
       {11.01, 10.93, 11.16, 11.18, 11.28, 11.39}},
      {"llama3-405b", 7, 8, 1, 2, 1, 8192, 32, 126, {8.85}, {5.80}},
      {"llama3-405b", 21, 8, 3, 2, 7, 8192, 96, 126, {8.75}, {5.71}},
      {"llama3-405b", 42, 8, 3, 2, 7, 8192, 192, 252, {16.93}, {11.00}},
      {"llama3-405b",
       126,
       8,
       9,
       2,
       7,
       8192,
       576,
       252,
       {17.20, 17.52, 17.62},
       {11.24, 11.31, 12.35}},
      {"gpt3-175b",
       96,
       4,
       8,
       1,
       12,
       2048,
       128,
       256,
       {8.309, 8.408, 8.42, 8.453, 8.49},
       {5.626, 5.725, 5.774, 5.82, 5.96}},
  };
  return out;
}

// The steps as a table that `calibrate check` reads.
std::string nemo_table() {
  nlohmann::json rows;
  for (const NemoSteps& steps : nemo_steps())
    for (const auto& [dtype, seconds] :
         {std::pair{"bf16", &steps.bf16}, std::pair{"fp8", &steps.fp8}})
      for (std::size_t i = 0; i < seconds->size(); ++i) {
        const auto times = 1 << i;
        rows.push_back({{"model", steps.model},
                        {"layers", steps.layers},
                        {"gpus", steps.gpus * times},
                        {"gbs", steps.batch * times},
                        {"tp", steps.tp},
                        {"pp", steps.pp},
                        {"cp", steps.cp},
                        {"vp", steps.vp},
                        {"seq", steps.sequence},
                        {"dtype", dtype},
                        {"step_s", (*seconds)[i]}});
      }
  return nlohmann::json{{"framework", "NeMo"}, {"machine", "dgx-h100"}, {"rows", rows}}.dump();
}

TEST(PublishedSteps, OfNemoOnDgxH100) {
  const MeasuredTable table = *parse_measured_table(nemo_table(), "nemo.json");
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
  const MeasuredTable table = *parse_measured_table(nemo_table(), "nemo.json");
  for (const MeasuredStep& step : table.steps) {
    // NeMo's recipes keep gradients in bfloat16 (grad_reduce_in_fp32: false). The times above were
    // fitted with float32 on the wire, which overlap hides nearly all of.
    TrainingPlan plan = step.plan;
    plan.short_gradients = true;
    const Result<StepPrediction> prediction = predict_step(step.model, plan, machine.cost);
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
                               "pipeline: {stages: 16, schedule: interleaved, chunks: 7}\n"
                               "overlap: {gradients: true, pipeline: true}\n") +
                       c.layout,
                   "llama3.yaml");
    ASSERT_TRUE(plan) << plan.error().str();
    const Result<PlanForecast> forecast = forecast_plan(*plan, *shipped_calibration("dgx-h100"));
    ASSERT_TRUE(forecast) << forecast.error().str();
    EXPECT_NEAR(forecast->mfu / c.mfu, 1, 0.2) << c.layout;
    // How many pieces a stage had is not published: with seven the smaller job needs 1.5 % more
    // than there is.
    EXPECT_FALSE(forecast->surely_too_large()) << c.layout;
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
  EXPECT_EQ(forecast->missing_bytes(), 0);
}

// MLPerf Training 5.1: Llama 3.1 8B and 405B in float8. The machine files are data sheets with the
// shares of dgx-h100, which was fitted to another version of NeMo: nothing of these rows. The
// 405B's first and last piece had a layer less (config_*.sh: ASYM_PP_EMBED, ASYM_PP_LOSS); the
// tables split evenly, as the jobs that were fitted to.
std::vector<ComparedRow> mlperf_steps(const std::string& machine) {
  const std::string file = "mlperf_training_5.1_" + machine + ".json";
  const Result<std::string> text = read_file(LOCKSTEP_SOURCE_DIR "/sim/tables/" + file, 1 << 20U);
  EXPECT_TRUE(text) << file;
  const Result<MeasuredTable> table = parse_measured_table(*text, file);
  EXPECT_TRUE(table) << table.error().str();
  const Result<TableAnswer> answer = predict_steps(*table, *shipped_calibration("dgx-" + machine));
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
    EXPECT_LT(std::abs(row.figure.error()), 0.08) << row.label;
    figures.push_back(row.figure);
  }
  EXPECT_LT(summarize(figures).mean, 0.04);
  for (const ComparedRow& row : h200) EXPECT_LT(std::abs(row.figure.error()), 0.2) << row.label;
}

// GPUs of the next generations are faster than those before them, on the same work.
TEST(PublishedSteps, NewerGpusAreFaster) {
  const MeasuredTable table = *parse_measured_table(nemo_table(), "nemo.json");
  const MeasuredStep& step = table.steps[10];  // Llama 3 70B on 64
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
