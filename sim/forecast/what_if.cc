#include "sim/forecast/what_if.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "sim/engine/from_run.h"
#include "sim/forecast/timed_run.h"
#include "sim/forecast/training_steps.h"
#include "sim/machine/simulated_job.h"
#include "sim/machine/work_time.h"

namespace lockstep::sim {
namespace {

// Saturates instead of overflowing.
std::int64_t twice(std::int64_t rate) {
  return rate > std::numeric_limits<std::int64_t>::max() / 2
             ? std::numeric_limits<std::int64_t>::max()
             : rate * 2;
}

struct Change {
  std::string key, words;
  std::function<void(Machine&)> of_machine;  // empty: the machine stays as it is
  bool calls_take_no_time = false;
  bool work_is_even = false;
};

// NCCL's figures for a level of links; null if NCCL does not carry the calls or not over that
// level.
NcclLevel* nccl_level(Machine& machine, std::size_t level) {
  if (!machine.nccl) return nullptr;
  if (level == 0) return &machine.nccl->inside;
  return machine.nccl->between ? &*machine.nccl->between : nullptr;
}

void add_links(const Machine& machine, std::int64_t world_size, std::vector<Change>& out) {
  const auto faster = [](std::size_t level) {
    return [level](Machine& m) {
      m.links[level].beta.bits_per_second = twice(m.links[level].beta.bits_per_second);
      // NCCL's model does not use beta: its own factor is doubled.
      if (NcclLevel* nccl = nccl_level(m, level)) nccl->speed *= 2;
      // Other links between switches are as fast as the nodes' own.
      if (level + 1 == m.links.size() && m.network && m.network->link)
        m.network->link->bits_per_second = twice(m.network->link->bits_per_second);
    };
  };
  const bool levels = machine.links.size() > 1;
  if (!levels) out.push_back({"links", "links twice as fast", faster(0)});
  if (levels && machine.ranks_per_node > 1)
    out.push_back({"links_inside", "links inside nodes twice as fast", faster(0)});
  if (levels && world_size > machine.ranks_per_node)
    out.push_back({"links_between", "links between nodes twice as fast", faster(1)});
  out.push_back({"latency", "latency of links halved", [](Machine& m) {
                   for (LinkCost& link : m.links) link.alpha.value /= 2;
                   if (m.network) m.network->hop.value /= 2;
                   for (const std::size_t level : {std::size_t{0}, std::size_t{1}})
                     if (NcclLevel* nccl = nccl_level(m, level)) nccl->latency /= 2;
                 }});
  const auto oversubscribed = [](const Topology::Tier& tier) { return tier.oversubscription > 1; };
  if (machine.network &&
      std::any_of(machine.network->tiers.begin(), machine.network->tiers.end(), oversubscribed))
    out.push_back({"oversubscription", "no oversubscription", [](Machine& m) {
                     for (Topology::Tier& tier : m.network->tiers) tier.oversubscription = 1;
                   }});
  out.push_back(
      {"calls", "calls that take no time", [](Machine& m) { m.wake = m.start = {}; }, true});
}

std::vector<Change> changes(const Machine& machine, std::int64_t world_size) {
  std::vector<Change> out;
  if (world_size > 1) add_links(machine, world_size, out);
  out.push_back({"products", "matrix products and convolutions twice as fast", [](Machine& m) {
                   for (auto& [dtype, compute] : m.compute)
                     compute.peak.per_second = twice(compute.peak.per_second);
                 }});
  out.push_back({"memory", "memory twice as fast", [](Machine& m) {
                   m.memory_bandwidth.bits_per_second = twice(m.memory_bandwidth.bits_per_second);
                 }});
  if (machine.launch.value > 0 || machine.dispatch.value > 0)
    out.push_back({"launches", "launches and dispatches halved", [](Machine& m) {
                     m.launch.value /= 2;
                     m.dispatch.value /= 2;
                   }});
  if (machine.cores)
    out.push_back({"cores", "a core for each rank, and for its calls",
                   // More than a rank and its threads can use at once, so that nobody waits for a
                   // core.
                   [](Machine& m) { m.cores = 4 * m.ranks_per_node; }});
  out.push_back({"even_work", "the same work, spread evenly over the ranks", {}, false, true});
  return out;
}

// The different ranks of a job, each with its own program and costs.
class DifferentRanks {
 public:
  DifferentRanks(const trace::Run& run, const RunProgram& program,
                 const std::vector<const trace::RankCosts*>& costs,
                 const std::vector<std::int64_t>& samples, const Machine& machine)
      : job_(program.job), world_size_(run.world_size) {
    // Ranks whose work takes equally long here may differ on another machine, so costs and samples
    // are part of the key.
    std::map<std::tuple<std::uint32_t, const trace::RankCosts*, std::int64_t, double>,
             std::uint32_t>
        known;
    job_.programs.clear();
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) {
      const std::uint32_t p = program.job.ranks[r].program;
      const double slowness = slowness_of(machine, run.ranks[r].rank.value);
      const auto [found, is_new] = known.try_emplace(
          {p, costs[r], samples[r], slowness}, static_cast<std::uint32_t>(job_.programs.size()));
      job_.ranks[r].program = found->second;
      if (is_new) {
        job_.programs.push_back(program.job.programs[p]);
        kinds_.push_back({costs[r],
                          samples[r],
                          slowness,
                          step_marks(run.tables, run.ranks[r], program.events[p]),
                          {},
                          0});
        find_segments(run.tables, run.ranks[r], program.events[p], kinds_.back(), machine);
      }
      ++kinds_[found->second].ranks;
    }
    layouts_ = layouts_of(job_, machine);
  }

