#include "sim/workload/predict.h"

#include <algorithm>
#include <cmath>

#include "sim/pipeline/run_pipeline.h"
#include "sim/workload/kernels.h"

namespace lockstep::sim {
namespace {

// Host and GPU run beside each other: a step waits for the slower one, and for a little of the
// other where they are alike.
double beside(double gpu, double host) {
  return std::pow(std::pow(gpu, 4) + std::pow(host, 4), 0.25);
}

// What a layer of a zero3 plan gathers before it runs, each way, and scatters behind its backward.
struct Exchange {
  double gather = 0, scatter = 0;
};

Exchange layer_exchange(const Transformer& model, const TrainingPlan& plan,
                        const CostParameters& cost) {
  if (plan.sharding != Sharding::zero3) return {};
  const double count = static_cast<double>(layer_parameters(model)) / plan.tensor;
  const Group group = group_of(cost, plan.data * plan.context, plan.tensor);
  return {collective_seconds(cost, Op::all_gather, 2 * count, group),
          collective_seconds(cost, Op::reduce_scatter, 4 * count, group)};
}

// `compute` with `exchange` running beside it.
double hidden(const CostParameters& cost, double compute, double exchange) {
  return std::max(compute + cost.overlap_slowdown * exchange, exchange);
}

struct PieceTime {
  double forward, backward;
};

// The layers of one piece of the model, for one micro-batch.
PieceTime piece_layers(const Transformer& model, const TrainingPlan& plan,
                       const CostParameters& cost, double layers) {
  const LayerTimes one = layer_times(model, plan, cost);
  LayerTime back = one.backward;
  if (plan.recompute == Recompute::full) {
    back.kernels += one.forward.kernels;
    back.communication += one.forward.communication;
    back.launches += one.forward.launches;
  }
  // A pipeline's stage keeps what it has gathered over all micro-batches.
  const Exchange exchange = plan.pipeline > 1 ? Exchange{} : layer_exchange(model, plan, cost);
  const double once = cost.launch_micro_batch / 2 / plan.chunks;
  const double forward =
      layers * hidden(cost, one.forward.kernels + one.forward.communication, exchange.gather);
  const double backward =
      layers * hidden(cost, back.kernels + back.communication, exchange.gather + exchange.scatter);
  // Of forward and backward together the slower one of host and GPU counts; it is dealt out as the
  // GPU's share.
  const double both =
      beside(forward + backward, layers * (one.forward.launches + back.launches) + 2 * once);
  return {both * forward / (forward + backward), both * backward / (forward + backward)};
}

// The embedding's lookup and the logits with the loss; the latter's backward is twice its product.
PieceTime embedding(const Transformer& model, const TrainingPlan& plan,
                    const CostParameters& cost) {
  const double elements = static_cast<double>(plan.tokens()) * static_cast<double>(model.hidden);
  const double seconds =
      traffic_seconds(cost, 20 * elements) +
      collective_seconds(cost, Op::all_reduce, 2 * elements, group_of(cost, plan.tensor, 1));
  return {seconds, seconds};
}

PieceTime logits(const Transformer& model, const TrainingPlan& plan, const CostParameters& cost) {
  const auto tokens = static_cast<double>(plan.tokens());
  const auto hidden_width = static_cast<double>(model.hidden);
  const double words = static_cast<double>(model.vocabulary) / plan.tensor;
  const double bytes =
      cost.logit_traffic * tokens * words * (plan.compiled ? cost.compiled_traffic : 1);
  const Group tensor = group_of(cost, plan.tensor, 1);
  const double forward = gemm_seconds(cost, {tokens, words, hidden_width}) +
                         traffic_seconds(cost, 0.6 * bytes) +
                         collective_seconds(cost, Op::all_reduce, 8 * tokens, tensor);
  const double backward =
      gemm_seconds(cost, {tokens, hidden_width, words}) +
      gemm_seconds(cost, {hidden_width, words, tokens}) + traffic_seconds(cost, 0.4 * bytes) +
      collective_seconds(cost, Op::all_reduce, 2 * tokens * hidden_width, tensor);
  return {forward, backward};
}

// Activations go between stages in pieces, one per tensor rank (arXiv 2104.04473, section 4.1).
double send_seconds(const Transformer& model, const TrainingPlan& plan,
                    const CostParameters& cost) {
  if (plan.pipeline == 1) return 0;
  const double bytes =
      2 * static_cast<double>(plan.tokens()) * static_cast<double>(model.hidden) / plan.tensor;
  const bool one_node = static_cast<double>(plan.ranks()) <= cost.ranks_per_node;
  return bytes / (one_node ? cost.node_bandwidth / 2 : cost.network_bandwidth);
}

Picos picos(double seconds) {
  return Picos{static_cast<std::int64_t>(std::llround(std::min(seconds, 1e5) * 1e12))};
}

// Costs of the pieces. A send occupies both stages: the blocking sends of Megatron's schedule.
PipelineCosts pieces_of(const Transformer& model, const TrainingPlan& plan,
                        const CostParameters& cost, const PipelineProgram& program) {
  const std::int32_t pieces = program.shape.pieces();
  const double handover =
      plan.pipeline == 1 ? 0 : cost.stage_handover + send_seconds(model, plan, cost);
  const double each = static_cast<double>(model.layers) / pieces;
  const PieceTime layers = piece_layers(model, plan, cost, each);
  const PieceTime first = embedding(model, plan, cost);
  const PieceTime last = logits(model, plan, cost);
  // Of two products per forward's one, one gives the weights' gradients; a recomputed forward is
  // part of the backward pass as well.
  const double share = plan.recompute == Recompute::full ? 1.0 / 3 : 0.5;
  const double weight = program.split ? share * layers.backward : 0;
  PipelineCosts costs;
  for (std::int32_t piece = 0; piece < pieces; ++piece) {
    PieceTime time = {layers.forward + handover, layers.backward + handover};
    if (piece == 0) time = {time.forward + first.forward, time.backward + first.backward};
    if (piece + 1 == pieces) time = {time.forward + last.forward, time.backward + last.backward};
    costs.pieces.push_back({.forward = picos(time.forward),
                            .backward = picos(time.backward - weight),
                            .weight = picos(weight)});
  }
  return costs;
}

// What of the gradients' exchange nothing hides: all of it behind the backward pass of plain data
// parallelism, in float32; a pipeline's zero3 gathers and scatters once a step.
double exchange_seconds(const Transformer& model, const TrainingPlan& plan,
                        const CostParameters& cost) {
  const Group group = group_of(cost, plan.data * plan.context, plan.tensor);
  const double count = parameters_per_rank(model, plan);
  if (plan.sharding == Sharding::zero3) {
    if (plan.pipeline == 1) return 0;
    return collective_seconds(cost, Op::all_gather, 2 * count, group) +
           collective_seconds(cost, Op::reduce_scatter, 4 * count, group);
  }
  return collective_seconds(cost, Op::all_reduce, 4 * count, group);
}

}  // namespace

Result<StepPrediction> predict_step(const Transformer& model, const TrainingPlan& plan,
                                    const CostParameters& cost) {
  if (const Status checked = check_workload(model, plan); !checked) return checked.error();
  const std::int64_t micro_batches = plan.micro_batches();
  if (micro_batches > kMostPipelineTasks)
    return Error{"a step of " + std::to_string(micro_batches) + " micro-batches is too long",
                 {},
                 "use larger micro-batches"};
  const Result<PipelineProgram> program = make_pipeline(
      plan.schedule, {plan.pipeline, static_cast<std::int32_t>(micro_batches), plan.chunks});
  if (!program) return program.error();
  const Result<PipelineRun> run = run_pipeline(*program, pieces_of(model, plan, cost, *program));
  if (!run) return run.error();
  StepPrediction out;
  out.pipeline_seconds = run->time.seconds();
  for (const Picos idle : run->idle) out.bubble += idle.seconds();
  out.bubble /= run->period.seconds() * plan.pipeline;
  out.exchange_seconds = exchange_seconds(model, plan, cost);
  const double shards = plan.sharding == Sharding::none ? 1.0 : plan.data * plan.context;
  out.update_seconds =
      cost.step_overhead +
      traffic_seconds(cost, cost.optimizer_traffic * parameters_per_rank(model, plan) / shards);
  out.seconds = out.pipeline_seconds + out.exchange_seconds + out.update_seconds;
  out.memory = memory_use(model, plan, run->peak_in_flight);
  out.memory_bytes = out.memory.total() + cost.reserved_memory;
  return out;
}

}  // namespace lockstep::sim
