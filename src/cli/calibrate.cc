#include "cli/calibrate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/make_folder.h"
#include "base/write_file.h"
#include "cli/simulate_scenario_ranks.h"
#include "launch/job_runner.h"
#include "sim/machine/work_time.h"
#include "trace/call_bytes.h"

namespace lockstep {
namespace {

// Jobs whose work is measured: what the shipped scenarios train, in batches of several sizes, with
// and without images, in the strategies that wrap it differently, and in each type.
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
                                                {"image, text", "manual", 8, "float16"},
                                                {"image, text", "ddp", 24, "float16"}}};
constexpr int kWorkSteps = 10;
constexpr int kWarmSteps = 4;  // the first ones: memory is asked for, buffers are made
// Each is timed so often. Of what a rank works alone the shortest time of each stretch counts,
// since all else is the machine's; of jobs the median, since what their threads wait for is their
// own.
constexpr int kLooks = 3;
constexpr int kMostLooks = 8;  // where all-reduces do not fit

std::string text_of(const WorkJob& job) {
  return "data: {modality: [{has: [" + std::string(job.has) +
         "]}]}\nstrategy: " + std::string(job.strategy) +
         "\ntrain: {steps: " + std::to_string(kWorkSteps) +
         ", batch_size: " + std::to_string(job.batch_size) +
         ", precision: " + std::string(job.precision) + "}\n";
}

// A call for each parameter: sizes from some bytes to the largest parameter.
constexpr std::string_view kTogetherJob =
    "data: {modality: [{has: [image, text]}]}\nstrategy: manual\n"
    "model: {embed_dim: 256}\ntrain: {steps: 20, batch_size: 8}\n"
    "limits: {hang_after_s: 60}\n";

std::string scenario_text(std::string_view job, int ranks) {
  return "lockstep: 1\nname: calibration\nranks: " + std::to_string(ranks) + "\n" +
         std::string(job);
}

