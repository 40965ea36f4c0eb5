#include "sim/engine/to_run.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "trace/trace_builder.h"

namespace lockstep::sim {
namespace {

trace::Nanos whole_nanos(Picos time) { return time.value / 1000; }

// Whether the rank did all that it recorded and then no more, until a watchdog ended it: its host
// stopped. Where calls are recorded to complete and one did not, a device or the network may have.
bool stopped_on_the_host(const trace::RankTrace& trace) {
  if (trace.end != trace::End::hung) return false;
  const auto completed = [](const trace::Call& call) { return call.has(trace::kCompleted); };
  return std::all_of(trace.calls.begin(), trace.calls.end(), completed) ||
         std::none_of(trace.calls.begin(), trace.calls.end(), completed);
}

// How many marks of each kind a rank came to; its trace has no others.
struct ReachedMarks {
  std::size_t steps = SIZE_MAX, states = SIZE_MAX, data = SIZE_MAX, modalities = SIZE_MAX;

  // `event` was not reached. Marks are in the order of their events.
  void leave_out(const trace::Event& event) {
    std::size_t* const kept = event.kind == trace::EventKind::step       ? &steps
                              : event.kind == trace::EventKind::state    ? &states
                              : event.kind == trace::EventKind::data     ? &data
                              : event.kind == trace::EventKind::modality ? &modalities
                                                                         : nullptr;
    if (kept != nullptr) *kept = std::min<std::size_t>(*kept, event.index);
  }
  void cut(trace::RankTrace& trace) const {
    const auto shorten = [](auto& marks, std::size_t most) {
      if (marks.size() > most)
        marks.erase(marks.begin() + static_cast<std::ptrdiff_t>(most), marks.end());
    };
    shorten(trace.steps, steps);
    shorten(trace.states, states);
    shorten(trace.data, data);
    shorten(trace.modalities, modalities);
  }
};

// Writes the trace of one rank as simulated: its events up to where the host stopped, with
// simulated times.
class SimulatedTrace {
 public:
  // `step_events`: for each step of the rank's program, the index of its event.
  SimulatedTrace(const trace::RankTrace& recorded, const trace::Tables& tables,
                 const std::vector<std::uint32_t>& step_events, const RankOutcome& outcome)
      : recorded_(recorded),
        tables_(tables),
        step_events_(step_events),
        outcome_(outcome),
        out_(without_events(recorded)),
        builder_(out_),
        ended_(recorded.calls.size(), RankOutcome::kNever),
        written_(recorded.calls.size(), false) {}

  // `stuck`: some rank of the job is.
  trace::RankTrace write(bool stuck) {
    for (const trace::RankTrace::Membership& group : recorded_.groups)
      builder_.add_group(group.group, group.ranks, group.desc);
    std::uint32_t step = 0;
    std::uint32_t e = 0;
    for (; e < recorded_.events.size(); ++e) {
      const bool is_step = step < step_events_.size() && step_events_[step] == e;
      // The host never reached this step. The one at outcome.next is kept: the host is stuck in it.
      if (is_step && step > outcome_.next) break;
      if (is_step)
        write_step(e, step);
      else
        keep(recorded_.events[e]);
      if (is_step && ++step > outcome_.next) {
        ++e;
        break;
      }
    }
    // What it would have read, trained on and had after that did not happen: as findings about data
    // and numbers, that would be of a job that went on.
    for (; e < recorded_.events.size(); ++e) reached_.leave_out(recorded_.events[e]);
    reached_.cut(out_);
    // Calls that ended although nobody waited for them.
    for (std::uint32_t c = 0; c < recorded_.calls.size(); ++c) complete(c);
    const bool hung = !outcome_.done || (stuck && stopped_on_the_host(recorded_));
    out_.end = !out_.exceptions.empty() && outcome_.done ? trace::End::exception
               : hung                                    ? trace::End::hung
                                                         : trace::End::clean;
    builder_.finish();
    return std::move(out_);
  }

 private:
  static trace::RankTrace without_events(trace::RankTrace trace) {
    trace.events.clear();
    trace.calls.clear();
    trace.device_times.clear();
    trace.groups.clear();
    trace.exceptions.clear();
    return trace;
  }

  void write_step(std::uint32_t e, std::uint32_t step) {
    const trace::Event& event = recorded_.events[e];
    const trace::Nanos issued = whole_nanos(outcome_.issued[step]);
    if (event.kind == trace::EventKind::issue) {
      issue(e, step, issued);
    } else if (event.kind == trace::EventKind::wait) {
      wait(event.index, step, issued);
    } else {
      // Work in a stream is shown where it began; a host that is stuck before it never reached it.
      const Picos began = outcome_.began[step];
      const bool has_begun = event.kind == trace::EventKind::span && began != RankOutcome::kNever;
      out_.events.push_back({has_begun ? whole_nanos(began) : issued, event.index, event.kind});
    }
  }

