#include "sim/forecast/machine_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/fitting/least_squares.h"
#include "base/numbers.h"
#include "sim/forecast/training_steps.h"
#include "sim/machine/simulated_job.h"

namespace lockstep::sim {
namespace {

// Bytes, operations and the types.
constexpr std::size_t kMaxUnknowns = kMaxTypes + 2;
// No link is faster (1 PB/s): a smaller slope means that the time does not grow with the size.
constexpr double kMinSecondsPerByte = 1e-15;
using FitRow = std::array<double, kMaxUnknowns>;

// The row of a segment: bytes, operations, then the products of each type.
FitRow amounts(const trace::WorkCost& work,
               const std::map<std::string, std::size_t>& index_of_type) {
  FitRow out{work.memory_bytes, static_cast<double>(work.operations)};
  for (const trace::WorkCost::Flops& flops : work.flops)
    out[index_of_type.at(flops.dtype)] += flops.matmul + flops.convolution;
  return out;
}

}  // namespace

std::vector<trace::WorkCost> by_step(const std::vector<trace::WorkCost>& work) {
  std::map<std::int64_t, trace::WorkCost> steps;
  for (const trace::WorkCost& segment : work) {
    trace::WorkCost& sum = steps[segment.step];
    sum.before = trace::WorkCost::Before::step;
    sum.id = sum.step = segment.step;
    sum.flops.insert(sum.flops.end(), segment.flops.begin(), segment.flops.end());
    sum.product_bytes += segment.product_bytes;
    sum.memory_bytes += segment.memory_bytes;
    sum.kernels += segment.kernels;
    sum.operations += segment.operations;
    sum.nanos += segment.nanos;
  }
  std::vector<trace::WorkCost> out;
  out.reserve(steps.size());
  for (auto& [step, sum] : steps) out.push_back(std::move(sum));
  return out;
}

Result<WorkRates> fit_work(const std::vector<trace::WorkCost>& work) {
  std::map<std::string, std::size_t> types;
  for (const trace::WorkCost& entry : work)
    for (const trace::WorkCost::Flops& flops : entry.flops)
      types.try_emplace(flops.dtype, types.size() + 2);  // after bytes and operations
  if (types.size() > kMaxTypes)
    return Error{
        fmt::format("products of {} types were measured, more than {}", types.size(), kMaxTypes),
        {},
        ""};
  LeastSquares fit(kMaxUnknowns);
  std::size_t measured_count = 0;
  for (const trace::WorkCost& entry : work) {
    if (entry.nanos <= 0) continue;
    const double seconds = static_cast<double>(entry.nanos) * 1e-9;
    // The weight 1/seconds² makes errors relative.
    fit.add(amounts(entry, types), seconds, 1 / (seconds * seconds));
    ++measured_count;
  }
  if (measured_count < kMinMeasured)
    return Error{
        fmt::format("only {} steps were measured, too few to fit rates to", measured_count),
        {},
        "measure more steps"};
  const std::vector<double> x = fit.solve();
  std::vector<double> errors;
  for (const trace::WorkCost& entry : work) {
    if (entry.nanos <= 0) continue;
    const double measured = static_cast<double>(entry.nanos) * 1e-9;
    const FitRow row = amounts(entry, types);
    const double predicted = std::inner_product(row.begin(), row.end(), x.begin(), 0.0);
    errors.push_back(std::abs(predicted - measured) / measured);
  }
  WorkRates out{{}, x[0], x[1], median(std::move(errors))};
  for (const auto& [type, index] : types) out.flop[type] = x[index];
  return out;
}

Result<LinkCost> fit_all_reduce(const std::vector<MeasuredCall>& calls, std::int64_t ranks) {
  std::map<double, std::vector<double>> by_size;
  for (const MeasuredCall& call : calls)
    if (call.seconds > 0 && call.bytes > 0 && !call.rested)
      by_size[call.bytes].push_back(call.seconds);
  if (by_size.size() < 2 || ranks < 2)
    return Error{"all-reduces of two sizes and more, over two ranks and more, are needed", {}, ""};
  const auto n = static_cast<double>(ranks);
  LeastSquares fit(2);
  for (auto& [bytes, seconds] : by_size) {
    const auto count = static_cast<double>(seconds.size());
    const double measured = median(std::move(seconds));
    // A ring all-reduce: 2(n-1) alpha + 2(n-1)/n bytes/beta.
    fit.add(std::array{2 * (n - 1), 2 * (n - 1) / n * bytes}, measured,
            count / (measured * measured));
  }
  const std::vector<double> x = fit.solve();
  if (!(x[1] > kMinSecondsPerByte))
    return Error{"the time of all-reduces does not grow with their size", {}, "measure again"};
  LinkCost out;
  out.alpha = Picos{std::llround(x[0] * 1e12)};
  out.beta = Bandwidth{std::llround(8 / x[1])};
  return out;
}

double fit_start(const std::vector<MeasuredCall>& calls, std::int64_t ranks, const LinkCost& link) {
  const auto n = static_cast<double>(ranks);
  std::vector<double> delays;
  for (const MeasuredCall& call : calls) {
    const double hop = link.alpha.seconds() + call.bytes / n / link.beta.bytes_per_second();
    if (call.rested) delays.push_back(call.seconds - 2 * (n - 1) * hop);
  }
  return delays.empty() ? 0 : std::max(median(std::move(delays)), 0.0);
}

SharedLink share_link(const LinkCost& few, std::int64_t few_turns, const LinkCost& all,
                      std::int64_t turns) {
  SharedLink out{all, {}};
  out.link.alpha = Picos{all.alpha.value / turns};
  // few = wake + few_turns · work and all = wake + turns · work: the difference gives the work of a
  // turn, at most all / turns, so that the wake is not negative.
  if (const std::int64_t more = turns - few_turns; more > 0)
    out.link.alpha = std::min(out.link.alpha, Picos{(all.alpha - few.alpha).value / more});
  out.link.beta.bits_per_second *= turns;
  out.wake = all.alpha - out.link.alpha * turns;
  return out;
}

namespace {

// Limits of the search, its first steps, and how often these are halved: down to 1/64. Refill is in
// seconds.
constexpr double kMaxContention = 10, kMaxRefill = 10e-3;
constexpr double kContentionStep = 0.2, kRefillStep = 100e-6;
constexpr int kHalvings = 6;

using Point = std::array<double, 2>;  // contention, refill

// The number of hops that all ranks make together.
std::int64_t hops_of(const ProgramJob& job, const Prices& prices) {
  const CostOfCall cost = prices.cost_in(job);
  std::int64_t out = 0;
  for (const ProgramJob::Member& member : job.ranks)
    for (const ProgramStep& step : job.programs[member.program].steps)
      if (step.kind == StepKind::call)
        out += cost(member.groups[step.slot], job.calls[step.index]).hops;
  return out;
}

class SharingFit {
 public:
  static Result<SharingFit> of(const std::vector<MeasuredJob>& jobs, const Machine& machine) {
    SharingFit out(machine);
    for (const MeasuredJob& job : jobs) {
      LOCKSTEP_CHECK(job.step_seconds > 0, "a job that was measured");
      std::vector<GroupLayout> layouts = layouts_of(job.program->job, machine);
      Result<Prices> prices = prices_on(machine, job.program->job, layouts);
      if (!prices) return prices.error();
      if (hops_of(job.program->job, *prices) <= kMaxFittedHops)
        out.jobs_.push_back({job, std::move(layouts), std::move(*prices)});
    }
    return out;
  }

