#include "sim/transformer/predict.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/transformer/plan_network.h"
#include "sim/transformer/slow_replicas.h"

namespace lockstep::sim {
namespace {

// Host and GPU run in parallel: a step takes as long as the slower one, and a little longer where
// they are about equal. The 4-norm is a smooth maximum: 19 % more for equal times, 1.5 % more where
// one is half of the other.
double in_parallel(double gpu, double host) {
  return std::pow(std::pow(gpu, 4) + std::pow(host, 4), 0.25);
}

// Four of the kernels of a layer's backward pass compute weights' gradients, one of each product.
// The others are one for each of the forward's 17 (Megatron-LM, transformer.py).
constexpr double kWeightLaunches = 4.0 / 21;

// The ranks that hold the same dense parameters, and the same experts.
Group dense_group(const TrainingPlan& plan, const CostParameters& cost) {
  return group_of(cost, plan.replicas(), plan.tensor, plan.ranks());
}
Group expert_group(const TrainingPlan& plan, const CostParameters& cost) {
  return group_of(cost, plan.expert_replicas(), plan.tensor * plan.expert, plan.ranks());
}

// The time of `compute` while `exchange` overlaps it, which slows it down.
double hidden(const CostParameters& cost, double compute, double exchange) {
  return std::max(compute + cost.overlap_slowdown * exchange, exchange);
}

}  // namespace

LayerExchange layer_exchange(const Transformer& model, const TrainingPlan& plan,
                             const CostParameters& cost) {
  if (plan.sharding != Sharding::zero3 || plan.pipeline > 1) return {};
  const RankParameters count = parameters_of(model, plan, 1, 0);
  LayerExchange out;
  for (const auto& [part, group] : {std::pair(count.dense, dense_group(plan, cost)),
                                    {count.experts, expert_group(plan, cost)}}) {
    if (part == 0) continue;
    // Parameters are gathered in 16 bits.
    out.gather += collective_seconds(cost, trace::Op::all_gather, 2 * part, group);
    out.scatter +=
        collective_seconds(cost, trace::Op::reduce_scatter, plan.gradient_bytes() * part, group);
  }
  return out;
}

PieceTime piece_time(const TrainingPlan& plan, const CostParameters& cost, const LayerTimes& one,
                     const LayerExchange& exchange, double layers) {
  LayerTime back = one.backward;
  back.kernels += one.recompute.kernels;
  back.tensor += one.recompute.tensor;
  back.context += one.recompute.context;
  back.expert += one.recompute.expert;
  back.launches += one.recompute.launches;
  const double one_forward = hidden(cost, one.forward.on_gpu(), exchange.gather);
  // Without a backward pass (of a frozen tower) nothing is gathered for it.
  const double one_backward =
      back.on_gpu() > 0 ? hidden(cost, back.on_gpu(), exchange.gather + exchange.scatter) : 0;
  const double forward = layers * one_forward;
  const double backward = layers * one_backward;
  // The host's cost per micro-batch and stage, half of it in each direction that there is.
  const double once = cost.launch_micro_batch / 2 / plan.chunks;
  const double host_forward = layers * one.forward.launches + (forward > 0 ? once : 0);
  const double host_backward = layers * back.launches + (backward > 0 ? once : 0);
  const double weight = layers * one.backward.weights;
  const double host_weight = weight > 0 ? layers * one.backward.launches * kWeightLaunches : 0;
  // The slower of host and GPU counts over all passes together, since the host may run ahead.
  const double on_gpu = forward + backward, on_host = host_forward + host_backward;
  const double both = in_parallel(on_gpu, on_host);
  PieceTime out;
  if (on_gpu > 0) {  // no layers, or of a tower without work
    // Each pass gets its share of the sum, as the slower of the two divides it: where that is the
    // host, a quicker GPU makes no pass longer.
    const double by_gpu = std::pow(on_gpu / both, 4);
    const auto part = [&](double gpu, double host) {
      return both * (by_gpu * gpu / on_gpu + (1 - by_gpu) * (on_host > 0 ? host / on_host : 0));
    };
    out.forward = part(forward, host_forward);
    out.backward = part(backward, host_backward);
    out.weight = part(weight, host_weight);
    out.parts.host = std::max(0.0, both - on_gpu);
  }
  out.parts.layers = layers * (one.forward.kernels + one.backward.kernels);
  out.parts.recompute = layers * (back.kernels - one.backward.kernels);
  out.parts.tensor = layers * (one.forward.tensor + back.tensor);
  out.parts.context = layers * (one.forward.context + back.context);
  out.parts.expert = layers * (one.forward.expert + back.expert);
  out.parts.data = layers * ((one_forward - one.forward.on_gpu()) + (one_backward - back.on_gpu()));
  return out;
}

PieceTime embedding_time(const Transformer& model, const TrainingPlan& plan,
                         const CostParameters& cost) {
  const double elements = static_cast<double>(plan.tokens()) * static_cast<double>(model.hidden);
  const double lookup = traffic_seconds(cost, 20 * elements);
  // The ranks' parts of the table are summed once (Megatron-LM, VocabParallelEmbedding): in the
  // forward, or with sequence parallelism as a reduce-scatter, whose backward is an all-gather.
  const double sums = collective_seconds(cost, trace::Op::all_reduce, 2 * elements,
                                         group_of(cost, plan.tensor, 1, plan.ranks()));
  const double back = plan.sequence_parallel ? sums / 2 : 0;
  PieceTime out{lookup + sums - back, lookup + back, 0, {}};
  out.parts.logits = 2 * lookup;
  out.parts.tensor = sums;
  return out;
}

// Backward has twice the products. 60 % and 40 % of the loss's memory traffic are forward and
// backward.
PieceTime logits_time(const Transformer& model, const TrainingPlan& plan,
                      const CostParameters& cost) {
  const auto tokens = static_cast<double>(plan.tokens());
  const auto hidden_width = static_cast<double>(model.hidden);
  const double words = static_cast<double>(model.vocabulary) / plan.tensor;
  const double bytes =
      cost.logit_traffic * tokens * words * (plan.compiled ? cost.compiled_traffic : 1);
  const Group tensor = group_of(cost, plan.tensor, 1, plan.ranks());
  const double forward =
      gemm_seconds(cost, {tokens, words, hidden_width}) + traffic_seconds(cost, 0.6 * bytes);
  const double backward = gemm_seconds(cost, {tokens, hidden_width, words}) +
                          gemm_seconds(cost, {hidden_width, words, tokens}) +
                          traffic_seconds(cost, 0.4 * bytes);
  const double sums = collective_seconds(cost, trace::Op::all_reduce, 8 * tokens, tensor);
  const double gradients =
      collective_seconds(cost, trace::Op::all_reduce, 2 * tokens * hidden_width, tensor);
  PieceTime out{forward + sums, backward + gradients, 0, {}};
  out.parts.logits = forward + backward;
  out.parts.tensor = sums + gradients;
  return out;
}

double message_bytes(const Transformer& model, const TrainingPlan& plan) {
  return 2 * static_cast<double>(plan.tokens()) * static_cast<double>(model.hidden) / plan.tensor;
}

Handover handover(const Transformer& model, const TrainingPlan& plan, const CostParameters& cost) {
  if (plan.pipeline == 1) return {};
  const double bytes = message_bytes(model, plan);
  const bool one_node = plan.ranks() <= cost.ranks_per_node;
  Group stages{2, one_node ? 2 : 1};
  stages.stride = static_cast<int>(plan.ranks() / plan.pipeline);
  // Messages that overlap the tasks share the links in the engine.
  stages.all = plan.overlapped_pipeline ? 0 : plan.ranks();
  // In a vee the last stage has both chunks in the middle.
  stages.wraps = plan.chunks > 1 && plan.schedule != PipelineSchedule::zbv;
  const double message = collective_seconds(cost, trace::Op::send, bytes, stages);
  const double both = cost.stage_handover + message;
  // A send occupies both stages, as the blocking sends of Megatron's schedule do. One that overlaps
  // computing slows it down.
  return plan.overlapped_pipeline ? Handover{cost.overlap_slowdown * both, message}
                                  : Handover{both, 0};
}

void add_times(StepParts& sum, const StepParts& more, double times) {
  for (double StepParts::*part : {&StepParts::layers, &StepParts::recompute, &StepParts::logits,
                                  &StepParts::host, &StepParts::tensor, &StepParts::context,
                                  &StepParts::expert, &StepParts::data, &StepParts::handover})
    sum.*part += times * more.*part;
}

namespace {

// What the tasks of equally fast GPUs take.
struct PricedTasks {
  PipelineProgram order;
  PipelineCosts costs;
  // Parts of both directions together: of an inner piece's layers; what the first and the last
  // piece have more: the embedding, the logits, and perhaps fewer layers.
  StepParts layers, first, last;
  double handover = 0;  // of a piece
};

// Errors: the schedule's; too many tasks; a time beyond kLongestPiece.
Result<PricedTasks> priced_tasks(const Transformer& model, const TrainingPlan& plan,
                                 const CostParameters& cost) {
  const std::int64_t micro_batches = plan.micro_batches();
  const double passes = splits_backward(plan.schedule) ? 3 : 2;
  const double tasks = passes * static_cast<double>(micro_batches) * plan.pipeline * plan.chunks;
  if (tasks > static_cast<double>(kMaxStepTasks))
    return Error{fmt::format("a step of {} micro-batches is too long", micro_batches),
                 {},
                 "use larger micro-batches"};
  Result<PipelineProgram> order = make_pipeline(
      plan.schedule, {plan.pipeline, static_cast<std::int32_t>(micro_batches), plan.chunks});
  if (!order) return order.error();
  const std::int32_t pieces = order->shape.pieces();
  const Handover sent = handover(model, plan, cost);
  const LayerTimes one = layer_times(model, plan, cost);
  const LayerExchange exchange = layer_exchange(model, plan, cost);
  const auto layers_of = [&](std::int64_t piece) {
    return piece_time(plan, cost, one, exchange, layers_of_piece(model, plan, piece));
  };
  // All inner pieces are alike, and so are the two ends.
  const PieceTime inner = layers_of(std::min(1, pieces - 1)), end = layers_of(0);
  const PieceTime first = embedding_time(model, plan, cost);
  const PieceTime last = logits_time(model, plan, cost);
  PricedTasks out;
  out.order = std::move(*order);
  out.costs.send = picos_of_seconds(sent.message);
  for (std::int32_t piece = 0; piece < pieces; ++piece) {
    const PieceTime& layers = piece == 0 || piece + 1 == pieces ? end : inner;
    const double weight = out.order.split ? layers.weight : 0;
    double forward = layers.forward + sent.occupies;
    double backward = layers.backward + sent.occupies;
    if (piece == 0) forward += first.forward, backward += first.backward;
    if (piece + 1 == pieces) forward += last.forward, backward += last.backward;
    if (!(forward + backward <= kLongestPiece))
      return Error{"a micro-batch takes a pipeline stage more than a day",
                   {},
                   "use smaller micro-batches, more ranks or a smaller model"};
    out.costs.pieces.push_back({.forward = picos_of_seconds(forward),
                                .backward = picos_of_seconds(backward - weight),
                                .weight = picos_of_seconds(weight)});
  }
  out.layers = inner.parts;
  out.first = first.parts;
  out.last = last.parts;
  for (StepParts* const of_end : {&out.first, &out.last}) {
    if (pieces == 1) break;
    add_times(*of_end, end.parts, 1);
    add_times(*of_end, inner.parts, -1);
  }
  out.handover = 2 * sent.occupies;
  return out;
}

// Plain data parallelism, and ZeRO-1 and 2: an all-reduce after the backward pass; ZeRO-2 that
// scatters in each micro-batch gathers parameters once. A pipeline with
// zero3 gathers and scatters; without a pipeline it does layer by layer: layer_exchange().
// `overlapped`: with ZeRO-1 and 2 the updated parameters are gathered during the next step's
// forward (Megatron's distributed optimizer), and only gradients are scattered.
// `of_experts`: over the ranks that hold the same experts. `count`: parameters.
ExchangeCalls exchange_calls(const TrainingPlan& plan, const CostParameters& cost, double count,
                             bool overlapped, bool of_experts) {
  ExchangeCalls out;
  out.group = of_experts ? expert_group(plan, cost) : dense_group(plan, cost);
  const double bytes = plan.gradient_bytes() * count;
  const bool shards = plan.sharding == Sharding::zero3;
  if (shards && plan.pipeline == 1) return out;
  const bool apart = shards || overlapped || plan.scatters_each_micro_batch;
  if (plan.sharding == Sharding::none || !apart) {
    out.reduce = {trace::Op::all_reduce, bytes};
    return out;
  }
  // Parameters are gathered in 16 bits.
  out.gather = {trace::Op::all_gather, 2 * count};
  out.reduce = {trace::Op::reduce_scatter, bytes};
  return out;
}

// Seconds, none of them hidden yet.
struct ExchangeTime {
  double gather = 0, reduce = 0;
};
ExchangeTime time_of(const ExchangeCalls& calls, const CostParameters& cost) {
  const auto seconds = [&](const ExchangeCalls::One& call) {
    return call.bytes > 0 ? collective_seconds(cost, call.op, call.bytes, calls.group) : 0;
  };
  return {seconds(calls.gather), seconds(calls.reduce)};
}

}  // namespace

double updated(const RankParameters& count, const TrainingPlan& plan) {
  if (plan.sharding == Sharding::none) return count.total();
  return count.dense / plan.replicas() + count.experts / plan.expert_replicas();
}

std::vector<PlannedExchange> planned_exchanges(const TrainingPlan& plan, const CostParameters& cost,
                                               const RankParameters& count, double layers,
                                               bool overlapped) {
  constexpr double kMaxBuckets = 128;  // more change nothing
  // Parameters: of more ranks buckets are larger, so that the latency of their calls does not grow
  // beyond what they hide (Megatron-LM, training.py: bucket_size).
  constexpr double kBucketPerRank = 1e6;
  std::vector<PlannedExchange> out;
  for (const auto& [part, of_experts] : {std::pair(count.experts, true), {count.dense, false}}) {
    if (part == 0 && of_experts) continue;
    double bucket = part;
    PlannedExchange one;
    if (overlapped) {
      const int ranks = (of_experts ? expert_group(plan, cost) : dense_group(plan, cost)).ranks;
      const double fit = std::max(1.0, part / (kBucketPerRank * ranks));
      // In every micro-batch: no more calls than a step may have tasks.
      const double most = plan.scatters_each_micro_batch
                              ? std::clamp(static_cast<double>(kMaxStepTasks) /
                                               static_cast<double>(plan.micro_batches()) /
                                               static_cast<double>(plan.pieces()),
                                           1.0, kMaxBuckets)
                              : kMaxBuckets;
      one.step.buckets =
          plan.chunks > 1
              ? 1
              : static_cast<std::int32_t>(std::ceil(std::clamp(layers, 1.0, std::min(fit, most))));
      one.step.slowdown = cost.overlap_slowdown;
    } else if (plan.scatters_each_micro_batch) {
      one.step.buckets = 1;  // of each chunk
      one.step.waits = true;
    }
    one.step.each_micro_batch = plan.scatters_each_micro_batch;
    if (one.step.buckets > 0) bucket /= static_cast<double>(one.step.buckets) * plan.chunks;
    one.calls = exchange_calls(plan, cost, bucket, overlapped, of_experts);
    // Alone: the engine shares the links.
    one.calls.group.all = 0;
    const ExchangeTime time = time_of(one.calls, cost);
    one.step.gather = picos_of_seconds(time.gather);
    one.step.reduce = picos_of_seconds(time.reduce);
    out.push_back(one);
  }
  return out;
}

namespace {

double optimizer_seconds(const Transformer& model, const TrainingPlan& plan,
                         const CostParameters& cost) {
  double most = 0;
  for (const RankParameters& count : parameters_of_kinds(model, plan))
    most = std::max(most, updated(count, plan));
  return traffic_seconds(cost, cost.optimizer_traffic * most);
}

// What every stage is taken to exchange: that of the stage that needs the most time for it.
std::vector<PlannedExchange> longest_exchanges(const Transformer& model, const TrainingPlan& plan,
                                               const CostParameters& cost) {
  std::vector<PlannedExchange> longest;
  double most = -1;
  for (const RankParameters& count : parameters_of_kinds(model, plan)) {
    std::vector<PlannedExchange> exchanges =
        planned_exchanges(plan, cost, count, static_cast<double>(model.layers) / plan.pipeline,
                          plan.overlapped_gradients);
    double seconds = 0;
    for (const PlannedExchange& one : exchanges)
      seconds += std::max(1, one.step.buckets) * (one.step.gather + one.step.reduce).seconds();
    if (seconds <= most) continue;
    most = seconds;
    longest = std::move(exchanges);
  }
  return longest;
}

constexpr std::size_t kMaxReplicas = 256;  // kinds: each is simulated by itself

// Whether a step with that many different kinds of replicas can be simulated.
Status check_kinds(const TrainingPlan& plan, std::size_t kinds) {
  if (kinds > kMaxReplicas)
    return Error{
        fmt::format("slow ranks make {} different kinds of replicas, at most {} are simulated",
                    kinds, kMaxReplicas),
        {},
        "give ranks of equal speed equal `work`"};
  const double tasks_of_each = (splits_backward(plan.schedule) ? 3.0 : 2.0) *
                               static_cast<double>(plan.micro_batches()) * plan.pipeline *
                               plan.chunks;
  if (kinds > 1 && tasks_of_each * static_cast<double>(kinds) > static_cast<double>(kMaxStepTasks))
    return Error{fmt::format("a step of {} micro-batches in {} different kinds of replicas is too "
                             "long to be simulated",
                             plan.micro_batches(), kinds),
                 {},
                 "use fewer different slow ranks, or larger micro-batches"};
  return Status::ok();
}

// The tasks' costs, by how slow the GPUs are that run them.
using TasksBySlowness = std::map<double, PricedTasks>;

Result<TasksBySlowness> tasks_by_slowness(const Transformer& model, const TrainingPlan& plan,
                                          const CostParameters& cost,
                                          const std::vector<AlikeReplicas>& alike) {
  TasksBySlowness out;
  for (const AlikeReplicas& replicas : alike)
    for (const double slowness : replicas.slowness) {
      if (out.contains(slowness)) continue;
      // A copy costs as much as a small plan.
      Result<PricedTasks> tasks = slowness == 1 ? priced_tasks(model, plan, cost)
                                                : priced_tasks(model, plan, slowed(cost, slowness));
      if (!tasks) return tasks.error();
      out.emplace(slowness, std::move(*tasks));
    }
  return out;
}

// The replicas of a step, one of each kind, with the costs of their pieces.
std::vector<StepReplica> step_replicas(const PipelineProgram& order,
                                       const std::vector<AlikeReplicas>& alike,
                                       const TasksBySlowness& priced) {
  std::vector<StepReplica> out;
  for (const AlikeReplicas& kind : alike) {
    StepReplica& replica = out.emplace_back();
    replica.costs.send = priced.begin()->second.costs.send;
    for (std::int32_t piece = 0; piece < order.shape.pieces(); ++piece) {
      const auto stage = static_cast<std::size_t>(order.stage_of(piece));
      replica.costs.pieces.push_back(
          priced.at(kind.slowness[stage]).costs.pieces[static_cast<std::size_t>(piece)]);
    }
  }
  return out;
}

// What a micro-batch's time on all stages consists of. `slowness`: of the stages.
StepParts parts_of_micro_batch(const PipelineProgram& order, std::int32_t chunks,
                               const std::vector<double>& slowness, const TasksBySlowness& priced) {
  StepParts out;
  for (const auto& [factor, tasks] : priced) {
    const auto stages = static_cast<double>(std::count(slowness.begin(), slowness.end(), factor));
    add_times(out, tasks.layers, stages * chunks);
    out.handover += tasks.handover * stages * chunks;
  }
  const auto on = [&](std::int32_t piece) -> const PricedTasks& {
    return priced.at(slowness[static_cast<std::size_t>(order.stage_of(piece))]);
  };
  add_times(out, on(0).first, 1);
  add_times(out, on(order.shape.pieces() - 1).last, 1);
  return out;
}

}  // namespace

Result<SimulatedStep> simulate_step(const Transformer& model, const TrainingPlan& plan,
                                    const CostParameters& cost, bool for_path) {
  if (const Status checked = check_workload(model, plan); !checked) return checked.error();
  if (const Status checked = check_network(plan.ranks(), cost); !checked) return checked.error();
  const ReplicaClasses classes = replicas_of(plan, cost.slow);
  const std::vector<AlikeReplicas>& alike = classes.alike;
  if (const Status checked = check_kinds(plan, alike.size()); !checked) return checked.error();
  const Result<TasksBySlowness> priced = tasks_by_slowness(model, plan, cost, alike);
  if (!priced) return priced.error();
  SimulatedStep step;
  step.order = priced->begin()->second.order;
  const std::vector<StepReplica> replicas = step_replicas(step.order, alike, *priced);
  step.costs = replicas.front().costs;
  step.parts = parts_of_micro_batch(step.order, plan.chunks, alike.front().slowness, *priced);
  // All wait for the slowest, before the next step if not in this one.
  const double slowest = priced->rbegin()->first;
  step.optimizer = slowest == 1 ? optimizer_seconds(model, plan, cost)
                                : optimizer_seconds(model, plan, slowed(cost, slowest));
  step.update = picos_of_seconds(cost.step_overhead + step.optimizer);
  const std::vector<PlannedExchange> exchanges = longest_exchanges(model, plan, cost);
  StageExchange of_stage;
  for (const PlannedExchange& exchange : exchanges) of_stage.push_back(exchange.step);
  step.program =
      make_step_program(step.order, replicas,
                        std::vector<StageExchange>(step.order.tasks.size(), of_stage), step.update);
  if (cost.network) {
    std::vector<StageOnNetwork> stages;
    const std::int64_t each = plan.ranks() / plan.pipeline;
    for (std::int64_t stage = 0; stage < plan.pipeline; ++stage)
      stages.push_back(stage_on_network({stage * each, each}, exchanges));
    step.program.links = step_links(cost, plan.ranks(), step.program, stages,
                                    message_bytes(model, plan), classes.class_of);
  }
  Result<ExecutionResult> result = execute_step(step.program, for_path);
  if (!result) return result.error();
  step.result = std::move(*result);
  for (std::size_t stage = 0; stage < step.order.tasks.size(); ++stage)
    step.intervals.push_back(intervals(step.program, stage, step.result.classes[stage]));
  return step;
}

Result<StepPrediction> predict_step(const Transformer& model, const TrainingPlan& plan,
                                    const CostParameters& cost) {
  const Result<SimulatedStep> step = simulate_step(model, plan, cost);
  if (!step) return step.error();
  StepPrediction out;
  // Parts of one micro-batch on all stages, times micro-batches, is the total over the stages; the
  // mean per GPU divides by the stages.
  const double each = 1.0 / plan.pipeline;
  add_times(out.parts, step->parts, each * static_cast<double>(plan.micro_batches()));
  Picos first = Picos::forever(), last;
  double working = 0;  // of a stage, mean
  for (const std::vector<StepInterval>& stage : step->intervals)
    for (const StepInterval& one : stage) {
      const double share = each * (one.end - one.begin).seconds();
      switch (one.work.kind) {
        case StepWork::Kind::encode:
        case StepWork::Kind::forward:
        case StepWork::Kind::backward:
        case StepWork::Kind::weight:
          first = std::min(first, one.begin);
          last = std::max(last, one.end);
          working += share;
          break;
        case StepWork::Kind::message:
        case StepWork::Kind::norm:
          out.parts.bubble += share;
          break;
        case StepWork::Kind::gather:
        case StepWork::Kind::reduce:
        case StepWork::Kind::slowed:
          out.parts.data += share;
          break;
        case StepWork::Kind::update:
          break;
      }
    }
  out.parts.optimizer = step->optimizer;
  out.parts.overhead = cost.step_overhead;
  const Picos end = step->result.end;
  out.seconds = end.seconds();
  out.pipeline_seconds = (last - first).seconds();
  if (plan.pipeline > 1) out.bubble_share = std::max(0.0, 1 - working / out.pipeline_seconds);
  out.update_seconds = step->update.seconds();
  out.exchange_seconds = (end - step->update - (last - first)).seconds();
  out.memory = memory_use(model, plan, step->order);
  out.memory_bytes = out.memory.total() + cost.reserved_memory;
  return out;
}

}  // namespace lockstep::sim
