// lockstep simulate trace: runs the program that traces hold on a simulated clock. Where that is
// stuck, the verifier says why, in the words in which it would of a real hang.
#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/cmd_simulate.h"
#include "cli/output.h"
#include "reports/json_report.h"
#include "reports/text_report.h"
#include "sim/collectives/choice.h"
#include "sim/engine/from_run.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

constexpr const char* kFooter = R"(Examples:
  How long would the recorded job take on links of 50 GB/s?
    lockstep simulate trace lockstep-runs/job-20261122T101500Z \
      --alpha 2us --beta 50GB/s
  A program written by hand (docs/trace-format.md): does it hang?
    lockstep simulate trace program/ --alpha 1us --beta 1GB/s

Recorded times are not used, but for the length of `span` lines. Every rank is
simulated, and ranks that do the same once for all of them.

Exit status: 0 the job ends; 1 it hangs, and the report says why; 2 bad usage,
or traces that cannot be simulated.)";

struct TraceCommand {
  std::vector<std::string> paths;
  LoadOptions load;
  std::string alpha, beta, gamma, launch = "0ns";
  bool apart = false;
  SimulationOutput output;
};

struct Machine {
  sim::LinkCost link;
  sim::Picos launch;
};

Result<Machine> parse_machine(const TraceCommand& command) {
  Machine machine;
  const Result<sim::Picos> alpha = sim::parse_duration(command.alpha);
  if (!alpha) return with_option("--alpha", alpha.error());
  const Result<sim::Bandwidth> beta = sim::parse_bandwidth(command.beta);
  if (!beta) return with_option("--beta", beta.error());
  const Result<sim::Picos> launch = sim::parse_duration(command.launch);
  if (!launch) return with_option("--launch", launch.error());
  machine = {{*alpha, *beta, std::nullopt}, *launch};
  if (!command.gamma.empty()) {
    const Result<sim::Bandwidth> gamma = sim::parse_bandwidth(command.gamma);
    if (!gamma) return with_option("--gamma", gamma.error());
    machine.link.gamma = *gamma;
  }
  return machine;
}

// Every call of the job has a time; what has none is refused before anything runs.
Status check_calls(const sim::ProgramJob& job, const sim::LinkCost& link) {
  for (const sim::ProgramCall& call : job.calls) {
    const Result<sim::Picos> time = sim::default_time(call.op, 2, call.bytes, link);
    if (!time) return time.error();
  }
  return Status::ok();
}

struct Simulated {
  sim::RunProgram program;
  sim::Folding folding;
  sim::ExecutionResult result;
};

Simulated simulate(sim::RunProgram program, const Machine& machine, bool apart) {
  sim::Folding folding = apart ? sim::keep_apart(program.job) : sim::fold(program.job);
  const sim::CostOfCall cost = [&](std::uint32_t group, const sim::ProgramCall& call) {
    const auto ranks = static_cast<std::int64_t>(program.job.groups[group].members.size());
    const Result<sim::Picos> time = sim::default_time(call.op, ranks, call.bytes, machine.link);
    return time ? *time : sim::Picos::forever();
  };
  sim::ExecutionResult result =
      sim::execute(program.job, folding, cost, {machine.launch, /*record_issues=*/true});
  return {std::move(program), std::move(folding), std::move(result)};
}

// Whether the first finding is that devices hold each other up.
bool shows_a_circle(const Report& report) {
  return !report.findings.empty() && report.findings.front().rule == RuleId::cross_group_deadlock;
}

// Where hosts went on and their devices hold each other up, all calls were made, and only a look at
// the devices shows what is wrong.
Report judge(Run& run) {
  Report report = verify(run);
  if (shows_a_circle(report)) return report;
  for (RankTrace& trace : run.ranks) trace.snapshot = true;
  Report looked_at = verify(run);
  for (RankTrace& trace : run.ranks) trace.snapshot = false;
  return shows_a_circle(looked_at) ? looked_at : report;
}

std::string stuck_ranks(const Simulated& simulated) {
  std::vector<std::int32_t> ranks;
  for (std::size_t r = 0; r < simulated.folding.class_of.size(); ++r)
    if (!simulated.result.classes[simulated.folding.class_of[r]].done)
      ranks.push_back(static_cast<std::int32_t>(r));
  return ranges(ranks);
}

