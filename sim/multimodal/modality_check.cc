#include "sim/multimodal/modality_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trace/formats/text/text_trace.h"
#include "trace/load.h"

namespace lockstep::sim {
namespace {

// Parameters of the LLM and of an encoder, as the shown calls name them.
constexpr int kUnitsShown = 2;

bool gathers_as_it_runs(const EncoderTower& tower) {
  // A pipeline keeps what it has gathered over all micro-batches: one call a step, in any case.
  return tower.layout.sharding == Sharding::zero3 && tower.layout.pipeline == 1;
}

// Whether what the encoder calls depends on whether a rank has items.
bool calls_follow_items(const EncoderTower& tower) {
  if (tower.dummy) return false;
  return gathers_as_it_runs(tower) || (tower.gradients == GradientCalls::hooks && tower.trained() &&
                                       tower.layout.sharding < Sharding::zero3);
}

// By rank of the encoder, over all units: in which micro-batches it makes calls.
std::vector<std::vector<bool>> calls_of(
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

std::int64_t passes(const std::vector<bool>& calls) {
  return std::count(calls.begin(), calls.end(), true);
}

// Calls match by their number in the group, so ranks diverge if one makes more than another.
bool diverges(const std::vector<std::vector<bool>>& ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [&](const std::vector<bool>& calls) {
    return passes(calls) != passes(ranks[0]);
  });
}

struct HangCount {
  std::int64_t hang = 0;
  std::size_t encoder = 0;
  std::uint64_t first = 0;
};

Result<HangCount> count_hangs(const MultimodalPlan& plan, std::int64_t steps) {
  HangCount out;
  const bool any = std::any_of(plan.encoders.begin(), plan.encoders.end(), calls_follow_items);
  for (std::int64_t step = 0; any && step < steps; ++step) {
    const Result<DealtStep> dealt = deal_step(plan, static_cast<std::uint64_t>(step));
    if (!dealt) return dealt.error();
    for (std::size_t i = 0; i < plan.encoders.size(); ++i) {
      if (!calls_follow_items(plan.encoders[i]) ||
          !diverges(calls_of(plan.encoders[i], dealt->encoders[i])))
        continue;
      if (out.hang++ == 0) {
        out.encoder = i;
        out.first = static_cast<std::uint64_t>(step);
      }
      break;
    }
  }
  return out;
}

Result<ModalityRemedy> remedy_of(std::string what, const MultimodalPlan& plan, std::int64_t steps) {
  const Result<HangCount> count = count_hangs(plan, steps);
  if (!count) return count.error();
  return ModalityRemedy{std::move(what),
                        static_cast<double>(count->hang) / static_cast<double>(steps)};
}

}  // namespace

Result<std::optional<ModalityDivergence>> check_modalities(const MultimodalPlan& plan,
                                                           std::int64_t steps, bool remedies) {
  const Result<HangCount> count = count_hangs(plan, steps);
  if (!count) return count.error();
  if (count->hang == 0) return std::optional<ModalityDivergence>();
  ModalityDivergence out;
  out.encoder = count->encoder;
  out.first = count->first;
  out.steps = steps;
  const auto n = static_cast<double>(steps);
  const double p = static_cast<double>(count->hang) / n;
  out.probability = p;
  // Wilson's interval, 95 %.
  constexpr double z = 1.959964;
  const double middle = (p + z * z / (2 * n)) / (1 + z * z / n);
  const double half = z / (1 + z * z / n) * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  out.low = std::max(0.0, middle - half);
  out.high = std::min(1.0, middle + half);
  if (!remedies) return std::optional<ModalityDivergence>(std::move(out));
  std::vector<std::pair<std::string, MultimodalPlan>> changes;
  MultimodalPlan changed = plan;
  for (EncoderTower& tower : changed.encoders) tower.dummy = true;
  changes.emplace_back("without_items: dummy (remedy: dummy-image)", changed);
  const EncoderTower& tower = plan.encoders[out.encoder];
  if (tower.gradients == GradientCalls::hooks) {
    changed = plan;
    for (EncoderTower& other : changed.encoders) other.gradients = GradientCalls::buffer;
    changes.emplace_back("gradients: buffer, one call a step whatever came", changed);
  }
  if (tower.layout.sharding == Sharding::zero3) {
    changed = plan;
    for (EncoderTower& other : changed.encoders)
      other.layout.sharding = std::min(other.layout.sharding, Sharding::zero2);
    changes.emplace_back("zero: 2, so that nothing is gathered as it runs", changed);
  }
  if (plan.data.arrangement != Arrangement::balanced) {
    changed = plan;
    changed.data.arrangement = Arrangement::balanced;
    changes.emplace_back("data.arrange: balanced", changed);
  }
  for (auto& [what, with] : changes) {
    Result<ModalityRemedy> remedy = remedy_of(std::move(what), with, steps);
    if (!remedy) return remedy.error();
    out.remedies.push_back(std::move(*remedy));
  }
  return std::optional<ModalityDivergence>(std::move(out));
}

namespace {

// The ranks that are shown: all, or the first with the fewest calls, the first with the most, and
// the first of the others.
std::vector<std::size_t> shown_ranks(const std::vector<std::vector<bool>>& ranks) {
  std::vector<std::size_t> out(std::min(ranks.size(), kMostRanksShown));
  std::iota(out.begin(), out.end(), std::size_t{0});
  if (ranks.size() == out.size()) return out;
  const auto less = [](const std::vector<bool>& a, const std::vector<bool>& b) {
    return passes(a) < passes(b);
  };
  const auto [fewest, most] = std::minmax_element(ranks.begin(), ranks.end(), less);
  for (const auto& it : {fewest, most}) {
    const auto rank = static_cast<std::size_t>(it - ranks.begin());
    if (std::find(out.begin(), out.end(), rank) != out.end()) continue;
    out[rank == static_cast<std::size_t>(fewest - ranks.begin()) ? out.size() - 1
                                                                 : out.size() - 2] = rank;
  }
  std::sort(out.begin(), out.end());
  return out;
}

class CallWriter {
 public:
  static constexpr const char* kLlmGroup = "llm data parallel";