Result<Scenario> write_scenario(const std::string& folder, std::string_view job, int ranks) {
  if (const Status ok = make_folder(folder); !ok) return ok.error();
  const std::string file = folder + "/scenario.yaml";
  if (const Status ok = write_file(file, scenario_text(job, ranks)); !ok) return ok.error();
  return load_scenario(file);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What is measured of all jobs.
struct WorkMeasured {
  std::vector<WorkCost> steps;
  std::vector<double> sample_seconds;  // of processors, to prepare one
};

Result<std::vector<RankCosts>> look_at(const Scenario& scenario, const std::string& folder,
                                       LoneRanks::Costs costs, const CalibrateOptions& options,
                                       Interrupts& interrupts) {
  if (const Status ok = make_folder(folder); !ok) return ok.error();
  Result<DerivedRanks> derived =
      derive_ranks(scenario, {options.worker, folder, false, costs, options.quiet}, interrupts);
  if (!derived) return derived.error();
  return std::move(derived->costs);
}

// One job: its ranks are counted once and timed several times.
class JobMeasure {
 public:
  JobMeasure(const WorkJob& job, std::string folder, const CalibrateOptions& options,
             Interrupts& interrupts)
      : job_(job), folder_(std::move(folder)), options_(options), interrupts_(interrupts) {}

  Status count() {
    Result<Scenario> scenario = write_scenario(folder_, text_of(job_), 2);
    if (!scenario) return scenario.error();
    scenario_ = std::move(*scenario);
    Result<std::vector<RankCosts>> ranks =
        look_at(scenario_, folder_ + "/counts", LoneRanks::Costs::counts, options_, interrupts_);
    if (!ranks) return ranks.error();
    ranks_ = std::move(*ranks);
    return Status::ok();
  }

  Status time(int look) {
    const Result<std::vector<RankCosts>> ranks =
        look_at(scenario_, folder_ + "/times-" + std::to_string(look), LoneRanks::Costs::times,
                options_, interrupts_);
    if (!ranks) return ranks.error();
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      if (const Status ok = keep_shortest((*ranks)[r], ranks_[r]); !ok) return ok;
    return Status::ok();
  }

  void add_to(WorkMeasured& out) const {
    // The first of its process, as each rank of a job is: later ones find all of it in the caches.
    const RankCosts& rank = ranks_.front();
    for (const WorkCost& step : sim::by_step(rank.work))
      if (step.step >= kWarmSteps) out.steps.push_back(step);
    const double samples = double{kWorkSteps} * job_.batch_size;
    out.sample_seconds.push_back(static_cast<double>(rank.beside_nanos) * 1e-9 / samples);
  }

 private:
  const WorkJob& job_;
  std::string folder_;
  const CalibrateOptions& options_;
  Interrupts& interrupts_;
  Scenario scenario_;
  std::vector<RankCosts> ranks_;  // as they were counted, with the shortest times so far
};

Result<WorkMeasured> measure_work(const CalibrateOptions& options, Interrupts& interrupts) {
  std::vector<JobMeasure> jobs;
  for (std::size_t i = 0; i < kWorkJobs.size(); ++i) {
    jobs.emplace_back(kWorkJobs[i], options.folder + "/work-" + std::to_string(i), options,
                      interrupts);
    if (const Status ok = jobs.back().count(); !ok) return ok.error();
  }
  // Each look goes around all jobs: what else the machine does then hits them alike.
  for (int look = 0; look < kLooks; ++look) {
    for (JobMeasure& job : jobs)
      if (const Status ok = job.time(look); !ok) return ok.error();
  }
  WorkMeasured out;
  for (const JobMeasure& job : jobs) job.add_to(out);
  return out;
}

// Where bytes cost nothing that shows beside the operations that move them: so much faster than any
// step moved them that they cost none in a prediction either.
constexpr double kDoesNotShow = 1000;
double fastest_bytes(const std::vector<WorkCost>& steps) {
  double out = 0;
  for (const WorkCost& step : steps)
    if (step.nanos > 0)
      out = std::max(out, step.memory_bytes / (static_cast<double>(step.nanos) * 1e-9));
  return out;
}

Status fill_in_work(const WorkMeasured& measured, const sim::WorkRates& rates,
                    sim::Machine& machine) {
  const double bytes =
      rates.byte > 0 ? 1 / rates.byte : kDoesNotShow * fastest_bytes(measured.steps);
  // Without a rate of its own a type is priced as the next wider one.
  for (const auto& [type, rate] : rates.flop)
    if (rate > 0) machine.compute[type] = {sim::FlopRate{std::llround(1 / rate)}, 1, 1};
  if (!machine.compute.contains("float32") || !(bytes > 0))
    return Error{"the times of products cannot be told from those of all other operations",
                 {},
                 "measure again when the machine does nothing else"};
  machine.memory_bandwidth = sim::Bandwidth{std::llround(8 * bytes)};
  machine.dispatch = sim::Picos{std::llround(rates.dispatch * 1e12)};
  machine.launches_hidden = false;
  machine.sample = sim::Picos{std::llround(median(measured.sample_seconds) * 1e12)};
  return Status::ok();
}

// What the runs of a job of all ranks show.
struct Together {
  std::vector<sim::MeasuredCall> calls;  // of all runs
  double busy = 0;                       // of a rank in a step, measured, in seconds
  double expected = 0;  // … if each had a core to itself, and nothing else shared
};

// By the machine as it was fitted to ranks that are alone.
double expected_in_a_step(const RankCosts& rank, int batch_size, const sim::Machine& machine,
                          int ranks) {
  std::vector<double> steps;
  for (const WorkCost& step : sim::by_step(rank.work))
    if (step.step > 0) steps.push_back(sim::work_seconds(step, machine));
  if (steps.empty()) return 0;
  const bool prepares = ranks >= *machine.cores;
  const double preparation = prepares ? batch_size * machine.sample.seconds() : 0;
  return median(std::move(steps)) + preparation;
}

// A job of processes that train together: counted once, and run several times.
class TogetherMeasure {
 public:
  TogetherMeasure(int ranks, std::string folder, const CalibrateOptions& options,
                  const sim::Machine& machine, Interrupts& interrupts)
      : ranks_(ranks),
        folder_(std::move(folder)),
        options_(options),
        machine_(machine),
        interrupts_(interrupts) {}

  Status count() {
    Result<Scenario> scenario = write_scenario(folder_, kTogetherJob, ranks_);
    if (!scenario) return scenario.error();
    scenario_ = std::move(*scenario);
    const Result<std::vector<RankCosts>> costs =
        look_at(scenario_, folder_ + "/counts", LoneRanks::Costs::counts, options_, interrupts_);
    if (!costs) return costs.error();
    together_.expected =
        expected_in_a_step(costs->back(), scenario_.train.batch_size, machine_, ranks_);
    return Status::ok();
  }

  Status run(int look) {
    const std::string folder = folder_ + "/run-" + std::to_string(look);
    if (const Status ok = make_folder(folder); !ok) return ok;
    const Result<JobOutcome> outcome = run_job(scenario_, {options_.worker, folder, {}},
                                               interrupts_, [](const JobProgress&, double) {});
    if (!outcome) return outcome.error();
    if (outcome->end != JobEnd::completed)
      return Error{"the job whose all-reduces are measured did not end well",
                   {folder},
                   "its logs say why; `lockstep run` it"};
    const std::vector<sim::MeasuredCall> calls = all_reduces_of(outcome->run);
    together_.calls.insert(together_.calls.end(), calls.begin(), calls.end());
    busy_.push_back(busy_in_a_step(outcome->run));
    together_.busy = median(busy_);
    return Status::ok();
  }

  const Together& together() const { return together_; }

 private:
  int ranks_;
  std::string folder_;
  const CalibrateOptions& options_;
  const sim::Machine& machine_;
  Interrupts& interrupts_;
  Scenario scenario_;
  Together together_;
  std::vector<double> busy_;  // in each run
};

// How much longer work takes with a rank on every core than with one alone.
double contention_of(const Together& together) {
  if (!(together.expected > 0)) return 1.0;
  return std::clamp(together.busy / together.expected, 1.0, 100.0);
}

Status fit_links(const Together& few, int few_ranks, const Together& all, int ranks,
                 sim::Machine& machine) {
  const Result<sim::LinkCost> of_few = sim::fit_all_reduce(few.calls, few_ranks);
  if (!of_few) return of_few.error();
  const Result<sim::LinkCost> of_all = sim::fit_all_reduce(all.calls, ranks);
  if (!of_all) return of_all.error();
  const auto turns_of = [&](int n) { return (n + *machine.cores - 1) / *machine.cores; };
  const sim::SharedLink fitted =
      sim::share_link(*of_few, turns_of(few_ranks), *of_all, turns_of(ranks));
  machine.wake = fitted.wake;
  machine.links.push_back(fitted.link);
  return Status::ok();
}

}  // namespace

