#include "sim/forecast/trials.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/splitmix.h"
#include "base/threads.h"
#include "sim/forecast/training_steps.h"
#include "sim/machine/simulated_job.h"

namespace lockstep::sim {
namespace {

enum class Draw : std::uint64_t { work = 1, call, image, text, batch };

// A random number for each (seed, trial, kind of draw, a, b), without state: nothing depends on the
// order of draws.
class Source {
 public:
  Source(std::uint64_t seed, std::uint64_t trial) : state_(next(next(seed) + trial)) {}

  std::uint64_t bits(Draw draw, std::uint64_t a, std::uint64_t b) const {
    return next(next(next(state_ + static_cast<std::uint64_t>(draw)) + a) + b);
  }
  double normal(Draw draw, std::uint64_t a, std::uint64_t b) const {
    // Box and Muller: two uniform numbers give a normal one. unit() is above 0, so its logarithm is
    // finite.
    const std::uint64_t one = bits(draw, a, b);
    const double radius = std::sqrt(-2 * std::log(unit(one)));
    return radius * std::cos(2 * std::numbers::pi * unit(next(one)));
  }
  // A log-normal factor with the mean 1. Exactly 1 without variation, so that such trials give the
  // deterministic times.
  double factor(double variation, Draw draw, std::uint64_t a, std::uint64_t b) const {
    if (variation == 0) return 1;
    const double square = std::log1p(variation * variation);
    return std::exp(std::sqrt(square) * normal(draw, a, b) - square / 2);
  }

 private:
  static std::uint64_t next(std::uint64_t state) { return splitmix64(state + kSplitMixStep); }
  static double unit(std::uint64_t bits) {  // above 0, at most 1
    return (static_cast<double>(bits >> 11U) + 1) * 0x1p-53;
  }

  std::uint64_t state_;
};

// About a program in which work comes before every other step, even if it takes no time. So steps
// with the same calls have equally many slots of work, and the work of one can replace that of the
// other.
struct Slots {
  // By step of the program: its training step; kNoSegment: between two, or after the last.
  std::vector<std::uint32_t> segment;
  std::vector<std::uint32_t> slot;  // of a step of work: its index in its training step
  StepMarks marks;
};
constexpr std::uint32_t kNoSegment = UINT32_MAX;

class TrialJob {
 public:
  TrialJob(const trace::Run& run, const RunProgram& program, const Machine& machine)
      : run_(run), machine_(machine), job_(program.job) {
    job_.programs.clear();
    std::vector<StepMarks> marks(program.job.programs.size());
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) {
      const std::uint32_t p = job_.ranks[r].program;
      if (marks[p].ends.empty()) marks[p] = step_marks(run.tables, run.ranks[r], program.events[p]);
    }
    // Ranks may end different numbers of steps; only those that all of them end are timed.
    steps_ = SIZE_MAX;
    for (std::size_t p = 0; p < program.job.programs.size(); ++p) {
      add(program.job.programs[p], marks[p]);
      steps_ = std::min(steps_, marks[p].ends.size());
    }
    layouts_ = layouts_of(job_, machine);
    find_modalities();
  }

  std::size_t steps() const { return steps_; }  // that all ranks end
  std::size_t ranks() const { return job_.ranks.size(); }
  Result<Prices> prices() const { return prices_on(machine_, job_, layouts_); }

  // Sorts the measured steps into pools: ranks that make the same calls share one, from which
  // redrawn batches come. All measured steps of a rank must be in the same pool.
  Status find_pools(std::size_t first) {
    std::map<std::vector<ProgramStep>, std::uint32_t, Before> known;
    for (std::size_t r = 0; r < ranks(); ++r) {
      const std::uint32_t p = job_.ranks[r].program;
      std::optional<std::uint32_t> own;
      for (std::size_t s = first; s < steps_; ++s) {
        const auto [found, is_new] =
            known.try_emplace(calls_in(p, s), static_cast<std::uint32_t>(known.size()));
        if (is_new) pools_.emplace_back();
        if (own && *own != found->second)
          return Error{
              fmt::format(
                  "rank {} makes different calls in different steps, so other batches would have "
                  "to be derived",
                  r),
              {},
              "simulate without --redraw-batches, or another seed of the scenario"};
        own = found->second;
        pools_[*own].push_back({p, static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(s)});
      }
      pool_of_rank_.push_back(own.value_or(0));
    }
    return Status::ok();
  }

