#include "verify/product/compose.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "trace/load.h"
#include "trace/merge_tables.h"

namespace lockstep {

namespace {

// A trace's declarations, without its events.
RankTrace declared(const RankTrace& trace) {
  RankTrace out;
  out.rank = trace.rank;
  out.world_size = trace.world_size;
  out.source = trace.source;
  out.backend = trace.backend;
  out.program = trace.program;
  out.semantics = trace.semantics;
  out.groups = trace.groups;
  out.created_in_order = trace.created_in_order;
  return out;
}

// Calls and declarations of a trace, without what was measured.
RankTrace bare(const RankTrace& trace) {
  RankTrace out = declared(trace);
  out.events = trace.events;
  out.calls = trace.calls;
  return out;
}

class RankComposer {
 public:
  RankComposer(const RankTrace& first, Tables& tables) : tables_(tables), out_(declared(first)) {
    out_.end = End::clean;
  }

  void add_modalities(std::int64_t step, const std::vector<std::string>& has) {
    std::vector<std::string> sorted = has;
    std::sort(sorted.begin(), sorted.end());
    add_event(EventKind::modality, out_.modalities.size());
    out_.modalities.push_back({step, tables_.make_names(sorted)});
  }

  // The events [begin, end) of `trace`, as calls of that step.
  void add_part(const RankTrace& trace, std::uint32_t begin, std::uint32_t end, std::int64_t step) {
    std::map<std::uint32_t, std::uint32_t> moved;  // calls
    std::map<std::int32_t, std::int32_t> batches;  // their numbers begin anew in each part
    for (std::uint32_t e = begin; e < end; ++e) {
      const Event& event = trace.events[e];
      if (event.kind == EventKind::issue) {
        Call call = trace.calls[event.index];
        const auto index = static_cast<std::uint32_t>(out_.calls.size());
        call.id = index;
        call.step = static_cast<std::int32_t>(std::min<std::int64_t>(step, INT32_MAX));
        call.flags = static_cast<std::uint8_t>(call.flags & kAsync);
        call.values = 0;
        const bool message = is_point_to_point(tables_.signatures[call.signature].op);
        call.seq = lengths_[{call.group.value, message}]++;
        if (call.coalesced != kNone) {
          const auto [batch, fresh] = batches.emplace(call.coalesced, next_batch_);
          next_batch_ += fresh ? 1 : 0;
          call.coalesced = batch->second;
        }
        moved.emplace(event.index, index);
        out_.calls.push_back(call);
        add_event(EventKind::issue, index);
      } else if (event.kind == EventKind::wait) {
        const auto call = moved.find(event.index);
        if (call == moved.end()) continue;
        out_.calls[call->second].flags |= kWaitBegan;
        add_event(EventKind::wait, call->second);
      }
    }
  }

  void raise(const std::string& what) {
    add_event(EventKind::exception, out_.exceptions.size());
    out_.exceptions.push_back({what, std::nullopt});
    out_.end = End::exception;
  }

  RankTrace take() { return std::move(out_); }

 private:
  void add_event(EventKind kind, std::size_t index) {
    out_.events.push_back({kNoTime, static_cast<std::uint32_t>(index), kind});
  }

  Tables& tables_;
  RankTrace out_;
  std::map<std::pair<std::uint32_t, bool>, std::uint32_t> lengths_;
  std::int32_t next_batch_ = 0;
};

// The traces of a history, with ids of the composed run's tables.
std::vector<RankTrace> moved_traces(const Run& run, Tables& tables) {
  std::vector<RankTrace> out;
  out.reserve(run.ranks.size());
  for (const RankTrace& trace : run.ranks) out.push_back(bare(trace));
  move_to_tables(tables, run.tables, out);
  return out;
}

}  // namespace

Run compose(const ProductModel& model, const Assignment& assignment) {
  Tables tables;
  std::vector<std::vector<RankTrace>> histories;
  for (const Run& run : model.derivation().runs) histories.push_back(moved_traces(run, tables));
  const ProductSequences& sequences = model.sequences();
  std::vector<RankTrace> ranks;
  for (std::int32_t r = 0; r < model.ranks(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    const std::uint32_t first = assignment.options.front()[i].history;
    RankComposer composer(histories[first][i], tables);
    const auto add = [&](std::uint32_t history, std::uint32_t part, std::int64_t step) {
      const RecordedPart& recorded = sequences.part(history, r, part);
      if (recorded.sequence == kNothing) return false;
      composer.add_part(histories[history][i], recorded.begin, recorded.end, step);
      return true;
    };
    bool alive = add(first, ProductSequences::kStart, kNone);
    std::uint32_t history = first;
    bool as_recorded = true;  // so far: only then the rank is known to raise where its trace does
    for (std::size_t s = 0; s < assignment.steps.size() && alive; ++s) {
      const ProductOption& option = assignment.options[s][i];
      const std::int64_t step = assignment.steps[s];
      history = option.history;
      const ProductSpec::Condition& condition = model.spec().conditions[option.condition];
      if (!condition.has.empty()) composer.add_modalities(step, condition.has);
      const auto& raise = sequences.raise(history, r);
      const auto part = step == 0 ? std::uint32_t{ProductSequences::kFirst}
                                  : ProductSequences::kFirstCondition + option.condition;
      as_recorded = as_recorded && step == static_cast<std::int64_t>(s) &&
                    option.condition == model.spec().recorded_condition(history, step);
      const bool raises = raise && as_recorded && raise->step == step;
      if (!raises && add(history, part, step)) continue;
      alive = false;
      if (!raise) break;
      composer.add_part(histories[history][i], raise->begin, raise->end, step);
      composer.raise(raise->what);
    }
    if (alive) add(history, ProductSequences::kEnd, kNone);
    ranks.push_back(composer.take());
  }
  return assemble_run(std::move(tables), std::move(ranks));
}

}  // namespace lockstep
