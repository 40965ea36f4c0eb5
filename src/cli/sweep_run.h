// Computes the points of a sweep: several workers beside each other, each row written as it comes.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/forecast_scenario.h"
#include "cli/simulate_scenario_ranks.h"
#include "cli/sweep_folder.h"
#include "cli/work_folder.h"
#include "job/scenario.h"
#include "launch/interrupts.h"
#include "sweep/plan.h"
#include "sweep/ranking.h"

namespace lockstep {

struct SweepRunOptions {
  std::string worker;           // the worker program
  std::size_t workers = 1;      // so many at a time; at least one
  std::optional<bool> on_meta;  // nothing: as it suits each job
  sweep::Goal goal;
};

class SweepRun {
 public:
  // Points that `folder` has rows of are not computed again, but for those that failed. All
  // references must outlive this object.
  SweepRun(const sweep::Plan& plan, SweepRunOptions options, SweepFolder& folder,
           Interrupts& interrupts);

  // A row for each of the points, in their order; after the user's signal, fewer. A job is derived
  // once for all its points among them. `on_row` after each that is computed. Errors: a file that
  // cannot be written, a worker that cannot be started.
  Status compute(const std::vector<sweep::PointId>& points, const std::function<void()>& on_row);

  bool interrupted() { return interrupts_.poll() != 0; }
  // Of the points that were asked for, in that order, but for those that are not computed.
  std::vector<sweep::Row> rows() const;
  const sweep::Row* find(sweep::PointId point) const;

 private:
  // A job whose ranks were derived.
  struct Derived {
    std::string text;  // of the scenario
    Scenario scenario;
    std::unique_ptr<WorkFolder> folder;
    DerivedRanks ranks;      // without run and costs once it was timed,
    bool was_timed = false;  // which then are read from the folder
  };
  // Points that are one job, on different machines.
  struct Job {
    std::vector<sweep::PointId> points;  // at least one
    std::string text;
    std::int64_t ranks = 0;
  };
  struct Running {
    Job job;
    Scenario scenario;
    std::unique_ptr<WorkFolder> folder;  // goes after the worker that writes to it
    RankDerivation derivation;
  };

  std::deque<Job> jobs_of(const std::vector<sweep::PointId>& points) const;
  Status start(Job job);
  Status poll_running();
  Status finish(const Job& job, Derived& derived);
  Status same_for_all(const Job& job, sweep::Outcome outcome, const Error& why);
  Status add(sweep::PointId point, sweep::Row row);
  Derived& remember(Derived derived);
  Result<sweep::Row> row_of(sweep::PointId point, Derived& derived) const;

  const sweep::Plan& plan_;
  SweepRunOptions options_;
  SweepFolder& folder_;
  Interrupts& interrupts_;
  std::map<std::string, sweep::Row> rows_;  // by sweep::point_key()
  std::vector<sweep::PointId> asked_;
  std::vector<Running> running_;
  std::deque<Derived> derived_;  // the latest last
  const std::function<void()>* on_row_ = nullptr;
};

}  // namespace lockstep
