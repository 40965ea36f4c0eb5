#include "runtime/forecast/calibrate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/numbers.h"
#include "runtime/forecast/calibration_jobs.h"
#include "runtime/forecast/derived_ranks.h"
#include "runtime/launch/job_runner.h"
#include "sim/forecast/machine_fit.h"

namespace lockstep::runtime {
namespace {

// Jobs whose work is measured, rank by rank: the models of the shipped scenarios, with several
// batch sizes, with and without images, under the strategies that add work of their own, and in
// each precision. In float16 the batches are smaller: few processors multiply it, and elsewhere
// its products take some fifty times as long as those of float32.
struct WorkJob {
  std::string_view has, strategy;
  int batch_size;
  std::string_view precision = "float32";
};
constexpr std::array<WorkJob, 14> kWorkJobs = {{{"image, text", "manual", 2},
                                                {"image, text", "manual", 8},
                                                {"image, text", "manual", 64},
                                                {"image, text", "ddp", 8},
                                                {"image, text", "ddp", 24},
                                                {"image, text", "fsdp", 8},
                                                {"image, text", "fsdp", 16},
                                                {"text", "manual", 8},
                                                {"text", "manual", 32},
                                                {"text", "fsdp", 8},
                                                {"image, text", "manual", 8, "bfloat16"},
                                                {"image, text", "ddp", 24, "bfloat16"},
                                                {"image, text", "manual", 2, "float16"},
                                                {"image, text", "ddp", 8, "float16"}}};
constexpr int kWorkSteps = 10;  // of each job, those of kWarmSteps included
constexpr int kWarmSteps = 4;   // the first steps, which allocate memory, are not measured
constexpr int kMaxRounds = 8;   // if the all-reduces cannot be fitted

// Jobs that run with all ranks at once: one with an all-reduce per parameter, from a few bytes to
// the largest; one with few calls; and one whose calls overlap computation. Links are fitted to the
// first one, which has the most calls.
constexpr std::array<std::string_view, 3> kJobStrategies = {"manual", "ddp", "fsdp"};

std::string job_scenario(std::string_view strategy) {
  return fmt::format(
      "data: {{modality: [{{has: [image, text]}}]}}\n"
      "strategy: {}\n"
      "model: {{embed_dim: 256}}\n"
      "train: {{steps: 20, batch_size: 8}}\n"
      "limits: {{hang_after_s: 60}}\n",
      strategy);
}

std::string work_scenario(const WorkJob& job) {
  return fmt::format(
      "data: {{modality: [{{has: [{}]}}]}}\n"
      "strategy: {}\n"
      "train: {{steps: {}, batch_size: {}, precision: {}}}\n",
      job.has, job.strategy, kWorkSteps, job.batch_size, job.precision);
}

struct WorkMeasured {
  std::vector<trace::WorkCost> steps;  // of all jobs
  std::vector<double> sample_seconds;  // by job: CPU time to prepare one sample
};

void add_to(WorkMeasured& out, const trace::RankCosts& rank, int batch_size) {
  for (const trace::WorkCost& step : sim::by_step(rank.work))
    if (step.step >= kWarmSteps) out.steps.push_back(step);
  const double samples = double{kWorkSteps} * batch_size;
  out.sample_seconds.push_back(static_cast<double>(rank.other_threads_nanos) * 1e-9 / samples);
}

// "round 2 of 3"; of one beyond those planned, "round 4, because the machine is busy".
std::string round_text(int round, int planned) {
  return round <= planned ? fmt::format("round {} of {}", round, planned)
                          : fmt::format("round {}, because the machine is busy", round);
}

// True if products in float32 have a rate. A narrower type without a rate is priced as the next
// wider one, and float32 is the widest.
bool prices_products(const sim::WorkRates& rates) {
  const auto of_float32 = rates.flop.find("float32");
  return of_float32 != rates.flop.end() && of_float32->second > 0;
}

Result<WorkMeasured> measure_work(const CalibrateOptions& options, Interrupts& interrupts) {
  std::vector<CalibrationJob> jobs;
  for (std::size_t i = 0; i < kWorkJobs.size(); ++i) {
    options.progress(fmt::format("ranks alone, counted: job {} of {}", i + 1, kWorkJobs.size()));
    jobs.emplace_back(work_scenario(kWorkJobs[i]), 2, fmt::format("{}/work-{}", options.folder, i),
                      options, interrupts);
    if (const Status ok = jobs.back().count(); !ok) return ok.error();
  }
  // Each round measures all jobs, so that other load on the machine slows all of them. On a busy
  // machine, options.repeats rounds may not suffice to separate the cost of products from that of
  // other operations. A few more usually do, because the shortest times count.
  constexpr int kMoreRounds = 6;
  WorkMeasured out;
  for (int round = 0; round < options.repeats + kMoreRounds; ++round) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      options.progress(fmt::format("ranks alone, {}: job {} of {}",
                                   round_text(round + 1, options.repeats), i + 1, jobs.size()));
      if (const Status ok = jobs[i].time(round); !ok) return ok.error();
    }
    if (round + 1 < options.repeats) continue;
    out = {};
    for (std::size_t i = 0; i < jobs.size(); ++i)
      add_to(out, jobs[i].first(), kWorkJobs[i].batch_size);
    const Result<sim::WorkRates> rates = sim::fit_work(out.steps);
    if (!rates || prices_products(*rates)) break;
  }
  return out;
}

// If moving bytes costs nothing measurable in addition to the operations that move them, the memory
// bandwidth is this many times the fastest measured one: bytes then cost nothing in a prediction.
constexpr double kFreeBytesFactor = 1000;
double fastest_bytes(const std::vector<trace::WorkCost>& steps) {
  double out = 0;
  for (const trace::WorkCost& step : steps)
    if (step.nanos > 0)
      out = std::max(out, step.memory_bytes / (static_cast<double>(step.nanos) * 1e-9));
  return out;
}

