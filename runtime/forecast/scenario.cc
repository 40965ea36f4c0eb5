#include "runtime/forecast/scenario.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "runtime/derive/derivation_plan.h"
#include "runtime/forecast/derived_ranks.h"
#include "runtime/launch/scenario_files.h"
#include "runtime/launch/this_machine.h"
#include "sim/machine/work_time.h"
#include "trace/spread.h"

namespace lockstep::runtime {
namespace {

// Runs the ranks' segments of work here, some rounds of them, and corrects the counted costs by the
// times.
Status time_and_correct(const Scenario& scenario, DeriveRanksOptions options,
                        const sim::Machine& machine, std::vector<trace::RankCosts>& costs,
                        Interrupts& interrupts) {
  const std::string folder = options.folder;
  for (int round = 1; round <= kTimingRounds; ++round) {
    options.folder = fmt::format("{}/times-{}", folder, round);
    if (const Status ok = time_work(scenario, options, costs, interrupts); !ok) return ok;
  }
  for (trace::RankCosts& rank : costs) sim::correct_by_times(rank, machine);
  return Status::ok();
}

// Writes the scenario of file `path`, changed, to a new file in `folder`, for derive_ranks().
// Errors: a file that cannot be read or written, errors of the scenario before or after the change,
// a job that cannot be derived.
Result<Scenario> scenario_to_derive(const std::string& path, const SimulatedChange& change,
                                    const std::string& folder) {
  const Result<Scenario> own = load_checked_scenario(path);
  if (!own) return own.error();
  // What cannot be derived is refused in the user's own file.
  if (const auto plan = derivation_plan(*own); !plan) return plan.error();
  const Result<std::string> text = read_input(own->file);
  if (!text) return text.error();
  const Result<std::string> changed = simulated_scenario(*text, own->file, change);
  if (!changed) return changed.error();
  const std::string file = folder + "/scenario.yaml";
  if (const Status ok = write_file(file, *changed); !ok) return ok.error();
  return load_scenario(file);
}

}  // namespace

Result<sim::TimedScenario> forecast_scenario(const std::string& path, const SimulatedChange& change,
                                             const sim::Machine& machine,
                                             const ForecastOptions& options,
                                             Interrupts& interrupts) {
  const Result<Scenario> scenario = scenario_to_derive(path, change, options.folder);
  if (!scenario) return scenario.error();
  const Result<std::string> worker = find_worker(worker_search_of_this_process());
  if (!worker) return worker.error();
  const DeriveRanksOptions how{*worker, options.folder, options.on_meta, LoneRanks::Costs::counts,
                               options.quiet};
  Result<sim::DerivedRanks> derived = derive_ranks(*scenario, how, interrupts);
  if (!derived) return derived.error();
  if (options.time_work) {
    if (const Status ok = time_and_correct(*scenario, how, machine, derived->costs, interrupts);
        !ok)
      return ok.error();
  }
  // On other ranks than its own the job would have more samples, or fewer: these may repeat.
  if (change.ranks)
    for (trace::RankTrace& rank : derived->run.ranks) trace::forget_samples(rank);
  options.computes();
  return sim::time_scenario(*scenario, std::move(*derived), machine);
}

}  // namespace lockstep::runtime