  void issue(std::uint32_t e, std::uint32_t step, trace::Nanos time) {
    const std::uint32_t index = recorded_.events[e].index;
    trace::Call call = recorded_.calls[index];
    const bool asynchronous = call.has(trace::kAsync);
    // Other flags describe the recorded run, not the simulated one.
    call.flags = asynchronous ? trace::kAsync : 0;
    builder_.add_issue(call, tables_.is_message(call), time, trace::TraceBuilder::Numbering::count);
    ended_[index] = outcome_.ended[step];
    const bool waits = !asynchronous && is_awaited_at_once(e);
    blocked_since_ = waits ? time : trace::kNoTime;
    // The completion follows the event that waits for it: here if the call itself blocks, else at
    // its wait, or after the last event if nobody waits.
    if (!asynchronous && !waits) complete(index);
  }

  void wait(std::uint32_t call, std::uint32_t step, trace::Nanos time) {
    const std::int64_t id = recorded_.calls[call].id;
    builder_.add_call_event(trace::EventKind::wait, id,
                            blocked_since_ == trace::kNoTime ? time : blocked_since_);
    blocked_since_ = trace::kNoTime;
    complete(call);
    if (outcome_.ended[step] != RankOutcome::kNever)
      builder_.add_call_event(trace::EventKind::waited, id, whole_nanos(outcome_.ended[step]));
  }

  // Writes that the call completed, once, if it did.
  void complete(std::uint32_t call) {
    if (written_[call] || ended_[call] == RankOutcome::kNever) return;
    written_[call] = true;
    builder_.add_call_event(trace::EventKind::complete, recorded_.calls[call].id,
                            whole_nanos(ended_[call]));
  }

  // Keeps an event that is not a step (the mark of a step, a modality), without a time. Completions
  // and waits are written from the simulation. Uses and writes of buffers depend on real times and
  // are dropped.
  void keep(const trace::Event& event) {
    switch (event.kind) {
      case trace::EventKind::complete:
      case trace::EventKind::start:
      case trace::EventKind::waited:
      case trace::EventKind::use:
      case trace::EventKind::write:
        return;
      case trace::EventKind::exception:
        builder_.add_mark(event.kind, out_.exceptions, recorded_.exceptions[event.index],
                          trace::kNoTime);
        return;
      default:
        out_.events.push_back({trace::kNoTime, event.index, event.kind});
    }
  }

  // A blocking call may be recorded as issue, wait, waited. Then its wait begins when it is issued,
  // which is the time that the wait event gets.
  bool is_awaited_at_once(std::uint32_t e) const {
    if (e + 1 >= recorded_.events.size()) return false;
    const trace::Event& next = recorded_.events[e + 1];
    return next.kind == trace::EventKind::wait && next.index == recorded_.events[e].index;
  }

  const trace::RankTrace& recorded_;
  const trace::Tables& tables_;
  const std::vector<std::uint32_t>& step_events_;
  const RankOutcome& outcome_;
  trace::RankTrace out_;
  trace::TraceBuilder builder_;
  std::vector<Picos> ended_;   // by call: when it ended
  std::vector<bool> written_;  // by call: whether its completion is in out_
  ReachedMarks reached_;
  trace::Nanos blocked_since_ = trace::kNoTime;  // of a call that is awaited at once
};

}  // namespace

trace::RankTrace simulated_rank(const trace::Run& run, std::size_t rank_index,
                                const RunProgram& program, const Folding& folding,
                                const ExecutionResult& result) {
  const auto rank = static_cast<std::size_t>(run.ranks[rank_index].rank.value);
  return SimulatedTrace(run.ranks[rank_index], run.tables,
                        program.events[program.job.ranks[rank].program],
                        result.classes[folding.class_of[rank]])
      .write(result.stuck);
}

trace::Run as_simulated(trace::Run run, const RunProgram& program, const Folding& folding,
                        const ExecutionResult& result) {
  // Ranks that share columns and are of one class do the same, and share it again.
  struct Simulated {
    trace::RankTrace before;  // kept, so that no other column gets the address of one of its own
    trace::RankTrace after;
  };
  std::map<std::tuple<const void*, const void*, std::uint32_t, trace::End>, Simulated> known;
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    trace::RankTrace& trace = run.ranks[r];
    const bool shares = trace.events.is_shared() && trace.calls.is_shared();
    const std::uint32_t rank_class = folding.class_of[static_cast<std::size_t>(trace.rank.value)];
    const std::tuple key(trace.events.identity(), trace.calls.identity(), rank_class, trace.end);
    const auto found = known.find(key);
    if (shares && found != known.end()) {
      const trace::RankTrace& same = found->second.after;
      trace.events = same.events;
      trace.calls = same.calls;
      trace.device_times = same.device_times;
      trace.occurs = same.occurs;
      trace.exceptions = same.exceptions;
      trace.end = same.end;
      trace.first_seq = same.first_seq;
      // Marks are each rank's own, as many as those of the other.
      const trace::RankTrace& before = found->second.before;
      const auto kept = [](const auto& all, const auto& reached) {
        return reached.size() < all.size() ? reached.size() : SIZE_MAX;
      };
      ReachedMarks{kept(before.steps, same.steps), kept(before.states, same.states),
                   kept(before.data, same.data), kept(before.modalities, same.modalities)}
          .cut(trace);
      continue;
    }
    trace::RankTrace simulated = simulated_rank(run, r, program, folding, result);
    if (shares) known.emplace(key, Simulated{trace, simulated});
    trace = std::move(simulated);
  }
  return run;
}

}  // namespace lockstep::sim
