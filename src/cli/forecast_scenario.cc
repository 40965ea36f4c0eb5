#include "cli/forecast_scenario.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/read_file.h"
#include "base/write_file.h"
#include "cli/scenario_files.h"
#include "job/derivation_plan.h"
#include "launch/worker_program.h"
#include "sim/machine/timed_run.h"
#include "sim/machine/work_time.h"

namespace lockstep {
namespace {

constexpr std::size_t kScenarioBytes = std::size_t{1} << 20U;

std::int64_t samples_of(const Scenario& scenario, int rank) {
  return std::int64_t{scenario.train.batch_size} * scenario.micro_batches(rank);
}

// Of each rank of the job.
std::vector<const RankCosts*> costs_of_ranks(const DerivedRanks& derived) {
  std::map<std::int32_t, const RankCosts*> of_rank;
  for (const RankCosts& own : derived.costs) of_rank[own.rank] = &own;
  std::vector<const RankCosts*> out;
  for (const std::int32_t rank : derived.traced) out.push_back(of_rank.at(rank));
  return out;
}

// The calls of all ranks with the machine's times between them.
Result<Run> timed(const Scenario& scenario, DerivedRanks& derived, const sim::Machine& machine) {
  // How crowded a node is depends on all ranks, so the work is timed after it was spread.
  Result<Run> run = sim::spread(std::move(derived.run), derived.traced);
  if (!run) return run.error();
  std::vector<std::int64_t> samples;
  for (std::size_t r = 0; r < derived.traced.size(); ++r)
    samples.push_back(samples_of(scenario, static_cast<int>(r)));
  return sim::timed_run(std::move(*run), costs_of_ranks(derived), samples, machine);
}

using Places = std::vector<sim::GroupPlace>;  // of each group

Places places_of(const sim::ProgramJob& job, const sim::Machine& machine) {
  Places out;
  for (const sim::ProgramGroup& group : job.groups)
    out.push_back(sim::place_of(group.members, machine.ranks_per_node));
  return out;
}

Result<SimulatedProgram> on_devices(sim::RunProgram program, const Places& places,
                                    const sim::Machine& machine) {
  // Groups that are placed differently cost differently, and are not folded into one.
  std::map<sim::GroupPlace, std::uint32_t> known;
  std::vector<std::uint32_t> kinds;
  for (const sim::GroupPlace& place : places)
    kinds.push_back(known.emplace(place, static_cast<std::uint32_t>(known.size())).first->second);
  sim::Folding folding = sim::fold(program.job, kinds);
  const PriceOfCall price = [&](std::uint32_t group, const sim::ProgramCall& call) {
    return sim::call_time(call, places[group], machine);
  };
  return simulate_program(std::move(program), std::move(folding), price, sim::Picos{});
}

Result<SimulatedProgram> on_cores(sim::RunProgram program, const Places& places,
                                  const sim::Machine& machine) {
  sim::SharedCores shared{{*machine.cores, machine.contention, machine.slice}, {}};
  for (std::size_t r = 0; r < program.job.ranks.size(); ++r)
    shared.node_of.push_back(
        static_cast<std::uint32_t>(r / static_cast<std::size_t>(machine.ranks_per_node)));
  const CorePriceOfCall price = [&](std::uint32_t group,
                                    const sim::ProgramCall& call) -> Result<sim::CallOnCores> {
    const sim::ProgramCall carried = sim::as_gloo_does(call);
    const Result<sim::Picos> work = sim::call_time(carried, places[group], machine);
    if (!work) return work.error();
    const Result<std::int64_t> hops = sim::hops_of(carried, places[group], machine);
    if (!hops) return hops.error();
    return sim::CallOnCores{*hops, machine.wake, *work};
  };
  return simulate_on_cores(std::move(program), price, shared);
}

ScenarioForecast summarise(const Scenario& scenario, const sim::Machine& machine,
                           const DerivedRanks& derived, const Run& run,
                           const SimulatedProgram& simulated) {
  ScenarioForecast out;
  out.scenario = scenario.name;
  out.machine = machine;
  out.steps = scenario.train.steps;
  // The stages of a pipeline train on one batch, and so do all ranks where it is broadcast.
  const int alike = scenario.data.broadcast ? scenario.ranks : scenario.ranks_of_replica();
  for (int rank = 0; rank < scenario.ranks; rank += alike)
    out.samples += samples_of(scenario, rank);
  out.class_of = simulated.folding.class_of;
  out.figures = sim::forecast(run, simulated.program, simulated.folding, simulated.result);
  for (const RankCosts& costs : derived.costs)
    out.state_bytes = std::max(out.state_bytes, costs.state_bytes);
  out.memory = memory_forecast(sim::memory_timelines(run, simulated.program, simulated.folding,
                                                     simulated.result, costs_of_ranks(derived)),
                               run);
  out.on_meta = derived.on_meta;
  out.derived_by = derived.origin;
  return out;
}

}  // namespace

Result<Scenario> scenario_to_derive(const std::string& path, const SimulatedChange& change,
                                    const std::string& folder) {
  const Result<Scenario> own = load_checked_scenario(path);
  if (!own) return own.error();
  // What cannot be derived is refused in the user's own file.
  if (const auto plan = derivation_plan(*own); !plan) return plan.error();
  const Result<std::string> text = read_file(own->file, kScenarioBytes);
  if (!text) return text.error();
  const Result<std::string> changed = simulated_scenario(*text, own->file, change);
  if (!changed) return changed.error();
  const std::string file = folder + "/scenario.yaml";
  if (const Status ok = write_file(file, *changed); !ok) return ok.error();
  return load_scenario(file);
}

Result<TimedScenario> time_scenario(const Scenario& scenario, DerivedRanks derived,
                                    const sim::Machine& machine) {
  Result<Run> run = timed(scenario, derived, machine);
  if (!run) return run.error();
  Result<sim::RunProgram> program = sim::program_of(*run);
  if (!program) return program.error();
  const Places places = places_of(program->job, machine);
  Result<SimulatedProgram> simulated = machine.cores
                                           ? on_cores(std::move(*program), places, machine)
                                           : on_devices(std::move(*program), places, machine);
  if (!simulated) return simulated.error();
  TimedScenario out{scenario.name, std::move(*run), std::move(*simulated), std::nullopt};
  if (!out.simulated.result.stuck)
    out.forecast = summarise(scenario, machine, derived, out.run, out.simulated);
  return out;
}

Result<TimedScenario> forecast_scenario(const std::string& path, const SimulatedChange& change,
                                        const sim::Machine& machine, const ForecastOptions& options,
                                        Interrupts& interrupts) {
  const Result<Scenario> scenario = scenario_to_derive(path, change, options.folder);
  if (!scenario) return scenario.error();
  const Result<std::string> worker = find_worker(worker_search_of_this_process());
  if (!worker) return worker.error();
  Result<DerivedRanks> derived = derive_ranks(
      *scenario,
      {*worker, options.folder, options.on_meta, LoneRanks::Costs::counts, options.quiet},
      interrupts);
  if (!derived) return derived.error();
  return time_scenario(*scenario, std::move(*derived), machine);
}

}  // namespace lockstep
