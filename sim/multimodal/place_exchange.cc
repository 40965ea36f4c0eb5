#include "sim/multimodal/place_exchange.h"

#include <cstdint>

namespace lockstep::sim {
namespace {

void add(PlaceExchange& out, const std::vector<PlannedExchange>& exchanges, StepExchange::Of of,
         const GpuRange& gpus) {
  for (const PlannedExchange& exchange : exchanges) {
    out.step.push_back(exchange.step);
    out.step.back().of = of;
    out.on_network.exchanges.push_back({exchange.calls, gpus});
  }
}

}  // namespace

GpuRange stage_gpus(const TrainingPlan& llm, std::int32_t stage) {
  const std::int64_t each = llm.ranks() / llm.pipeline;
  return {stage * each, each};
}

GpuRange own_gpus(const MultimodalPlan& plan, std::size_t encoder, std::int32_t stage) {
  std::int64_t first = plan.llm.plan.ranks();
  for (std::size_t i = 0; i < encoder; ++i) first += plan.encoders[i].gpus;
  const TrainingPlan& layout = plan.encoders[encoder].layout;
  const std::int64_t each = std::int64_t{layout.tensor} * layout.data;
  return {first + stage * each, each};
}

std::vector<PlaceExchange> place_exchanges(const TowerTimes& towers,
                                           const std::vector<Place>& places) {
  const MultimodalPlan& plan = towers.plan;
  std::vector<PlaceExchange> out;
  for (const Place& place : places) {
    PlaceExchange& one = out.emplace_back();
    const bool of_llm = place.own == SIZE_MAX;
    const GpuRange here =
        of_llm ? stage_gpus(towers.llm, place.stage) : own_gpus(plan, place.own, place.stage);
    one.on_network.gpus = here;
    if (of_llm && !plan.llm_frozen)
      add(one,
          planned_exchanges(towers.llm, towers.cost, llm_count(towers, place), place.layers,
                            plan.overlapped_gradients || towers.llm.overlapped_gradients),
          StepExchange::Of::model, here);
    // Those on every GPU come last: their gradients are complete after all others.
    for (const bool around : {false, true})
      for (std::size_t i = 0; i < plan.encoders.size(); ++i) {
        const EncoderTower& tower = plan.encoders[i];
        const double count = trained_encoder_count(towers, place, i);
        if (count <= 0 || around != (tower.place == EncoderPlace::every_gpu)) continue;
        const double share = around ? 1 : place.shares[i];
        add(one,
            planned_exchanges(towers.layouts[i], towers.cost, {.dense = count},
                              share * static_cast<double>(tower.model.layers),
                              plan.overlapped_gradients),
            around ? StepExchange::Of::around : StepExchange::Of::encoders,
            around ? GpuRange{0, towers.llm.ranks()} : here);
      }
  }
  return out;
}

}  // namespace lockstep::sim
