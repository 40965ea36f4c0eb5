#include "sim/machine/forecast.h"

#include <algorithm>
#include <utility>

#include "sim/collectives/collective.h"

namespace lockstep::sim {
namespace {

struct Interval {
  Picos begin, end;
};

// Where both of a sorted list of disjoint intervals and `span` are, in seconds.
double overlap(const std::vector<Interval>& sorted, const Interval& span) {
  auto at = std::lower_bound(sorted.begin(), sorted.end(), span.begin,
                             [](const Interval& i, Picos t) { return i.end <= t; });
  double out = 0;
  for (; at != sorted.end() && at->begin < span.end; ++at)
    out += (std::min(at->end, span.end) - std::max(at->begin, span.begin)).seconds();
  return out;
}

// Joins what overlaps.
std::vector<Interval> disjoint(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> out;
  for (const Interval& i : intervals) {
    if (!out.empty() && i.begin <= out.back().end) {
      out.back().end = std::max(out.back().end, i.end);
    } else if (i.begin < i.end) {
      out.push_back(i);
    }
  }
  return out;
}

// Of a program: the places of the steps that end a training step.
std::vector<std::uint32_t> step_marks(const RankTrace& trace,
                                      const std::vector<std::uint32_t>& events) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t s = 0; s < events.size(); ++s) {
    const std::uint32_t e = events[s];
    const bool ends = trace.events[e].kind == EventKind::span && e + 1 < trace.events.size() &&
                      trace.events[e + 1].kind == EventKind::step;
    if (ends) out.push_back(s);
  }
  return out;
}

class Forecaster {
 public:
  Forecaster(const Run& run, const RunProgram& program, const Folding& folding,
             const ExecutionResult& result)
      : run_(run), program_(program), folding_(folding), result_(result) {}

  Forecast make() {
    weights_.resize(folding_.representatives.size());
    for (const std::uint32_t c : folding_.class_of) ++weights_[c];
    for (std::uint32_t c = 0; c < folding_.representatives.size(); ++c) add(c);
    const auto ranks = static_cast<double>(folding_.class_of.size());
    out_.bytes /= ranks;
    out_.calls /= ranks;
    find_step_time();
    return std::move(out_);
  }

 private:
  void add(std::uint32_t c) {
    const std::uint32_t representative = folding_.representatives[c];
    const std::uint32_t p = program_.job.ranks[representative].program;
    const auto marks = step_marks(run_.ranks[representative], program_.events[p]);
    const RankOutcome& outcome = result_.classes[c];
    if (c == 0) out_.step_ends.resize(marks.size());
    out_.step_ends.resize(std::min(out_.step_ends.size(), marks.size()));
    for (std::size_t s = 0; s < out_.step_ends.size(); ++s)
      out_.step_ends[s] = std::max(out_.step_ends[s], outcome.ended[marks[s]]);
    RankUse use;
    if (!marks.empty()) {
      // Of several steps the first is another one: buffers are made, buckets arranged.
      const std::uint32_t first = marks.size() > 1 ? marks.front() + 1 : 0;
      measure(c, first, marks.back() + 1,
              static_cast<double>(std::max<std::size_t>(marks.size() - 1, 1)), use);
    }
    out_.classes.push_back(use);
  }

  // The program's steps from `first` to before `last`, which make `training_steps`.
  void measure(std::uint32_t c, std::uint32_t first, std::uint32_t last, double training_steps,
               RankUse& use) {
    const std::uint32_t representative = folding_.representatives[c];
    const ProgramJob::Member& member = program_.job.ranks[representative];
    const Program& program = program_.job.programs[member.program];
    const RankOutcome& outcome = result_.classes[c];
    std::vector<Interval> active, waits, computes;
    for (std::uint32_t s = first; s < last; ++s) {
      const ProgramStep& step = program.steps[s];
      const Interval whole{outcome.issued[s], outcome.ended[s]};
      if (step.kind == StepKind::compute) {
        computes.push_back({outcome.began[s], outcome.ended[s]});
        use.busy += (outcome.ended[s] - outcome.began[s]).seconds();
        continue;
      }
      if (step.kind == StepKind::wait || step.blocks) waits.push_back(whole);
      if (step.kind != StepKind::meet) continue;
      const ProgramCall& call = program_.job.calls[step.index];
      const std::uint32_t group = member.groups[step.slot];
      active.push_back({outcome.began[s], outcome.ended[s]});
      const auto ranks = static_cast<std::int64_t>(program_.job.groups[group].members.size());
      const double weight = static_cast<double>(weights_[c]) / training_steps;
      out_.calls += weight;
      if (ranks > 1)
        out_.bytes += weight * bus_factor(call.op, ranks) * static_cast<double>(call.bytes.value);
    }
    active = disjoint(std::move(active));
    for (const Interval& wait : waits) {
      const double exposed = overlap(active, wait);
      use.exposed += exposed;
      use.idle += (wait.end - wait.begin).seconds() - exposed;
    }
    for (const Interval& compute : computes) use.hidden += overlap(active, compute);
  }

  void find_step_time() {
    const std::vector<Picos>& ends = out_.step_ends;
    if (ends.empty()) return;
    std::vector<Picos> times;
    for (std::size_t s = 1; s < ends.size(); ++s) times.push_back(ends[s] - ends[s - 1]);
    if (times.empty()) times.push_back(ends.front());
    std::sort(times.begin(), times.end());
    const std::size_t middle = times.size() / 2;
    out_.step_time =
        times.size() % 2 == 1
            ? times[middle]
            : Picos{times[middle - 1].value + (times[middle] - times[middle - 1]).value / 2};
  }

  const Run& run_;
  const RunProgram& program_;
  const Folding& folding_;
  const ExecutionResult& result_;
  std::vector<std::uint64_t> weights_;  // ranks of each class
  Forecast out_;
};

}  // namespace

Forecast forecast(const Run& run, const RunProgram& program, const Folding& folding,
                  const ExecutionResult& result) {
  return Forecaster(run, program, folding, result).make();
}

}  // namespace lockstep::sim
