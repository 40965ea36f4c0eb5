#include "sim/multimodal/place_memory.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::sim {

void MemoryOfPlaces::keep_items(const DealtStep& step) {
  for (std::size_t i = 0; i < most_tokens_.size(); ++i)
    for (const auto& unit : step.encoders[i])
      for (const auto& loads : unit)
        for (const EncoderLoad& load : loads)
          most_tokens_[i] = std::max(most_tokens_[i], load.tokens);
  for (const auto& replica : step.micro_batches)
    for (const std::vector<std::size_t>& sequences : replica) {
      std::int64_t tokens = 0;
      for (const std::size_t i : sequences) tokens += step.sequences[i].tokens;
      longest_ = std::max(longest_, tokens);
    }
}

TrainingPlan MemoryOfPlaces::llm_layout() const {
  TrainingPlan out = towers_.llm;
  if (towers_.plan.data.filling != SequenceFilling::ragged) return out;
  const std::int64_t ranks = std::int64_t{out.micro_batch} * out.context;
  out.sequence = std::min(out.sequence, (longest_ + ranks - 1) / ranks * out.context);
  return out;
}

const TaskTime& MemoryOfPlaces::time_of(const std::vector<TaskTime>& tasks, std::size_t place,
                                        const PipelineTask& task) const {
  const auto piece =
      static_cast<std::size_t>(program_.piece(static_cast<std::int32_t>(place), task.chunk));
  return tasks[piece * static_cast<std::size_t>(towers_.micro_batches) +
               static_cast<std::size_t>(task.micro_batch)];
}

// Bytes held at the fullest moment of each place: they follow from the order of its tasks.
void MemoryOfPlaces::keep_tasks(const std::vector<TaskTime>& tasks) {
  for (std::size_t p = 0; p < places_.size(); ++p) {
    Peak& peak = peaks_[p];
    double now = 0, most = 0, largest = 0;
    std::size_t fullest = 0;  // how many tasks have begun then
    for (std::size_t t = 0; t < program_.tasks[p].size(); ++t) {
      const PipelineTask& task = program_.tasks[p][t];
      if (task.work == Work::weight) continue;
      const double bytes = time_of(tasks, p, task).activations;
      largest = std::max(largest, bytes);
      now += task.work == Work::forward ? bytes : -bytes;
      if (now <= most) continue;
      most = now;
      fullest = t + 1;
    }
    if (most <= peak.bytes) continue;
    peak.bytes = most;
    peak.encoders.assign(towers_.plan.encoders.size(), 0);
    for (std::size_t t = 0; t < fullest; ++t) {
      const PipelineTask& task = program_.tasks[p][t];
      if (task.work == Work::weight) continue;
      const double sign = task.work == Work::forward ? 1 : -1;
      const TaskTime& time = time_of(tasks, p, task);
      for (std::size_t i = 0; i < peak.encoders.size(); ++i)
        peak.encoders[i] += sign * time.encoder_activations[i];
    }
    peak.llm = most - std::accumulate(peak.encoders.begin(), peak.encoders.end(), 0.0);
    if (towers_.plan.offload.activations && most > 2 * largest) {
      const double left = 2 * largest / most;
      peak.llm *= left;
      for (double& bytes : peak.encoders) bytes *= left;
    }
  }
}

TowerMemory MemoryOfPlaces::states(std::string name, const RankParameters& trained,
                                   const RankParameters& frozen, const TrainingPlan& layout) const {
  TowerMemory out;
  out.tower = std::move(name);
  const StateBytes bytes = state_bytes(trained, layout);
  // A frozen tower holds its 16-bit parameters and nothing else.
  out.parameters =
      bytes.parameters +
      2 * (layout.sharding == Sharding::zero3 ? updated(frozen, layout) : frozen.total());
  out.gradients = bytes.gradients;
  out.optimizer = towers_.plan.offload.optimizer ? 0 : bytes.optimizer;
  return out;
}

StageMemory MemoryOfPlaces::held_of_llm(std::size_t place) const {
  const auto stage = static_cast<std::int32_t>(place);
  const std::int32_t chunks = program_.shape.chunks;
  const double parameters = llm_count(towers_, places_[place]).total() / chunks;
  std::vector<HeldPiece> pieces;
  for (std::int32_t chunk = 0; chunk < chunks; ++chunk) {
    const std::int32_t piece = program_.piece(stage, chunk);
    pieces.push_back({.parameters = parameters,
                      .trained = towers_.plan.llm_frozen ? 0 : parameters,
                      .is_first = piece == own_stages(places_),
                      .is_last = piece + 1 == program_.shape.pieces()});
  }
  return fullest_moment(towers_.model, llm_layout(), program_, stage, pieces);
}

std::vector<PlaceMemory> MemoryOfPlaces::finish() const {
  std::vector<PlaceMemory> out;
  for (std::size_t p = 0; p < places_.size(); ++p) {
    const Place& place = places_[p];
    PlaceMemory memory;
    memory.name = place.name;
    memory.reserved = towers_.cost.reserved_memory;
    if (place.own == SIZE_MAX) {
      const RankParameters count = llm_count(towers_, place), none;
      const bool frozen = towers_.plan.llm_frozen;
      TowerMemory tower = states("LLM", frozen ? none : count, frozen ? count : none, towers_.llm);
      const StageMemory held = held_of_llm(p);
      tower.gathered = held.unsharded;
      tower.activations = peaks_[p].llm + held.messages;
      memory.towers.push_back(std::move(tower));
      memory.working = layer_working_bytes(towers_.model, llm_layout());
      if (static_cast<std::int32_t>(p) == program_.stage_of(program_.shape.pieces() - 1))
        memory.working = std::max(memory.working, logit_bytes(towers_.model, llm_layout()));
    }
    for (std::size_t i = 0; i < towers_.plan.encoders.size(); ++i) {
      const EncoderTower& tower = towers_.plan.encoders[i];
      const double trained = trained_encoder_count(towers_, place, i);
      const double frozen =
          encoder_count(towers_, place, i) + projector_count(towers_, place, i) - trained;
      if (trained + frozen <= 0) continue;
      TowerMemory bytes =
          states(tower.name, {.dense = trained}, {.dense = frozen}, towers_.layouts[i]);
      // In a pipeline all, with gradients in float32; else the layer that runs and the buffer that
      // it was gathered into.
      if (towers_.layouts[i].sharding == Sharding::zero3)
        bytes.gathered = towers_.layouts[i].pipeline > 1
                             ? 6 * trained + 2 * frozen
                             : 4 * parameters_of(tower.model, towers_.layouts[i], 1, 0).total();
      // Encoded before the pipeline: all of a step's items are kept until it has ended.
      bytes.activations = tower.place == EncoderPlace::every_gpu
                              ? towers_.kept_per_token(i) * most_tokens_[i]
                              : peaks_[p].encoders[i];
      memory.towers.push_back(std::move(bytes));
      TrainingPlan one = towers_.layouts[i];
      one.sequence = 1024;
      one.micro_batch = 1;
      one.recompute = Recompute::none;
      // A layer of one pass over the items; on every GPU they are taken one micro-batch at a
      // time.
      const double passes =
          tower.place == EncoderPlace::every_gpu ? static_cast<double>(towers_.micro_batches) : 1;
      memory.working = std::max(memory.working, layer_activation_bytes(tower.model, one) / 1024 *
                                                    most_tokens_[i] / passes);
    }
    out.push_back(std::move(memory));
  }
  return out;
}

}  // namespace lockstep::sim