  CallWriter(const std::string& encoder, std::size_t rank, std::size_t world,
             std::size_t encoder_rank)
      : encoder_group_(fmt::format("{} data parallel", encoder)) {
    line({{"header", 1},
          {"rank", rank},
          {"world_size", world},
          {"backend", "nccl"},
          {"program", fmt::format("data-parallel rank {} of the encoder", encoder_rank)}});
    std::vector<std::size_t> all(world);
    std::iota(all.begin(), all.end(), std::size_t{0});
    for (const std::string& group : {encoder_group_, std::string(kLlmGroup)})
      line({{"group", group}, {"ranks", all}});
  }
  void modalities(std::size_t micro_batch, std::string_view kind, bool has) {
    nlohmann::json names = nlohmann::json::array();
    names.push_back("text");
    if (has) names.push_back(std::string(kind));
    line({{"ev", "modality"}, {"n", micro_batch}, {"has", names}});
  }
  void call(const char* op, std::string what, std::size_t micro_batch, bool of_llm = false) {
    line({{"ev", "issue"},
          {"id", id_++},
          {"g", of_llm ? std::string(kLlmGroup) : encoder_group_},
          {"op", op},
          {"what", {std::move(what)}},
          {"step", micro_batch}});
  }
  std::string end() {
    line({{"end", "clean"}});
    return std::move(text_);
  }

 private:
  void line(const nlohmann::json& object) {
    text_ += object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  std::string encoder_group_, text_;
  std::int64_t id_ = 0;
};

}  // namespace

Result<trace::Run> modality_run(const MultimodalPlan& plan, const ModalityDivergence& divergence) {
  const EncoderTower& tower = plan.encoders[divergence.encoder];
  const Result<DealtStep> dealt = deal_step(plan, divergence.first);
  if (!dealt) return dealt.error();
  const auto& units = dealt->encoders[divergence.encoder];
  const std::vector<std::vector<bool>> ranks = calls_of(tower, units);
  const bool gathers = gathers_as_it_runs(tower);
  const std::size_t micro_batches = ranks[0].size();
  const std::size_t per_unit = units[0][0].size();
  const std::vector<std::size_t> shown = shown_ranks(ranks);
  trace::Tables tables;
  std::vector<trace::RankTrace> traces;
  for (std::size_t r = 0; r < shown.size(); ++r) {
    CallWriter writer(tower.name, r, shown.size(), shown[r]);
    const auto& unit = units[shown[r] / per_unit];
    // As many micro-batches as are told apart: of hooks only the last one makes calls.
    for (std::size_t m = gathers ? 0 : micro_batches - 1; m < micro_batches; ++m) {
      const bool has = unit[m][shown[r] % per_unit].items > 0;
      writer.modalities(m, kItemKinds[tower.input], has);
      const auto unit_name = [&](int i) { return fmt::format("{}.layers.{}", tower.name, i); };
      for (int i = 0; has && gathers && i < kUnitsShown; ++i)
        writer.call("all_gather_into_tensor", unit_name(i), m);
      for (int i = kUnitsShown; has && i-- > 0;) {
        if (gathers) writer.call("all_gather_into_tensor", unit_name(i), m);
        if (tower.trained())
          writer.call(gathers ? "reduce_scatter_tensor" : "all_reduce", unit_name(i), m);
      }
    }
    writer.call("all_reduce", "llm", micro_batches - 1, true);
    Result<trace::RankTrace> trace =
        trace::read_text_trace(writer.end(), fmt::format("rank {}", r), tables);
    if (!trace) return trace.error();
    traces.push_back(std::move(*trace));
  }
  return trace::assemble_run(std::move(tables), std::move(traces));
}

}  // namespace lockstep::sim