nlohmann::ordered_json as_json(const Simulated& simulated) {
  nlohmann::ordered_json out;
  out["time_ps"] = simulated.result.end.value;
  out["stuck"] = simulated.result.stuck;
  out["classes"] = simulated.result.classes.size();
  for (std::size_t r = 0; r < simulated.folding.class_of.size(); ++r) {
    const sim::RankOutcome& outcome = simulated.result.classes[simulated.folding.class_of[r]];
    out["ranks"].push_back({{"rank", r},
                            {"time_ps", outcome.end.value},
                            {"compute_ps", outcome.compute.value},
                            {"waiting_ps", outcome.waiting.value},
                            {"ended", outcome.done}});
  }
  return out;
}

std::string as_text(const Simulated& simulated) {
  std::ostringstream out;
  out << plural(simulated.folding.class_of.size(), "rank") << ", "
      << simulated.result.classes.size() << " of them different\n"
      << "  time     " << sim::to_string(simulated.result.end) << "\n";
  constexpr std::size_t kShown = 16;
  for (std::size_t c = 0; c < std::min(simulated.result.classes.size(), kShown); ++c) {
    const sim::RankOutcome& outcome = simulated.result.classes[c];
    out << "  rank " << simulated.folding.representatives[c] << ": computes "
        << sim::to_string(outcome.compute) << ", waits " << sim::to_string(outcome.waiting)
        << ", ends at " << sim::to_string(outcome.end) << "\n";
  }
  return out.str();
}

ExitStatus report_hang(Simulated simulated, Run run, const SimulationOutput& output) {
  run = sim::as_simulated(std::move(run), simulated.program, simulated.folding, simulated.result);
  const Report report = judge(run);
  nlohmann::ordered_json json = as_json(simulated);
  json["report"] = nlohmann::ordered_json::parse(json_report(report));
  std::string text = "The simulated job hangs at " + sim::to_string(simulated.result.end) +
                     ": ranks " + stuck_ranks(simulated) + " can never go on.\n\n";
  text += text_report(report, run, {.color = false});
  const Status written = write_simulation(text, json.dump(2) + "\n", output);
  return written ? ExitStatus::findings : fail(written.error(), ExitStatus::own_failure);
}

ExitStatus simulate_trace(const TraceCommand& command) {
  if (const Status outputs = check_simulation_output(command.output); !outputs)
    return fail(outputs.error());
  const Result<Machine> machine = parse_machine(command);
  if (!machine) return fail(machine.error());
  Result<Run> run = load_run(command.paths, command.load);
  if (!run) return fail(run.error());
  Result<sim::RunProgram> program = sim::program_of(*run);
  if (!program) return fail(program.error());
  if (const Status fine = check_calls(program->job, machine->link); !fine)
    return fail(fine.error());
  Simulated simulated = simulate(std::move(*program), *machine, command.apart);
  if (simulated.result.end.is_forever())
    return fail({"it takes longer than 106 days, which no simulated clock can show",
                 {},
                 "check the units"});
  if (simulated.result.stuck)
    return report_hang(std::move(simulated), std::move(*run), command.output);
  const Status written =
      write_simulation(as_text(simulated), as_json(simulated).dump(2) + "\n", command.output);
  return written ? ExitStatus::clean : fail(written.error(), ExitStatus::own_failure);
}

}  // namespace

void add_simulate_trace(CLI::App& simulate, ExitStatus& status) {
  CLI::App* command = simulate.add_subcommand("trace", "Run what traces hold on a simulated clock");
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
      ->add_option("--launch", options->launch,
                   "What the host needs for each operation that it\nlaunches")
      ->type_name("TIME")
      ->capture_default_str();
  command->add_flag("--apart", options->apart, "Simulate ranks that do the same one by one");
  command->add_option("--format", options->load.format, "Read the files as this format");
  add_simulation_output(*command, options->output);
  command->footer(kFooter);
  command->callback([options, &status] { status = simulate_trace(*options); });
}

}  // namespace lockstep