  // The durations of the measured steps in one trial; the first `first` steps are not measured.
  std::vector<Picos> run_trial(const Source& source, const Jitter& jitter, const Prices& prices,
                               std::size_t first) const {
    std::vector<Now> now(ranks());
    DurationVariation variation;
    variation.work = [&](std::uint32_t rank, std::uint32_t step, Picos duration) {
      const Slots& slots = slots_[job_.ranks[rank].program];
      const std::uint32_t segment = slots.segment[step];
      // One draw per rank and training step; kept while the rank stays in it.
      if (now[rank].segment != segment) now[rank] = drawn(source, jitter, rank, segment, first);
      const Now& here = now[rank];
      if (here.other) {
        const Pooled& other = *here.other;
        duration = work_[other.program][other.step][slots.slot[step]];
      }
      return scaled(duration, here.factor);
    };
    if (jitter.calls > 0)
      variation.call_duration = [&](std::uint32_t group, std::uint32_t number, Picos duration) {
        return scaled(duration, source.factor(jitter.calls, Draw::call, group, number));
      };
    const ExecutionResult result = execute_job(job_, machine_, layouts_, prices, &variation).result;
    StepTimes times;
    for (std::size_t r = 0; r < ranks(); ++r)
      times.add(slots_[job_.ranks[r].program].marks, result.classes[r].ended);
    std::vector<Picos> out;
    for (std::size_t s = first; s < steps_; ++s) out.push_back(times.of(s));
    return out;
  }

 private:
  struct Pooled {
    std::uint32_t program = 0, rank = 0, step = 0;
  };
  // What has been drawn for a rank's current training step.
  struct Now {
    std::uint32_t segment = kNoSegment;
    double factor = 1;
    std::optional<Pooled> other;
  };
  struct Before {
    // Everything except the duration, which differs between batches.
    static auto key(const ProgramStep& s) {
      return std::tuple(s.kind, s.index, s.slot, s.stream, bool{s.blocks});
    }
    bool operator()(const std::vector<ProgramStep>& a, const std::vector<ProgramStep>& b) const {
      return std::lexicographical_compare(
          a.begin(), a.end(), b.begin(), b.end(),
          [](const ProgramStep& x, const ProgramStep& y) { return key(x) < key(y); });
    }
  };

  static Picos scaled(Picos duration, double factor) {
    if (factor == 1) return duration;
    constexpr double kMax = 9e18;  // fits 64 bits; sums beyond it become forever()
    return Picos{std::llround(std::min(static_cast<double>(duration.value) * factor, kMax))};
  }

