#include "sim/multimodal/data_figures.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace lockstep::sim {

namespace {

// FLOPs that the LLM needs for the tokens of the sequences: of each as if it were no longer than
// they are, since attention to padding, or to room that a ragged sequence leaves, is not needed.
double llm_flops(const TowerTimes& towers, const std::vector<TrainingSequence>& sequences) {
  TrainingPlan one = towers.llm;
  one.global_batch = 1;
  double out = 0;
  for (const TrainingSequence& sequence : sequences) {
    one.sequence = sequence.tokens;
    out += model_flops(towers.model, one);
  }
  return out;
}

// FLOPs that the towers need for a step. As multiples of a tower's forward: 3 if it is trained
// (forward, the input's gradient, the weights'); if it is frozen 1, or 2 where something before it
// is trained.
double flops_of(const MultimodalPlan& plan, const TowerTimes& towers, const DealtStep& step) {
  std::array<double, kItemKindCount> by_kind{};
  for (const EncoderTower& tower : plan.encoders)
    for (const TrainingSequence& sequence : step.sequences)
      for (const std::int32_t size : sequence.items[tower.input])
        by_kind[tower.input] +=
            encoder_flops(tower, towers.model.hidden, size) * (tower.frozen ? 1 : 3);
  const double encoders = std::accumulate(by_kind.begin(), by_kind.end(), 0.0);
  const double llm = llm_flops(towers, step.sequences);
  return encoders + (plan.llm_frozen ? llm * (towers.trained_before() ? 2 : 1) / 3 : llm);
}

}  // namespace

void add_data(const MultimodalPlan& plan, const TowerTimes& towers, const DealtStep& step,
              SimulatedSteps& out) {
  const double share = 1.0 / static_cast<double>(plan.steps);
  double tokens = 0, cut = 0;
  std::array<MultimodalForecast::ItemFigures, kItemKindCount> kinds;
  std::array<double, kItemKindCount> sizes{};
  for (const TrainingSequence& sequence : step.sequences) {
    tokens += static_cast<double>(sequence.tokens);
    cut += static_cast<double>(sequence.cut);
    out.samples += share * static_cast<double>(sequence.samples);
    for (std::size_t kind = 0; kind < kItemKindCount; ++kind)
      for (const std::int32_t size : sequence.items[kind]) {
        kinds[kind].per_step += 1;
        sizes[kind] += size;
        kinds[kind].largest = std::max<double>(kinds[kind].largest, size);
      }
  }
  const TrainingPlan& llm = towers.llm;
  const double room = static_cast<double>(llm.global_batch) * static_cast<double>(llm.sequence);
  out.flops += share * flops_of(plan, towers, step);
  out.tokens += share * tokens;
  // Ragged sequences compute no padding.
  out.padding += plan.data.filling == SequenceFilling::ragged ? 0 : share * (1 - tokens / room);
  out.cut += tokens + cut > 0 ? share * cut / (tokens + cut) : 0;
  if (out.items.empty()) out.items.resize(kItemKindCount);
  for (std::size_t kind = 0; kind < kItemKindCount; ++kind) {
    MultimodalForecast::ItemFigures& figures = out.items[kind];
    figures.kind = kItemKinds[kind];
    figures.per_step += share * kinds[kind].per_step;
    figures.mean_size += share * sizes[kind];
    figures.largest = std::max(figures.largest, kinds[kind].largest);
  }
}

void finish_data(SimulatedSteps& out) {
  for (MultimodalForecast::ItemFigures& figures : out.items)
    figures.mean_size = figures.per_step > 0 ? figures.mean_size / figures.per_step : 0;
  std::erase_if(out.items, [](const auto& figures) { return figures.per_step == 0; });
}

}  // namespace lockstep::sim
