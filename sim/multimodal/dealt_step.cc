#include "sim/multimodal/dealt_step.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::sim {
namespace {

SequenceShape sequence_shape(const MultimodalPlan& plan) {
  SequenceShape out{plan.llm.plan.sequence, {}};
  // Where two encoders see the same items, their outputs are joined by feature: one token, of the
  // first of them.
  for (const EncoderTower& tower : plan.encoders)
    if (out.merge[tower.input] == 0) out.merge[tower.input] = tower.merge;
  return out;
}

// Operations, for balancing: the sum over all towers of what a sequence costs. Full sequences cost
// the LLM the same.
std::vector<double> sequence_loads(const MultimodalPlan& plan,
                                   const std::vector<TrainingSequence>& sequences) {
  const Transformer& llm = plan.llm.model;
  TrainingPlan one = plan.llm.plan;
  one.global_batch = 1;
  std::vector<double> out(sequences.size(), 0);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    for (const EncoderTower& tower : plan.encoders)
      for (const std::int32_t size : sequences[i].items[tower.input])
        out[i] += encoder_flops(tower, llm.hidden, size);
    if (plan.data.filling != SequenceFilling::ragged) continue;
    one.sequence = sequences[i].tokens;
    out[i] += model_flops(llm, one) / 3;
  }
  return out;
}

std::vector<std::int32_t> items_in(const DealtStep& step, std::size_t kind, std::size_t replica,
                                   std::size_t micro_batch) {
  std::vector<std::int32_t> out;
  for (const std::size_t sequence : step.micro_batches[replica][micro_batch]) {
    const auto& items = step.sequences[sequence].items[kind];
    out.insert(out.end(), items.begin(), items.end());
  }
  return out;
}

std::vector<EncoderLoad> spread_over(const MultimodalPlan& plan, const EncoderTower& tower,
                                     const std::vector<std::int32_t>& sizes, std::size_t ranks) {
  std::vector<EncoderLoad> out(ranks);
  std::vector<double> loads;
  loads.reserve(sizes.size());
  for (const std::int32_t size : sizes)
    loads.push_back(encoder_flops(tower, plan.llm.model.hidden, size));
  const auto rank_of = spread_items(loads, ranks, plan.data.arrangement != Arrangement::drawn);
  for (std::size_t item = 0; item < sizes.size(); ++item) {
    const double size = sizes[item];
    EncoderLoad& load = out[rank_of[item]];
    load.tokens += size;
    load.squares += size * size;
    ++load.items;
  }
  return out;
}

std::vector<std::vector<std::vector<EncoderLoad>>> deal_encoder(const MultimodalPlan& plan,
                                                                const EncoderTower& tower,
                                                                const DealtStep& step) {
  const std::size_t replicas = step.micro_batches.size();
  const std::size_t micro_batches = step.micro_batches[0].size();
  const auto ranks = static_cast<std::size_t>(tower.layout.data);
  if (tower.place == EncoderPlace::every_gpu) {
    // Balanced: every GPU of the job may encode any item. Otherwise a replica's GPUs encode its
    // own.
    const bool anywhere = plan.data.arrangement == Arrangement::balanced;
    std::vector<std::vector<std::vector<EncoderLoad>>> out(replicas);
    std::vector<std::int32_t> all;
    for (std::size_t replica = 0; replica < replicas; ++replica) {
      if (!anywhere) all.clear();
      for (std::size_t m = 0; m < micro_batches; ++m) {
        const auto sizes = items_in(step, tower.input, replica, m);
        all.insert(all.end(), sizes.begin(), sizes.end());
      }
      if (!anywhere) out[replica].push_back(spread_over(plan, tower, all, ranks));
    }
    if (!anywhere) return out;
    const auto loads = spread_over(plan, tower, all, ranks * replicas);
    for (std::size_t replica = 0; replica < replicas; ++replica) {
      const auto from = loads.begin() + static_cast<std::ptrdiff_t>(replica * ranks);
      out[replica].emplace_back(from, from + static_cast<std::ptrdiff_t>(ranks));
    }
    return out;
  }
  const bool own = tower.place == EncoderPlace::own_gpus;
  const std::size_t units = own ? static_cast<std::size_t>(coupled_groups(plan)) : replicas;
  const std::size_t each = replicas / units;  // replicas of a unit
  const std::size_t ranks_of_unit = own ? ranks / units : ranks;
  std::vector<std::vector<std::vector<EncoderLoad>>> out(units);
  for (std::size_t unit = 0; unit < units; ++unit)
    for (std::size_t m = 0; m < micro_batches; ++m) {
      std::vector<std::int32_t> sizes;
      for (std::size_t replica = unit * each; replica < (unit + 1) * each; ++replica) {
        const auto more = items_in(step, tower.input, replica, m);
        sizes.insert(sizes.end(), more.begin(), more.end());
      }
      out[unit].push_back(spread_over(plan, tower, sizes, ranks_of_unit));
    }
  return out;
}

}  // namespace

