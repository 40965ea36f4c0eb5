#include "sim/forecast/timed_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "sim/machine/work_time.h"

namespace lockstep::sim {
namespace {

// Fits 64 bits.
constexpr double kMaxNanos = 9e18;

trace::Nanos nanos_of_seconds(double seconds) {
  return static_cast<trace::Nanos>(std::llround(std::min(seconds * 1e9, kMaxNanos)));
}

// The kind and number of the work that precedes an event; empty: none does.
std::optional<std::pair<trace::WorkCost::Before, std::int64_t>> segment_of(
    const trace::RankTrace& trace, const trace::Event& event) {
  switch (event.kind) {
    case trace::EventKind::issue:
      return std::pair(trace::WorkCost::Before::call, trace.calls[event.index].id);
    case trace::EventKind::wait:
      return std::pair(trace::WorkCost::Before::wait, trace.calls[event.index].id);
    case trace::EventKind::step:
      return std::pair(trace::WorkCost::Before::step, trace.steps[event.index].n);
    default:
      return std::nullopt;
  }
}

// The names of spans, in the run's tables.
struct SpanNames {
  explicit SpanNames(trace::Tables& tables)
      : work(tables.strings.intern("compute")),
        checkpoint(tables.strings.intern(std::string(kCheckpointSpan))),
        evaluation(tables.strings.intern(std::string(kEvaluationSpan))) {}

  trace::StringId of(trace::WorkCost::Before before) const {
    if (before == trace::WorkCost::Before::checkpoint) return checkpoint;
    return before == trace::WorkCost::Before::evaluation ? evaluation : work;
  }

  trace::StringId work, checkpoint, evaluation;
};

// Inserts the work of one rank into its trace, as spans. `nanos`: by segment of the costs' work.
class WorkInserter {
 public:
  WorkInserter(trace::RankTrace& trace, const trace::Tables& tables, const SpanNames& names,
               const trace::RankCosts& costs, const std::vector<trace::Nanos>& nanos)
      : trace_(trace), tables_(tables), names_(names), costs_(costs), nanos_(nanos) {}

  Status insert() {
    for (const trace::Event& event : trace_.events) {
      if (event.kind == trace::EventKind::span) {
        // What comes after a step ends before anything of the next one.
        put_parts_without_event();
        keep_remedy(trace_.spans[event.index]);
        continue;
      }
      // Costs and events are in the same order: the next segment must be the one before this event.
      // A trace that was derived separately fails here.
      if (const auto segment = segment_of(trace_, event)) {
        put_parts_without_event();
        if (next_ == costs_.work.size() ||
            std::pair(costs_.work[next_].before, costs_.work[next_].id) != *segment)
          return mismatch();
        put_segment();
      }
      events_.push_back(event);
    }
    put_parts_without_event();
    if (next_ != costs_.work.size()) return mismatch();
    trace_.events = std::move(events_);
    trace_.spans = std::move(spans_);
    return Status::ok();
  }

 private:
  // That a remedy stood in for what a batch lacks tells why calls are missing. What that took is in
  // the costs.
  void keep_remedy(trace::SpanMark span) {
    if (!is_remedy(tables_, span)) return;
    span.duration = 0;
    put_span(span);
  }

  void put_span(const trace::SpanMark& span) {
    events_.push_back(
        {trace::kNoTime, static_cast<std::uint32_t>(spans_.size()), trace::EventKind::span});
    spans_.push_back(span);
  }

  // Checkpoints and evaluations end at no event of the trace; their segments come before the next
  // one.
  void put_parts_without_event() {
    while (next_ < costs_.work.size() && trace::ends_between_steps(costs_.work[next_].before))
      put_segment();
  }

  void put_segment() {
    const trace::WorkCost::Before before = costs_.work[next_].before;
    // No span of length 0, except at the end of a part of the training, which forecast() looks for.
    if (nanos_[next_] > 0 || trace::ends_part(before))
      put_span({names_.of(before), trace::StringId(), nanos_[next_]});
    ++next_;
  }

  Error mismatch() const {
    return {fmt::format("the costs of rank {} are not of its trace", trace_.rank.value),
            {trace_.source},
            "derive both again"};
  }

  trace::RankTrace& trace_;
  const trace::Tables& tables_;
  const SpanNames& names_;
  const trace::RankCosts& costs_;
  const std::vector<trace::Nanos>& nanos_;
  std::vector<trace::Event> events_;
  std::vector<trace::SpanMark> spans_;
  std::size_t next_ = 0;  // the next segment
};

// The time to prepare a step's samples: as it was measured, else by the machine's rate.
double preparation_seconds(const trace::RankCosts& costs, std::int64_t samples,
                           const Machine& machine) {
  if (costs.other_threads_nanos == 0)
    return static_cast<double>(samples) * machine.sample.seconds();
  std::int64_t steps = 0;
  for (const trace::WorkCost& work : costs.work) steps = std::max(steps, work.step + 1);
  return steps == 0
             ? 0
             : static_cast<double>(costs.other_threads_nanos) * 1e-9 / static_cast<double>(steps);
}

}  // namespace

bool is_remedy(const trace::Tables& tables, const trace::SpanMark& span) {
  return tables.str(span.name).starts_with(trace::kRemedySpan);
}

std::vector<trace::Nanos> work_nanos(const trace::RankCosts& costs, std::int64_t samples,
                                     const Machine& machine, std::int64_t world_size,
                                     double slowness) {
  // If the ranks leave a core free, the threads that prepare samples use it, and no rank waits for
  // them. If ranks take all cores, preparing delays the first work of each step.
  const bool prepares =
      machine.cores && std::min(world_size, machine.ranks_per_node) >= *machine.cores;
  const double preparation = prepares ? preparation_seconds(costs, samples, machine) : 0;
  std::vector<trace::Nanos> out;
  std::int64_t step = -1;
  for (const trace::WorkCost& work : costs.work) {
    double seconds = slowness * work_seconds(work, machine);
    // The first segment of a new step.
    if (work.step > step) {
      step = work.step;
      seconds += preparation;
    }
    out.push_back(nanos_of_seconds(seconds));
  }
  return out;
}

Result<trace::Run> timed_run(trace::Run run, const std::vector<const trace::RankCosts*>& costs,
                             const std::vector<std::int64_t>& samples, const Machine& machine) {
  LOCKSTEP_CHECK(costs.size() == run.ranks.size() && samples.size() == costs.size(),
                 "costs and samples of every rank");
  const SpanNames names(run.tables);
  // Ranks that share events, costs, samples and a speed are timed once, and share the result.
  struct Timed {
    trace::Column<trace::Event> untimed;  // kept, because its address is part of the key
    trace::Column<trace::Event> events;
    trace::Column<trace::SpanMark> spans;
  };
  std::map<std::tuple<const void*, const trace::RankCosts*, std::int64_t, double>, Timed> known;
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    trace::RankTrace& trace = run.ranks[r];
    const double slowness = slowness_of(machine, trace.rank.value);
    const auto [found, is_new] =
        known.try_emplace({trace.events.identity(), costs[r], samples[r], slowness});
    Timed& timed = found->second;
    if (is_new) {
      timed.untimed = trace.events;
      const std::vector<trace::Nanos> nanos =
          work_nanos(*costs[r], samples[r], machine, run.world_size, slowness);
      if (const Status ok = WorkInserter(trace, run.tables, names, *costs[r], nanos).insert(); !ok)
        return ok.error();
      timed.events = trace.events;
      timed.spans = trace.spans;
    }
    trace.events = timed.events;
    trace.spans = timed.spans;
  }
  return run;
}

}  // namespace lockstep::sim