  // Copies a program so that one step of work comes before every call or wait: consecutive work is
  // merged into `before`, and put_work() writes it, even if it is 0.
  void add(const Program& program, const StepMarks& marks) {
    Program out{{}, program.streams, program.slots};
    Slots slots;
    std::vector<std::vector<Picos>> work(marks.ends.size());
    std::vector<std::uint32_t> moved(program.steps.size(),
                                     0);  // by old step: its new index, for waits
    std::uint32_t segment = marks.ends.empty() ? kNoSegment : 0;
    Picos before;
    const auto put = [&](const ProgramStep& step, std::uint32_t slot) {
      slots.segment.push_back(segment);
      slots.slot.push_back(slot);
      out.steps.push_back(step);
    };
    const auto put_work = [&] {
      ProgramStep step;
      step.stream = ProgramStep::kHost;
      step.duration = std::exchange(before, Picos{});
      if (segment == kNoSegment) return put(step, 0);
      put(step, static_cast<std::uint32_t>(work[segment].size()));
      work[segment].push_back(step.duration);
    };
    // At the end of a part of the training (a step, a checkpoint), the work that was put last is
    // its mark.
    std::uint32_t next = 0;  // the training step whose end, or checkpoint, is still to come
    const auto last = [&] { return static_cast<std::uint32_t>(out.steps.size() - 1); };
    for (std::uint32_t s = 0; s < program.steps.size(); ++s) {
      ProgramStep step = program.steps[s];
      if (step.kind == StepKind::compute) {
        LOCKSTEP_CHECK(step.stream == ProgramStep::kHost, "timed work is the host's");
        before += step.duration;
      } else {
        put_work();
        if (step.kind == StepKind::wait) step.index = moved[step.index];
        moved[s] = static_cast<std::uint32_t>(out.steps.size());
        put(step, 0);
      }
      if (next == marks.ends.size()) continue;
      if (s == marks.ends[next]) {
        put_work();
        slots.marks.ends.push_back(last());
        slots.marks.over.push_back(last());
        segment = kNoSegment;
      }
      // Work after the step's end, up to the end of its checkpoint, belongs to no training step.
      if (s == marks.over[next]) {
        if (s > marks.ends[next]) put_work();
        slots.marks.over.back() = last();
        segment = ++next < marks.ends.size() ? next : kNoSegment;
      }
    }
    if (before.value > 0) put_work();
    job_.programs.push_back(std::move(out));
    slots_.push_back(std::move(slots));
    work_.push_back(std::move(work));
  }

  // The calls and waits of a training step. The targets of waits are relative to its beginning, so
  // that equal steps of a program compare equal.
  std::vector<ProgramStep> calls_in(std::uint32_t p, std::size_t segment) const {
    const std::uint32_t begin = slots_[p].marks.begin(segment);
    std::vector<ProgramStep> out;
    for (std::uint32_t s = begin; s <= slots_[p].marks.ends[segment]; ++s) {
      ProgramStep step = job_.programs[p].steps[s];
      if (step.kind == StepKind::compute) continue;
      if (step.kind == StepKind::wait) step.index -= begin;
      out.push_back(step);
    }
    return out;
  }

  // For each rank and training step: whether its batch holds images, texts.
  void find_modalities() {
    for (const trace::RankTrace& trace : run_.ranks) {
      std::map<std::int64_t, std::pair<bool, bool>> by_number;
      for (const trace::ModalityMark& mark : trace.modalities) {
        for (const std::string& name : run_.tables.names(mark.has)) {
          by_number[mark.n].first |= name == "image";
          by_number[mark.n].second |= name == "text";
        }
      }
      std::vector<std::pair<bool, bool>> own;
      for (const trace::StepMark& step : trace.steps) own.push_back(by_number[step.n]);
      own.resize(std::max(own.size(), steps_));
      modalities_.push_back(std::move(own));
    }
  }

  Now drawn(const Source& source, const Jitter& jitter, std::uint32_t rank, std::uint32_t segment,
            std::size_t first) const {
    Now out;
    out.segment = segment;
    if (segment >= steps_) return out;  // includes kNoSegment
    std::uint32_t from_rank = rank, from_step = segment;
    // Steps that are not measured keep their own batch.
    if (!pools_.empty() && segment >= first) {
      const std::vector<Pooled>& pool = pools_[pool_of_rank_[rank]];
      out.other = pool[source.bits(Draw::batch, rank, segment) % pool.size()];
      from_rank = out.other->rank;
      from_step = out.other->step;
    }
    out.factor = source.factor(jitter.work, Draw::work, rank, segment);
    const auto [image, text] = modalities_[from_rank][from_step];
    // By the modalities of the batch that was drawn.
    if (image) out.factor *= source.factor(jitter.images, Draw::image, rank, segment);
    if (text) out.factor *= source.factor(jitter.texts, Draw::text, rank, segment);
    return out;
  }

