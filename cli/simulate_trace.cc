// lockstep simulate trace: runs the program that traces hold on a simulated clock. Where that is
// stuck, the verifier says why, in the words in which it would of a real hang.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/quantities.h"
#include "cli/cmd_simulate.h"
#include "cli/report_options.h"
#include "reports/forecasts/simulated_job.h"
#include "sim/engine/from_run.h"
#include "sim/machine/machine.h"
#include "sim/machine/simulated_job.h"
#include "sim/machine/work_time.h"
#include "trace/load.h"

namespace lockstep::cli {
namespace {

constexpr const char* kTraceFooter = R"(Examples:
  How long would the recorded job take on links of 50 GB/s?
    lockstep simulate trace lockstep-runs/job-20261122T101500Z \
      --alpha 2us --beta 50GB/s
  A program written by hand (docs/trace-format.md): does it hang?
    lockstep simulate trace program/ --alpha 1us --beta 1GB/s
  The same on a machine, where every call costs what it does elsewhere:
    lockstep simulate trace program/ --machine dgx-h100
  The simulated run as a timeline, for https://ui.perfetto.dev:
    lockstep simulate trace program/ --alpha 1us --beta 1GB/s \
      --output timeline=simulated.json

Recorded times are not used, except the length of `span` lines. Ranks that do
the same are simulated once for all of them.

Exit status: 0 the job ends; 1 it hangs, and the report says why; 2 bad usage,
or traces that cannot be simulated.)";

struct TraceCommand {
  std::vector<std::string> paths;
  trace::LoadOptions load;
  std::string alpha, beta, gamma, machine, launch = "0ns", traces;
  bool apart = false;
  SimulationOutput output;
};

// What the job runs on: a machine of a file, or one level of links between all ranks, where calls
// go as in Gloo's code.
Result<sim::Machine> machine_of(const TraceCommand& command) {
  if (!command.machine.empty()) {
    for (const auto& [option, given] : {std::pair{"--alpha", &command.alpha},
                                        {"--beta", &command.beta},
                                        {"--gamma", &command.gamma}})
      if (!given->empty())
        return Error{fmt::format("{} excludes --machine, which says it", option),
                     {},
                     "leave one of the two out"};
    return sim::load_machine(command.machine);
  }
  if (command.alpha.empty() || command.beta.empty())
    return Error{fmt::format("{} is missing", command.alpha.empty() ? "--alpha" : "--beta"),
                 {},
                 "add --alpha 500ns --beta 50GB/s, or --machine dgx-h100"};
  const Result<Picos> alpha = parse_duration(command.alpha);
  if (!alpha) return with_option("--alpha", alpha.error());
  const Result<Bandwidth> beta = parse_bandwidth(command.beta);
  if (!beta) return with_option("--beta", beta.error());
  sim::LinkCost link{*alpha, *beta, std::nullopt};
  if (!command.gamma.empty()) {
    const Result<Bandwidth> gamma = parse_bandwidth(command.gamma);
    if (!gamma) return with_option("--gamma", gamma.error());
    link.gamma = *gamma;
  }
  sim::Machine machine;
  machine.ranks_per_node = sim::kMostRanks;  // one level: all ranks on one node
  machine.links = {link};
  return machine;
}

reports::ExitStatus simulate_trace(const TraceCommand& command) {
  if (const Status outputs = check_simulation_output(command.output); !outputs)
    return reports::fail(outputs.error());
  const Result<sim::Machine> machine = machine_of(command);
  if (!machine) return reports::fail(machine.error());
  const Result<Picos> launch = parse_duration(command.launch);
  if (!launch) return reports::fail(with_option("--launch", launch.error()));
  Result<trace::Run> run = trace::load_run(command.paths, command.load);
  if (!run) return reports::fail(run.error());
  Result<sim::RunProgram> program = sim::program_of(*run);
  if (!program) return reports::fail(program.error());
  const std::vector<sim::GroupLayout> layouts =
      sim::layouts_of(program->job, machine->ranks_per_node);
  const Result<sim::Prices> prices = sim::prices_on(*machine, program->job, layouts);
  if (!prices) return reports::fail(prices.error());
  const Result<sim::SimulatedProgram> simulated = [&] {
    // Where ranks share cores, whoever is on the same node matters, and the classes are found
    // there.
    if (machine->cores)
      return sim::simulate_on_machine(std::move(*program), layouts, *prices, *machine);
    sim::Folding folding = command.apart ? sim::keep_apart(program->job)
                                         // Ranks that do the same are one class only where their
                                         // groups lie alike on the nodes.
                                         : sim::fold(program->job, sim::kinds_of(layouts));
    return sim::simulate_program(std::move(*program), std::move(folding), *prices, *launch);
  }();
  if (!simulated) return reports::fail(simulated.error());
  if (!command.traces.empty()) {
    const Status kept = sim::write_simulated_traces(*simulated, *run, command.traces);
    if (!kept) return reports::fail(kept.error(), reports::ExitStatus::own_failure);
  }
  if (simulated->result.stuck)
    return write_failure(
        reports::simulated_hang(*simulated, std::move(*run), reports::simulated_json(*simulated)),
        command.output);
  trace::Run played =
      sim::as_simulated(std::move(*run), simulated->program, simulated->folding, simulated->result);
  const auto content = [&](const std::string& kind, bool) {
    if (kind == "timeline") return reports::simulated_timeline(played);
    return kind == "json" ? fmt::format("{}\n", reports::simulated_json(*simulated).dump(2))
                          : reports::simulated_text(*simulated);
  };
  return write_simulation(content, command.output);
}

}  // namespace

void add_simulate_trace(CLI::App& simulate, reports::ExitStatus& status) {
  CLI::App* command = simulate.add_subcommand("trace", "Run recorded calls on a simulated clock");
  const auto options = std::make_shared<TraceCommand>();
  command->add_option("PATH", options->paths, "Trace files, or folders that hold them")
      ->type_name("")
      ->required();
  command->add_option("--alpha", options->alpha, "Latency of a hop: 500ns")->type_name("TIME");
  command->add_option("--beta", options->beta, "Bandwidth of a rank's port: 50GB/s")
      ->type_name("RATE");
  command->add_option("--gamma", options->gamma, "Bandwidth of reducing; default: it takes no time")
      ->type_name("RATE");
  command
      ->add_option("--machine", options->machine,
                   "A machine instead of links: a file, or the name of a\nshipped one: dgx-h100")
      ->type_name("NAME|FILE");
  command
      ->add_option("--launch", options->launch, "Time that the host needs to launch an operation")
      ->type_name("TIME")
      ->capture_default_str();
  command->add_flag("--apart", options->apart, "Simulate every rank, even if several do the same");
  command->add_option("--format", options->load.format, "Read the files as this format");
  command
      ->add_option("--traces", options->traces,
                   "Write the simulated run here, as traces that other\ncommands read")
      ->type_name("DIR");
  options->output.forms.kinds.emplace_back("timeline");
  add_simulation_output(*command, options->output);
  command->footer(kTraceFooter);
  command->callback([options, &status] { status = simulate_trace(*options); });
}

}  // namespace lockstep::cli
