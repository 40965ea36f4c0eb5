// Computes the points of a sweep. Several workers derive a scenario's jobs in parallel.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/files/write_file.h"
#include "base/result.h"
#include "runtime/forecast/derived_ranks.h"
#include "runtime/job/scenario.h"
#include "sim/forecast/scenario.h"
#include "sim/sweep/book.h"
#include "sim/sweep/plan_grid.h"
#include "sim/sweep/ranking.h"
#include "sim/sweep/scenario_grid.h"
#include "sim/sweep/search.h"

namespace lockstep::runtime {

struct SweepRunOptions {
  std::string worker;           // the worker program
  std::size_t workers = 1;      // at a time; at least one
  std::optional<bool> on_meta;  // nothing: decided for each job
};

class SweepRun {
 public:
  // All references must outlive this object.
  SweepRun(const sim::ScenarioGrid& plan, SweepRunOptions options, sim::SweepBook& book)
      : plan_(plan), options_(std::move(options)), book_(book) {}

  // Adds a row to the book for each of the points that it lacks; stops early after the user's
  // signal. Each job is derived once, for all of its points. Holds the book except while it waits
  // or times a job. Errors: a file that cannot be written, a worker that cannot be started.
  Status compute(const std::vector<sim::PointId>& points);
  // Ends the workers and removes their files, since the program is about to end. For a thread that
  // holds the book while another one is in compute().
  void abandon();

 private:
  // A job whose ranks were derived.
  struct Derived {
    std::string text;  // of the scenario
    Scenario scenario;
    std::unique_ptr<WorkFolder> folder;
    sim::DerivedRanks ranks;
    bool was_timed = false;  // timing consumed the run and costs: read them again from the folder
  };
  // The points of one job, each on another machine.
  struct Job {
    std::vector<sim::PointId> points;  // at least one
    std::string text;
    std::int64_t ranks = 0;
  };
  struct Running {
    Job job;
    Scenario scenario;
    std::unique_ptr<WorkFolder> folder;  // destroyed after the worker that writes to it
    RankDerivation derivation;
  };

  std::deque<Job> jobs_of(const std::vector<sim::PointId>& points) const;
  Status start(Job job);
  Status poll_running();
  Status finish(const Job& job, Derived& derived);
  // Adds the same row for all points of the job.
  Status record_for_all(const Job& job, sim::Outcome outcome, const Error& why);
  Derived& remember(Derived derived);
  Result<sim::Row> row_of(sim::PointId point, Derived& derived) const;

  const sim::ScenarioGrid& plan_;
  SweepRunOptions options_;
  sim::SweepBook& book_;
  std::unique_ptr<WorkFolder> starting_;  // of the job that start() is about to derive
  std::vector<Running> running_;
  std::deque<Derived> derived_;  // the latest is last
};

// The subject of a sweep: a scenario on machines, or a plan on calibrations.
using SweepSubject = std::variant<sim::ScenarioGrid, sim::PlanGrid>;

struct ComputePoints {
  // Adds a row to the book for each point that it lacks.
  std::function<Status(const std::vector<sim::PointId>&)> compute;
  // Leaves nothing behind, as SweepRun::abandon().
  std::function<void()> abandon;
};

// How the subject's points are computed. `options` are not used for plans. All references must
// outlive the result.
ComputePoints make_compute(const SweepSubject& subject, SweepRunOptions options,
                           sim::SweepBook& book);

// Computes the points that the search proposes. False: the user stopped it before it was done.
Result<bool> try_points(const ComputePoints& points, sim::SweepBook& book, sim::Search& search,
                        const sim::Goal& goal);

}  // namespace lockstep::runtime
