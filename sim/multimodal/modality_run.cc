#include "sim/multimodal/modality_run.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/multimodal/encoder_calls.h"
#include "trace/formats/text/text_trace.h"
#include "trace/load.h"

namespace lockstep::sim {
namespace {

// Parameters of the LLM and of an encoder, as the calls name them.
constexpr int kUnitsShown = 2;

// The ranks that are shown: the first, and among them, or instead of the last of them, the first
// with the fewest calls, the first with the most, and the first that has its items in other
// micro-batches than the first of the ranks it meets, with that one. `met`: of so many, one after
// the other.
std::vector<std::size_t> shown_ranks(const std::vector<std::vector<bool>>& ranks, std::size_t met) {
  const auto less = [](const std::vector<bool>& a, const std::vector<bool>& b) {
    return count_passes(a) < count_passes(b);
  };
  const auto [fewest, most] = std::minmax_element(ranks.begin(), ranks.end(), less);
  std::set<std::size_t> out = {static_cast<std::size_t>(fewest - ranks.begin()),
                               static_cast<std::size_t>(most - ranks.begin())};
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::size_t first = rank - rank % met;
    if (ranks[rank] == ranks[first]) continue;
    out.insert({first, rank});
    break;
  }
  for (std::size_t rank = 0; out.size() < std::min(ranks.size(), kMaxRanksShown); ++rank)
    out.insert(rank);
  return {out.begin(), out.end()};
}

// One shown rank's calls, as its trace.
class CallWriter {
 public:
  CallWriter(std::size_t rank, std::size_t world, std::size_t encoder_rank) {
    line({{"header", 1},
          {"rank", rank},
          {"world_size", world},
          {"backend", "nccl"},
          {"program", fmt::format("data-parallel rank {} of the encoder", encoder_rank)}});
  }
  void group(const std::string& name, const std::vector<std::size_t>& ranks) {
    line({{"group", name}, {"ranks", ranks}});
  }
  void modalities(std::size_t micro_batch, const std::set<std::string_view>& items) {
    nlohmann::json names = nlohmann::json::array();
    names.push_back("text");
    for (const std::string_view kind : items) names.push_back(std::string(kind));
    line({{"ev", "modality"}, {"n", micro_batch}, {"has", names}});
  }
  void call(const std::string& group, const char* op, std::string what, std::size_t micro_batch) {
    line({{"ev", "issue"},
          {"id", id_++},
          {"g", group},
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
  std::string text_;
  std::int64_t id_ = 0;
};

// The calls of the ranks of one encoder in a step: of that encoder, of those that gather beside it,
// and of the LLM.
class DivergingStep {
 public:
  DivergingStep(const MultimodalPlan& plan, const DealtStep& dealt, std::size_t encoder)
      : plan_(plan), dealt_(dealt), encoder_(encoder), together_(replicas_that_meet(plan)) {
    for (std::size_t i = 0; i < plan.encoders.size(); ++i)
      if (i == encoder ||
          (gathers_beside_llm(plan.encoders[encoder]) && gathers_beside_llm(plan.encoders[i])))
        towers_.push_back(i);
    const auto& units = dealt.encoders[encoder];
    micro_batches_ = units[0].size();
    per_unit_ = units[0][0].size();
    const std::vector<std::vector<bool>> ranks =
        micro_batches_with_calls(plan.encoders[encoder], units);
    meets_ = together_ > 1 && gathers_beside_llm(plan.encoders[encoder]);
    shown_ = shown_ranks(ranks, meets_ ? together_ * per_unit_ : ranks.size());
  }

  std::size_t ranks() const { return shown_.size(); }

  std::string trace_of(std::size_t shown) const {
    CallWriter out(shown, shown_.size(), shown_[shown]);
    std::vector<std::size_t> all(shown_.size()), met;
    std::iota(all.begin(), all.end(), std::size_t{0});
    for (const std::size_t i : towers_) out.group(group_of_tower(i), all);
    out.group(kLlmGroup, all);
    std::copy_if(all.begin(), all.end(), std::back_inserter(met),
                 [&](std::size_t other) { return block_of(other) == block_of(shown); });
    if (meets_ && experts()) out.group(meeting(shown), met);
    // As many micro-batches as are told apart: of hooks only the last one makes calls.
    const bool gathers = gathers_as_it_runs(plan_.encoders[encoder_]);
    for (std::size_t m = gathers ? 0 : micro_batches_ - 1; m < micro_batches_; ++m)
      write_micro_batch(shown, m, out);
    out.call(kLlmGroup, "all_reduce", "llm", micro_batches_ - 1);
    return out.end();
  }

 private:
  static constexpr const char* kLlmGroup = "llm data parallel";

  std::string group_of_tower(std::size_t i) const {
    return fmt::format("{} data parallel", plan_.encoders[i].name);
  }
  bool experts() const { return plan_.llm.plan.sharding != Sharding::zero3; }
  // The block of replicas that meet in the LLM's calls.
  std::size_t block_of(std::size_t shown) const { return shown_[shown] / per_unit_ / together_; }
  // The group in which they do.
  std::string meeting(std::size_t shown) const {
    return experts() ? fmt::format("llm experts {}", block_of(shown)) : std::string(kLlmGroup);
  }

  bool has_items(std::size_t shown, std::size_t m, std::size_t tower) const {
    const auto& ranks = dealt_.encoders[tower][shown_[shown] / per_unit_][m];
    // Ranks of a tower are numbered over the GPUs of a unit, as many for each as its tensor says.
    const auto gpu = (shown_[shown] % per_unit_) *
                     static_cast<std::size_t>(plan_.encoders[encoder_].layout.tensor);
    return ranks[gpu / static_cast<std::size_t>(plan_.encoders[tower].layout.tensor)].items > 0;
  }

  void write_micro_batch(std::size_t shown, std::size_t m, CallWriter& out) const {
    std::set<std::string_view> items;
    std::vector<std::size_t> called;
    for (const std::size_t i : towers_) {
      const EncoderTower& tower = plan_.encoders[i];
      if (has_items(shown, m, i)) items.insert(kItemKinds[tower.input]);
      if (tower.dummy || has_items(shown, m, i)) called.push_back(i);
    }
    out.modalities(m, items);
    const auto unit_name = [&](std::size_t tower, int unit) {
      return fmt::format("{}.layers.{}", plan_.encoders[tower].name, unit);
    };
    for (const std::size_t i : called)
      for (int unit = 0; gathers_as_it_runs(plan_.encoders[i]) && unit < kUnitsShown; ++unit)
        out.call(group_of_tower(i), "all_gather_into_tensor", unit_name(i, unit), m);
    if (meets_) write_meeting(shown, m, out);
    for (auto i = called.rbegin(); i != called.rend(); ++i)
      for (int unit = kUnitsShown; unit-- > 0;) {
        const EncoderTower& tower = plan_.encoders[*i];
        const bool gathers = gathers_as_it_runs(tower);
        if (gathers) out.call(group_of_tower(*i), "all_gather_into_tensor", unit_name(*i, unit), m);
        if (tower.trained())
          out.call(group_of_tower(*i), gathers ? "reduce_scatter_tensor" : "all_reduce",
                   unit_name(*i, unit), m);
      }
  }

  // What the LLM calls in a micro-batch, forward and backward.
  void write_meeting(std::size_t shown, std::size_t m, CallWriter& out) const {
    const char* const op = experts() ? "all_to_all_single" : "all_gather_into_tensor";
    const char* const what = experts() ? "llm.layers.0.tokens of experts" : "llm.layers.0";
    out.call(meeting(shown), op, what, m);
    out.call(meeting(shown), op, what, m);
    if (!experts() && !plan_.llm_frozen) out.call(meeting(shown), "reduce_scatter_tensor", what, m);
  }

  const MultimodalPlan& plan_;
  const DealtStep& dealt_;
  std::size_t encoder_;
  std::size_t together_;             // replicas that meet in the LLM's calls
  bool meets_ = false;               // whether these are among the encoder's
  std::vector<std::size_t> towers_;  // whose calls are written
  std::size_t micro_batches_ = 0, per_unit_ = 0;
  std::vector<std::size_t> shown_;
};

}  // namespace

Result<trace::Run> modality_run(const MultimodalPlan& plan, const ModalityDivergence& divergence) {
  const Result<DealtStep> dealt = deal_step(plan, divergence.first);
  if (!dealt) return dealt.error();
  const DivergingStep step(plan, *dealt, divergence.encoder);
  trace::Tables tables;
  std::vector<trace::RankTrace> traces;
  for (std::size_t rank = 0; rank < step.ranks(); ++rank) {
    Result<trace::RankTrace> trace =
        trace::read_text_trace(step.trace_of(rank), fmt::format("rank {}", rank), tables);
    if (!trace) return trace.error();
    traces.push_back(std::move(*trace));
  }
  return trace::assemble_run(std::move(tables), std::move(traces));
}

}  // namespace lockstep::sim
