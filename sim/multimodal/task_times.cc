#include "sim/multimodal/task_times.h"

#include <algorithm>
#include <cmath>

#include "sim/multimodal/multimodal_forecast.h"
#include "sim/multimodal/place_exchange.h"

namespace lockstep::sim {

TowerTimes::TowerTimes(const MultimodalPlan& of, const CostParameters& by)
    : plan(of), llm(of.llm.plan), model(of.llm.model), cost(by), groups(coupled_groups(of)) {
  per_group = llm.data / groups;
  micro_batches = static_cast<std::int32_t>(llm.micro_batches());
  for (const EncoderTower& tower : plan.encoders) {
    TrainingPlan layout = tower.layout;
    // All ranks that hold the same part of the encoder: they share its gradients.
    if (tower.place != EncoderPlace::own_gpus) layout.data *= llm.data;
    layouts.push_back(layout);
    exchanges.push_back(layer_exchange(tower.model, layout, cost));
    if (tower.frozen) exchanges.back().scatter = 0;
    encoders.emplace_back(tower, layout, model.hidden, cost, exchanges.back());
  }
  llm_exchange = layer_exchange(model, llm, cost);
  if (plan.llm_frozen) llm_exchange.scatter = 0;
  for (std::size_t i = 0; i < plan.encoders.size(); ++i) {
    const EncoderTower& tower = plan.encoders[i];
    if (tower.place == EncoderPlace::own_gpus)
      handover_links.push_back(fullest_link(
          cost, plan.gpus, own_gpus(plan, i, layouts[i].pipeline - 1), stage_gpus(llm, 0)));
    else
      handover_links.push_back(fullest_link(
          cost, plan.gpus,
          tower.place == EncoderPlace::every_gpu ? GpuRange{0, llm.ranks()} : stage_gpus(llm, 0),
          trace::Op::all_gather, gathering(i)));
  }
}

Group TowerTimes::gathering(std::size_t encoder) const {
  const EncoderTower& tower = plan.encoders[encoder];
  if (tower.layout.data == 1) return {};
  return group_of(cost, static_cast<int>(std::int64_t{tower.layout.data} * tower.layout.tensor), 1);
}

bool TowerTimes::trained_before() const {
  return std::any_of(plan.encoders.begin(), plan.encoders.end(),
                     [](const EncoderTower& tower) { return tower.trained(); });
}

PieceTime TowerTimes::llm_layers(LayerTimes one, double layers) const {
  // Frozen: of the two products backward only the input's gradient.
  if (plan.llm_frozen) {
    one.backward.kernels -= one.backward.weights;
    one.backward.weights = 0;
  }
  return piece_time(llm, cost, one, llm_exchange, layers);
}

PieceTime TowerTimes::llm_logits() const {
  PieceTime out = logits_time(model, llm, cost);
  if (!plan.llm_frozen) return out;
  const double words = static_cast<double>(model.vocabulary) / llm.tensor;
  const double weights = gemm_seconds(
      cost, {static_cast<double>(model.hidden), words, static_cast<double>(llm.tokens())});
  out.backward -= weights;
  out.parts.logits -= weights;
  return out;
}

// A dummy is an image of 256 patches.
GroupTime TowerTimes::group_time(std::size_t encoder, const std::vector<EncoderLoad>& loads,
                                 double share, bool end) const {
  const EncoderTower& tower = plan.encoders[encoder];
  GroupTime out;
  for (EncoderLoad load : loads) {
    if (load.items == 0 && tower.dummy) load = {256, 256.0 * 256, 1};
    const TowerTime time = encoders[encoder].of(load, share, end);
    out.forward = std::max(out.forward, time.forward);
    if (time.backward > out.backward) out.weight = time.weight;
    out.backward = std::max(out.backward, time.backward);
    out.mean += (time.forward + time.backward) / static_cast<double>(loads.size());
    out.tokens += load.tokens;
    out.most_tokens = std::max(out.most_tokens, load.tokens);
  }
  return out;
}

double TowerTimes::kept_per_token(std::size_t encoder) const {
  const EncoderTower& tower = plan.encoders[encoder];
  if (tower.frozen) return 0;
  TrainingPlan one = layouts[encoder];
  one.sequence = 1024;
  one.micro_batch = 1;
  return layer_activation_bytes(tower.model, one) / 1024 * static_cast<double>(tower.model.layers);
}

double TowerTimes::gather_seconds(std::size_t encoder, double tokens) const {
  const EncoderTower& tower = plan.encoders[encoder];
  const double bytes =
      2 * tokens / static_cast<double>(tower.merge) * static_cast<double>(model.hidden);
  if (tokens <= 0) return 0;
  if (tower.place == EncoderPlace::own_gpus) {
    // From all ranks of its last stage at once.
    const double each = bytes / tower.layout.tensor;
    return std::max(collective_seconds(cost, trace::Op::send, each, {2, 1}),
                    each * handover_links[encoder]);
  }
  return std::max(collective_seconds(cost, trace::Op::all_gather, bytes, gathering(encoder)),
                  bytes * handover_links[encoder]);
}

TaskTimes::TaskTimes(const TowerTimes& towers, const std::vector<Place>& places,
                     std::int32_t own_stages, const PipelineProgram& program)
    : towers_(towers),
      plan_(towers.plan),
      llm_(towers.llm),
      model_(towers.model),
      cost_(towers.cost),
      places_(places),
      own_stages_(own_stages),
      program_(program),
      ragged_(model_, llm_, cost_, llm_.sequence) {
  const LayerTimes one = layer_times(model_, llm_, cost_);
  for (const Place& place : places_)
    full_.push_back(towers_.llm_layers(one, place.layers / llm_.chunks));
  embedding_ = embedding_time(model_, llm_, cost_);
  logits_ = towers_.llm_logits();
}

TrainingPlan TaskTimes::layout_of(double tokens) const {
  TrainingPlan out = llm_;
  if (plan_.data.filling != SequenceFilling::ragged) return out;
  out.micro_batch = 1;
  out.sequence = std::max<std::int64_t>(llm_.context, std::llround(tokens));
  return out;
}

Handover TaskTimes::handed_over(double tokens) const {
  // Stages of encoders in front make a pipeline of an LLM that has none.
  if (llm_.pipeline == 1) return {own_stages_ > 0 ? cost_.stage_handover : 0, 0};
  const TrainingPlan layout = layout_of(tokens);
  const auto [known, is_new] = handovers_.try_emplace(layout.sequence);
  if (is_new) known->second = handover(model_, layout, cost_);
  return known->second;
}

double TaskTimes::mean_tokens(const DealtStep& step) const {
  double tokens = 0, count = 0;
  for (std::size_t replica = 0; replica < step.micro_batches.size(); ++replica)
    for (std::size_t m = 0; m < step.micro_batches[replica].size(); ++m) {
      double squares = 0;
      tokens += micro_tokens(step, replica, m, &squares);
      ++count;
    }
  return tokens / count;
}

double TaskTimes::mean_message_bytes(const DealtStep& step) const {
  return message_bytes(model_, layout_of(mean_tokens(step)));
}

double TaskTimes::micro_tokens(const DealtStep& step, std::size_t replica, std::size_t m,
                               double* squares) const {
  double out = 0;
  for (const std::size_t i : step.micro_batches[replica][m]) {
    const auto tokens = static_cast<double>(step.sequences[i].tokens);
    out += tokens;
    *squares += tokens * tokens;
  }
  return out;
}

// The LLM's part of a task: of the slowest replica of the group.
void TaskTimes::add_llm(const DealtStep& step, std::size_t group, const Place& place,
                        std::int32_t piece, std::size_t m, TaskTime& task) const {
  const std::size_t index = static_cast<std::size_t>(&place - places_.data());
  PieceTime layers = full_[index];
  double of_full = 1;  // tokens, as a share of full sequences
  double longest = 0;  // tokens of the slowest replica's sequences, if they count
  if (plan_.data.filling == SequenceFilling::ragged) {
    double most = 0, squares = 0;
    for (std::int32_t r = 0; r < towers_.per_group; ++r) {
      double sum = 0;
      const double tokens = micro_tokens(
          step, group * static_cast<std::size_t>(towers_.per_group) + static_cast<std::size_t>(r),
          m, &sum);
      if (tokens <= most) continue;
      most = tokens;
      squares = sum;
    }
    longest = most;
    of_full = most / (static_cast<double>(llm_.tokens()) * llm_.context);
    layers =
        towers_.llm_layers(ragged_.times(most / llm_.context, squares), place.layers / llm_.chunks);
  }
  const double sent = handed_over(longest).occupies;
  double forward = layers.forward + sent;
  double backward = layers.backward + sent;
  add_times(task.llm, layers.parts, 1);
  const std::int32_t first = 0, last = llm_.pipeline * llm_.chunks - 1;
  if (piece == first) {
    forward += of_full * embedding_.forward;
    backward += of_full * embedding_.backward;
    add_times(task.llm, embedding_.parts, of_full);
  }
  if (piece == last) {
    forward += of_full * logits_.forward;
    backward += of_full * logits_.backward;
    add_times(task.llm, logits_.parts, of_full);
  }
  if (plan_.llm_frozen && !towers_.trained_before()) backward = 0;
  task.forward = forward;
  task.backward = backward;
  task.weight = std::min(layers.weight, backward);
  task.handover = 2 * sent;
  task.activations = of_full * place.layers / llm_.chunks * layer_activation_bytes(model_, llm_);
}

TaskTime TaskTimes::of(const DealtStep& step, std::size_t group, std::int32_t piece,
                       std::size_t m) const {
  const Place& place = places_[static_cast<std::size_t>(program_.stage_of(piece))];
  TaskTime task;
  task.encoders.assign(plan_.encoders.size(), 0);
  task.encoder_activations.assign(plan_.encoders.size(), 0);
  const bool of_llm = place.own == SIZE_MAX;
  if (of_llm) add_llm(step, group, place, piece - own_stages_, m, task);
  // Encoders are on the first chunk of their stage.
  if (of_llm && piece - own_stages_ >= llm_.pipeline) return offloaded(std::move(task));
  for (std::size_t i = 0; i < plan_.encoders.size(); ++i) {
    if (place.shares[i] <= 0) continue;
    const bool own = plan_.encoders[i].place == EncoderPlace::own_gpus;
    // Replicas that move together are as slow as the slowest.
    GroupTime slowest;
    double transfer = 0;
    const std::size_t units = own ? 1 : static_cast<std::size_t>(towers_.per_group);
    for (std::size_t u = 0; u < units; ++u) {
      const auto& loads = step.encoders[i][group * units + u][m];
      const GroupTime time = towers_.group_time(i, loads, place.shares[i], place.ends[i]);
      slowest.forward = std::max(slowest.forward, time.forward);
      if (time.backward > slowest.backward) slowest.weight = time.weight;
      slowest.backward = std::max(slowest.backward, time.backward);
      slowest.mean += time.mean / static_cast<double>(units);
      slowest.most_tokens = std::max(slowest.most_tokens, time.most_tokens);
      const double tokens = own ? time.most_tokens : time.tokens;
      if (place.ends[i]) transfer = std::max(transfer, towers_.gather_seconds(i, tokens));
    }
    const bool back = plan_.encoders[i].trained();
    task.encoder_forward += slowest.forward + transfer;
    task.encoder_backward += slowest.backward + (back ? transfer : 0);
    task.weight += slowest.weight;
    task.handover += transfer * (back ? 2 : 1);
    task.encoders[i] = slowest.mean;
    task.lost += std::max(0.0, slowest.forward + slowest.backward - slowest.mean);
    task.encoder_activations[i] = towers_.kept_per_token(i) * place.shares[i] * slowest.most_tokens;
    task.activations += task.encoder_activations[i];
  }
  if (!of_llm) {
    task.handover += 2 * cost_.stage_handover;
    task.forward += cost_.stage_handover;
    task.backward += cost_.stage_handover;
  }
  task.forward += task.encoder_forward;
  task.backward += task.encoder_backward;
  return offloaded(std::move(task));
}

// Activations go to the host during the forward pass and come back during the backward pass; what
// takes longer than the pass is added to it.
TaskTime TaskTimes::offloaded(TaskTime task) const {
  if (!plan_.offload.activations) return task;
  const double seconds = task.activations / plan_.offload.bandwidth;
  const double out = std::max(0.0, seconds - task.forward);
  const double back = std::max(0.0, seconds - task.backward);
  task.forward += out;
  task.backward += back;
  task.offload = out + back;
  return task;
}

}  // namespace lockstep::sim
