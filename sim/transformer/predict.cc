#include "sim/transformer/predict.h"

#include <algorithm>
#include <cmath>

#include "sim/pipeline/run_pipeline.h"
#include "sim/transformer/layer_times.h"

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
  return {collective_seconds(cost, trace::Op::all_gather, 2 * count, group),
          collective_seconds(cost, trace::Op::reduce_scatter, 4 * count, group)};
}

// `compute` with `exchange` running beside it.
double hidden(const CostParameters& cost, double compute, double exchange) {
  return std::max(compute + cost.overlap_slowdown * exchange, exchange);
}

struct PieceTime {
  double forward = 0, backward = 0;
  StepParts parts;  // of the two together
};

// The layers of one piece of the model, for one micro-batch.
PieceTime piece_layers(const Transformer& model, const TrainingPlan& plan,
                       const CostParameters& cost, double layers) {
  const LayerTimes one = layer_times(model, plan, cost);
  LayerTime back = one.backward;
  if (plan.recompute == Recompute::full) {
    back.kernels += one.forward.kernels;
    back.tensor += one.forward.tensor;
    back.context += one.forward.context;
    back.launches += one.forward.launches;
  }
  // A pipeline's stage keeps what it has gathered over all micro-batches.
  const Exchange exchange = plan.pipeline > 1 ? Exchange{} : layer_exchange(model, plan, cost);
  const double once = cost.launch_micro_batch / 2 / plan.chunks;
  const double one_forward = hidden(cost, one.forward.on_gpu(), exchange.gather);
  const double one_backward = hidden(cost, back.on_gpu(), exchange.gather + exchange.scatter);
  const double forward = layers * one_forward;
  const double backward = layers * one_backward;
  // Of forward and backward together the slower one of host and GPU counts; it is dealt out as the
  // GPU's share.
  const double both =
      beside(forward + backward, layers * (one.forward.launches + back.launches) + 2 * once);
  PieceTime out{both * forward / (forward + backward), both * backward / (forward + backward), {}};
  out.parts.layers = layers * (one.forward.kernels + one.backward.kernels);
  out.parts.recompute = layers * (back.kernels - one.backward.kernels);
  out.parts.tensor = layers * (one.forward.tensor + back.tensor);
  out.parts.context = layers * (one.forward.context + back.context);
  out.parts.data = layers * ((one_forward - one.forward.on_gpu()) + (one_backward - back.on_gpu()));
  out.parts.host = std::max(0.0, both - (forward + backward));
  return out;
}

// The embedding's lookup and the logits with the loss; the latter's backward is twice its product.
PieceTime embedding(const Transformer& model, const TrainingPlan& plan,
                    const CostParameters& cost) {
  const double elements = static_cast<double>(plan.tokens()) * static_cast<double>(model.hidden);
  const double lookup = traffic_seconds(cost, 20 * elements);
  const double exchange =
      collective_seconds(cost, trace::Op::all_reduce, 2 * elements, group_of(cost, plan.tensor, 1));
  PieceTime out{lookup + exchange, lookup + exchange, {}};
  out.parts.logits = 2 * lookup;
  out.parts.tensor = 2 * exchange;
  return out;
}

