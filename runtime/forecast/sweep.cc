#include "runtime/forecast/sweep.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/files/write_file.h"
#include "reports/forecasts/simulated_job.h"
#include "trace/spread.h"
#include "verify/report.h"
#include "verify/rules/rules.h"
#include "verify/verify.h"

namespace lockstep::runtime {
namespace {

// Short compared with the 0.2 s that deriving even a small job takes.
constexpr std::chrono::milliseconds kSweepPoll(5);
// Number of jobs whose derivations are kept for points that differ only in their machine.
constexpr std::size_t kMaxKept = 4;

std::string reason_of(const verify::Report& report) {
  if (report.findings.empty()) return "ranks wait for each other";
  const verify::Finding& first = report.findings.front();
  return fmt::format("{}: {}", verify::rule(first.rule).name, first.message);
}

// The message in one line, for a cell of a table: a line break and the next line's indentation
// become one blank.
std::string reason_of(const Error& error) {
  std::string out;
  bool after_break = false;
  for (const char c : error.message) {
    if (after_break && (c == ' ' || c == '\n')) continue;
    after_break = c == '\n';
    out += after_break ? ' ' : c;
  }
  return out;
}

// Errors come first in a report.
bool shows_errors(const verify::Report& report) {
  return !report.findings.empty() && report.findings.front().severity == verify::Severity::error;
}

}  // namespace

std::deque<SweepRun::Job> SweepRun::jobs_of(const std::vector<sim::PointId>& points) const {
  std::deque<Job> out;
  std::map<sim::PointId, std::size_t> indices;
  for (const sim::PointId point : points) {
    if (book_.find(point) != nullptr) continue;
    const auto [found, is_new] = indices.emplace(plan_.variation().job(point), out.size());
    if (is_new) out.emplace_back();
    out[found->second].points.push_back(point);
  }
  return out;
}

Status SweepRun::compute(const std::vector<sim::PointId>& points) {
  const auto held = book_.hold();
  std::deque<Job> jobs = jobs_of(points);
  while (!book_.interrupted() && !(jobs.empty() && running_.empty())) {
    if (!jobs.empty() && running_.size() < options_.workers) {
      if (const Status ok = start(std::move(jobs.front())); !ok) return ok;
      jobs.pop_front();
      continue;
    }
    if (const Status ok = poll_running(); !ok) return ok;
    if (!running_.empty()) book_.without([] { std::this_thread::sleep_for(kSweepPoll); });
  }
  running_.clear();  // of an interrupted sweep: ends the workers
  return Status::ok();
}

void SweepRun::abandon() {
  running_.clear();
  // Only their files: the other thread may be at work on one of these jobs.
  std::error_code ignored;
  if (starting_ != nullptr) std::filesystem::remove_all(starting_->path(), ignored);
  for (const Derived& one : derived_) std::filesystem::remove_all(one.folder->path(), ignored);
}

// Starts the worker that derives the job, unless one of the latest jobs was the same.
Status SweepRun::start(Job job) {
  const Result<std::string> text = plan_.scenario_text(job.points.front());
  if (!text) return record_for_all(job, sim::Outcome::refused, text.error());
  job.text = *text;
  // A search may come back to a job for another machine.
  const auto known = std::find_if(derived_.begin(), derived_.end(),
                                  [&](const Derived& one) { return one.text == job.text; });
  if (known != derived_.end()) return finish(job, *known);
  starting_ = std::make_unique<WorkFolder>("", "lockstep-sweep-");
  if (!starting_->usable())
    return Error{"a folder for a worker's files cannot be made", {starting_->path()}, "set TMPDIR"};
  const std::string file = starting_->path() + "/scenario.yaml";
  if (const Status ok = write_file(file, job.text); !ok) return ok;
  Result<Scenario> scenario = load_scenario(file);
  if (!scenario) return starting_->for_user(scenario.error(), plan_.variation().job_file());
  job.ranks = scenario->ranks;
  const DeriveRanksOptions options{options_.worker, starting_->path(), options_.on_meta,
                                   LoneRanks::Costs::counts, true};
  // In a large job a worker is asked which ranks draw alike.
  Result<RanksToDerive> ranks =
      book_.without([&] { return ranks_to_derive(*scenario, options, book_.interrupts()); });
  // Interrupted, the job was not decided: the next run tries it.
  if (!ranks && book_.interrupted()) return Status::ok();
  if (!ranks) return record_for_all(job, sim::Outcome::refused, ranks.error());
  Result<RankDerivation> derivation = RankDerivation::start(std::move(*ranks), options);
  if (!derivation) return derivation.error();
  running_.push_back(
      {std::move(job), std::move(*scenario), std::move(starting_), std::move(*derivation)});
  return Status::ok();
}

Status SweepRun::poll_running() {
  for (std::size_t i = 0; i < running_.size();) {
    std::optional<Result<sim::DerivedRanks>> ranks = running_[i].derivation.poll();
    if (!ranks) {
      ++i;
      continue;
    }
    Running done = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    // Refused: no worker can derive this job. Failed: its worker died; another attempt may succeed.
    const sim::Outcome if_not =
        done.derivation.refused() ? sim::Outcome::refused : sim::Outcome::failed;
    const Status ok = *ranks
                          ? finish(done.job, remember({done.job.text, std::move(done.scenario),
                                                       std::move(done.folder), std::move(**ranks)}))
                          : record_for_all(done.job, if_not, ranks->error());
    if (!ok) return ok;
  }
  return Status::ok();
}

SweepRun::Derived& SweepRun::remember(Derived derived) {
  derived_.push_back(std::move(derived));
  if (derived_.size() > kMaxKept) derived_.pop_front();
  return derived_.back();
}

Status SweepRun::finish(const Job& job, Derived& derived) {
  for (const sim::PointId point : job.points) {
    if (book_.interrupted()) return Status::ok();
    Result<sim::Row> row = row_of(point, derived);
    if (!row) return row.error();
    if (const Status ok = book_.add(point, std::move(*row)); !ok) return ok;
  }
  return Status::ok();
}

Status SweepRun::record_for_all(const Job& job, sim::Outcome outcome, const Error& why) {
  for (const sim::PointId point : job.points) {
    sim::Row row;
    row.outcome = outcome;
    row.reason = reason_of(why);
    row.ranks = job.ranks;
    if (const Status ok = book_.add(point, std::move(row)); !ok) return ok;
  }
  return Status::ok();
}

Result<sim::Row> SweepRun::row_of(sim::PointId point, Derived& derived) const {
  sim::Row out;
  out.ranks = derived.scenario.ranks;
  const auto refused = [&](const Error& error) {
    out.outcome = sim::Outcome::refused;
    out.reason = reason_of(error);
    return out;
  };
  const Result<sim::Machine> machine = plan_.machine(point);
  if (!machine) return refused(machine.error());
  // time_scenario() consumes the calls and costs, so for each further machine they are read again
  // from the files.
  if (derived.was_timed) {
    Result<sim::DerivedRanks> again = read_derived_ranks(derived.folder->path(), derived.ranks);
    if (!again) return derived.folder->for_user(again.error(), plan_.variation().job_file());
    derived.ranks = std::move(*again);
  }
  derived.was_timed = true;
  // How ranks share their samples is the same at all points, and at some they are too few.
  for (trace::RankTrace& rank : derived.ranks.run.ranks) trace::forget_samples(rank);
  verify::Report report;
  const Result<sim::TimedScenario> timed = book_.without([&] {
    Result<sim::TimedScenario> result =
        sim::time_scenario(derived.scenario,
                           {std::move(derived.ranks.run), std::move(derived.ranks.costs),
                            derived.ranks.traced, derived.ranks.origin, derived.ranks.on_meta},
                           *machine);
    if (result)
      report = result->forecast ? verify::verify(result->run)
                                : reports::judge_hang(result->simulated, result->run);
    return result;
  });
  if (!timed) return refused(timed.error());
  if (!timed->forecast || shows_errors(report)) {
    out.outcome = timed->forecast ? sim::Outcome::wrong : sim::Outcome::hangs;
    out.reason = reason_of(report);
    return out;
  }
  const sim::ScenarioForecast& forecast = *timed->forecast;
  out.outcome = sim::Outcome::trains;
  out.step_seconds = forecast.figures.step_time.seconds();
  if (out.step_seconds > 0)
    out.samples_per_second = static_cast<double>(forecast.samples) / out.step_seconds;
  // At least the parameters, gradients and optimizer state; if allocations were counted, their
  // peak. The class of ranks with the largest peak decides whether the job fits.
  out.memory_bytes = forecast.state_bytes;
  for (const sim::MemoryTimeline& ranks : forecast.memory.classes) {
    if (ranks.segments.empty()) continue;
    out.memory_bytes = std::max(out.memory_bytes, sim::device_bytes(ranks.peak_use(), *machine));
    out.memory_counted = true;
  }
  if (machine->per_device) out.device_bytes = static_cast<double>(machine->per_device->value);
  out.sent_bytes = forecast.figures.bytes;
  out.calls = forecast.figures.calls;
  return out;
}

ComputePoints make_compute(const SweepSubject& subject, SweepRunOptions options,
                           sim::SweepBook& book) {
  if (const auto* plans = std::get_if<sim::PlanGrid>(&subject))
    return {[plans, &book,
             checks = sim::ModalityChecks()](const std::vector<sim::PointId>& points) mutable {
              return sim::compute_plans(*plans, points, checks, book);
            },
            [] {}};
  const auto run =
      std::make_shared<SweepRun>(std::get<sim::ScenarioGrid>(subject), std::move(options), book);
  return {[run](const std::vector<sim::PointId>& points) { return run->compute(points); },
          [run] { run->abandon(); }};
}

Result<bool> try_points(const ComputePoints& points, sim::SweepBook& book, sim::Search& search,
                        const sim::Goal& goal) {
  for (auto next = search.next(); !next.empty(); next = search.next()) {
    {
      const auto held = book.hold();
      book.ask(next);
    }
    if (const Status ok = points.compute(next); !ok) return ok.error();
    std::vector<sim::Score> scores;
    for (const sim::PointId point : next) {
      const sim::Row* row = book.find(point);
      if (row == nullptr) return false;
      scores.push_back(sim::score(*row, goal));
    }
    search.add_scores(scores);
  }
  return true;
}

}  // namespace lockstep::runtime