  const trace::Run& run_;
  const Machine& machine_;
  ProgramJob job_;
  std::vector<GroupLayout> layouts_;
  std::size_t steps_ = 0;
  std::vector<Slots> slots_;                                    // by program
  std::vector<std::vector<std::vector<Picos>>> work_;           // by program, step and slot
  std::vector<std::vector<std::pair<bool, bool>>> modalities_;  // by rank and step: image, text
  std::vector<std::vector<Pooled>> pools_;                      // empty: batches are not redrawn
  std::vector<std::uint32_t> pool_of_rank_;
};

TrialsForecast::Quantiles quantiles(const std::vector<Picos>& values) {
  double sum = 0;
  for (const Picos value : values) sum += static_cast<double>(value.value);
  const auto mean = static_cast<std::int64_t>(sum / static_cast<double>(values.size()));
  return {quantile(values, .05), quantile(values, .5), quantile(values, .95), Picos{mean}};
}

}  // namespace

Result<Trials> run_trials(const trace::Run& run, const RunProgram& program, const Machine& machine,
                          const TrialOptions& options) {
  TrialJob job(run, program, machine);
  // The first step arranges buffers and is not measured, unless it is the only one.
  const std::size_t first = job.steps() > 1 ? 1 : 0;
  if (options.trials > kMaxTrialSteps / std::max<std::size_t>(job.steps(), 1))
    return Error{fmt::format("this many trials of {} steps each are more than {} steps",
                             job.steps(), kMaxTrialSteps),
                 {},
                 "take fewer (--trials), or fewer steps (--steps)"};
  if (options.redraw_batches) {
    if (const Status ok = job.find_pools(first); !ok) return ok.error();
  }
  const Result<Prices> prices = job.prices();
  if (!prices) return prices.error();
  Trials out;
  out.steps.resize(options.trials);
  // Results do not depend on which thread runs which.
  for_each_index_on(options.threads, options.trials, [&](std::size_t t) {
    out.steps[t] = job.run_trial(Source(options.seed, t), options.jitter, *prices, first);
  });
  return out;
}

Picos quantile(std::vector<Picos> values, double share) {
  LOCKSTEP_CHECK(!values.empty(), "a quantile of nothing");
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  const double part = place - static_cast<double>(below);
  return values[below] +
         Picos{std::llround(static_cast<double>((values[above] - values[below]).value) * part)};
}

Histogram histogram(const std::vector<Picos>& durations) {
  LOCKSTEP_CHECK(!durations.empty(), "a histogram of nothing");
  const auto [least, greatest] = std::minmax_element(durations.begin(), durations.end());
  Histogram out{*least, *greatest, {}};
  const auto range = static_cast<double>((out.end - out.begin).value);
  const auto parts =
      static_cast<std::size_t>(std::llround(2 * std::cbrt(static_cast<double>(durations.size()))));
  out.counts.resize(range > 0 ? std::min(parts, Histogram::kMaxParts) : 1);
  for (const Picos duration : durations) {
    const double place = range > 0 ? static_cast<double>((duration - out.begin).value) / range : 0;
    const auto part = static_cast<std::size_t>(place * static_cast<double>(out.counts.size()));
    ++out.counts[std::min(part, out.counts.size() - 1)];
  }
  return out;
}

TrialsForecast trials_forecast(const Trials& trials, const TrialOptions& options) {
  std::vector<Picos> steps, means;
  for (const std::vector<Picos>& one : trials.steps) {
    LOCKSTEP_CHECK(!one.empty(), "a trial without steps");
    double sum = 0;
    for (const Picos step : one) sum += static_cast<double>(step.value);
    means.push_back(Picos{static_cast<std::int64_t>(sum / static_cast<double>(one.size()))});
    steps.insert(steps.end(), one.begin(), one.end());
  }
  return {options, quantiles(steps), quantiles(means), histogram(steps), histogram(means)};
}

}  // namespace lockstep::sim
