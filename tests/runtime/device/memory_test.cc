// What a rank is counted to hold, against what can be known without counting: by hand for a chain
// of layers, by the parameters' sizes for optimizers and strategies, and by another device.
#include <algorithm>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/api/include/torch/nn/modules/linear.h>
#include <torch/csrc/api/include/torch/optim.h>

#include "base/files/read_file.h"
#include "runtime/derive/torch/lone_runs.h"
#include "runtime/derive/torch/meta_tensors.h"
#include "runtime/device/counted_memory.h"
#include "runtime/job/scenario_variants.h"
#include "tests/runtime/memory_words.h"
#include "tests/runtime/small_model.h"
#include "tests/support/temp_dir.h"
#include "trace/work_costs.h"

namespace lockstep::runtime {
namespace {

constexpr std::int64_t kIn = 8, kHidden = 16, kOut = 4, kFloat = 4;
constexpr std::int64_t kWeights = kFloat * (kIn * kHidden + kHidden + kHidden * kOut + kOut);

// linear, ReLU, linear, sum; a step of it with so many micro-batches. Its segments: making it; a
// forward and a backward of each micro-batch; the update.
enum class Optimizer { sgd, adamw };
std::vector<trace::SegmentMemory> step_of_chain(c10::Device device, std::int64_t batch,
                                                Optimizer optimizer, int micro_batches = 1) {
  count_allocations();
  CountedMemory memory;
  MemoryAccount& account = memory.account();
  torch::nn::Linear first(nullptr), second(nullptr);
  {
    std::optional<MakeOnMeta> on_meta;
    if (device.is_meta()) on_meta.emplace();
    first = torch::nn::Linear(kIn, kHidden);
    second = torch::nn::Linear(kHidden, kOut);
  }
  NamedTensors parameters;
  for (const auto& module : {first, second})
    for (const auto& it : named_parameters(*module)) parameters.push_back(it);
  mark_memory(parameters, Category::parameters);
  std::vector<at::Tensor> trained;
  for (const auto& it : parameters) trained.push_back(it.second);
  std::unique_ptr<torch::optim::Optimizer> updates;
  if (optimizer == Optimizer::sgd) {
    updates = std::make_unique<torch::optim::SGD>(trained, torch::optim::SGDOptions(0.1));
  } else {
    updates = std::make_unique<torch::optim::AdamW>(trained, torch::optim::AdamWOptions(0.1));
  }
  const at::Tensor input = at::ones({batch, kIn}, at::device(device));
  mark_memory(input, Category::inputs);
  account.end_segment();
  for (int m = 0; m < micro_batches; ++m) {
    at::Tensor loss;
    {
      const MemoryScope forward(MemoryPhase::forward);
      at::Tensor x = first(input);
      x = at::relu(x);
      x = second(x);
      loss = x.sum();
    }
    account.end_segment();
    loss.backward();
    mark_gradients(parameters);
    account.end_segment();
  }
  {
    const MemoryScope scope(MemoryPhase::optimizer);
    updates->step();
  }
  account.end_segment();
  return account.end_step();
}

class MemoryOfChain : public testing::TestWithParam<c10::DeviceType> {};

// Forward keeps the ReLU's result, and the loss: backward of the layers needs their inputs, and the
// ReLU's needs its result. What the first layer gave is there until the ReLU is done.
TEST_P(MemoryOfChain, IsTheSumByHandWhateverTheBatch) {
  for (const std::int64_t batch : {1, 32, 77}) {
    const std::int64_t inputs = kFloat * batch * kIn, hidden = kFloat * batch * kHidden;
    const std::vector<trace::SegmentMemory> segments =
        step_of_chain(GetParam(), batch, Optimizer::sgd);
    ASSERT_EQ(segments.size(), 4U);
    const trace::MemoryUse made =
        use({{Category::parameters, kWeights}, {Category::inputs, inputs}});
    EXPECT_EQ(segments[0].end, made);
    trace::MemoryUse forward = made;
    forward[Category::activations] = hidden;
    forward[Category::temporary] = hidden;
    EXPECT_EQ(segments[1].peak, forward) << batch;
    forward[Category::temporary] = 0;
    forward[Category::activations] = hidden + kFloat;
    EXPECT_EQ(segments[1].end, forward) << batch;
    trace::MemoryUse after = made;
    after[Category::gradients] = kWeights;
    EXPECT_EQ(segments[3].end, after) << batch;
    // The gradients of the second layer, of the ReLU's result, and of what went into it.
    EXPECT_GE(segments[2].peak.total(), forward.total() + kFloat * kHidden * kOut + 2 * hidden);
  }
}

TEST_P(MemoryOfChain, AdamKeepsTwoOfEachParameterAndPlainSgdNothing) {
  for (const Optimizer optimizer : {Optimizer::sgd, Optimizer::adamw}) {
    const trace::MemoryUse end = step_of_chain(GetParam(), 4, optimizer).back().end;
    EXPECT_EQ(end[Category::optimizer_state], optimizer == Optimizer::adamw ? 2 * kWeights : 0);
    EXPECT_EQ(end[Category::other], 0);
    EXPECT_EQ(end[Category::temporary], 0);
  }
}

TEST_P(MemoryOfChain, GradientsOfTheFirstMicroBatchStayForTheSecond) {
  const auto segments = step_of_chain(GetParam(), 4, Optimizer::sgd, 2);
  ASSERT_EQ(segments.size(), 6U);
  for (const std::size_t after : {2U, 3U, 4U, 5U})
    EXPECT_EQ(segments[after].end[Category::gradients], kWeights) << after;
  EXPECT_EQ(segments[3].end[Category::activations], kFloat * 4 * kHidden + kFloat);
}

INSTANTIATE_TEST_SUITE_P(Devices, MemoryOfChain, testing::Values(c10::kCPU, c10::kMeta),
                         [](const auto& it) { return it.param == c10::kMeta ? "Meta" : "Cpu"; });

TEST(CountedMemory, StoragesThatAreResizedCountWithTheirNewSize) {
  count_allocations();
  CountedMemory memory;
  const at::Tensor tensor = at::empty({100}, at::kByte);
  memory.account().end_segment();
  tensor.resize_({700});
  memory.account().end_segment();
  tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap({});
  memory.account().end_segment();
  const auto segments = memory.account().end_step();
  EXPECT_EQ(segments[0].end.total(), 100);
  EXPECT_EQ(segments[1].end.total(), 700);
  EXPECT_EQ(segments[2].end.total(), 0);
}

TEST(CountedMemory, OfOtherThreadsAndOfPausesOnlyWhatIsFreedCounts) {
  count_allocations();
  CountedMemory memory;
  at::Tensor own = at::empty({100}, at::kByte);
  memory.account().end_segment();
  at::Tensor another;
  memory.pause();
  const at::Tensor nobodys = at::empty({50}, at::kByte);
  memory.resume();
  std::thread([&] {
    another = at::empty({30}, at::kByte);
    own.reset();
  }).join();
  mark_memory(another, Category::inputs);
  mark_memory(nobodys, Category::inputs);
  memory.account().end_segment();
  const auto segments = memory.account().end_step();
  EXPECT_EQ(segments[0].end.total(), 100);
  EXPECT_EQ(segments[1].end.total(), 0);
}

TEST(CountedMemory, AStorageMayOutliveItsAccount) {
  count_allocations();
  at::Tensor left;
  {
    CountedMemory memory;
    left = at::empty({100}, at::kByte);
  }
  left.reset();
  EXPECT_EQ(at::ones({3}).sum().item<float>(), 3);
}

// What rank 0 of a job is counted to hold, over three steps.
trace::RankCosts costs_of(const std::string& scenario, bool on_meta) {
  const TempDir folder;
  const std::string file = folder.write("job.yaml", scenario);
  const auto failed = run_alone(
      {{file, {0}, folder.path(), folder.file("broadcasts"), {}, {}, LoneRanks::Costs::counts}},
      on_meta);
  EXPECT_FALSE(failed) << failed->error.str();
  Result<trace::RankCosts> costs = trace::read_work_costs(trace::costs_file(folder.path(), 0));
  EXPECT_TRUE(costs) << costs.error().str();
  return costs ? *costs : trace::RankCosts();
}
trace::RankCosts costs_of_job(const std::string& strategy) {
  return costs_of(
      "lockstep: 1\nname: a job\nranks: 2\ndata: {modality: [{has: [image, text]}]}\nstrategy: " +
          strategy + "\ntrain: {steps: 3, batch_size: 4}\n",
      /*on_meta=*/false);
}

trace::MemoryUse end_of(const trace::RankCosts& costs) {
  return costs.work.empty() ? trace::MemoryUse() : costs.work.back().memory->end;
}

// Trained parameters: state_bytes is four times as much, with AdamW.
std::int64_t trained(const trace::RankCosts& costs) {
  return static_cast<std::int64_t>(costs.state_bytes) / 4;
}

TEST(MemoryOfStrategies, BucketsAreAsLargeAsTheGradientsUnlessTheseAreViewsOfThem) {
  const trace::RankCosts ddp = costs_of_job("ddp");
  EXPECT_EQ(end_of(ddp)[Category::gradients], trained(ddp));
  EXPECT_EQ(end_of(ddp)[Category::communication], trained(ddp));
  const trace::RankCosts views = costs_of_job("{kind: ddp, gradient_as_bucket_view: true}");
  EXPECT_EQ(end_of(views)[Category::gradients], trained(views));
  EXPECT_EQ(end_of(views)[Category::communication], 0);
  EXPECT_EQ(trained(ddp), trained(views));
  const trace::RankCosts unused = costs_of_job("{kind: ddp, find_unused_parameters: true}");
  auto model = small_model();
  // The Reducer's map of used parameters, on the host and where it is sent.
  const auto maps = static_cast<std::int64_t>(2 * 4 * trained_parameters(*model).size());
  EXPECT_EQ(end_of(unused)[Category::communication], trained(unused) + maps);
}

TEST(MemoryOfStrategies, WhoReducesGradientsInPlaceHasNoBuffers) {
  const trace::RankCosts manual = costs_of_job("manual");
  EXPECT_EQ(end_of(manual)[Category::optimizer_state], 2 * trained(manual) + 8);  // the loss scale
  for (const trace::WorkCost& work : manual.work)
    EXPECT_EQ(work.memory->peak[Category::communication], 0) << work.id;
}

TEST(MemoryOfStrategies, FullyShardedKeepsAShardAndIsWholeOnlyWhileItComputes) {
  const trace::RankCosts whole = costs_of_job("manual"), half = costs_of_job("fsdp");
  EXPECT_NEAR(static_cast<double>(trained(half)), static_cast<double>(trained(whole)) / 2, 64);
  const std::int64_t frozen = end_of(whole)[Category::parameters] - trained(whole);
  EXPECT_EQ(end_of(half)[Category::parameters], trained(half) + frozen);
  EXPECT_EQ(end_of(half)[Category::gradients], trained(half));
  EXPECT_EQ(end_of(half)[Category::communication], 0);
  std::int64_t most = 0;
  for (const trace::WorkCost& work : half.work)
    if (work.step == 2) most = std::max(most, work.memory->peak[Category::communication]);
  EXPECT_GT(most, 0);
  // Roots, the block and the next one; the flat gradients of one of them and its part.
  EXPECT_LT(most, 2 * trained(whole));
}

TEST(MemoryOfStrategies, CheckpointedBlocksKeepFewerActivations) {
  const auto most_activations = [](const trace::RankCosts& costs) {
    std::int64_t most = 0;
    for (const trace::WorkCost& work : costs.work)
      most = std::max(most, work.memory->peak[Category::activations]);
    return most;
  };
  for (const char* strategy : {"ddp", "fsdp"}) {
    const trace::RankCosts plain = costs_of_job(strategy);
    const trace::RankCosts blocks =
        costs_of_job(std::string(strategy) + "\nmodel: {activation_checkpointing: blocks}");
    EXPECT_LT(most_activations(blocks), most_activations(plain) * 3 / 4) << strategy;
    EXPECT_EQ(end_of(blocks), end_of(plain)) << strategy;
  }
}

TEST(MemoryOfStrategies, EveryStorageIsForSomethingThatIsKnown) {
  for (const char* strategy : {"manual", "ddp", "fsdp"})
    for (const trace::WorkCost& work : costs_of_job(strategy).work)
      EXPECT_EQ(work.memory->end[Category::other], 0) << strategy;
}

// Kernels of the CPU take memory to work in that those of the meta device do not; all else, byte
// for byte.
class MemoryOnMeta : public testing::TestWithParam<const char*> {};

TEST_P(MemoryOnMeta, IsThatOnTheCpu) {
  const std::string file = std::string(LOCKSTEP_SOURCE_DIR "/scenarios/") + GetParam() + ".yaml";
  const auto scenario = simulated_scenario(*read_file(file, 1 << 20), file, {});
  ASSERT_TRUE(scenario) << scenario.error().str();
  const trace::RankCosts cpu = costs_of(*scenario, false), meta = costs_of(*scenario, true);
  ASSERT_EQ(cpu.work.size(), meta.work.size());
  std::int64_t most_on_cpu = 0, most_on_meta = 0;
  for (std::size_t i = 0; i < cpu.work.size(); ++i) {
    trace::MemoryUse a = cpu.work[i].memory->end, b = meta.work[i].memory->end;
    a[Category::temporary] = b[Category::temporary] = 0;
    EXPECT_EQ(a, b) << "segment " << i;
    // Without values nothing is evaluated.
    if (cpu.work[i].before == trace::WorkCost::Before::evaluation) continue;
    most_on_cpu = std::max(most_on_cpu, cpu.work[i].memory->peak.total());
    most_on_meta = std::max(most_on_meta, meta.work[i].memory->peak.total());
  }
  const auto most = static_cast<double>(most_on_cpu);
  EXPECT_NEAR(static_cast<double>(most_on_meta), most, 0.1 * most);
}

INSTANTIATE_TEST_SUITE_P(ShippedScenarios, MemoryOnMeta,
                         testing::Values("fsdp/fsdp_ok", "fsdp/fsdp_dummy_ok", "fsdp/hsdp_ok",
                                         "modality/train_ok", "modality/all_text_only_ok",
                                         "modality/ddp_find_unused_ok", "modality/dummy_fill_ok",
                                         "modality/manual_hang_ok", "modality/manual_silent_ok",
                                         "remedies/alternating_ok", "remedies/gradient_mask_ok",
                                         "remedies/image_ranks_ok", "remedies/presence_vote_ok",
                                         "training/accumulation_ok", "training/clip_ok",
                                         "training/fusion_ok", "training/global_negatives_ok"),
                         [](const auto& it) {
                           std::string name = it.param;
                           std::replace(name.begin(), name.end(), '/', '_');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::runtime
