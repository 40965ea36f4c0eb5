#include "sim/forecast/forecast.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <utility>

#include "sim/collectives/collective.h"
#include "sim/machine/work_time.h"

namespace lockstep::sim {
namespace {

// The parts of sorted, disjoint intervals that lie in [begin, end).
std::vector<Interval> within(const std::vector<Interval>& sorted, Picos begin, Picos end) {
  auto at = std::lower_bound(sorted.begin(), sorted.end(), begin,
                             [](const Interval& s, Picos t) { return s.end <= t; });
  std::vector<Interval> out;
  for (; at != sorted.end() && at->begin < end; ++at)
    out.push_back({std::max(at->begin, begin), std::min(at->end, end), at->kind});
  return out;
}

// The union of intervals of one kind, sorted and disjoint.
std::vector<Interval> disjoint(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> out;
  for (const Interval& s : intervals) {
    if (!out.empty() && s.begin <= out.back().end) {
      out.back().end = std::max(out.back().end, s.end);
    } else if (s.begin < s.end) {
      out.push_back(s);
    }
  }
  return out;
}

// Adds an interval; one that continues the last is joined to it.
void append(std::vector<Interval>& all, const Interval& next) {
  if (next.begin >= next.end) return;
  if (!all.empty() && all.back().kind == next.kind && all.back().end == next.begin)
    all.back().end = next.end;
  else
    all.push_back(next);
}

// The sum of what a rank does; `calls`: when its calls are carried out.
RankUse use_of(const std::vector<Interval>& host, const std::vector<Interval>& calls) {
  RankUse use;
  for (const Interval& s : host) {
    const double seconds = (s.end - s.begin).seconds();
    if (s.kind == Interval::Kind::exposed) use.exposed += seconds;
    if (s.kind == Interval::Kind::idle) use.idle += seconds;
    if (s.kind != Interval::Kind::computes) continue;
    use.busy += seconds;
    for (const Interval& call : within(calls, s.begin, s.end))
      use.hidden += (call.end - call.begin).seconds();
  }
  return use;
}

// What a rank sends for a call, on its busiest link, and how much of that leaves its node. For a
// message: what the sender sends.
struct Sent {
  double all = 0, between = 0;
};
Sent sent_by(const ProgramGroup& group, const ProgramCall& call, const GroupLayout& layout) {
  const auto ranks = static_cast<std::int64_t>(group.members.size());
  if (ranks < 2) return {};
  const double all = bus_factor(call.op, ranks) * static_cast<double>(call.bytes.value);
  if (layout.nodes < 2) return {all, 0};
  // As in call_time(): a ring leaves a node over the links of all its ranks, so each carries
  // 1/per_node of it. Everything else goes between nodes.
  return {all, goes_in_rings(call.op, layout) ? all / static_cast<double>(layout.per_node) : all};
}

class Forecaster {
 public:
  Forecaster(const trace::Run& run, const RunProgram& program, const Folding& folding,
             const ExecutionResult& result, const std::vector<GroupLayout>& layouts)
      : run_(run), program_(program), folding_(folding), result_(result), layouts_(layouts) {}

  Forecast make() {
    out_.times = step_times(run_, program_, folding_, result_);
    out_.step_time = sim::step_time(out_.times);
    measured_ = measured_steps(out_.times);
    out_.timeline.step = typical_step();
    count_ranks();
    for (std::uint32_t c = 0; c < folding_.representatives.size(); ++c) add_class(c);
    return std::move(out_);
  }

 private:
  const ProgramJob::Member& member(std::uint32_t c) const {
    return program_.job.ranks[folding_.representatives[c]];
  }
  const std::vector<ProgramStep>& steps_of(std::uint32_t c) const {
    return program_.job.programs[member(c).program].steps;
  }

  // The measured step whose duration is nearest to the median; of several the first.
  std::size_t typical_step() const {
    std::size_t out = measured_.first;
    const auto off = [&](std::size_t s) {
      return std::abs(out_.times.of(s).value - out_.step_time.value);
    };
    for (std::size_t s = out; s < out_.times.size(); ++s)
      if (off(s) < off(out)) out = s;
    return out;
  }

  // Counts the ranks of each class, and for each slot those that are the first member of its group:
  // of the two sides of a message, the first member is the sender.
  void count_ranks() {
    weights_.resize(folding_.representatives.size());
    senders_.resize(weights_.size());
    for (std::size_t r = 0; r < folding_.class_of.size(); ++r) {
      const std::uint32_t c = folding_.class_of[r];
      const std::vector<std::uint32_t>& groups = program_.job.ranks[r].groups;
      ++weights_[c];
      senders_[c].resize(std::max(senders_[c].size(), groups.size()));
      for (std::size_t slot = 0; slot < groups.size(); ++slot) {
        const std::vector<std::int32_t>& members = program_.job.groups[groups[slot]].members;
        if (!members.empty() && members.front() == static_cast<std::int32_t>(r))
          ++senders_[c][slot];
      }
    }
  }

  void add_class(std::uint32_t c) {
    const StepMarks marks = step_marks(run_, program_, folding_, c);
    const std::vector<Picos>& ended = result_.classes[c].ended;
    const std::vector<Interval> active = calls_of(c, marks);
    count_calls(c, marks);
    std::vector<StepUse> uses;
    RankUse sum;
    Picos begin;
    for (std::size_t s = 0; s < out_.times.size(); ++s) {
      const Picos end = ended[marks.ends[s]];
      std::vector<Interval> host = host_of(c, marks.begin(s), marks.ends[s] + 1, active);
      uses.push_back({begin, end, use_of(host, active)});
      if (s == out_.timeline.step)
        out_.timeline.classes.push_back({std::move(host), within(active, begin, end)});
      begin = ended[marks.over[s]];
      if (s >= measured_.first) sum += uses.back().use;
    }
    out_.classes.push_back(sum);
    out_.steps.push_back(std::move(uses));
  }

