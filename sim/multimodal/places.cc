#include "sim/multimodal/places.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"

namespace lockstep::sim {
namespace {

Place empty_place(const MultimodalPlan& plan) {
  Place place;
  place.shares.assign(plan.encoders.size(), 0);
  place.ends.assign(plan.encoders.size(), false);
  return place;
}

// Cuts the chain of layers (of the encoders on the first stages, then the LLM's) into stages such
// that the largest mean time is the least possible. The threshold is found by bisection: with a
// given one, filling stage after stage needs the fewest of them.
void cut_evenly(const TowerTimes& towers, const DealtStep& step, std::vector<Place>& places) {
  struct Link {
    std::size_t encoder;  // SIZE_MAX: the LLM
    double seconds;
  };
  std::vector<Link> chain;
  for (std::size_t i = 0; i < towers.plan.encoders.size(); ++i) {
    if (towers.plan.encoders[i].place != EncoderPlace::first_stage) continue;
    double sum = 0, count = 0;
    for (const auto& unit : step.encoders[i])
      for (const auto& loads : unit) {
        const GroupTime time = towers.group_time(i, loads, 1, true);
        sum += time.forward + time.backward;
        ++count;
      }
    const std::int64_t layers = towers.plan.encoders[i].model.layers;
    for (std::int64_t layer = 0; layer < layers; ++layer)
      chain.push_back({i, sum / count / static_cast<double>(layers)});
  }
  const PieceTime one = towers.llm_layers(layer_times(towers.model, towers.llm, towers.cost), 1);
  for (std::int64_t layer = 0; layer < towers.model.layers; ++layer)
    chain.push_back({SIZE_MAX, one.forward + one.backward});
  const PieceTime head = towers.llm_logits();
  const double last = head.forward + head.backward;
  const auto stages = static_cast<std::size_t>(towers.llm.pipeline);
  const auto fits = [&](double most, std::vector<std::size_t>* cuts) {
    std::size_t at = 0;
    for (std::size_t stage = 0; stage < stages; ++stage) {
      double load = stage + 1 == stages ? last : 0;
      while (at < chain.size() && load + chain[at].seconds <= most) load += chain[at++].seconds;
      if (cuts != nullptr) cuts->push_back(at);
    }
    return at == chain.size();
  };
  double low = 0, high = last;
  for (const Link& link : chain) high += link.seconds;
  for (int halving = 0; halving < 60; ++halving) {
    const double middle = (low + high) / 2;
    (fits(middle, nullptr) ? high : low) = middle;
  }
  std::vector<std::size_t> cuts;
  LOCKSTEP_CHECK(fits(high, &cuts), "all in one stage fits");
  std::size_t from = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    Place& place = places[places.size() - stages + stage];
    place.layers = 0;
    std::fill(place.shares.begin(), place.shares.end(), 0);
    std::fill(place.ends.begin(), place.ends.end(), false);
    for (; from < cuts[stage]; ++from) {
      const std::size_t encoder = chain[from].encoder;
      if (encoder == SIZE_MAX) {
        ++place.layers;
        continue;
      }
      place.shares[encoder] +=
          1.0 / static_cast<double>(towers.plan.encoders[encoder].model.layers);
      place.ends[encoder] = from + 1 == chain.size() || chain[from + 1].encoder != encoder;
    }
  }
}

}  // namespace

std::vector<Place> make_places(const TowerTimes& towers, const DealtStep& step) {
  std::vector<Place> places;
  // Encoders on GPUs of their own come first, in front of the LLM's stages.
  for (std::size_t i = 0; i < towers.plan.encoders.size(); ++i) {
    const EncoderTower& tower = towers.plan.encoders[i];
    if (tower.place != EncoderPlace::own_gpus) continue;
    for (std::int32_t stage = 0; stage < tower.layout.pipeline; ++stage) {
      Place place = empty_place(towers.plan);
      place.name = fmt::format("{} stage {}", tower.name, stage);
      place.own = i;
      place.stage = stage;
      place.gpus = std::int64_t{tower.layout.tensor} * (tower.layout.data / towers.groups);
      place.shares[i] = 1.0 / tower.layout.pipeline;
      place.ends[i] = stage + 1 == tower.layout.pipeline;
      places.push_back(std::move(place));
    }
  }
  for (std::int32_t stage = 0; stage < towers.llm.pipeline; ++stage) {
    Place place = empty_place(towers.plan);
    place.stage = stage;
    place.gpus = std::int64_t{towers.llm.tensor} * towers.llm.context * towers.per_group;
    place.layers = static_cast<double>(towers.model.layers) / towers.llm.pipeline;
    if (stage == 0)
      for (std::size_t i = 0; i < towers.plan.encoders.size(); ++i)
        if (towers.plan.encoders[i].place == EncoderPlace::first_stage) {
          place.shares[i] = 1;
          place.ends[i] = true;
        }
    places.push_back(std::move(place));
  }
  // Replaces the layers and shares of the LLM's stages.
  if (towers.plan.balanced_split && towers.llm.pipeline > 1) cut_evenly(towers, step, places);
  for (Place& place : places) {
    if (place.own != SIZE_MAX) continue;
    place.name = fmt::format("LLM stage {}", place.stage);
    std::string with;
    for (std::size_t i = 0; i < towers.plan.encoders.size(); ++i)
      if (place.shares[i] > 0)
        with += (with.empty() ? " with " : ", ") + towers.plan.encoders[i].name;
    place.name += with;
  }
  return places;
}

std::int32_t own_stages(const std::vector<Place>& places) {
  return static_cast<std::int32_t>(std::count_if(places.begin(), places.end(),
                                                 [](const Place& p) { return p.own != SIZE_MAX; }));
}

RankParameters llm_count(const TowerTimes& towers, const Place& place) {
  if (place.own != SIZE_MAX) return {};
  if (!towers.plan.balanced_split) return parameters_of_rank(towers.model, towers.llm);
  return parameters_of(
      towers.model, towers.llm, place.layers,
      table_parameters(towers.model, place.stage == 0, place.stage + 1 == towers.llm.pipeline));
}

double encoder_count(const TowerTimes& towers, const Place& place, std::size_t encoder) {
  const EncoderTower& tower = towers.plan.encoders[encoder];
  const double share = tower.place == EncoderPlace::every_gpu ? (place.own == SIZE_MAX ? 1 : 0)
                                                              : place.shares[encoder];
  return share * static_cast<double>(tower.model.layers) *
         static_cast<double>(layer_parameters(tower.model)) / tower.layout.tensor;
}

double projector_count(const TowerTimes& towers, const Place& place, std::size_t encoder) {
  const EncoderTower& tower = towers.plan.encoders[encoder];
  const bool here =
      tower.place == EncoderPlace::every_gpu ? place.own == SIZE_MAX : place.ends[encoder];
  if (!here) return 0;
  const auto between = static_cast<double>(tower.projector_hidden);
  return between *
         (static_cast<double>(tower.merge) * static_cast<double>(tower.model.hidden) +
          static_cast<double>(towers.model.hidden)) /
         tower.layout.tensor;
}

double trained_encoder_count(const TowerTimes& towers, const Place& place, std::size_t encoder) {
  const EncoderTower& tower = towers.plan.encoders[encoder];
  return (tower.frozen ? 0 : encoder_count(towers, place, encoder)) +
         (tower.projector_frozen ? 0 : projector_count(towers, place, encoder));
}

}  // namespace lockstep::sim
