#include "runtime/forecast/calibration_jobs.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/files/write_file.h"
#include "base/numbers.h"
#include "runtime/forecast/derived_ranks.h"
#include "runtime/launch/job_runner.h"
#include "sim/engine/shared_cores.h"
#include "trace/run.h"

namespace lockstep::runtime {
namespace {

// Derives a rank with its files in `folder`. Never on the meta device: the time of real work is
// measured.
DeriveRanksOptions derive_options(const std::string& folder, const CalibrateOptions& options) {
  DeriveRanksOptions out;
  out.worker = options.worker;
  out.folder = folder;
  out.on_meta = false;
  out.quiet = true;  // options.progress says more
  return out;
}

}  // namespace

CalibrationJob::CalibrationJob(std::string_view job, int ranks, std::string folder,
                               const CalibrateOptions& options, Interrupts& interrupts)
    : text_(fmt::format("lockstep: 1\nname: calibration\nranks: {}\n{}", ranks, job)),
      folder_(std::move(folder)),
      options_(&options),
      interrupts_(&interrupts) {}

Status CalibrationJob::count() {
  const std::string counts = folder_ + "/counts", file = folder_ + "/scenario.yaml";
  if (const Status ok = make_folder(folder_); !ok) return ok;
  if (const Status ok = make_folder(counts); !ok) return ok;
  if (const Status ok = write_file(file, text_); !ok) return ok;
  Result<Scenario> scenario = load_scenario(file);
  if (!scenario) return scenario.error();
  scenario_ = std::move(*scenario);
  Result<sim::DerivedRanks> derived =
      derive_ranks(scenario_, derive_options(counts, *options_), *interrupts_);
  if (!derived) return derived.error();
  derived_ = std::move(*derived);
  return Status::ok();
}

Status CalibrationJob::time(int round) {
  return time_work(scenario_, derive_options(fmt::format("{}/times-{}", folder_, round), *options_),
                   derived_.costs, *interrupts_);
}

Result<sim::TimedScenario> CalibrationJob::simulated(const sim::Machine& machine) && {
  for (trace::RankCosts& rank : derived_.costs) sim::correct_by_times(rank, machine);
  return sim::time_scenario(scenario_, std::move(derived_), machine);
}

JobMeasurement::JobMeasurement(std::string_view job, int ranks, const std::string& folder,
                               const CalibrateOptions& options, Interrupts& interrupts)
    : job_(job, ranks, folder, options, interrupts),
      ranks_(ranks),
      options_(&options),
      interrupts_(&interrupts) {}

// Both in one round, so that a machine that is slower for a while slows both measurements.
Status JobMeasurement::measure(int round) {
  if (const Status ok = job_.time(round); !ok) return ok;
  const std::string folder = fmt::format("{}/run-{}", job_.folder(), round);
  if (const Status ok = make_folder(folder); !ok) return ok;
  const Result<JobOutcome> outcome = run_job(job_.scenario(), {options_->worker, folder, {}},
                                             *interrupts_, [](const JobProgress&, double) {});
  if (!outcome) return outcome.error();
  if (outcome->end != JobEnd::completed)
    return Error{"a job that measures this machine did not complete",
                 {folder},
                 "its logs say why; `lockstep run` it"};
  const std::vector<sim::MeasuredCall> calls = all_reduces_of(outcome->run);
  calls_.insert(calls_.end(), calls.begin(), calls.end());
  step_seconds_.push_back(mean_step_of(outcome->run));
  return Status::ok();
}

double JobMeasurement::step_seconds() const {
  return step_seconds_.empty() ? 0 : median(step_seconds_);
}

double mean_step_of(const trace::Run& run) {
  // From the end of one step to the end of the next: the first step, in which memory is allocated
  // and kernels are chosen, only gives the first end.
  double sum = 0, steps = 0;
  for (const trace::RankTrace& trace : run.ranks) {
    trace::Nanos ended = trace::kNoTime;
    for (const trace::Event& event : trace.events) {
      if (event.kind != trace::EventKind::step || event.time == trace::kNoTime) continue;
      if (ended != trace::kNoTime) {
        sum += static_cast<double>(event.time - ended) * 1e-9;
        ++steps;
      }
      ended = event.time;
    }
  }
  return steps > 0 ? sum / steps : 0;
}

std::vector<sim::MeasuredCall> all_reduces_of(const trace::Run& run) {
  struct Seen {
    trace::Nanos issued = 0, completed = 0;
    double bytes = 0;
    std::size_t ranks = 0;
  };
  std::map<trace::GroupId, std::map<std::uint32_t, Seen>> by_group;
  for (const trace::RankTrace& trace : run.ranks) {
    for (const trace::Event& event : trace.events) {
      if (event.kind != trace::EventKind::issue && event.kind != trace::EventKind::complete)
        continue;
      const trace::Call& call = trace.calls[event.index];
      if (run.tables.is_message(call) || event.time == trace::kNoTime) continue;
      // All ranks are on one machine, so their clocks agree.
      Seen& seen = by_group[call.group][call.seq];
      if (event.kind == trace::EventKind::issue) {
        seen.issued = std::max(seen.issued, event.time);
        const bool reduces = run.tables.op(call) == trace::Op::all_reduce;
        seen.bytes = reduces ? trace::call_bytes(run, call) : 0;
      } else {
        seen.completed = std::max(seen.completed, event.time);
        ++seen.ranks;
      }
    }
  }
  std::vector<sim::MeasuredCall> out;
  for (const auto& [group, calls] : by_group) {
    // A group carries out one call at a time: one that was issued while the previous call ran began
    // when that ended.
    trace::Nanos free = 0;
    for (const auto& [seq, seen] : calls) {
      const trace::Nanos began = std::max(seen.issued, free);
      const bool rested = Picos{(began - free) * 1000} >= sim::kRest;
      free = std::max(free, seen.completed);
      if (seen.ranks == run.ranks.size() && seen.bytes > 0 && seen.completed > began)
        out.push_back({seen.bytes, static_cast<double>(seen.completed - began) * 1e-9, rested});
    }
  }
  return out;
}

}  // namespace lockstep::runtime
