#include "sim/machine/timed_run.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "sim/machine/work_time.h"

namespace lockstep::sim {
namespace {

constexpr double kMostNanos = 9e18;

Nanos nanos(double seconds) {
  return static_cast<Nanos>(std::llround(std::min(seconds * 1e9, kMostNanos)));
}

// What work of this kind and number comes before the event; nothing: none does.
std::optional<std::pair<WorkCost::Before, std::int64_t>> place_of(const RankTrace& trace,
                                                                  const Event& event) {
  switch (event.kind) {
    case EventKind::issue:
      return std::pair(WorkCost::Before::call, trace.calls[event.index].id);
    case EventKind::wait:
      return std::pair(WorkCost::Before::wait, trace.calls[event.index].id);
    case EventKind::step:
      return std::pair(WorkCost::Before::step, trace.steps[event.index].n);
    default:
      return std::nullopt;
  }
}

// Puts the work of one rank into its trace.
class Timer {
 public:
  Timer(RankTrace& trace, StringId name, const Machine& machine)
      : trace_(trace), name_(name), machine_(machine) {}

  Status put(const RankCosts& costs, double preparation) {
    std::vector<Event> events;
    trace_.spans.clear();
    auto work = costs.work.begin();
    std::int64_t step = -1;
    for (const Event& event : trace_.events) {
      if (event.kind == EventKind::span) continue;
      if (const auto place = place_of(trace_, event)) {
        if (work == costs.work.end() || std::pair(work->before, work->id) != *place)
          return mismatch();
        double seconds = work_seconds(*work, machine_);
        if (work->step > step) {
          step = work->step;
          seconds += preparation;
        }
        const Nanos duration = nanos(seconds);
        if (duration > 0 || event.kind == EventKind::step) {
          events.push_back(
              {kNoTime, static_cast<std::uint32_t>(trace_.spans.size()), EventKind::span});
          trace_.spans.push_back({name_, StringId(), duration});
        }
        ++work;
      }
      events.push_back(event);
    }
    if (work != costs.work.end()) return mismatch();
    trace_.events = std::move(events);
    return Status::ok();
  }

 private:
  Error mismatch() const {
    return {"the costs of rank " + std::to_string(trace_.rank.value) + " are not of its trace",
            {trace_.source},
            "derive both anew"};
  }

  RankTrace& trace_;
  StringId name_;
  const Machine& machine_;
};

// Whether a trace can stand for a rank that is not its own.
Status stands_for(const Run& run, const RankTrace& trace, std::int32_t rank) {
  const auto refuse = [&](const std::string& why) {
    return Error{"rank " + std::to_string(trace.rank.value) + " cannot stand for rank " +
                     std::to_string(rank) + ": " + why,
                 {trace.source},
                 "simulate fewer ranks, each of which is looked at"};
  };
  for (const Call& call : trace.calls)
    if (is_point_to_point(run.tables.signatures[call.signature].op))
      return refuse("it sends messages to single ranks");
  for (const RankTrace::Membership& group : trace.groups)
    if (std::find(group.ranks.begin(), group.ranks.end(), Rank(rank)) == group.ranks.end())
      return refuse("its group \"" + printable(run.tables.str(group.group)) + "\" is another's");
  return Status::ok();
}

}  // namespace

Result<Run> timed_run(Run run, const std::vector<const RankCosts*>& costs,
                      const std::vector<std::int64_t>& samples, const Machine& machine) {
  LOCKSTEP_CHECK(costs.size() == run.ranks.size() && samples.size() == costs.size(),
                 "costs and samples of every rank");
  const StringId name = run.tables.strings.intern("compute");
  // Where a core is left over, what prepares the samples has it to itself, and is not waited for.
  const bool prepares =
      machine.cores &&
      std::min<std::int64_t>(run.world_size, machine.ranks_per_node) >= *machine.cores;
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const double preparation =
        prepares ? static_cast<double>(samples[r]) * machine.sample.seconds() : 0;
    Timer timer(run.ranks[r], name, machine);
    if (const Status ok = timer.put(*costs[r], preparation); !ok) return ok.error();
  }
  return run;
}

Result<Run> spread(Run run, const std::vector<std::int32_t>& traced) {
  std::vector<RankTrace> ranks;
  std::uint64_t events = 0;
  for (std::size_t r = 0; r < traced.size(); ++r) {
    const RankTrace* trace = run.find(Rank(traced[r]));
    const auto rank = static_cast<std::int32_t>(r);
    if (trace == nullptr)
      return Error{"rank " + std::to_string(traced[r]) + " left no trace", {}, "derive it anew"};
    if (traced[r] != rank) {
      if (const Status ok = stands_for(run, *trace, rank); !ok) return ok.error();
    }
    events += trace->events.size();
    if (events > kMostSpreadEvents)
      return Error{"so many ranks make more than " + std::to_string(kMostSpreadEvents) +
                       " events, which take gigabytes",
                   {},
                   "simulate fewer steps (--steps), or fewer ranks"};
    ranks.push_back(*trace);
    ranks.back().rank = Rank(rank);
  }
  run.ranks = std::move(ranks);
  run.world_size = static_cast<std::int32_t>(traced.size());
  return run;
}

}  // namespace lockstep::sim