std::int32_t coupled_groups(const MultimodalPlan& plan) {
  std::int32_t out = plan.llm.plan.data;
  for (const EncoderTower& tower : plan.encoders)
    if (tower.place == EncoderPlace::own_gpus) out = std::gcd(out, tower.layout.data);
  return out;
}

double encoder_flops(const EncoderTower& tower, std::int64_t llm_hidden, double size) {
  const Transformer& m = tower.model;
  const auto hidden = static_cast<double>(m.hidden);
  const double matrices = m.gated ? 3 : 2;
  const double linear = 2 * (4 * hidden * hidden + matrices * hidden * static_cast<double>(m.ffn));
  const auto merge = static_cast<double>(tower.merge);
  const auto between = static_cast<double>(tower.projector_hidden);
  const double projector =
      2 * (merge * hidden * between + between * static_cast<double>(llm_hidden)) / merge;
  return size * (static_cast<double>(m.layers) * (linear + 4 * size * hidden) + projector);
}

Result<std::vector<TrainingSequence>> draw_step(const MultimodalPlan& plan, std::uint64_t step) {
  return draw_sequences(plan.data, sequence_shape(plan), plan.llm.plan.global_batch, step);
}

namespace {

bool packs_again(const MultimodalPlan& plan) {
  return plan.data.filling == SequenceFilling::packed &&
         plan.data.arrangement == Arrangement::balanced;
}

std::vector<TrainingSequence> packed_again(const MultimodalPlan& plan,
                                           const std::vector<TrainingSequence>& drawn) {
  return repack(drawn, sequence_shape(plan), [&](const SampleView& sample) {
    double load = 0;
    for (const EncoderTower& tower : plan.encoders)
      for (const std::int32_t size : sample.items[tower.input])
        load += encoder_flops(tower, plan.llm.model.hidden, size);
    return load;
  });
}

// DealtStep::micro_batches.
std::vector<std::vector<std::vector<std::size_t>>> micro_batches_of(
    const MultimodalPlan& plan, const std::vector<TrainingSequence>& sequences) {
  const TrainingPlan& llm = plan.llm.plan;
  // As drawn, loads do not matter.
  const std::vector<double> loads = plan.data.arrangement == Arrangement::drawn
                                        ? std::vector<double>(sequences.size(), 0)
                                        : sequence_loads(plan, sequences);
  return arrange(plan.data.arrangement, loads, static_cast<std::size_t>(llm.data),
                 static_cast<std::size_t>(llm.micro_batches()));
}

DealtItems counted(const std::vector<std::vector<std::vector<std::size_t>>>& dealt,
                   const std::vector<TrainingSequence>& sequences) {
  DealtItems out{dealt.size(), dealt[0].size(), {}};
  out.counts.reserve(out.replicas * out.micro_batches);
  for (const auto& replica : dealt)
    for (const std::vector<std::size_t>& micro_batch : replica) {
      auto& counts = out.counts.emplace_back();
      for (const std::size_t sequence : micro_batch)
        for (std::size_t kind = 0; kind < kItemKindCount; ++kind)
          counts[kind] += static_cast<std::uint32_t>(sequences[sequence].items[kind].size());
    }
  return out;
}

// DealtStep::sequences and micro_batches. `drawn`: as for deal_items().
DealtStep arrange_step(const MultimodalPlan& plan, std::vector<TrainingSequence> drawn) {
  DealtStep out;
  out.sequences = packs_again(plan) ? packed_again(plan, drawn) : std::move(drawn);
  out.micro_batches = micro_batches_of(plan, out.sequences);
  return out;
}

}  // namespace

DealtItems deal_items(const MultimodalPlan& plan, const std::vector<TrainingSequence>& drawn) {
  if (!packs_again(plan)) return counted(micro_batches_of(plan, drawn), drawn);
  const std::vector<TrainingSequence> packed = packed_again(plan, drawn);
  return counted(micro_batches_of(plan, packed), packed);
}

Result<DealtStep> deal_step(const MultimodalPlan& plan, std::uint64_t step) {
  Result<std::vector<TrainingSequence>> drawn = draw_step(plan, step);
  if (!drawn) return drawn.error();
  DealtStep out = arrange_step(plan, std::move(*drawn));
  deal_encoders(plan, out);
  return out;
}

void deal_encoders(const MultimodalPlan& plan, DealtStep& step) {
  step.encoders.clear();
  for (const EncoderTower& tower : plan.encoders)
    step.encoders.push_back(deal_encoder(plan, tower, step));
}

