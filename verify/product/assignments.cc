#include "verify/product/assignments.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "trace/load.h"
#include "trace/run.h"
#include "trace/spread.h"

namespace lockstep::verify {

namespace {

// What a trace says of itself (rank, groups, semantics), without its events.
trace::RankTrace declared(const trace::RankTrace& trace) {
  trace::RankTrace out;
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

// The calls of a trace, without what was measured.
trace::RankTrace bare(const trace::RankTrace& trace) {
  trace::RankTrace out = declared(trace);
  out.events = trace.events;
  out.calls = trace.calls;
  out.spans = trace.spans;
  return out;
}

// What `trace` says of itself, with the events of `did`.
trace::RankTrace declared_with(const trace::RankTrace& trace, const trace::RankTrace& did) {
  trace::RankTrace out = declared(trace);
  out.events = did.events;
  out.calls = did.calls;
  out.occurs = did.occurs;
  out.modalities = did.modalities;
  out.spans = did.spans;
  out.exceptions = did.exceptions;
  out.end = did.end;
  return out;
}

class RankComposer {
 public:
  // Begins the trace of the rank that `first` belongs to.
  RankComposer(const trace::RankTrace& first, trace::Tables& tables)
      : tables_(tables), out_(declared(first)) {
    out_.end = trace::End::clean;
  }

  void add_modalities(std::int64_t step, const std::vector<std::string>& has) {
    std::vector<std::string> sorted = has;
    std::sort(sorted.begin(), sorted.end());
    add_event(trace::EventKind::modality, out_.modalities.size());
    out_.modalities.push_back({step, tables_.make_names(sorted)});
  }

  // Appends the events [begin, end) of `trace`, as calls of `step`; without it, each keeps the step
  // that was recorded.
  void add_part(const trace::RankTrace& trace, std::uint32_t begin, std::uint32_t end,
                std::optional<std::int64_t> step) {
    std::map<std::uint32_t, std::uint32_t> moved;  // from the trace's calls to ours
    std::map<std::int32_t, std::int32_t> batches;  // their numbers start again in each part
    for (std::uint32_t e = begin; e < end; ++e) {
      const trace::Event& event = trace.events[e];
      if (event.kind == trace::EventKind::issue) {
        trace::Call call = trace.calls[event.index];
        const auto index = static_cast<std::uint32_t>(out_.calls.size());
        call.id = index;
        if (step) call.step = static_cast<std::int32_t>(std::min<std::int64_t>(*step, INT32_MAX));
        call.flags = static_cast<std::uint8_t>(call.flags & trace::kAsync);
        call.values = 0;
        const bool message = tables_.is_message(call);
        call.seq = lengths_[{call.group.value, message}]++;
        if (call.coalesced != trace::kNone) {
          const auto [batch, fresh] = batches.emplace(call.coalesced, next_batch_);
          next_batch_ += fresh ? 1 : 0;
          call.coalesced = batch->second;
        }
        moved.emplace(event.index, index);
        out_.calls.push_back(call);
        add_event(trace::EventKind::issue, index);
      } else if (event.kind == trace::EventKind::wait) {
        const auto call = moved.find(event.index);
        if (call == moved.end()) continue;
        out_.calls.own()[call->second].flags |= trace::kWaitBegan;
        add_event(trace::EventKind::wait, call->second);
      } else if (event.kind == trace::EventKind::span && !step) {
        add_stand_in(trace.spans[event.index]);
      } else if (event.kind == trace::EventKind::modality && !step) {
        add_event(trace::EventKind::modality, out_.modalities.size());
        out_.modalities.push_back(trace.modalities[event.index]);
      }
    }
  }

  // Whether a remedy stood in for what the step's batch lacks. Its span may come before the first
  // call, with which the part [begin, end) begins.
  void add_stand_ins(const trace::RankTrace& trace, std::uint32_t begin, std::uint32_t end) {
    std::uint32_t first = begin;
    const auto kind = [&](std::uint32_t e) { return trace.events[e].kind; };
    while (first > 0 && kind(first - 1) != trace::EventKind::issue &&
           kind(first - 1) != trace::EventKind::step)
      --first;
    for (std::uint32_t e = first; e < end && kind(e) != trace::EventKind::step; ++e)
      if (kind(e) == trace::EventKind::span) add_stand_in(trace.spans[trace.events[e].index]);
  }

  void raise(const std::string& what) {
    add_event(trace::EventKind::exception, out_.exceptions.size());
    out_.exceptions.push_back({what, std::nullopt});
    out_.end = trace::End::exception;
  }

  // All events of `trace`, in their steps.
  void add_all(const trace::RankTrace& trace) {
    const auto events = static_cast<std::uint32_t>(trace.events.size());
    add_part(trace, 0, events, std::nullopt);
    if (trace.end == trace::End::exception) {
      raise(trace.exceptions.empty() ? std::string() : trace.exceptions.back().what);
    }
  }

  trace::RankTrace take() { return std::move(out_); }

 private:
  // Other spans are measured work, and so is how long it took.
  void add_stand_in(trace::SpanMark span) {
    if (!tables_.str(span.name).starts_with(trace::kRemedySpan)) return;
    span.duration = 0;
    add_event(trace::EventKind::span, out_.spans.size());
    out_.spans.own().push_back(span);
  }

  void add_event(trace::EventKind kind, std::size_t index) {
    out_.events.push_back({trace::kNoTime, static_cast<std::uint32_t>(index), kind});
  }

  trace::Tables& tables_;
  trace::RankTrace out_;
  std::map<std::pair<std::uint32_t, bool>, std::uint32_t> lengths_;
  std::int32_t next_batch_ = 0;
};

// The traces of a history, with ids of the composed run's tables.
class MovedTraces {
 public:
  MovedTraces(const trace::Derivation& derivation, const trace::Run& run, trace::Tables& tables)
      : traced_(trace::traced_ranks(derivation.spec)) {
    for (const trace::RankTrace& trace : run.ranks) {
      trace_index_.emplace(trace.rank.value, traces_.size());
      traces_.push_back(bare(trace));
    }
    trace::move_to_tables(tables, run.tables, traces_);
  }
  // The trace of the rank, or of the one that was recorded for it.
  const trace::RankTrace& of(std::int32_t rank) const {
    return traces_[trace_index_.at(traced_[static_cast<std::size_t>(rank)])];
  }

 private:
  std::vector<std::int32_t> traced_;
  std::vector<trace::RankTrace> traces_;
  std::unordered_map<std::int32_t, std::size_t> trace_index_;  // in traces_, by rank
};

// The steps of the assignment, as rank `r` does them.
trace::RankTrace compose_rank(const ProductModel& model, const Assignment& assignment,
                              const std::vector<MovedTraces>& histories, std::int32_t r,
                              trace::Tables& tables) {
  const auto i = static_cast<std::size_t>(r);
  const ProductSequences& sequences = model.sequences();
  const HistoryId first = assignment.options.front()[i].history;
  RankComposer composer(histories[first.value].of(r), tables);
  const auto add = [&](HistoryId history, const RecordedPart& recorded, std::int64_t step) {
    if (recorded.sequence == kNoSequence) return false;
    if (step != trace::kNone)
      composer.add_stand_ins(histories[history.value].of(r), recorded.begin, recorded.end);
    composer.add_part(histories[history.value].of(r), recorded.begin, recorded.end, step);
    return true;
  };
  bool alive = add(first, sequences.part(first, r, ProductSequences::kStart), trace::kNone);
  HistoryId history = first;
  // Whether all steps so far are those of the trace. Only then is it known that the rank raises
  // the exception of its trace.
  bool as_recorded = true;
  for (std::size_t s = 0; s < assignment.steps.size() && alive; ++s) {
    const ProductOption& option = assignment.options[s][i];
    const std::int64_t step = assignment.steps[s];
    history = option.history;
    const trace::ProductSpec::Condition& condition =
        model.spec().conditions[option.condition.value];
    if (!condition.has.empty()) composer.add_modalities(step, condition.has);
    const auto& raise = sequences.raise(history, r);
    as_recorded = as_recorded && step == static_cast<std::int64_t>(s) &&
                  step <= model.spec().last_step() &&
                  option.condition == model.recorded_condition(history, step);
    const bool raises = raise && as_recorded && raise->step == step;
    if (!raises && add(history, model.at_step(r, step, option), step)) continue;
    alive = false;
    if (!raise) break;
    composer.add_part(histories[history.value].of(r), raise->begin, raise->end, step);
    composer.raise(raise->what);
  }
  if (alive) add(history, sequences.part(history, r, ProductSequences::kEnd), trace::kNone);
  return composer.take();
}

}  // namespace

trace::Run compose(const ProductModel& model, const Assignment& assignment) {
  trace::Tables tables;
  std::vector<MovedTraces> histories;
  for (const trace::Run& run : model.derivation().runs) {
    histories.emplace_back(model.derivation(), run, tables);
  }
  const std::int32_t copy_ranks = model.spec().copy_ranks;
  const std::vector<std::int32_t> traced = trace::traced_ranks(model.spec());
  // By the traced rank and the options: the index in `ranks`. In a large job most ranks do the
  // same, and their traces are copied.
  std::map<std::pair<std::int32_t, std::vector<ProductOption>>, std::size_t> known;
  std::vector<trace::RankTrace> ranks;
  for (std::int32_t r = 0; r < model.ranks(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    std::vector<ProductOption> options;
    for (const auto& of_step : assignment.options) options.push_back(of_step[i]);
    const auto [same, is_new] = known.try_emplace({traced[i], std::move(options)}, ranks.size());
    if (!is_new) {
      trace::RankTrace other = ranks[same->second];
      LOCKSTEP_CHECK(trace::move_to_copy(tables, other, trace::Rank(r), copy_ranks),
                     "make_derivation() checks that a rank can stand for another");
      ranks.push_back(std::move(other));
      continue;
    }
    ranks.push_back(compose_rank(model, assignment, histories, r, tables));
    LOCKSTEP_CHECK(trace::move_to_copy(tables, ranks.back(), trace::Rank(r), copy_ranks),
                   "make_derivation() checks that a rank can stand for another");
  }
  return trace::assemble_run(std::move(tables), std::move(ranks));
}

trace::Run as_program(const trace::Run& run) {
  trace::Tables tables;
  std::vector<trace::RankTrace> traces;
  for (const trace::RankTrace& trace : run.ranks) traces.push_back(declared_with(trace, trace));
  trace::move_to_tables(tables, run.tables, traces);
  std::vector<trace::RankTrace> ranks;
  std::map<std::pair<const void*, const void*>, std::size_t> known;  // by columns, which live on
  for (const trace::RankTrace& trace : traces) {
    const std::pair columns(trace.events.identity(), trace.calls.identity());
    const auto [same, is_new] = known.try_emplace(columns, ranks.size());
    if (is_new) {
      RankComposer composer(trace, tables);
      composer.add_all(trace);
      ranks.push_back(composer.take());
      continue;
    }
    ranks.push_back(declared_with(trace, ranks[same->second]));
  }
  return trace::assemble_run(std::move(tables), std::move(ranks));
}

namespace {

// Counterexamples up to this step show all steps; later ones leave out those in between.
constexpr std::int64_t kAllStepsUpTo = 32;
// follow_trace() gives up after this step: each one asks all ranks for their options.
constexpr std::int64_t kMaxStepsFollowed = 4096;

Situation first_situation(std::uint32_t condition_set) {
  return {Situation::Kind::first, 0, false, condition_set, 0};
}

// `condition_set` if it is possible at the step, else the first set that is.
std::optional<std::uint32_t> possible_set(const ProductModel& model, std::int64_t step,
                                          std::uint32_t condition_set) {
  const Situations& situations = model.situations();
  if (situations.possible(condition_set, step)) return condition_set;
  for (std::uint32_t m = 0; m < situations.condition_sets().size(); ++m) {
    if (situations.possible(m, step)) return m;
  }
  return std::nullopt;
}

std::uint32_t set_of(const ProductModel& model, ConditionId condition) {
  const auto& condition_sets = model.situations().condition_sets();
  const auto found =
      std::find_if(condition_sets.begin(), condition_sets.end(), [&](const auto& condition_set) {
        return std::binary_search(condition_set.begin(), condition_set.end(), condition);
      });
  return static_cast<std::uint32_t>(found - condition_sets.begin());
}

// What a rank that does `before` in one step of an assignment does in the next one, under a
// condition. Where the program looks back, steps that were left out are like `before`.
ProductOption next_option(const ProductModel& model, const ProductOption& before,
                          ConditionId condition) {
  return {before.history, condition, model.spec().looks_back ? before.condition : ConditionId()};
}

// The usual options of a later step for ranks that did `before`. Empty if some rank has no recorded
// one.
std::vector<ProductOption> usual_in(const ProductModel& model, std::int64_t step,
                                    std::uint32_t condition_set,
                                    const std::vector<ProductOption>& before) {
  std::map<ConditionId, std::size_t> votes;
  for (std::int32_t r = 0; r < model.ranks(); ++r) {
    for (const ConditionId c : model.situations().conditions(condition_set, r, step)) ++votes[c];
  }
  std::vector<ProductOption> out;
  for (std::int32_t r = 0; r < model.ranks(); ++r) {
    std::optional<ProductOption> best;
    for (const ConditionId c : model.situations().conditions(condition_set, r, step)) {
      const ProductOption option = next_option(model, before[static_cast<std::size_t>(r)], c);
      const auto& team = model.situations().team_of(r);
      const bool recorded = std::all_of(team.begin(), team.end(), [&](std::int32_t other) {
        return model.at_step(other, step, option).sequence != kNoSequence;
      });
      if (recorded && (!best || votes[c] > votes[best->condition])) best = option;
    }
    if (!best) return {};
    out.push_back(*best);
  }
  return out;
}

// Step 0 in which each rank begins the history that it follows later.
std::vector<ProductOption> first_step(const ProductModel& model,
                                      const std::vector<ProductOption>& later) {
  std::vector<ProductOption> out;
  out.reserve(later.size());
  for (const ProductOption& option : later)
    out.push_back({option.history, model.recorded_condition(option.history, 0)});
  return out;
}

void add_step(Assignment& assignment, std::int64_t step, std::vector<ProductOption> options) {
  assignment.steps.push_back(step);
  assignment.options.push_back(std::move(options));
}

// Step 1 of histories that go on to it: each rank's own. Empty if the ranks may not be in these
// conditions together, or one was not recorded.
std::vector<ProductOption> own_seconds(const ProductModel& model,
                                       const std::vector<ProductOption>& before) {
  std::vector<ProductOption> out;
  const std::uint32_t set = set_of(model, model.recorded_condition(before.front().history, 1));
  for (std::int32_t r = 0; r < model.ranks(); ++r) {
    const HistoryId history = before[static_cast<std::size_t>(r)].history;
    const ProductOption option{history, model.recorded_condition(history, 1)};
    const auto mine = model.situations().conditions(set, r, 1);
    if (!std::binary_search(mine.begin(), mine.end(), option.condition) ||
        model.at_step(r, 1, option).sequence == kNoSequence)
      return {};
    out.push_back(option);
  }
  return out;
}

// Adds a step with the usual options. False if no assignment is possible or fully recorded.
bool add_usual(const ProductModel& model, Assignment& assignment, std::int64_t step,
               std::uint32_t condition_set) {
  if (model.spec().only_steps && step >= *model.spec().only_steps) return false;
  const auto possible = possible_set(model, step, condition_set);
  if (!possible) return false;
  const std::vector<ProductOption>& before = assignment.options.back();
  std::vector<ProductOption> options = step == 1 && model.spec().has_seconds()
                                           ? own_seconds(model, before)
                                           : usual_in(model, step, *possible, before);
  if (options.empty()) return false;
  add_step(assignment, step, std::move(options));
  return true;
}

}  // namespace

std::vector<ProductOption> usual_options(const ProductModel& model, const Situation& situation) {
  // How many ranks may have them.
  std::map<ConditionId, std::size_t> conditions;
  std::map<ConditionId, std::size_t> previous;
  std::map<HistoryId, std::size_t> histories;
  std::vector<std::vector<ProductOption>> all;
  for (std::int32_t r = 0; r < model.ranks(); ++r) {
    std::vector<ProductOption> mine = model.situations().options(situation, r);
    std::erase_if(mine, [&](const ProductOption& option) {
      return !model.was_recorded(situation, r, option);
    });
    for (const ProductOption& option : mine) {
      ++conditions[option.condition];
      ++previous[option.previous];
      ++histories[option.history];
    }
    all.push_back(std::move(mine));
  }
  std::vector<ProductOption> out;
  for (const std::vector<ProductOption>& mine : all) {
    if (mine.empty()) return {};
    out.push_back(*std::max_element(mine.begin(), mine.end(), [&](const auto& a, const auto& b) {
      const std::tuple x(conditions[a.condition], previous[a.previous], histories[a.history]);
      const std::tuple y(conditions[b.condition], previous[b.previous], histories[b.history]);
      return x < y;
    }));
  }
  return out;
}

Assignment steps_up_to(const ProductModel& model, const Situation& situation,
                       const std::vector<ProductOption>& options) {
  Assignment out;
  const bool later = situation.kind == Situation::Kind::later;
  std::vector<ProductOption> first = options;
  if (later) {
    first = first_step(model, options);
  } else if (situation.kind != Situation::Kind::first) {
    const auto condition_set = possible_set(model, 0, 0);
    first = usual_options(model, first_situation(condition_set.value_or(0)));
  }
  if (first.empty()) return out;
  add_step(out, 0, std::move(first));
  std::int64_t last = 0;
  if (later) {
    last = situation.step;
    const bool chosen = model.spec().looks_back && last > 1;  // the step before, too
    const std::int64_t usual = chosen ? last - 1 : last;
    for (std::int64_t step = 1; step < usual && last <= kAllStepsUpTo; ++step) {
      if (!add_usual(model, out, step, situation.condition_set)) break;
    }
    if (chosen) {
      std::vector<ProductOption> before = out.options.back();
      for (std::size_t r = 0; r < before.size(); ++r)
        before[r] = next_option(model, before[r], options[r].previous);
      add_step(out, last - 1, std::move(before));
    }
    add_step(out, last, options);
  }
  add_usual(model, out, last + 1, situation.condition_set);
  return out;
}

std::optional<Assignment> usual_steps(const ProductModel& model) {
  Assignment out = steps_up_to(model, Situation{}, {});
  if (out.steps.empty()) return std::nullopt;
  return out;
}

std::optional<Assignment> follow_trace(const ProductModel& model, HistoryId history,
                                       std::int32_t rank) {
  const trace::ProductSpec& spec = model.spec();
  const auto& raise = model.sequences().raise(history, rank);
  if (!raise || raise->step > kMaxStepsFollowed) return std::nullopt;
  if (spec.only_steps && raise->step >= *spec.only_steps) return std::nullopt;
  // The condition of each rank: that of `rank` if it may be in it, so that the fewest differ. Empty
  // if `rank` may not be in its own.
  const auto conditions_at = [&](std::int64_t step) -> std::vector<ConditionId> {
    const ConditionId condition = model.recorded_condition(history, step);
    const std::uint32_t condition_set = set_of(model, condition);
    if (!model.situations().possible(condition_set, step)) return {};
    std::vector<ConditionId> all;
    for (std::int32_t other = 0; other < model.ranks(); ++other) {
      const auto may = model.situations().conditions(condition_set, other, step);
      const bool same = std::binary_search(may.begin(), may.end(), condition);
      if (other == rank && !same) return {};
      all.push_back(same ? condition : may.front());
    }
    return all;
  };
  // Whether the trace has step 1 or not, the others follow histories that fit its own.
  const std::vector<ConditionId> seconds =
      spec.has_seconds() && spec.only_steps != 1
          ? conditions_at(1)
          : std::vector<ConditionId>(static_cast<std::size_t>(model.ranks()));
  if (seconds.empty()) return std::nullopt;
  Assignment out;
  for (std::int64_t step = 0; step <= raise->step; ++step) {
    const std::vector<ConditionId> conditions = conditions_at(step);
    if (conditions.empty()) return std::nullopt;
    std::vector<ProductOption> options(conditions.size());
    for (std::size_t o = 0; o < options.size(); ++o)
      options[o] = step == 0
                       ? ProductOption{model.situations().history_of(conditions[o], seconds[o]),
                                       conditions[o]}
                       : next_option(model, out.options.back()[o], conditions[o]);
    add_step(out, step, std::move(options));
  }
  return out;
}

}  // namespace lockstep::verify
