#include "sim/transformer/layer_time.h"

#include <algorithm>
#include <vector>

#include "sim/transformer/kernel_time.h"

namespace lockstep::sim {
namespace {

// Bytes of element-wise operations, per token and element of the width: reads and writes of 16-bit
// values. `whole`: norms and residual additions, which every rank computes. `split`: activation
// functions and reshapes, which are split over the tensor ranks.
struct Traffic {
  double whole, split;
};
constexpr Traffic kForward{28, 30};
constexpr Traffic kBackward{34, 38};
// What a diffusion transformer's layers read and write besides: modulated norms, gates, normalised
// queries and keys, streams joined and divided, the casts of its 8-bit products. Not counted but
// fitted, to one step of FLUX.1 (the row that dgx-b200.yaml names); a rough count of NeMo's
// operators, each by itself, gives about 150. A tenth, the norms' part by that count, is not split
// over tensor ranks.
constexpr Traffic kDiffusionForward{20, 171};
constexpr Traffic kDiffusionBackward{38, 344};
// Bytes per attention score: write, softmax (read, write), dropout (read, write, mask), read;
// backward alike. Without the fused kernel, scaling, masking and softmax each read and write once
// more.
constexpr double kScoreForward = 13, kScoreBackward = 15, kUnfused = 12;

// `experts`: feed-forward blocks that a rank computes; 1 for a dense model. `block_tokens`: tokens
// that go through these blocks, on the fullest rank.
struct Sizes {
  double tokens, hidden, kv, ffn, tensor, experts, block_tokens;
};

Sizes sizes_of(const Transformer& model, const TrainingPlan& plan) {
  const auto h = static_cast<double>(model.hidden);
  const auto tokens = static_cast<double>(plan.tokens());
  const bool mixture = model.experts > 0;
  return {
      tokens,
      h,
      h * static_cast<double>(model.kv_heads) / static_cast<double>(model.heads),
      static_cast<double>(model.ffn),
      static_cast<double>(plan.tensor),
      mixture ? static_cast<double>(model.experts) / plan.expert : 1,
      tokens * static_cast<double>(model.blocks_per_token()) * (mixture ? plan.expert_skew : 1)};
}

struct LayerTraffic {
  Traffic forward, backward;
};

// What a gated layer's operators read and write under PyTorch without a compiler, one at a time
// (torchtitan, model.py and norms.py). Forward: an RMSNorm in float32 (to float 6, square 8, mean
// 4, product 8, to 16 bits 6, weight 4) twice, two additions of 6; the rotary embedding in float32
// (20) of queries and keys; copies of keys and values that heads share; SiLU (4) and the product
// (6) of the feed-forward block. Backward: the derivative of each, and sums of the gradients of
// inputs that several linear layers share (18).
LayerTraffic plain_traffic(double kv, double ffn) {
  const double attention = 20 * (1 + kv) + (kv < 1 ? 4 + 4 * kv : 0);
  return {{2 * 36 + 2 * 6, attention + 10 * ffn}, {2 * 84 + 2 * 6 + 18, attention + 18 * ffn}};
}

LayerTraffic element_wise(const Transformer& model, const TrainingPlan& plan, const Sizes& s) {
  const double ffn = s.block_tokens / s.tokens * s.ffn / s.hidden;
  if (model.gated && plan.plain_kernels && !plan.compiled)
    return plain_traffic(s.kv / s.hidden, ffn);
  // kForward and kBackward are for a feed-forward block of 4 times the width, without a gate.
  const double wide = ffn / 4 * (model.gated ? 1.5 : 1);
  LayerTraffic out = {{kForward.whole, kForward.split * wide},
                      {kBackward.whole, kBackward.split * wide}};
  if (model.diffusion) {
    out.forward.whole += kDiffusionForward.whole;
    out.forward.split += kDiffusionForward.split;
    out.backward.whole += kDiffusionBackward.whole;
    out.backward.split += kDiffusionBackward.split;
  }
  return out;
}

// The linear layers of one rank: QKV, projection, and the two of the feed-forward block (gated: the
// first one is twice as wide). A rank's experts are one batched launch. In a mixture the router is
// a fifth.
std::vector<Gemm> linear(const Transformer& model, const Sizes& s) {
  const double rows = s.block_tokens / s.experts;
  std::vector<Gemm> out = {
      {s.tokens, (s.hidden + 2 * s.kv) / s.tensor, s.hidden},
      {s.tokens, s.hidden, s.hidden / s.tensor},
      {rows, s.ffn * (model.gated ? 2 : 1) / s.tensor, s.hidden, s.experts},
      {rows, s.hidden, s.ffn / s.tensor, s.experts},
  };
  if (model.experts > 0) out.push_back({s.tokens, static_cast<double>(model.experts), s.hidden});
  return out;
}

// An operand of an 8-bit product is cast first, and transposed for the product of the other
// direction: 2 bytes read, twice one written (Transformer Engine, cast_transpose).
double cast_seconds(const CostParameters& cost, double elements, bool fp8) {
  return fp8 ? traffic_seconds(cost, 4 * elements) : 0;
}

double forward_seconds(const CostParameters& cost, const std::vector<Gemm>& gemms, bool fp8) {
  double seconds = 0;
  for (const Gemm& g : gemms)
    seconds += gemm_seconds(cost, g, fp8) + cast_seconds(cost, g.rows * g.depth * g.batch, fp8);
  return seconds;
}

// Gradients of the input and of the weights.
double backward_seconds(const CostParameters& cost, const std::vector<Gemm>& gemms, bool fp8) {
  double seconds = 0;
  for (const Gemm& g : gemms)
    seconds += gemm_seconds(cost, {g.rows, g.depth, g.columns, g.batch}, fp8) +
               gemm_seconds(cost, {g.depth, g.columns, g.rows, g.batch}, fp8) +
               cast_seconds(cost, g.rows * g.columns * g.batch, fp8);
  return seconds;
}

// The second of the two products alone.
double weights_seconds(const CostParameters& cost, const std::vector<Gemm>& gemms, bool fp8) {
  double seconds = 0;
  for (const Gemm& g : gemms)
    seconds += gemm_seconds(cost, {g.depth, g.columns, g.rows, g.batch}, fp8);
  return seconds;
}

// Something in each direction.
struct Directions {
  double forward = 0, backward = 0;
};

// Whether Megatron's fused softmax kernel is available (layer_time.h).
bool fuses_softmax(const Transformer& model, const TrainingPlan& plan) {
  return plan.micro_batch * (model.heads / plan.tensor) % 4 == 0;
}

Directions attention(const Transformer& model, const TrainingPlan& plan,
                     const CostParameters& cost) {
  const double rows = static_cast<double>(plan.sequence) / plan.context;
  const auto columns = static_cast<double>(plan.sequence);
  const auto width = static_cast<double>(model.head_width());
  const double batch =
      static_cast<double>(plan.micro_batch) * static_cast<double>(model.heads) / plan.tensor;
  const Gemm scores{rows, columns, width, batch};
  const Gemm values{rows, width, columns, batch};
  if (model.fused_attention) {
    // FlashAttention keeps its tiles on chip: 2 products forward, 5 backward (arXiv 2307.08691,
    // section 3.1).
    const double share = model.causal ? 0.5 : 1;
    const double one = share * scores.flops() / (cost.peak_flops * cost.attention_efficiency);
    return {2 * one, 5 * one};
  }
  const double count = rows * columns * batch;
  const double more = fuses_softmax(model, plan) ? 0 : kUnfused;
  const std::vector<Gemm> both = {scores, values};
  return {forward_seconds(cost, both, false) +
              traffic_seconds(cost, cost.attention_traffic * count * (kScoreForward + more)),
          backward_seconds(cost, both, false) +
              traffic_seconds(cost, cost.attention_traffic * count * (kScoreBackward + more))};
}

// The collectives of the activations over the tensor ranks, in one direction: two all-reduces per
// layer. With sequence parallelism each is an all-gather, before a product, and a reduce-scatter
// after one, each half of it. What an 8-bit product needs is gathered in 8 bits (Transformer
// Engine, torchao's float8_tensor_parallel.py); sums are in 16. If they overlap the products, only
// the slowdown that they cause counts.
double tensor_seconds(const TrainingPlan& plan, const CostParameters& cost, const Sizes& s) {
  const Group tensor = group_of(cost, plan.tensor, 1, plan.ranks());
  const bool short_gathers = plan.fp8 && plan.sequence_parallel;
  const auto sum = [&](double elements) {
    const double whole = collective_seconds(cost, trace::Op::all_reduce, 2 * elements, tensor);
    if (!short_gathers) return whole;
    return (whole + collective_seconds(cost, trace::Op::all_reduce, elements, tensor)) / 2;
  };
  const double seconds = sum(s.tokens * s.hidden) + sum(s.block_tokens * s.hidden);
  return plan.overlapped_tensor ? seconds * cost.overlap_slowdown : seconds;
}

// Tokens go to the ranks of their experts and come back: two all-to-alls in each direction. Each
// takes as long as on the fullest rank.
double expert_seconds(const Transformer& model, const TrainingPlan& plan,
                      const CostParameters& cost, const Sizes& s) {
  if (plan.expert == 1) return 0;
  const double sent = s.tokens * static_cast<double>(model.blocks_per_token()) /
                      (plan.sequence_parallel ? s.tensor : 1);
  return 2 * plan.expert_skew *
         collective_seconds(cost, trace::Op::all_to_all, 2 * sent * s.hidden,
                            group_of(cost, plan.expert, plan.tensor, plan.ranks()));
}

// The all-gather of keys and values over the context ranks, in one direction, in 16 bits; `width`:
// of the keys.
double gather_seconds(const TrainingPlan& plan, const CostParameters& cost, const Sizes& s,
                      double width) {
  const double bytes = 2 * 2 * s.tokens * plan.context * width / s.tensor;
  return collective_seconds(cost, trace::Op::all_gather, bytes,
                            group_of(cost, plan.context, plan.tensor, plan.ranks()));
}

// PyTorch's context parallelism (torch/distributed/tensor/experimental/_attention.py) gathers keys
// and values once per direction, after heads that are shared were copied. In the backward pass
// their gradients, in float32, go once round the ring of context ranks. The calls overlap
// attention, unless the layer is compiled: then each is waited for where it is issued.
Directions plain_context(const TrainingPlan& plan, const CostParameters& cost, const Sizes& s) {
  const Group all = group_of(cost, plan.context, plan.tensor, plan.ranks());
  Group next{2, all.per_node == all.ranks ? 2 : 1, plan.tensor, plan.ranks()};
  next.wraps = true;
  const double gather = gather_seconds(plan, cost, s, s.hidden);
  const double hop =
      collective_seconds(cost, trace::Op::send, 2 * 4 * s.tokens * s.hidden / s.tensor, next);
  if (plan.compiled) return {gather, gather + plan.context * hop};
  // Nothing is computed after the last hop.
  return {cost.overlap_slowdown * gather,
          cost.overlap_slowdown * (gather + (plan.context - 1) * hop) + hop};
}

Directions context_seconds(const TrainingPlan& plan, const CostParameters& cost, const Sizes& s) {
  if (plan.context == 1) return {};
  if (plan.plain_kernels) return plain_context(plan, cost, s);
  const double seconds =
      gather_seconds(plan, cost, s, s.kv) * (plan.overlapped_context ? cost.overlap_slowdown : 1);
  return {seconds, seconds};
}

// What PyTorch's context parallelism reads and writes beside attention, in bytes per token and
// element of the width, on the rank with the most of it. Each of the ring's steps attends to the
// keys of one rank; its result is merged in float32 with that of the steps before. The backward
// pass sums gradients in float32. Compiled, an operation reads what the one before it would have
// written.
Directions plain_merging(const TrainingPlan& plan) {
  if (plan.context == 1 || !plan.plain_kernels) return {};
  const double steps = plan.context;
  if (plan.compiled)
    // Forward: keys and values made contiguous (8), packed for each step (8), results merged (10)
    // and the last one rounded. Backward: the same copies; gradients of keys and values (20) and
    // queries (10) summed.
    return {8 + 18 * (steps - 1) + 6, 8 + 8 * (steps - 1) + 30 * steps};
  // Forward: a result in float32 (6), difference (12), product (8), sum (12). Backward: gradients
  // are zeroed (12), those of keys and values are summed and joined (26) and packed (16), those of
  // the queries summed (10), and all rounded (18).
  return {8 + 8 * (steps - 1) + 6 + 38 * (steps - 1) + 6,
          12 + 8 + 8 * (steps - 1) + 52 * steps + 18};
}

// torchtitan's policy for gated layers, train_spec's selective operator checkpointing, recomputes
// every second of the products wq, wk, wv, wo, w1, w3, w2: wk, wo and w3. In `gemms`, wq, wk and wv
// are one product, and w1 and w3 another.
double every_second_product(const CostParameters& cost, const Sizes& s,
                            const std::vector<Gemm>& gemms, bool fp8) {
  return gemm_seconds(cost, gemms[0], fp8) * s.kv / (s.hidden + 2 * s.kv) +
         gemm_seconds(cost, gemms[1], fp8) + gemm_seconds(cost, gemms[2], fp8) / 2;
}

}  // namespace

LayerTimes layer_times(const Transformer& model, const TrainingPlan& plan,
                       const CostParameters& cost) {
  const Sizes s = sizes_of(model, plan);
  const std::vector<Gemm> gemms = linear(model, s);
  // The mean over the layers of what the products take: in two streams each product is two of half
  // as many rows, which may fill waves of tiles worse.
  Sizes of_stream = s;
  of_stream.tokens /= 2;
  of_stream.block_tokens /= 2;
  const std::vector<Gemm> halves = linear(model, of_stream);
  const double two_streams =
      std::min(1.0, static_cast<double>(model.two_stream_layers) /
                        static_cast<double>(model.layers));  // of a model that was cut short
  const auto of_products = [&](auto seconds) {
    const double one = seconds(gemms);
    return two_streams == 0 ? one : (1 - two_streams) * one + two_streams * 2 * seconds(halves);
  };
  const Directions attends = attention(model, plan, cost);
  // The share of the element-wise traffic that remains after torch.compile fused kernels.
  const double compiled = plan.compiled ? cost.compiled_traffic : 1;
  const double whole_ranks = plan.sequence_parallel ? s.tensor : 1;
  // Sorting tokens by their experts, and back: each read and written, twice.
  const double sorting =
      model.experts > 0 ? traffic_seconds(cost, 8 * s.block_tokens * s.hidden / whole_ranks) : 0;
  const auto seconds = [&](const Traffic& bytes, double merging) {
    return traffic_seconds(
        cost,
        s.tokens * s.hidden *
            (compiled * (bytes.whole / whole_ranks + bytes.split / s.tensor) + merging / s.tensor));
  };
  const LayerTraffic traffic = element_wise(model, plan, s);
  const Directions merging = plain_merging(plan);
  const bool fused = model.fused_attention || fuses_softmax(model, plan);
  LayerTimes times;
  times.forward.kernels =
      of_products([&](const auto& all) { return forward_seconds(cost, all, plan.fp8); }) +
      attends.forward + seconds(traffic.forward, merging.forward) + sorting;
  times.backward.kernels =
      of_products([&](const auto& all) { return backward_seconds(cost, all, plan.fp8); }) +
      attends.backward + seconds(traffic.backward, merging.backward) + sorting;
  times.forward.tensor = times.backward.tensor = tensor_seconds(plan, cost, s);
  const Directions context = context_seconds(plan, cost, s);
  times.forward.context = context.forward;
  times.backward.context = context.backward;
  times.forward.expert = times.backward.expert = expert_seconds(model, plan, cost, s);
  // All kernels but those of the attention are launched for each stream: 12 of a layer's 17
  // (Megatron-LM, transformer.py).
  const double launched = 1 + two_streams * 12 / 17;
  times.forward.launches = cost.launch_forward * launched + (fused ? 0 : cost.launch_unfused);
  times.backward.launches = cost.launch_backward * launched;
  times.forward.attention = attends.forward;
  times.backward.attention = attends.backward;
  times.backward.weights =
      of_products([&](const auto& all) { return weights_seconds(cost, all, plan.fp8); });
  if (plan.recompute == Recompute::full) times.recompute = times.forward;
  // Selective recompute: torchtitan (gated layers) recomputes every second product and the
  // operations between them, Megatron the attention (arXiv 2205.05198, section 5). Both keep a
  // fused attention.
  if (plan.recompute == Recompute::selective && model.gated) {
    times.recompute.kernels =
        of_products([&](const auto& all) { return every_second_product(cost, s, all, plan.fp8); }) +
        seconds(traffic.forward, 0);
    // With sequence parallelism an all-gather is half of an all-reduce.
    times.recompute.tensor = plan.sequence_parallel ? times.forward.tensor / 2 : 0;
    times.recompute.launches = times.forward.launches / 2;
  } else if (plan.recompute == Recompute::selective && !model.fused_attention) {
    times.recompute.kernels = times.recompute.attention = attends.forward;
    // Scores, softmax, dropout, their product with the values and a copy: 5 of the 17 kernels of a
    // layer's forward pass (Megatron-LM, transformer.py, CoreAttention).
    times.recompute.launches = cost.launch_forward * 5 / 17 + (fused ? 0 : cost.launch_unfused);
  }
  return times;
}

}  // namespace lockstep::sim
