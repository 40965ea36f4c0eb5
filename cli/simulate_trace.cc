// lockstep simulate trace: runs the program that traces hold on a simulated clock. Where that is
// stuck, the verifier says why, in the words in which it would of a real hang.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/cmd_simulate.h"
#include "cli/report_options.h"
#include "reports/forecasts/simulated_job.h"
#include "sim/collectives/closed_form.h"
#include "sim/engine/from_run.h"
#include "sim/machine/simulated_job.h"
#include "trace/load.h"

namespace lockstep::cli {
namespace {

constexpr const char* kTraceFooter = R"(Examples:
  How long would the recorded job take on links of 50 GB/s?
    lockstep simulate trace lockstep-runs/job-20261122T101500Z \
      --alpha 2us --beta 50GB/s
  A program written by hand (docs/trace-format.md): does it hang?
    lockstep simulate trace program/ --alpha 1us --beta 1GB/s
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
  std::string alpha, beta, gamma, launch = "0ns", traces;
  bool apart = false;
  SimulationOutput output;
};

struct Machine {
  sim::LinkCost link;
  Picos launch;
};

Result<Machine> parse_machine(const TraceCommand& command) {
  Machine machine;
  const Result<Picos> alpha = parse_duration(command.alpha);
  if (!alpha) return with_option("--alpha", alpha.error());
  const Result<Bandwidth> beta = parse_bandwidth(command.beta);
  if (!beta) return with_option("--beta", beta.error());
  const Result<Picos> launch = parse_duration(command.launch);
  if (!launch) return with_option("--launch", launch.error());
  machine = {{*alpha, *beta, std::nullopt}, *launch};
  if (!command.gamma.empty()) {
    const Result<Bandwidth> gamma = parse_bandwidth(command.gamma);
    if (!gamma) return with_option("--gamma", gamma.error());
    machine.link.gamma = *gamma;
  }
  return machine;
}

Result<sim::Prices> prices_of(const sim::ProgramJob& job, const sim::LinkCost& link) {
  std::vector<std::uint32_t> sizes;
  for (const sim::ProgramGroup& group : job.groups)
    sizes.push_back(static_cast<std::uint32_t>(group.members.size()));
  const sim::PriceOfCall price = [&](std::uint32_t group,
                                     const sim::ProgramCall& call) -> Result<sim::CallCost> {
    const Result<Picos> time = sim::default_time(call.op, sizes[group], call.bytes, link);
    if (!time) return time.error();
    return sim::CallCost{*time};
  };
  return sim::Prices::of(job, sizes, price);
}

reports::ExitStatus simulate_trace(const TraceCommand& command) {
  if (const Status outputs = check_simulation_output(command.output); !outputs)
    return reports::fail(outputs.error());
  const Result<Machine> machine = parse_machine(command);
  if (!machine) return reports::fail(machine.error());
  Result<trace::Run> run = trace::load_run(command.paths, command.load);
  if (!run) return reports::fail(run.error());
  Result<sim::RunProgram> program = sim::program_of(*run);
  if (!program) return reports::fail(program.error());
  const Result<sim::Prices> prices = prices_of(program->job, machine->link);
  if (!prices) return reports::fail(prices.error());
  sim::Folding folding = command.apart ? sim::keep_apart(program->job) : sim::fold(program->job);
  const Result<sim::SimulatedProgram> simulated =
      sim::simulate_program(std::move(*program), std::move(folding), *prices, machine->launch);
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
    return kind == "json" ? reports::simulated_json(*simulated).dump(2) + "\n"
                          : reports::simulated_text(*simulated);
  };
  const Status written = write_simulation(content, command.output);
  return written ? reports::ExitStatus::clean
                 : reports::fail(written.error(), reports::ExitStatus::own_failure);
}

}  // namespace

void add_simulate_trace(CLI::App& simulate, reports::ExitStatus& status) {
  CLI::App* command = simulate.add_subcommand("trace", "Run recorded calls on a simulated clock");
  const auto options = std::make_shared<TraceCommand>();
  command->add_option("PATH", options->paths, "Trace files, or folders that hold them")
      ->type_name("")
      ->required();
  command->add_option("--alpha", options->alpha, "Latency of a hop: 500ns")
      ->type_name("TIME")
      ->required();
  command->add_option("--beta", options->beta, "Bandwidth of a rank's port: 50GB/s")
      ->type_name("RATE")
      ->required();
  command->add_option("--gamma", options->gamma, "Bandwidth of reducing; default: it takes no time")
      ->type_name("RATE");
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