PieceTime logits(const Transformer& model, const TrainingPlan& plan, const CostParameters& cost) {
  const auto tokens = static_cast<double>(plan.tokens());
  const auto hidden_width = static_cast<double>(model.hidden);
  const double words = static_cast<double>(model.vocabulary) / plan.tensor;
  const double bytes =
      cost.logit_traffic * tokens * words * (plan.compiled ? cost.compiled_traffic : 1);
  const Group tensor = group_of(cost, plan.tensor, 1);
  const double forward =
      gemm_seconds(cost, {tokens, words, hidden_width}) + traffic_seconds(cost, 0.6 * bytes);
  const double backward = gemm_seconds(cost, {tokens, hidden_width, words}) +
                          gemm_seconds(cost, {hidden_width, words, tokens}) +
                          traffic_seconds(cost, 0.4 * bytes);
  const double sums = collective_seconds(cost, trace::Op::all_reduce, 8 * tokens, tensor);
  const double gradients =
      collective_seconds(cost, trace::Op::all_reduce, 2 * tokens * hidden_width, tensor);
  PieceTime out{forward + sums, backward + gradients, {}};
  out.parts.logits = forward + backward;
  out.parts.tensor = sums + gradients;
  return out;
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

Picos picos_of_seconds(double seconds) {
  return Picos{static_cast<std::int64_t>(std::llround(seconds * 1e12))};
}

void add_times(StepParts& sum, const StepParts& more, double times) {
  for (double StepParts::*part :
       {&StepParts::layers, &StepParts::recompute, &StepParts::logits, &StepParts::host,
        &StepParts::tensor, &StepParts::context, &StepParts::data, &StepParts::handover})
    sum.*part += times * more.*part;
}

struct Pieces {
  PipelineCosts costs;
  StepParts parts;  // of one micro-batch on all stages
};

// Costs of the pieces. A send occupies both stages: the blocking sends of Megatron's schedule.
// Errors: a time that the clock does not hold.
Result<Pieces> pieces_of(const Transformer& model, const TrainingPlan& plan,
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
  Pieces out;
  for (std::int32_t piece = 0; piece < pieces; ++piece) {
    PieceTime time = {layers.forward + handover, layers.backward + handover, {}};
    if (piece == 0) time = {time.forward + first.forward, time.backward + first.backward, {}};
    if (piece + 1 == pieces)
      time = {time.forward + last.forward, time.backward + last.backward, {}};
    if (!(time.forward + time.backward <= kLongestPiece))
      return Error{"a micro-batch takes a pipeline stage more than a day",
                   {},
                   "use smaller micro-batches, more ranks or a smaller model"};
    out.costs.pieces.push_back({.forward = picos_of_seconds(time.forward),
                                .backward = picos_of_seconds(time.backward - weight),
                                .weight = picos_of_seconds(weight)});
  }
  add_times(out.parts, layers.parts, pieces);
  add_times(out.parts, first.parts, 1);
  add_times(out.parts, last.parts, 1);
  out.parts.handover = 2 * handover * pieces;
  return out;
}

// What of the gradients' exchange nothing hides: all of it behind the backward pass of plain data
// parallelism, in float32; a pipeline's zero3 gathers and scatters once a step.
double exchange_seconds(const Transformer& model, const TrainingPlan& plan,
                        const CostParameters& cost) {
  const Group group = group_of(cost, plan.data * plan.context, plan.tensor);
  const double count = parameters_per_rank(model, plan);
  if (plan.sharding == Sharding::zero3) {
    if (plan.pipeline == 1) return 0;
    return collective_seconds(cost, trace::Op::all_gather, 2 * count, group) +
           collective_seconds(cost, trace::Op::reduce_scatter, 4 * count, group);
  }
  return collective_seconds(cost, trace::Op::all_reduce, 4 * count, group);
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
  const Result<Pieces> pieces = pieces_of(model, plan, cost, *program);
  if (!pieces) return pieces.error();
  const Result<PipelineRun> run = run_pipeline(*program, pieces->costs);
  if (!run) return run.error();
  StepPrediction out;
  out.pipeline_seconds = run->time.seconds();
  for (const Picos idle : run->idle) out.bubble += idle.seconds();
  out.bubble /= run->period.seconds() * plan.pipeline;
  out.exchange_seconds = exchange_seconds(model, plan, cost);
  const double shards = plan.sharding == Sharding::none ? 1.0 : plan.data * plan.context;
  const double optimizer =
      traffic_seconds(cost, cost.optimizer_traffic * parameters_per_rank(model, plan) / shards);
  out.update_seconds = cost.step_overhead + optimizer;
  out.seconds = out.pipeline_seconds + out.exchange_seconds + out.update_seconds;
  add_times(out.parts, pieces->parts, static_cast<double>(micro_batches) / plan.pipeline);
  for (const Picos busy : run->busy)
    out.parts.bubble += (run->time - busy).seconds() / plan.pipeline;
  out.parts.data += out.exchange_seconds;
  out.parts.optimizer = optimizer;
  out.parts.overhead = cost.step_overhead;
  out.memory = memory_use(model, plan, run->peak_in_flight);
  out.memory_bytes = out.memory.total() + cost.reserved_memory;
  return out;
}

}  // namespace lockstep::sim
