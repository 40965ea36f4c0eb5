#include "sim/multimodal/place_memory.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::sim {

// Bytes held at the fullest moment of each place: they follow from the order of its tasks.
void MemoryOfPlaces::keep(const DealtStep& step, const std::vector<TaskTime>& tasks,
                          const PipelineRun& run) {
  for (std::size_t p = 0; p < places_.size(); ++p) {
    Peak& peak = peaks_[p];
    peak.most_tokens.resize(towers_.plan.encoders.size());
    peak.encoders.resize(towers_.plan.encoders.size());
    for (std::size_t i = 0; i < towers_.plan.encoders.size(); ++i)
      for (const auto& unit : step.encoders[i])
        for (const auto& loads : unit)
          for (const EncoderLoad& load : loads)
            peak.most_tokens[i] = std::max(peak.most_tokens[i], load.tokens);
    if (static_cast<double>(run.peak_bytes[p].value) <= peak.bytes) continue;
    double now = 0, most = 0, largest = 0;
    std::vector<double> held(towers_.plan.encoders.size(), 0), at_most = held;
    for (const PipelineTask& task : program_.tasks[p]) {
      const auto piece =
          static_cast<std::size_t>(program_.piece(static_cast<std::int32_t>(p), task.chunk));
      const TaskTime& time = tasks[piece * static_cast<std::size_t>(towers_.micro_batches) +
                                   static_cast<std::size_t>(task.micro_batch)];
      if (task.work == Work::weight) continue;
      const double sign = task.work == Work::forward ? 1 : -1;
      now += sign * time.activations;
      largest = std::max(largest, time.activations);
      for (std::size_t i = 0; i < held.size(); ++i) held[i] += sign * time.encoder_activations[i];
      if (now <= most) continue;
      most = now;
      at_most = held;
    }
    peak.bytes = most;
    peak.encoders = at_most;
    peak.llm = most - std::accumulate(at_most.begin(), at_most.end(), 0.0);
    if (towers_.plan.offload.activations && most > 2 * largest) {
      const double left = 2 * largest / most;
      peak.llm *= left;
      for (double& bytes : peak.encoders) bytes *= left;
    }
  }
}

TowerMemory MemoryOfPlaces::states(std::string name, double trained, double frozen,
                                   const TrainingPlan& layout, double layer) const {
  TowerMemory out;
  out.tower = std::move(name);
  const double ranks = static_cast<double>(layout.data) * layout.context;
  const auto shared = [&](Sharding from) { return layout.sharding >= from ? ranks : 1.0; };
  const bool fsdp = layout.sharding == Sharding::zero3;
  out.parameters = ((fsdp ? 4 : 2) * trained + 2 * frozen) / shared(Sharding::zero3);
  out.gradients = (fsdp ? 4 : layout.gradient_bytes()) * trained / shared(Sharding::zero2);
  out.optimizer = (fsdp ? 8 : 12) * trained / shared(Sharding::zero1);
  if (towers_.plan.offload.optimizer) out.optimizer = 0;
  if (fsdp)
    out.gathered = layout.pipeline > 1 ? 6 * trained + 2 * frozen : 2 * 2 * layer / layout.tensor;
  return out;
}

std::vector<PlaceMemory> MemoryOfPlaces::finish() const {
  std::vector<PlaceMemory> out;
  for (std::size_t p = 0; p < places_.size(); ++p) {
    const Place& place = places_[p];
    PlaceMemory memory;
    memory.name = place.name;
    memory.reserved = towers_.cost.reserved_memory;
    if (place.own == SIZE_MAX) {
      const double count = llm_count(towers_, place);
      TowerMemory tower =
          states("LLM", towers_.plan.llm_frozen ? 0 : count, towers_.plan.llm_frozen ? count : 0,
                 towers_.llm, static_cast<double>(layer_parameters(towers_.model)));
      tower.activations = peaks_[p].llm;
      memory.towers.push_back(std::move(tower));
      TrainingPlan whole = towers_.llm;
      whole.recompute = Recompute::none;
      memory.working = layer_activation_bytes(towers_.model, whole);
      const std::int32_t head =
          towers_.llm.schedule == PipelineSchedule::zbv ? 0 : towers_.llm.pipeline - 1;
      if (place.stage == head)
        memory.working = std::max(memory.working, logit_bytes(towers_.model, towers_.llm));
    }
    for (std::size_t i = 0; i < towers_.plan.encoders.size(); ++i) {
      const EncoderTower& tower = towers_.plan.encoders[i];
      const double trained = trained_encoder_count(towers_, place, i);
      const double frozen =
          encoder_count(towers_, place, i) + projector_count(towers_, place, i) - trained;
      if (trained + frozen <= 0) continue;
      TowerMemory bytes = states(tower.name, trained, frozen, towers_.layouts[i],
                                 static_cast<double>(layer_parameters(tower.model)));
      // Encoded before the pipeline: all of a step's items are kept until it has ended.
      bytes.activations = tower.place == EncoderPlace::every_gpu
                              ? towers_.kept_per_token(i) * peaks_[p].most_tokens[i]
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
                                                    peaks_[p].most_tokens[i] / passes);
    }
    out.push_back(std::move(memory));
  }
  return out;
}

}  // namespace lockstep::sim