namespace {

// Whether two plans draw the same samples.
bool draws_alike(const MultimodalPlan& a, const MultimodalPlan& b) {
  const bool packed = a.data.filling == SequenceFilling::packed;
  return packed == (b.data.filling == SequenceFilling::packed) && a.data.seed == b.data.seed &&
         a.llm.plan.global_batch == b.llm.plan.global_batch &&
         sequence_shape(a) == sequence_shape(b) && a.data.text == b.data.text &&
         a.data.items == b.data.items && a.data.manifest == b.data.manifest;
}

// Whether sequence_loads() are the same.
bool load_alike(const MultimodalPlan& a, const MultimodalPlan& b) {
  const bool same_llm = a.data.filling == SequenceFilling::ragged
                            ? a.llm.model == b.llm.model
                            : a.llm.model.hidden == b.llm.model.hidden;
  return same_llm && std::equal(a.encoders.begin(), a.encoders.end(), b.encoders.begin(),
                                b.encoders.end(), [](const EncoderTower& x, const EncoderTower& y) {
                                  return x.input == y.input && x.model == y.model &&
                                         x.merge == y.merge &&
                                         x.projector_hidden == y.projector_hidden;
                                });
}

}  // namespace

bool deals_alike(const MultimodalPlan& a, const MultimodalPlan& b) {
  return a.data.arrangement == b.data.arrangement && a.data.filling == b.data.filling &&
         a.llm.plan.data == b.llm.plan.data &&
         a.llm.plan.micro_batches() == b.llm.plan.micro_batches() && draws_alike(a, b) &&
         (a.data.arrangement == Arrangement::drawn || load_alike(a, b));
}

bool encodes_alike(const MultimodalPlan& a, const MultimodalPlan& b) {
  return load_alike(a, b) && coupled_groups(a) == coupled_groups(b) &&
         std::equal(a.encoders.begin(), a.encoders.end(), b.encoders.begin(), b.encoders.end(),
                    [](const EncoderTower& x, const EncoderTower& y) {
                      return x.place == y.place && x.layout.data == y.layout.data;
                    });
}

std::vector<DrawnTogether> drawn_together(const std::vector<const MultimodalPlan*>& plans) {
  std::vector<DrawnTogether> out;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const MultimodalPlan& plan = *plans[i];
    auto drawn = std::find_if(out.begin(), out.end(), [&](const DrawnTogether& one) {
      return draws_alike(*plans[one.drawn_by], plan);
    });
    if (drawn == out.end()) drawn = out.insert(out.end(), DrawnTogether{{}, i});
    if (plan.data.arrangement == Arrangement::balanced) drawn->drawn_by = i;
    const auto dealt = std::find_if(drawn->dealt.begin(), drawn->dealt.end(), [&](const auto& one) {
      return deals_alike(*plans[one[0]], plan);
    });
    if (dealt == drawn->dealt.end())
      drawn->dealt.push_back({i});
    else
      dealt->push_back(i);
  }
  return out;
}

void arrange_each(
    const std::vector<const MultimodalPlan*>& plans, const std::vector<DrawnTogether>& together,
    std::uint64_t step,
    const std::function<void(const std::vector<std::size_t>& alike, Result<DealtStep>)>& use) {
  for (const DrawnTogether& one : together) {
    Result<std::vector<TrainingSequence>> drawn = draw_step(*plans[one.drawn_by], step);
    for (const std::vector<std::size_t>& alike : one.dealt) {
      const bool last = &alike == &one.dealt.back();
      if (drawn)
        use(alike, arrange_step(*plans[alike[0]], last ? std::move(*drawn) : *drawn));
      else
        use(alike, drawn.error());
    }
  }
}

std::vector<ItemsOfUnit> count_items(const MultimodalPlan& plan, const EncoderTower& tower,
                                     const DealtItems& step) {
  const std::size_t replicas = step.replicas;
  const std::size_t micro_batches = step.micro_batches;
  // Without their ranks: all items at once, of the job or of a replica.
  const bool at_once = tower.place == EncoderPlace::every_gpu;
  const bool anywhere = at_once && plan.data.arrangement == Arrangement::balanced;
  const bool own = tower.place == EncoderPlace::own_gpus;
  const auto data = static_cast<std::size_t>(tower.layout.data);
  const std::size_t units = anywhere ? 1
                            : own    ? static_cast<std::size_t>(coupled_groups(plan))
                                     : replicas;
  const std::size_t each = replicas / units;
  const std::size_t ranks = own ? data / units : anywhere ? data * replicas : data;
  std::vector<ItemsOfUnit> out(units);
  for (std::size_t unit = 0; unit < units; ++unit) {
    out[unit].ranks = ranks;
    out[unit].items.assign(at_once ? 1 : micro_batches, 0);
    for (std::size_t replica = unit * each; replica < (unit + 1) * each; ++replica)
      for (std::size_t m = 0; m < micro_batches; ++m)
        out[unit].items[at_once ? 0 : m] += step.counts[replica * micro_batches + m][tower.input];
  }
  return out;
}

}  // namespace lockstep::sim