Status keep_shortest(const RankCosts& timed, RankCosts& counted) {
  const Error other{"a rank did something else when it was timed than when it was counted", {}, ""};
  if (counted.work.size() != timed.work.size() || counted.rank != timed.rank) return other;
  const auto shorter = [](std::int64_t a, std::int64_t b) { return a == 0 ? b : std::min(a, b); };
  for (std::size_t i = 0; i < timed.work.size(); ++i) {
    WorkCost& kept = counted.work[i];
    if (kept.before != timed.work[i].before || kept.id != timed.work[i].id) return other;
    kept.nanos = shorter(kept.nanos, timed.work[i].nanos);
  }
  counted.beside_nanos = shorter(counted.beside_nanos, timed.beside_nanos);
  return Status::ok();
}

double busy_in_a_step(const Run& run) {
  std::vector<double> steps;
  for (const RankTrace& trace : run.ranks) {
    Nanos began = kNoTime, waits_since = kNoTime, waited = 0;
    for (const Event& event : trace.events) {
      if (event.time == kNoTime) continue;
      if (event.kind == EventKind::wait) waits_since = event.time;
      if (event.kind == EventKind::waited && waits_since != kNoTime)
        waited += event.time - waits_since;
      if (event.kind != EventKind::step) continue;
      if (began != kNoTime)
        steps.push_back(static_cast<double>(event.time - began - waited) * 1e-9);
      began = event.time;
      waited = 0;
    }
  }
  return steps.empty() ? 0 : median(std::move(steps));
}