Status fill_in_work(const WorkMeasured& measured, const sim::WorkRates& rates,
                    sim::Machine& machine) {
  const double bytes =
      rates.byte > 0 ? 1 / rates.byte : kFreeBytesFactor * fastest_bytes(measured.steps);
  // Without a rate of its own a type is priced as the next wider one.
  for (const auto& [type, rate] : rates.flop)
    if (rate > 0) machine.compute[type] = {FlopRate{std::llround(1 / rate)}, 1, 1};
  if (!machine.compute.contains("float32") || !(bytes > 0))
    return Error{"the times of products cannot be separated from those of all other operations",
                 {},
                 "measure again while the machine is otherwise idle"};
  machine.memory_bandwidth = Bandwidth{std::llround(8 * bytes)};
  machine.dispatch = Picos{std::llround(rates.dispatch * 1e12)};
  machine.launches_hidden = false;
  machine.sample = Picos{std::llround(median(measured.sample_seconds) * 1e12)};
  return Status::ok();
}

// `few`, `all`: the job with the most calls, on as many ranks as cores and on all ranks. One and
// the same measurement if there are no more ranks than cores.
Status fit_links(const JobMeasurement& few, const JobMeasurement& all, sim::Machine& machine) {
  const Result<sim::LinkCost> of_few = sim::fit_all_reduce(few.calls(), few.ranks());
  if (!of_few) return of_few.error();
  const Result<sim::LinkCost> of_all = sim::fit_all_reduce(all.calls(), all.ranks());
  if (!of_all) return of_all.error();
  const auto turns_of = [&](int n) { return (n + *machine.cores - 1) / *machine.cores; };
  const sim::SharedLink fitted =
      sim::share_link(*of_few, turns_of(few.ranks()), *of_all, turns_of(all.ranks()));
  machine.wake = fitted.wake;
  machine.start = Picos{std::llround(sim::fit_start(few.calls(), few.ranks(), *of_few) * 1e12)};
  machine.links.push_back(fitted.link);
  return Status::ok();
}

// Fits how much ranks that run at the same time slow each other down.
Status fit_to_steps(std::vector<JobMeasurement> jobs, sim::Machine& machine) {
  std::vector<sim::TimedScenario> simulated;
  std::vector<double> seconds;
  for (JobMeasurement& job : jobs) {
    seconds.push_back(job.step_seconds());
    if (!(seconds.back() > 0)) return Error{"a job's steps have no times", {}, "measure again"};
    Result<sim::TimedScenario> timed = std::move(job).simulated(machine);
    if (!timed) return timed.error();
    simulated.push_back(std::move(*timed));
  }
  std::vector<sim::MeasuredJob> measured;
  for (std::size_t i = 0; i < simulated.size(); ++i)
    measured.push_back({&simulated[i].run, &simulated[i].simulated.program, seconds[i]});
  return sim::fit_sharing(measured, machine);
}

// Measures what single ranks do not show: the links, and how ranks share the machine's cores.
Status measure_jobs(const CalibrateOptions& options, Calibration& out, Interrupts& interrupts) {
  const int few = static_cast<int>(
      std::clamp<std::int64_t>(options.cores, 2, std::min(options.ranks, kRanksOnOneMachine)));
  std::vector<JobMeasurement> jobs;
  for (const int ranks : few < options.ranks ? std::vector{few, options.ranks} : std::vector{few}) {
    for (const std::string_view strategy : kJobStrategies)
      jobs.emplace_back(job_scenario(strategy), ranks,
                        fmt::format("{}/{}-{}", options.folder, strategy, ranks), options,
                        interrupts);
  }
  for (JobMeasurement& job : jobs) {
    options.progress(fmt::format("ranks together, counted: {} jobs", jobs.size()));
    if (const Status ok = job.count(); !ok) return ok;
  }
  const JobMeasurement& few_ranks = jobs.front();
  const JobMeasurement& all_ranks = jobs[jobs.size() - kJobStrategies.size()];
  for (int round = 1;; ++round) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      options.progress(fmt::format("ranks together, {}: job {} of {}",
                                   round_text(round, options.repeats), i + 1, jobs.size()));
      if (const Status ok = jobs[i].measure(round); !ok) return ok;
    }
    if (round < options.repeats) continue;
    const Status fitted = fit_links(few_ranks, all_ranks, out.machine);
    // Other load on the machine can hide the cost of bytes: measure another round.
    if (!fitted && round == kMaxRounds) return fitted;
    if (fitted) break;
  }
  out.calls = all_ranks.calls().size();
  if (&few_ranks != &all_ranks) out.calls += few_ranks.calls().size();
  return fit_to_steps(std::move(jobs), out.machine);
}

}  // namespace

Result<Calibration> calibrate(const CalibrateOptions& options, Interrupts& interrupts) {
  Calibration out;
  out.machine.name = options.name;
  out.machine.ranks_per_node = sim::kMaxRanksPerNode;  // all on this machine
  out.machine.cores = options.cores;
  const Result<WorkMeasured> work = measure_work(options, interrupts);
  if (!work) return work.error();
  const Result<sim::WorkRates> rates = sim::fit_work(work->steps);
  if (!rates) return rates.error();
  out.work = *rates;
  out.steps = work->steps.size();
  if (const Status ok = fill_in_work(*work, *rates, out.machine); !ok) return ok.error();
  if (const Status ok = measure_jobs(options, out, interrupts); !ok) return ok.error();
  return out;
}

}  // namespace lockstep::runtime