  // Sets the duration of all work to that on another machine. Nothing may take longer there: a
  // segment that takes no time on the first machine has no step in the program.
  void retime(const Machine& machine) {
    for (std::size_t p = 0; p < kinds_.size(); ++p) {
      const ProgramWork& kind = kinds_[p];
      const std::vector<trace::Nanos> nanos =
          work_nanos(*kind.costs, kind.samples, machine, world_size_, kind.slowness);
      for (const auto& [step, segment] : kind.segments)
        job_.programs[p].steps[step].duration = Picos{nanos[segment]} * 1000;
    }
  }

  // Makes all ranks work equally long in each training step, with the same total. Returns whether
  // that changes anything.
  bool spread_evenly() {
    bool differs = false;
    for (std::size_t step = 0; step < kinds_.front().marks.ends.size(); ++step) {
      double sum = 0, least = INFINITY, most = 0;
      for (std::size_t p = 0; p < kinds_.size(); ++p) {
        const double work = work_in(p, step);
        sum += static_cast<double>(kinds_[p].ranks) * work;
        least = std::min(least, work);
        most = std::max(most, work);
      }
      differs |= most > least;
      const double mean = sum / static_cast<double>(job_.ranks.size());
      for (std::size_t p = 0; p < kinds_.size(); ++p) scale(p, step, mean / work_in(p, step));
    }
    return differs;
  }

  Result<Picos> step_time(const Machine& machine, bool calls_take_no_time) const {
    const PriceOfCall free = [](std::uint32_t, const ProgramCall&) { return CallCost{}; };
    const Result<Prices> prices = calls_take_no_time ? Prices::of(job_, kinds_of(layouts_), free)
                                                     : prices_on(machine, job_, layouts_);
    if (!prices) return prices.error();
    const auto [folding, result] = execute_job(job_, machine, layouts_, *prices);
    StepTimes times;
    for (std::size_t c = 0; c < result.classes.size(); ++c)
      times.add(kinds_[job_.ranks[folding.representatives[c]].program].marks,
                result.classes[c].ended);
    return sim::step_time(times);
  }

 private:
  struct ProgramWork {
    const trace::RankCosts* costs = nullptr;
    std::int64_t samples = 0;
    double slowness = 1;
    StepMarks marks;
    std::vector<std::pair<std::uint32_t, std::size_t>> segments;  // (step of work, its segment)
    std::int64_t ranks = 0;
  };

  // Finds the segment of each step of work. Only segments that take time, or that end a part of the
  // training, have become steps; and spans that name a remedy, which are no segment's. `events`:
  // of the steps.
  void find_segments(const trace::Tables& tables, const trace::RankTrace& trace,
                     const std::vector<std::uint32_t>& events, ProgramWork& kind,
                     const Machine& machine) const {
    const std::vector<trace::Nanos> nanos =
        work_nanos(*kind.costs, kind.samples, machine, world_size_, kind.slowness);
    std::size_t segment = 0;
    for (std::uint32_t s = 0; s < events.size(); ++s) {
      const trace::Event& event = trace.events[events[s]];
      if (event.kind != trace::EventKind::span || is_remedy(tables, trace.spans[event.index]))
        continue;
      while (nanos[segment] == 0 && !trace::ends_part(kind.costs->work[segment].before)) ++segment;
      kind.segments.emplace_back(s, segment++);
    }
  }

  template <class Visit>
  void each_work(std::size_t p, std::size_t step, const Visit& visit) {
    const StepMarks& marks = kinds_[p].marks;
    if (step >= marks.ends.size()) return;
    for (std::uint32_t s = marks.begin(step); s <= marks.ends[step]; ++s)
      if (job_.programs[p].steps[s].kind == StepKind::compute)
        visit(job_.programs[p].steps[s].duration.value);
  }
  double work_in(std::size_t p, std::size_t step) {
    double sum = 0;
    each_work(p, step, [&](std::int64_t picos) { sum += static_cast<double>(picos); });
    return sum;
  }
  void scale(std::size_t p, std::size_t step, double factor) {
    each_work(p, step, [&](std::int64_t& picos) {
      // A rank without any work in the step stays without: its factor is infinite.
      if (picos > 0) picos = std::llround(static_cast<double>(picos) * factor);
    });
  }

  ProgramJob job_;
  std::int64_t world_size_;
  std::vector<ProgramWork> kinds_;  // by program
  std::vector<GroupLayout> layouts_;
};

}  // namespace

Result<std::vector<WhatIf>> what_ifs(const trace::Run& run, const RunProgram& program,
                                     const std::vector<const trace::RankCosts*>& costs,
                                     const std::vector<std::int64_t>& samples,
                                     const Machine& machine) {
  std::vector<WhatIf> out;
  DifferentRanks job(run, program, costs, samples, machine);
  const Result<Picos> as_it_is = job.step_time(machine, false);
  if (!as_it_is) return as_it_is.error();
  if (as_it_is->value == 0) return out;
  for (const Change& change : changes(machine, run.world_size)) {
    Machine other = machine;
    if (change.of_machine) change.of_machine(other);
    job.retime(other);
    if (change.work_is_even && !job.spread_evenly()) continue;
    const Result<Picos> time = job.step_time(other, change.calls_take_no_time);
    if (!time) return time.error();
    const double gain = 1 - static_cast<double>(time->value) / static_cast<double>(as_it_is->value);
    out.push_back({change.key, change.words, *time, gain});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const WhatIf& a, const WhatIf& b) { return a.gain > b.gain; });
  return out;
}

}  // namespace lockstep::sim