  // When calls of the class are carried out, up to the end of the last training step.
  std::vector<Interval> calls_of(std::uint32_t c, const StepMarks& marks) const {
    std::vector<Interval> active;
    const RankOutcome& outcome = result_.classes[c];
    const std::size_t steps = out_.times.size();
    const std::uint32_t end = steps == 0 ? 0 : marks.ends[steps - 1] + 1;
    for (std::uint32_t s = 0; s < end; ++s) {
      if (steps_of(c)[s].kind == StepKind::call)
        active.push_back({outcome.began[s], outcome.ended[s], Interval::Kind::call});
    }
    return disjoint(std::move(active));
  }

  // Adds the class's calls in the measured steps to the sums, but not those between two steps.
  void count_calls(std::uint32_t c, const StepMarks& marks) {
    for (std::size_t training = measured_.first; training < out_.times.size(); ++training)
      for (std::uint32_t s = marks.begin(training); s <= marks.ends[training]; ++s)
        if (steps_of(c)[s].kind == StepKind::call) count_call(c, steps_of(c)[s]);
  }

  void count_call(std::uint32_t c, const ProgramStep& step) {
    const ProgramCall& call = program_.job.calls[step.index];
    const std::uint32_t group = member(c).groups[step.slot];
    const Sent sent = sent_by(program_.job.groups[group], call, layouts_[group]);
    // The sums are means over ranks and measured steps.
    const double share = 1 / static_cast<double>(std::max<std::size_t>(measured_.count, 1)) /
                         static_cast<double>(folding_.class_of.size());
    // A message is sent by one side only; a collective by every member.
    const double send = share * (call.op == trace::Op::send ? senders_[c][step.slot] : weights_[c]);
    out_.calls += share * weights_[c];
    out_.bytes += send * sent.all;
    out_.bytes_between += send * sent.between;
  }

  // What a class does in program steps [first, last). Waiting is exposed while one of the class's
  // calls is carried out, else idle.
  std::vector<Interval> host_of(std::uint32_t c, std::uint32_t first, std::uint32_t last,
                                const std::vector<Interval>& active) const {
    const RankOutcome& outcome = result_.classes[c];
    std::vector<Interval> out;
    for (std::uint32_t s = first; s < last; ++s) {
      const ProgramStep& step = steps_of(c)[s];
      if (step.kind == StepKind::compute) {
        append(out, {outcome.began[s], outcome.ended[s], Interval::Kind::computes});
      } else if (step.kind == StepKind::wait || step.blocks) {
        Picos at = outcome.issued[s];
        for (const Interval& call : within(active, at, outcome.ended[s])) {
          append(out, {at, call.begin, Interval::Kind::idle});
          append(out, {call.begin, call.end, Interval::Kind::exposed});
          at = call.end;
        }
        append(out, {at, outcome.ended[s], Interval::Kind::idle});
      }
    }
    return out;
  }

  const trace::Run& run_;
  const RunProgram& program_;
  const Folding& folding_;
  const ExecutionResult& result_;
  const std::vector<GroupLayout>& layouts_;
  MeasuredSteps measured_;
  std::vector<double> weights_;               // by class: its ranks
  std::vector<std::vector<double>> senders_;  // … and by slot those that come first in its group
  Forecast out_;
};

}  // namespace

RankUse& RankUse::operator+=(const RankUse& other) {
  busy += other.busy;
  exposed += other.exposed;
  idle += other.idle;
  hidden += other.hidden;
  return *this;
}

Forecast forecast(const trace::Run& run, const RunProgram& program, const Folding& folding,
                  const ExecutionResult& result, const std::vector<GroupLayout>& layouts) {
  return Forecaster(run, program, folding, result, layouts).make();
}

namespace {

// The sum over one rank's measured steps.
FlopUse of_rank(const trace::RankCosts& costs, const Machine& machine, std::size_t skipped,
                std::size_t count) {
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  // Steps are numbered from wherever the job resumed.
  std::int64_t first = kNever;
  for (const trace::WorkCost& work : costs.work)
    if (work.step >= 0) first = std::min(first, work.step);
  FlopUse out;
  if (first == kNever) return out;
  for (const trace::WorkCost& work : costs.work) {
    const std::int64_t step = work.step - first - static_cast<std::int64_t>(skipped);
    if (work.step < 0 || step < 0 || step >= static_cast<std::int64_t>(count)) continue;
    if (trace::ends_between_steps(work.before)) continue;
    for (const trace::WorkCost::Flops& flops : work.flops) {
      const double all = flops.matmul + flops.convolution;
      out.flops += all;
      out.peak_seconds +=
          all / static_cast<double>(compute_for(machine, flops.dtype).peak.per_second);
    }
  }
  return out;
}

}  // namespace

FlopUse flop_use(const std::vector<const trace::RankCosts*>& costs, const Machine& machine,
                 std::size_t skipped, std::size_t count) {
  FlopUse out;
  if (count == 0 || costs.empty()) return out;
  std::map<const trace::RankCosts*, FlopUse> known;
  for (const trace::RankCosts* own : costs) {
    const auto [found, is_new] = known.try_emplace(own);
    if (is_new) found->second = of_rank(*own, machine, skipped, count);
    out.flops += found->second.flops;
    out.peak_seconds += found->second.peak_seconds;
  }
  out.flops /= static_cast<double>(count);
  out.peak_seconds /= static_cast<double>(count) * static_cast<double>(costs.size());
  return out;
}

}  // namespace lockstep::sim