  Machine machine_at(const Point& point) const {
    Machine out = machine_;
    out.contention = point[0];
    out.refill = Picos{std::llround(point[1] * 1e12)};
    return out;
  }

  // Σ ln² (simulated / measured).
  double error(const Point& point) const {
    const Machine machine = machine_at(point);
    double out = 0;
    for (const Job& job : jobs_) {
      const ExecutedJob executed =
          execute_job(job.measured.program->job, machine, job.layouts, job.prices);
      const MeasuredSteps steps = measured_steps(
          step_times(*job.measured.run, *job.measured.program, executed.folding, executed.result));
      if (steps.count == 0 || !(steps.seconds() > 0)) continue;
      const double simulated = steps.seconds() / static_cast<double>(steps.count);
      out += std::pow(std::log(simulated / job.measured.step_seconds), 2);
    }
    return out;
  }

 private:
  struct Job {
    MeasuredJob measured;
    std::vector<GroupLayout> layouts;
    Prices prices;
  };

  explicit SharingFit(const Machine& machine) : machine_(machine) {}

  Machine machine_;
  std::vector<Job> jobs_;
};

Point within(Point point) {
  return {std::clamp(point[0], 1.0, kMaxContention), std::clamp(point[1], 0.0, kMaxRefill)};
}

}  // namespace

Status fit_sharing(const std::vector<MeasuredJob>& jobs, Machine& machine) {
  const Result<SharingFit> fit = SharingFit::of(jobs, machine);
  if (!fit) return fit.error();
  Point best = within({machine.contention, machine.refill.seconds()});
  double least = fit->error(best);
  Point step = {kContentionStep, kRefillStep};
  for (int halvings = 0; halvings <= kHalvings;) {
    // Pattern search: try a step up and down along each axis; when none improves, halve the steps.
    bool better = false;
    for (std::size_t i = 0; i < best.size(); ++i) {
      for (const double sign : {1.0, -1.0}) {
        Point tried = best;
        tried[i] += sign * step[i];
        tried = within(tried);
        if (tried == best) continue;
        const double error = fit->error(tried);
        if (error >= least) continue;
        best = tried;
        least = error;
        better = true;
        break;
      }
    }
    if (better) continue;
    for (double& s : step) s /= 2;
    ++halvings;
  }
  machine = fit->machine_at(best);
  return Status::ok();
}

}  // namespace lockstep::sim
