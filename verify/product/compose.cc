#include "verify/product/compose.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
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
  RankComposer(Rank rank, const RankTrace& first, Tables& tables)
      : tables_(tables), out_(declared(first)) {
    out_.rank = rank;
    out_.end = End::clean;
  }

  void add_modalities(std::int64_t step, const std::vector<std::string>& has) {
    std::vector<std::string> sorted = has;
    std::sort(sorted.begin(), sorted.end());
    add_event(EventKind::modality, out_.modalities.size());
    out_.modalities.push_back({step, tables_.make_names(sorted)});
  }

  // The events [begin, end) of `trace`, as calls of that step, or of their own.
  void add_part(const RankTrace& trace, std::uint32_t begin, std::uint32_t end,
                std::optional<std::int64_t> step) {
    std::map<std::uint32_t, std::uint32_t> moved;  // calls
    std::map<std::int32_t, std::int32_t> batches;  // their numbers begin anew in each part
    for (std::uint32_t e = begin; e < end; ++e) {
      const Event& event = trace.events[e];
      if (event.kind == EventKind::issue) {
        Call call = trace.calls[event.index];
        const auto index = static_cast<std::uint32_t>(out_.calls.size());
        call.id = index;
        if (step) call.step = static_cast<std::int32_t>(std::min<std::int64_t>(*step, INT32_MAX));
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

  // All events of `trace`, in their steps.
  void add_all(const RankTrace& trace) {
    for (const Event& event : trace.events) {
      if (event.kind == EventKind::modality) {
        add_event(EventKind::modality, out_.modalities.size());
        out_.modalities.push_back(trace.modalities[event.index]);
      }
    }
    const auto events = static_cast<std::uint32_t>(trace.events.size());
    add_part(trace, 0, events, std::nullopt);
    if (trace.end == End::exception) {
      raise(trace.exceptions.empty() ? std::string() : trace.exceptions.back().what);
    }
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
class MovedTraces {
 public:
  MovedTraces(const Derivation& derivation, const Run& run, Tables& tables)
      : traced_(traced_ranks(derivation.spec)) {
    for (const RankTrace& trace : run.ranks) {
      places_.emplace(trace.rank.value, traces_.size());
      traces_.push_back(bare(trace));
    }
    move_to_tables(tables, run.tables, traces_);
  }
  // What stands for that rank.
  const RankTrace& of(std::int32_t rank) const {
    return traces_[places_.at(traced_[static_cast<std::size_t>(rank)])];
  }

 private:
  std::vector<std::int32_t> traced_;
  std::vector<RankTrace> traces_;
  std::unordered_map<std::int32_t, std::size_t> places_;  // in traces_, by rank
};

}  // namespace

Run compose(const ProductModel& model, const Assignment& assignment) {
  Tables tables;
  std::vector<MovedTraces> histories;
  for (const Run& run : model.derivation().runs) {
    histories.emplace_back(model.derivation(), run, tables);
  }
  const ProductSequences& sequences = model.sequences();
  std::vector<RankTrace> ranks;
  for (std::int32_t r = 0; r < model.ranks(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    const std::uint32_t first = assignment.options.front()[i].history;
    RankComposer composer(Rank(r), histories[first].of(r), tables);
    const auto add = [&](std::uint32_t history, const RecordedPart& recorded, std::int64_t step) {
      if (recorded.sequence == kNothing) return false;
      composer.add_part(histories[history].of(r), recorded.begin, recorded.end, step);
      return true;
    };
    bool alive = add(first, sequences.part(first, r, ProductSequences::kStart), kNone);
    std::uint32_t history = first;
    bool as_recorded = true;  // so far: only then the rank is known to raise where its trace does
    for (std::size_t s = 0; s < assignment.steps.size() && alive; ++s) {
      const ProductOption& option = assignment.options[s][i];
      const std::int64_t step = assignment.steps[s];
      history = option.history;
      const ProductSpec::Condition& condition = model.spec().conditions[option.condition];
      if (!condition.has.empty()) composer.add_modalities(step, condition.has);
      const auto& raise = sequences.raise(history, r);
      as_recorded = as_recorded && step == static_cast<std::int64_t>(s) &&
                    option.condition == model.spec().recorded_condition(history, step);
      const bool raises = raise && as_recorded && raise->step == step;
      if (!raises && add(history, model.at_step(history, r, step, option.condition), step))
        continue;
      alive = false;
      if (!raise) break;
      composer.add_part(histories[history].of(r), raise->begin, raise->end, step);
      composer.raise(raise->what);
    }
    if (alive) add(history, sequences.part(history, r, ProductSequences::kEnd), kNone);
    ranks.push_back(composer.take());
  }
  return assemble_run(std::move(tables), std::move(ranks));
}

Run as_program(const Run& run) {
  Tables tables;
  std::vector<RankTrace> traces;
  for (const RankTrace& trace : run.ranks) {
    traces.push_back(bare(trace));
    traces.back().modalities = trace.modalities;
    traces.back().exceptions = trace.exceptions;
    traces.back().end = trace.end;
  }
  move_to_tables(tables, run.tables, traces);
  std::vector<RankTrace> ranks;
  for (const RankTrace& trace : traces) {
    RankComposer composer(trace.rank, trace, tables);
    composer.add_all(trace);
    ranks.push_back(composer.take());
  }
  return assemble_run(std::move(tables), std::move(ranks));
}

}  // namespace lockstep
