// lockstep simulate SCENARIO: how long the steps of a job would take on a machine that a file
// describes. The calls are derived, not modelled: docs/simulate-scenarios.md.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/read_file.h"
#include "base/write_file.h"
#include "cli/cmd_simulate.h"
#include "cli/output.h"
#include "cli/scenario_files.h"
#include "cli/simulate_program.h"
#include "cli/simulate_scenario_ranks.h"
#include "cli/simulate_scenario_result.h"
#include "cli/work_folder.h"
#include "job/derivation_plan.h"
#include "job/simulated_scenario.h"
#include "launch/worker_program.h"
#include "sim/machine/timed_run.h"
#include "sim/machine/work_time.h"

namespace lockstep {
namespace {

constexpr std::size_t kScenarioBytes = std::size_t{1} << 20U;

struct ScenarioCommand {
  std::string path, machine, output_dir;
  int ranks = 0;  // 0: the scenario's
  int steps = 0;
  bool meta = false, no_meta = false;
  SimulationOutput output;
};

// The job as it is to be simulated, in a file of its own in `folder`.
Result<Scenario> changed_scenario(const ScenarioCommand& command, const std::string& folder) {
  const Result<Scenario> own = load_checked_scenario(command.path);
  if (!own) return own.error();
  // What cannot be derived is refused in the user's own file.
  if (const auto plan = derivation_plan(*own); !plan) return plan.error();
  const Result<std::string> text = read_file(own->file, kScenarioBytes);
  if (!text) return text.error();
  SimulatedChange change;
  if (command.ranks > 0) change.ranks = command.ranks;
  if (command.steps > 0) change.steps = command.steps;
  const Result<std::string> changed = simulated_scenario(*text, own->file, change);
  if (!changed) return changed.error();
  const std::string file = folder + "/scenario.yaml";
  if (const Status ok = write_file(file, *changed); !ok) return ok.error();
  return load_scenario(file);
}

std::int64_t samples_of(const Scenario& scenario, int rank) {
  return std::int64_t{scenario.train.batch_size} * scenario.micro_batches(rank);
}

// The calls of all ranks with the machine's times between them.
Result<Run> timed(const Scenario& scenario, DerivedRanks& derived, const sim::Machine& machine) {
  // How crowded a node is depends on all ranks, so the work is timed after it was spread.
  Result<Run> run = sim::spread(std::move(derived.run), derived.traced);
  if (!run) return run.error();
  std::map<std::int32_t, const RankCosts*> of_rank;
  for (const RankCosts& own : derived.costs) of_rank[own.rank] = &own;
  std::vector<const RankCosts*> costs;
  std::vector<std::int64_t> samples;
  for (std::size_t r = 0; r < derived.traced.size(); ++r) {
    costs.push_back(of_rank.at(derived.traced[r]));
    samples.push_back(samples_of(scenario, static_cast<int>(r)));
  }
  return sim::timed_run(std::move(*run), costs, samples, machine);
}

// Groups that are placed differently cost differently, and are not folded into one.
std::vector<std::uint32_t> kinds_of(const sim::ProgramJob& job, const sim::Machine& machine,
                                    std::vector<sim::GroupPlace>& places) {
  std::map<sim::GroupPlace, std::uint32_t> known;
  std::vector<std::uint32_t> out;
  for (const sim::ProgramGroup& group : job.groups) {
    places.push_back(sim::place_of(group.members, machine.ranks_per_node));
    out.push_back(
        known.emplace(places.back(), static_cast<std::uint32_t>(known.size())).first->second);
  }
  return out;
}

ScenarioForecast summarise(const Scenario& scenario, const sim::Machine& machine,
                           const DerivedRanks& derived, const Run& run,
                           const SimulatedProgram& simulated, const PriceOfCall& price) {
  ScenarioForecast out;
  out.scenario = scenario.name;
  out.machine = machine;
  out.steps = scenario.train.steps;
  // The stages of a pipeline train on one batch, and so do all ranks where it is broadcast.
  const int alike = scenario.data.broadcast ? scenario.ranks : scenario.ranks_of_replica();
  for (int rank = 0; rank < scenario.ranks; rank += alike)
    out.samples += samples_of(scenario, rank);
  out.class_of = simulated.folding.class_of;
  const sim::CostOfCall cost = [&](std::uint32_t group, const sim::ProgramCall& call) {
    const Result<sim::Picos> time = price(group, call);
    return time ? *time : sim::Picos::forever();
  };
  out.figures = sim::forecast(run, simulated.program, simulated.folding, simulated.result, cost);
  for (const RankCosts& costs : derived.costs)
    out.state_bytes = std::max(out.state_bytes, costs.state_bytes);
  out.on_meta = derived.on_meta;
  out.derived_by = derived.origin;
  return out;
}

Result<ExitStatus> simulate(const ScenarioCommand& command, const sim::Machine& machine,
                            const std::string& folder, Interrupts& interrupts) {
  const Result<Scenario> scenario = changed_scenario(command, folder);
  if (!scenario) return scenario.error();
  const Result<std::string> worker = find_worker(worker_search_of_this_process());
  if (!worker) return worker.error();
  DeriveRanksOptions options{*worker, folder, std::nullopt, LoneRanks::Costs::counts,
                             command.output.quiet};
  if (command.meta || command.no_meta) options.on_meta = command.meta;
  Result<DerivedRanks> derived = derive_ranks(*scenario, options, interrupts);
  if (!derived) return derived.error();
  Result<Run> run = timed(*scenario, *derived, machine);
  if (!run) return run.error();
  Result<sim::RunProgram> program = sim::program_of(*run);
  if (!program) return program.error();
  std::vector<sim::GroupPlace> places;
  const std::vector<std::uint32_t> kinds = kinds_of(program->job, machine, places);
  const PriceOfCall price = [&](std::uint32_t group, const sim::ProgramCall& call) {
    return sim::call_time(call, places[group], machine);
  };
  sim::Folding folding = sim::fold(program->job, kinds);
  const Result<SimulatedProgram> simulated =
      simulate_program(std::move(*program), std::move(folding), price, sim::Picos{});
  if (!simulated) return simulated.error();
  if (simulated->result.stuck) {
    nlohmann::ordered_json json = {{"scenario", scenario->name}, {"stuck", true}};
    return report_hang(*simulated, std::move(*run), std::move(json), command.output);
  }
  const ScenarioForecast forecast =
      summarise(*scenario, machine, *derived, *run, *simulated, price);
  const Status written = write_simulation(forecast_text(forecast),
                                          forecast_json(forecast).dump(2) + "\n", command.output);
  return written ? ExitStatus::clean : fail(written.error(), ExitStatus::own_failure);
}

ExitStatus simulate_scenario(const ScenarioCommand& command) {
  if (const Status outputs = check_simulation_output(command.output); !outputs)
    return fail(outputs.error());
  if (command.path.empty())
    return fail({"nothing to simulate is named", {}, "`lockstep simulate --help` shows how"});
  if (command.machine.empty())
    return fail({"no machine is named", {}, "add --machine machines/dgx-h100.yaml, or your own"});
  const Result<sim::Machine> machine = sim::load_machine(command.machine);
  if (!machine) return fail(machine.error());
  const WorkFolder folder(command.output_dir, "lockstep-simulate-");
  if (!folder.usable())
    return fail(
        Error{"this folder cannot be made, or is not empty", {folder.path()}, "name a new one"});
  Interrupts interrupts;
  const Result<ExitStatus> status = simulate(command, *machine, folder.path(), interrupts);
  if (const int signal = interrupts.poll(); signal != 0) return interrupted_by(signal);
  return status ? *status : fail(status.error());
}

}  // namespace

void add_simulate_scenario(CLI::App& simulate, ExitStatus& status) {
  const auto options = std::make_shared<ScenarioCommand>();
  simulate.add_option("SCENARIO", options->path, "Scenario file: how long its steps take")
      ->type_name("");
  simulate.add_option("--machine", options->machine, "What it would run on: machines/*.yaml")
      ->type_name("FILE");
  simulate.add_option("--ranks", options->ranks, "So many ranks, and not the scenario's")
      ->type_name("N")
      ->check(CLI::Range(1, 65536));
  simulate.add_option("--steps", options->steps, "So many steps, and not the scenario's")
      ->type_name("N")
      ->check(CLI::Range(1, 100000));
  CLI::Option* meta =
      simulate.add_flag("--meta", options->meta,
                        "Derive on tensors that have no values; the default\nfor the published "
                        "models, and for more than 64 ranks");
  simulate.add_flag("--no-meta", options->no_meta, "Derive with the values, whatever they take")
      ->excludes(meta);
  simulate
      .add_option("--output-dir", options->output_dir,
                  "Keep the derived calls and costs here; a new folder")
      ->type_name("DIR");
  add_simulation_output(simulate, options->output);
  simulate.callback([options, &simulate, &status] {
    if (simulate.get_subcommands().empty()) status = simulate_scenario(*options);
  });
}

}  // namespace lockstep
