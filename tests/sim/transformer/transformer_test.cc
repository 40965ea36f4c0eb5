// Counts of a transformer against values worked out by hand, and against the papers' formulas.
#include "sim/transformer/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/transformer/layer_time.h"
#include "sim/transformer/memory.h"

namespace lockstep::sim {
namespace {

using ::testing::HasSubstr;

Transformer gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  Transformer model;
  model.layers = layers;
  model.hidden = hidden;
  model.heads = model.kv_heads = heads;
  model.ffn = 4 * hidden;
  model.vocabulary = 51200;
  return model;
}

Transformer llama_8b() {
  Transformer model;
  model.layers = 32;
  model.hidden = 4096;
  model.heads = 32;
  model.kv_heads = 8;
  model.ffn = 14336;
  model.vocabulary = 128256;
  model.gated = true;
  model.tied_embeddings = false;
  return model;
}

TrainingPlan plan_of(std::int64_t sequence, std::int64_t batch) {
  TrainingPlan out;
  out.sequence = sequence;
  out.global_batch = batch;
  return out;
}

PipelineProgram order_of(const TrainingPlan& plan) {
  return *make_pipeline(
      plan.schedule, {plan.pipeline, static_cast<std::int32_t>(plan.micro_batches()), plan.chunks});
}

// h = 8, one head, ffn 32: QKV 3*64 + 24, projection 64 + 8, feed-forward 2*256 + 32 + 8, norms 32.
TEST(Transformer, ParametersOfASmallLayer) {
  Transformer tiny = gpt(1, 8, 1);
  tiny.vocabulary = 10;
  EXPECT_EQ(layer_parameters(tiny), 192 + 24 + 64 + 8 + 512 + 40 + 32);
  EXPECT_EQ(parameters(tiny), layer_parameters(tiny) + 80);
}

TEST(Transformer, ParametersOfPublishedModels) {
  EXPECT_EQ(parameters(llama_8b()) + 4096, 8'030'261'248);  // with the last norm: Llama 3.1 8B
  // arXiv 2104.04473, table 1: 1.7, 18.4 and 76.1 billion.
  EXPECT_NEAR(static_cast<double>(parameters(gpt(24, 2304, 24))), 1.65e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(parameters(gpt(40, 6144, 48))), 18.4e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(parameters(gpt(60, 10240, 80))), 76.1e9, 0.2e9);
}

// FLUX.1 (black-forest-labs/flux): 11.9 billion, of which 57 layers of 12 h^2 are multiplied with a
// token. MLPerf counts 20.3 TFLOP for a sample of 512 tokens (MODEL_TFLOP_PER_SAMPLE).
TEST(Transformer, ParametersOfADiffusionTransformer) {
  const Transformer flux = *published_model("flux1-12b");
  EXPECT_NEAR(static_cast<double>(parameters(flux)), 11.9e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(active_parameters(flux)), 57 * 12.0 * 3072 * 3072, 0.01e9);
  TrainingPlan plan = plan_of(1, 1);
  plan.sequence = 512;
  EXPECT_NEAR(model_flops(flux, plan), 20.3e12, 0.2e12);
  // The other stream's weights cost memory and no time.
  Transformer lean = flux;
  lean.side_parameters = 0;
  const CostParameters cost;
  EXPECT_EQ(layer_times(lean, plan, cost).forward.kernels,
            layer_times(flux, plan, cost).forward.kernels);
  EXPECT_GT(state_bytes(flux, plan).parameters, 1.8 * state_bytes(lean, plan).parameters);
  // What a condition scales and gates is read and written besides.
  Transformer plain = flux;
  plain.diffusion = false;
  EXPECT_LT(layer_times(plain, plan, cost).forward.kernels,
            layer_times(flux, plan, cost).forward.kernels);
}

// arXiv 2401.04088: 46.7 billion parameters, of which a token goes through 12.9.
TEST(Transformer, ParametersOfAMixture) {
  const Transformer mixtral = *published_model("mixtral-8x7b");
  EXPECT_EQ(parameters(mixtral) + 4096, 46'702'792'704);  // with the last norm
  EXPECT_NEAR(static_cast<double>(active_parameters(mixtral)), 12.9e9, 0.05e9);
  // FLOPs are those of the parameters that a token goes through, and attention.
  const double per_token = model_flops(mixtral, plan_of(1, 1));
  EXPECT_NEAR(per_token, 6.0 * static_cast<double>(active_parameters(mixtral)), 0.02 * per_token);
  // Eight expert ranks hold an eighth of the experts each, and all of the rest.
  TrainingPlan of = plan_of(4096, 8);
  of.data = 8;
  const RankParameters all = parameters_of_rank(mixtral, of);
  of.expert = 8;
  const RankParameters part = parameters_of_rank(mixtral, of);
  EXPECT_EQ(part.dense, all.dense);
  EXPECT_EQ(part.experts, all.experts / 8);
  EXPECT_EQ(all.total(), static_cast<double>(parameters(mixtral)));
  // What ZeRO divides over all ranks is the same either way: only these hold the same experts.
  of.sharding = Sharding::zero1;
  EXPECT_DOUBLE_EQ(state_bytes(mixtral, of).optimizer, 12 * (all.dense + all.experts) / 8);
}

// arXiv 2104.04473, eq. 3: 96 B s l h^2 (1 + s/(6h) + V/(16 l h)), all but the logits recomputed.
TEST(Transformer, FlopsAreThoseOfThePaper) {
  const Transformer model = gpt(40, 6144, 48);
  TrainingPlan of = plan_of(2048, 1024);
  of.recompute = Recompute::full;
  const double l = 40, h = 6144, s = 2048, v = 51200;
  const double paper = 96 * 1024 * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
  EXPECT_NEAR(hardware_flops(model, of) / paper, 1, 1e-12);
  // Without recomputing: three quarters, of the logits all.
  const double logits = 6 * 1024 * s * h * v;
  EXPECT_NEAR(model_flops(model, of) / ((paper - logits) * 3 / 4 + logits), 1, 1e-12);
}

TEST(Transformer, SelectiveRecomputeRepeatsTheAttentionOnly) {
  const Transformer model = gpt(2, 64, 4);
  TrainingPlan of = plan_of(128, 1);
  const double once = hardware_flops(model, of);
  of.recompute = Recompute::selective;
  // Scores and values, 2 s h multiplications and additions each, for 128 tokens in 2 layers.
  EXPECT_EQ(hardware_flops(model, of) - once, 2.0 * 128 * 4 * 128 * 64);
}

// A gated layer repeats keys, the attention's output and one up-projection: every second product.
TEST(Transformer, SelectiveRecomputeOfGatedLayersRepeatsEverySecondProduct) {
  const Transformer model = llama_8b();
  TrainingPlan of = plan_of(128, 1);
  const double once = hardware_flops(model, of);
  of.recompute = Recompute::selective;
  EXPECT_EQ(hardware_flops(model, of) - once, 128.0 * 32 * 2 * 4096 * (1024.0 + 4096 + 14336));
}

// arXiv 2205.05198, table 2, GPT-3: s = 2048, b = 1, h = 12288, a = 96, t = 8.
TEST(Activations, AreThoseOfThePaper) {
  const Transformer model = gpt(96, 12288, 96);
  TrainingPlan of = plan_of(2048, 1);
  of.tensor = 8;
  const double sbh = 2048.0 * 12288;
  const double scores = 5.0 * 96 * 2048 / 12288;
  EXPECT_DOUBLE_EQ(layer_activation_bytes(model, of), sbh * (10 + 24.0 / 8 + scores / 8));
  of.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(layer_activation_bytes(model, of), sbh / 8 * (34 + scores));
  of.recompute = Recompute::selective;
  EXPECT_DOUBLE_EQ(layer_activation_bytes(model, of), sbh / 8 * 34);
  of.sequence_parallel = false;
  EXPECT_DOUBLE_EQ(layer_activation_bytes(model, of), sbh * (10 + 24.0 / 8));
  of.recompute = Recompute::full;
  EXPECT_DOUBLE_EQ(layer_activation_bytes(model, of), 2 * sbh);
}

// Llama 3.1 8B keeps of a token and element: norms and their outputs 8 bytes, q, k, v 3 (grouped),
// attention 2, gates and product 3 x 2 x 3.5.
TEST(Activations, OfAGatedLayer) {
  const Transformer model = llama_8b();
  TrainingPlan of = plan_of(8192, 1);
  const double elements = 8192.0 * 4096;
  EXPECT_DOUBLE_EQ(layer_activation_bytes(model, of), elements * (8 + 3 + 2 + 21));
  // Input and output 4, attention 2, queries and values 2 + 0.5, one gate 7.
  of.recompute = Recompute::selective;
  EXPECT_DOUBLE_EQ(layer_activation_bytes(model, of), elements * (4 + 11.5));
}

// Each of two experts of a token keeps gates and product; so do the copies of its input.
TEST(Activations, OfAMixture) {
  Transformer model = llama_8b();
  TrainingPlan of = plan_of(8192, 1);
  model.experts = 8;
  model.experts_per_token = 2;
  const double elements = 8192.0 * 4096;
  EXPECT_DOUBLE_EQ(layer_activation_bytes(model, of), elements * (8 + 3 + 2 + 2 * 21 + 2 * 2));
  // The fullest rank's experts get half as many tokens again.
  of.expert = 8;
  of.expert_skew = 1.5;
  EXPECT_DOUBLE_EQ(layer_activation_bytes(model, of), elements * (8 + 3 + 2 + 3 * 21 + 3 * 2));
  // Without gates: as dense, where a token goes through one.
  Transformer dense = gpt(8, 1024, 16), one = dense;
  dense.fused_attention = one.fused_attention = true;
  one.experts = 4;
  one.experts_per_token = 1;
  EXPECT_DOUBLE_EQ(layer_activation_bytes(one, plan_of(512, 1)),
                   layer_activation_bytes(dense, plan_of(512, 1)) + 2 * 512.0 * 1024);
}

// arXiv 1910.02054, figure 1: 7.5 billion parameters on 64 ranks: 120, 31.4, 16.6 and 1.9 GB.
TEST(State, ShardsAsZeroDoes) {
  Transformer model = gpt(1, 1024, 16);
  TrainingPlan of = plan_of(1024, 64);
  of.data = 64;
  of.short_gradients = true;
  const double count = parameters_of_rank(model, of).total();
  const auto of_75 = [&](Sharding sharding) {
    of.sharding = sharding;
    return state_bytes(model, of).total() / count * 7.5;
  };
  EXPECT_NEAR(of_75(Sharding::none), 120, 1e-9);
  EXPECT_NEAR(of_75(Sharding::zero1), 31.4, 0.05);
  EXPECT_NEAR(of_75(Sharding::zero2), 16.6, 0.05);
  EXPECT_NEAR(of_75(Sharding::zero3), 1.9, 0.05);
}

TEST(Memory, AddsUpOverTheFullestStage) {
  const Transformer model = gpt(8, 1024, 16);
  TrainingPlan of = plan_of(1024, 8);
  of.pipeline = 4;
  of.recompute = Recompute::full;
  const StepMemory use = memory_use(model, of, order_of(of));
  EXPECT_DOUBLE_EQ(use.state.total(), 18 * parameters_of_rank(model, of).total());
  // Two layers a stage; the last one, with a micro-batch and the logits (14 bytes each), is
  // fullest.
  EXPECT_DOUBLE_EQ(use.held.activations, 1 * 2 * 2.0 * 1024 * 1024);
  EXPECT_DOUBLE_EQ(use.working, 14.0 * 1024 * 51200);
  EXPECT_TRUE(use.of_logits);
  EXPECT_EQ(use.stage, 3);
  EXPECT_EQ(use.held.unsharded, 0);
}

// FSDP scatters a pipeline's gradients after the last backward, also where that is the only one.
TEST(Memory, OneMicroBatchHasGradientsToo) {
  const Transformer model = gpt(16, 4096, 32);
  TrainingPlan of = plan_of(1024, 64);
  of.pipeline = 4;
  of.data = 8;
  of.sharding = Sharding::zero3;
  const auto unsharded = [&](std::int64_t micro_batches) {
    of.global_batch = of.data * micro_batches;
    return memory_use(model, of, order_of(of)).held.unsharded;
  };
  EXPECT_DOUBLE_EQ(unsharded(1), unsharded(2));
}

// 126 layers over 16 stages of 8 chunks, as Llama 3 405B: one each, and none in the first and the
// last.
TEST(Pieces, ShortEndsHaveALayerLess) {
  Transformer model = gpt(126, 1024, 16);
  TrainingPlan of = plan_of(1024, 256);
  of.pipeline = 16;
  of.chunks = 8;
  of.schedule = PipelineSchedule::interleaved;
  EXPECT_TRUE(workload_problem(model, of));  // more pieces than layers
  of.short_ends = true;
  EXPECT_FALSE(workload_problem(model, of));
  EXPECT_EQ(layers_of_piece(model, of, 0), 0);
  EXPECT_EQ(layers_of_piece(model, of, 1), 1);
  EXPECT_EQ(layers_of_piece(model, of, 127), 0);
  EXPECT_EQ(layers_of_stage(model, of, 0), 7);
  EXPECT_EQ(layers_of_stage(model, of, 7), 8);
  EXPECT_EQ(layers_of_stage(model, of, 15), 7);
  // Both ends of a vee are on the first stage.
  of.schedule = PipelineSchedule::zbv;
  EXPECT_EQ(layers_of_stage(model, of, 0), 6);
  EXPECT_EQ(layers_of_stage(model, of, 15), 8);
  model.layers = 125;
  EXPECT_TRUE(workload_problem(model, of));
}

// A layer has 12 h^2 and more parameters, a table 50 h^2: the ends are the fullest.
TEST(Pieces, TheFullestStageHasALayerMoreOrATable) {
  Transformer model = gpt(14, 1024, 16);
  TrainingPlan of = plan_of(1024, 8);
  of.pipeline = 4;
  of.short_ends = true;
  const auto layer = static_cast<double>(layer_parameters(model));
  EXPECT_EQ(parameters_of_rank(model, of).total(), 3 * layer + 51200.0 * 1024);
  model.vocabulary = 512;
  EXPECT_EQ(parameters_of_rank(model, of).total(), 4 * layer);
}

// FSDP's root has the tables, and stays gathered; and what is gathered is there twice.
TEST(Memory, FsdpKeepsTheTablesGathered) {
  Transformer model = gpt(8, 1024, 16);
  TrainingPlan of = plan_of(1024, 8);
  of.data = 8;
  of.sharding = Sharding::zero3;
  const auto unsharded = [&] { return memory_use(model, of, order_of(of)).held.unsharded; };
  const auto layer = static_cast<double>(layer_parameters(model));
  EXPECT_DOUBLE_EQ(unsharded(), 2 * 2 * (layer + 51200.0 * 1024));
  model.tied_embeddings = false;
  EXPECT_DOUBLE_EQ(unsharded(), 2 * 2 * (layer + 2 * 51200.0 * 1024));
  of.sharding = Sharding::zero2;
  EXPECT_EQ(unsharded(), 0);
}

// Of 8 micro-batches on 4 stages of two layers each, the bytes that each moment adds.
TEST(Memory, FsdpKeepsAPipelinesWeightsAndSumsItsGradients) {
  const Transformer model = gpt(8, 1024, 16);
  TrainingPlan of = plan_of(1024, 8);
  of.pipeline = 4;
  of.recompute = Recompute::full;
  of.sharding = Sharding::zero3;
  const double layer = parameters_of(model, of, 1, 0).total();
  // In the middle: 16-bit weights, float32 gradients, two layers' buffers.
  const std::vector<HeldPiece> two = {{.layers = 2, .parameters = 2 * layer, .trained = 2 * layer}};
  EXPECT_DOUBLE_EQ(fullest_moment(model, of, order_of(of), 1, two).unsharded,
                   (2 + 4) * 2 * layer + 2 * 2 * layer);
  // Frozen parameters have no gradients.
  const std::vector<HeldPiece> frozen = {{.layers = 2, .parameters = 2 * layer}};
  EXPECT_DOUBLE_EQ(fullest_moment(model, of, order_of(of), 1, frozen).unsharded, 4 * 2 * layer);
  // At the ends the table is gathered first; a layer finds place in what it leaves only where that
  // is large enough: here it has 50 h^2, and a layer 12 h^2 and more.
  const double table = 51200.0 * 1024;
  const std::vector<HeldPiece> end = {
      {.layers = 2, .parameters = 2 * layer + table, .is_first = true}};
  EXPECT_DOUBLE_EQ(fullest_moment(model, of, order_of(of), 0, end).unsharded,
                   2 * (2 * layer + table) + 2 * (layer + table));
  Transformer few = model;
  few.vocabulary = 1024;
  const std::vector<HeldPiece> small = {
      {.layers = 2, .parameters = 2 * layer + 1024.0 * 1024, .is_first = true}};
  EXPECT_DOUBLE_EQ(fullest_moment(few, of, order_of(of), 0, small).unsharded,
                   2 * 2 * (2 * layer + 1024.0 * 1024));
  // Four micro-batches on two pieces a stage: the later piece's gradients are scattered before the
  // earlier one's first backward, so half of them are there at a time.
  of.global_batch = 4;
  of.chunks = 2;
  of.schedule = PipelineSchedule::interleaved;
  const HeldPiece one = {.layers = 1, .parameters = layer, .trained = layer};
  EXPECT_DOUBLE_EQ(fullest_moment(model, of, order_of(of), 1, {one, one}).unsharded,
                   2 * 2 * layer + 4 * layer + 2 * 2 * layer);
  // With eight micro-batches, rounds of four alternate between the pieces.
  of.global_batch = 8;
  EXPECT_DOUBLE_EQ(fullest_moment(model, of, order_of(of), 1, {one, one}).unsharded,
                   (2 + 4) * 2 * layer + 2 * 2 * layer);
}

// While a layer is computed, sequence parallelism gathers what it split: the products' input and
// two gradients. FSDP has the layer's gradients in 16 bits, and scatters them in float32.
TEST(Memory, ALayerAtWorkHoldsWhatIsGatheredAndItsGradients) {
  const Transformer model = gpt(8, 1024, 16);
  TrainingPlan of = plan_of(1024, 8);
  of.recompute = Recompute::full;
  const double elements = 1024.0 * 1024, scores = 5.0 * 16 * 1024 / 1024;
  EXPECT_DOUBLE_EQ(layer_working_bytes(model, of), (34 + scores) * elements);
  of.tensor = 4;
  EXPECT_DOUBLE_EQ(layer_working_bytes(model, of), (10 + 24.0 / 4 + scores / 4) * elements);
  of.sequence_parallel = true;
  const double split = ((34 + scores) / 4 + 3 * 2) * elements;
  EXPECT_DOUBLE_EQ(layer_working_bytes(model, of), split);
  const double layer = parameters_of(model, of, 1, 0).total();
  of.sharding = Sharding::zero3;
  EXPECT_DOUBLE_EQ(layer_working_bytes(model, of), split + 6 * layer);
  of.pipeline = 2;  // where gradients are summed in what the stage holds
  EXPECT_DOUBLE_EQ(layer_working_bytes(model, of), split + 2 * layer);
}

// torch/distributed/tensor/parallel/loss.py: 4 bytes more of each logit, and the product's input,
// gathered. Whole logits, and Megatron's loss, take 14 bytes.
TEST(Memory, PyTorchsLossOverSplitLogitsHoldsMore) {
  const Transformer model = gpt(8, 1024, 16);
  TrainingPlan of = plan_of(1024, 8);
  const double logits = 1024.0 * 51200;
  EXPECT_DOUBLE_EQ(logit_bytes(model, of), 14 * logits);
  of.plain_kernels = true;
  EXPECT_DOUBLE_EQ(logit_bytes(model, of), 14 * logits);
  of.tensor = 4;
  EXPECT_DOUBLE_EQ(logit_bytes(model, of), 18 * logits / 4 + 2.0 * 1024 * 1024);
  of.plain_kernels = false;
  EXPECT_DOUBLE_EQ(logit_bytes(model, of), 14 * logits / 4);
}

// torch/distributed/pipelining/stage.py, of 8 micro-batches on 4 stages: a message of 2 MiB.
TEST(Memory, APipelineOfPyTorchKeepsBuffersForAllMicroBatches) {
  const Transformer model = gpt(8, 1024, 16);
  TrainingPlan of = plan_of(1024, 8);
  of.pipeline = 4;
  of.recompute = Recompute::full;
  of.sharding = Sharding::zero3;
  const double message = 2.0 * 1024 * 1024;
  const auto messages = [&](std::int32_t stage) {
    // Without parameters, so that the fullest moment is that with most in flight.
    const HeldPiece piece = {.layers = 2, .is_first = stage == 0, .is_last = stage == 3};
    return fullest_moment(model, of, order_of(of), stage, {piece}).messages;
  };
  // The first stage: gradients of 8, results of 4 in flight. In the middle 3 in flight, whose
  // inputs are activations: 5 more of these, with the gradients that went back. The last one: 7
  // inputs, their gradients, and the logits of the other 7.
  EXPECT_DOUBLE_EQ(messages(0), (8 + 4) * message);
  EXPECT_DOUBLE_EQ(messages(1), (5 + 5 + 8 + 3) * message);
  EXPECT_DOUBLE_EQ(messages(3), (7 + 7) * message + 7 * 2.0 * 1024 * 51200);
  const StepMemory use = memory_use(model, of, order_of(of));
  EXPECT_EQ(use.stage, 3);
  EXPECT_EQ(use.held.messages, messages(3));
  // Megatron frees what it sent, and without stages nothing is sent.
  of.sharding = Sharding::zero1;
  EXPECT_EQ(messages(0), 0);
  of.sharding = Sharding::zero3;
  of.pipeline = 1;
  EXPECT_EQ(messages(0), 0);
}

TEST(Workload, RefusesWhatCannotBe) {
  const auto refused = [](const Transformer& model, const TrainingPlan& of) {
    const Status status = check_workload(model, of);
    return status ? std::string("fine") : status.error().message;
  };
  const Transformer model = gpt(8, 1024, 16);
  EXPECT_EQ(refused(model, plan_of(1024, 8)), "fine");
  TrainingPlan of = plan_of(1024, 8);
  of.pipeline = 16;
  EXPECT_THAT(refused(model, of), HasSubstr("16 stages for 8 layers"));
  of = plan_of(1024, 8);
  of.tensor = 3;
  EXPECT_THAT(refused(model, of), HasSubstr("heads 16 does not divide by tensor 3"));
  of = plan_of(1024, 8);
  of.data = 16;
  EXPECT_THAT(refused(model, of), HasSubstr("less than one micro-batch"));
  of = plan_of(1024, 8);
  of.data = 3;
  EXPECT_THAT(refused(model, of), HasSubstr("does not divide by micro_batch x data 3"));
  EXPECT_THAT(refused(model, plan_of(0, 8)), HasSubstr("sequence is 0"));
  Transformer wide = model;
  wide.hidden = std::int64_t{1} << 40;
  EXPECT_THAT(refused(wide, plan_of(1024, 8)), HasSubstr("hidden is"));
}

}  // namespace
}  // namespace lockstep::sim