std::vector<sim::MeasuredCall> all_reduces_of(const Run& run) {
  struct Seen {
    Nanos issued = 0, completed = 0;
    double bytes = 0;
    std::size_t ranks = 0;
  };
  std::map<GroupId, std::map<std::uint32_t, Seen>> by_group;
  for (const RankTrace& trace : run.ranks) {
    for (const Event& event : trace.events) {
      if (event.kind != EventKind::issue && event.kind != EventKind::complete) continue;
      const Call& call = trace.calls[event.index];
      if (is_point_to_point(run.tables.signatures[call.signature].op) || event.time == kNoTime)
        continue;
      Seen& seen = by_group[call.group][call.seq];
      if (event.kind == EventKind::issue) {
        seen.issued = std::max(seen.issued, event.time);
        const bool reduces = run.tables.signatures[call.signature].op == Op::all_reduce;
        seen.bytes = reduces ? call_bytes(run, call) : 0;
      } else {
        seen.completed = std::max(seen.completed, event.time);
        ++seen.ranks;
      }
    }
  }
  std::vector<sim::MeasuredCall> out;
  for (const auto& [group, calls] : by_group) {
    Nanos free = 0;
    for (const auto& [seq, seen] : calls) {
      const Nanos began = std::max(seen.issued, free);
      free = std::max(free, seen.completed);
      if (seen.ranks == run.ranks.size() && seen.bytes > 0 && seen.completed > began)
        out.push_back({seen.bytes, static_cast<double>(seen.completed - began) * 1e-9});
    }
  }
  return out;
}

Result<Calibration> calibrate(const CalibrateOptions& options, Interrupts& interrupts) {
  Calibration out;
  out.machine.name = options.name;
  out.machine.ranks_per_node = sim::kMostRanksPerNode;  // all on this machine
  out.machine.cores = options.cores;
  const Result<WorkMeasured> work = measure_work(options, interrupts);
  if (!work) return work.error();
  const Result<sim::WorkRates> rates = sim::fit_work(work->steps);
  if (!rates) return rates.error();
  out.work = *rates;
  out.steps = work->steps.size();
  if (const Status ok = fill_in_work(*work, *rates, out.machine); !ok) return ok.error();
  const int few = static_cast<int>(
      std::clamp<std::int64_t>(options.cores, 2, std::min(options.ranks, kRanksOnOneMachine)));
  TogetherMeasure of_all(options.ranks, options.folder + "/all", options, out.machine, interrupts);
  std::vector<TogetherMeasure*> jobs = {&of_all};
  std::optional<TogetherMeasure> of_fewer;
  if (few < options.ranks)
    jobs.push_back(
        &of_fewer.emplace(few, options.folder + "/few", options, out.machine, interrupts));
  for (TogetherMeasure* job : jobs)
    if (const Status ok = job->count(); !ok) return ok.error();
  const Together& with_few = jobs.back()->together();
  for (int look = 1;; ++look) {
    for (TogetherMeasure* job : jobs)
      if (const Status ok = job->run(look); !ok) return ok.error();
    if (look < kLooks) continue;
    const Status fitted = fit_links(with_few, few, of_all.together(), options.ranks, out.machine);
    // What else the machine does can hide what bytes cost: then once more.
    if (!fitted && look == kMostLooks) return fitted.error();
    if (!fitted) continue;
    // With more ranks than cores, how long each computes depends on who has to wait for a core.
    if (few <= options.cores) out.machine.contention = contention_of(with_few);
    out.calls = 0;
    for (const TogetherMeasure* job : jobs) out.calls += job->together().calls.size();
    return out;
  }
}

}  // namespace lockstep
