#include "sim/multimodal/encoder_calls.h"

#include <algorithm>
#include <utility>

namespace lockstep::sim {

bool gathers_as_it_runs(const EncoderTower& tower) {
  // A pipeline keeps what it has gathered over all micro-batches: one call a step, in any case.
  return tower.layout.sharding == Sharding::zero3 && tower.layout.pipeline == 1;
}

bool calls_follow_items(const EncoderTower& tower) {
  if (tower.dummy) return false;
  return gathers_as_it_runs(tower) || (tower.gradients == GradientCalls::hooks && tower.trained() &&
                                       tower.layout.sharding < Sharding::zero3);
}

std::size_t replicas_that_meet(const MultimodalPlan& plan) {
  const TrainingPlan& llm = plan.llm.plan;
  // FSDP gathers each layer as it runs; in a pipeline once a step.
  if (llm.sharding == Sharding::zero3 && llm.pipeline == 1)
    return static_cast<std::size_t>(llm.data);
  // Tokens go to experts on the ranks of other replicas.
  if (plan.llm.model.experts > 0 && llm.expert > llm.context)
    return static_cast<std::size_t>(llm.expert / llm.context);
  return 1;
}

bool gathers_beside_llm(const EncoderTower& tower) {
  return gathers_as_it_runs(tower) && tower.place == EncoderPlace::first_stage;
}

std::vector<std::vector<bool>> micro_batches_with_calls(
    const EncoderTower& tower, const std::vector<std::vector<std::vector<EncoderLoad>>>& units) {
  std::vector<std::vector<bool>> out;
  for (const auto& unit : units)
    for (std::size_t rank = 0; rank < unit[0].size(); ++rank) {
      std::vector<bool> calls(unit.size(), false);
      for (std::size_t m = 0; m < unit.size(); ++m) {
        // Gradients that accumulate are summed in the backward pass of the last micro-batch alone
        // (DDP's no_sync()).
        const bool time = gathers_as_it_runs(tower) || m + 1 == unit.size();
        calls[m] = time && unit[m][rank].items > 0;
      }
      out.push_back(std::move(calls));
    }
  return out;
}

std::int64_t count_passes(const std::vector<bool>& calls) {
  return std::count(calls.begin(), calls.end(), true);
}

}  // namespace lockstep::sim
