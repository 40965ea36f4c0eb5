#include "sim/forecast/fit_sharing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "sim/forecast/training_steps.h"
#include "sim/machine/play.h"

namespace lockstep::sim {
namespace {

constexpr double kMostContention = 10, kMostRefill = 10e-3;  // seconds
constexpr double kContentionStep = 0.2, kRefillStep = 100e-6;
constexpr int kHalvings = 6;

using Point = std::array<double, 2>;  // contention, refill

// That the ranks make together.
std::int64_t hops_of(const ProgramJob& job, const Prices& prices) {
  const CostOfCall cost = prices.cost_in(job);
  std::int64_t out = 0;
  for (const ProgramJob::Member& member : job.ranks)
    for (const ProgramStep& step : job.programs[member.program].steps)
      if (step.kind == StepKind::meet)
        out += cost(member.groups[step.slot], job.calls[step.index]).hops;
  return out;
}

class Fit {
 public:
  static Result<Fit> of(const std::vector<MeasuredJob>& jobs, const Machine& machine) {
    Fit out(machine);
    for (const MeasuredJob& job : jobs) {
      LOCKSTEP_CHECK(job.step_seconds > 0, "a job that was measured");
      std::vector<GroupPlace> places = places_of(job.program->job, machine.ranks_per_node);
      Result<Prices> prices = prices_on(machine, job.program->job, places);
      if (!prices) return prices.error();
      if (hops_of(job.program->job, *prices) <= kMostFittedHops)
        out.jobs_.push_back({job, std::move(places), std::move(*prices)});
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
      const Played played = play(job.measured.program->job, machine, job.places, job.prices);
      const MeasuredSteps steps = measured_steps(
          step_times(*job.measured.run, *job.measured.program, played.folding, played.result));
      if (steps.count == 0 || !(steps.seconds() > 0)) continue;
      const double simulated = steps.seconds() / static_cast<double>(steps.count);
      out += std::pow(std::log(simulated / job.measured.step_seconds), 2);
    }
    return out;
  }

 private:
  struct Job {
    MeasuredJob measured;
    std::vector<GroupPlace> places;
    Prices prices;
  };

  explicit Fit(const Machine& machine) : machine_(machine) {}

  Machine machine_;
  std::vector<Job> jobs_;
};

Point within(Point point) {
  return {std::clamp(point[0], 1.0, kMostContention), std::clamp(point[1], 0.0, kMostRefill)};
}

}  // namespace

Status fit_sharing(const std::vector<MeasuredJob>& jobs, Machine& machine) {
  const Result<Fit> fit = Fit::of(jobs, machine);
  if (!fit) return fit.error();
  Point best = within({machine.contention, machine.refill.seconds()});
  double least = fit->error(best);
  Point step = {kContentionStep, kRefillStep};
  for (int halvings = 0; halvings <= kHalvings;) {
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
