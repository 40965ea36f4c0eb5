// lockstep simulate trace: runs the program that traces hold on a simulated clock. If it gets stuck
// there, the verifier explains that as it would explain a real hang.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/quantities.h"
#include "base/text.h"
#include "cli/cmd_simulate.h"
#include "cli/report_options.h"
#include "reports/findings/finding_words.h"
#include "reports/forecasts/simulated_job.h"
#include "sim/engine/from_run.h"
#include "sim/engine/host_times.h"
#include "sim/engine/recorded_calls.h"
#include "sim/engine/to_run.h"
#include "sim/machine/machine.h"
#include "sim/machine/simulated_job.h"
#include "sim/machine/work_time.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep::cli {
namespace {

constexpr const char* kTraceFooter = R"(Examples:
  How long would the recorded job take on links of 50 GB/s?
    lockstep simulate trace lockstep-runs/job-20261122T101500Z \
      --alpha 2us --beta 50GB/s
  A program written by hand (docs/trace-format.md): does it hang?
    lockstep simulate trace program/ --alpha 1us --beta 1GB/s
  The same on a machine that a file describes:
    lockstep simulate trace program/ --machine dgx-h100
  Profiles of torch.profiler, with the recorded times of kernels and calls; then
  with the calls of another machine, and with one GPU that is 20 % slower:
    lockstep simulate trace profiles/ --recorded-calls
    lockstep simulate trace profiles/ --machine dgx-h100
    lockstep simulate trace profiles/ --recorded-calls --slow 1=1.2
  The simulated run as a timeline, for https://ui.perfetto.dev:
    lockstep simulate trace program/ --alpha 1us --beta 1GB/s \
      --output timeline=simulated.json

On a machine with a `network`, calls share its links: two calls over one uplink
slow each other down. See docs/simulate-networks.md.

The simulation takes durations from the traces: those of kernels, of the host's
work between them, of `span` lines, of what a rank on Gloo or MPI did between
its calls, and of calls with --recorded-calls. It computes when each of them
happens. Ranks that do the same are simulated once.

Exit status: 0 the job ends; 1 it hangs, and the report says why; 2 bad usage,
or traces that cannot be simulated.)";

struct TraceCommand {
  std::vector<std::string> paths;
  trace::LoadOptions load;
  std::string alpha, beta, gamma, machine, launch = "0ns", traces;
  bool recorded_calls = false;
  double scale_calls = 1;
  std::vector<std::string> slow;  // "3=1.2"
  bool apart = false;
  SimulationOutput output;
};

// The error if an option about links is combined with another one that sets the time of calls.
Status without_links(const TraceCommand& command, const char* excluded) {
  for (const auto& [option, given] : {std::pair{"--alpha", &command.alpha},
                                      {"--beta", &command.beta},
                                      {"--gamma", &command.gamma}})
    if (!given->empty())
      return Error{fmt::format("{} cannot be combined with {}", option, excluded),
                   {},
                   "leave one of the two out"};
  return Status::ok();
}

// What the job runs on: the machine of a file, or a single level of links between all ranks, on
// which calls use Gloo's algorithms.
Result<sim::Machine> links_of(const TraceCommand& command) {
  if (command.recorded_calls) {
    const char* const excluded = "--recorded-calls";
    if (const Status ok = without_links(command, excluded); !ok) return ok.error();
    if (!command.machine.empty())
      return Error{fmt::format("--machine cannot be combined with {}", excluded),
                   {},
                   "leave one of the two out"};
    return sim::Machine{};  // nothing asks it for the time of a call
  }
  if (!command.machine.empty()) {
    if (const Status ok = without_links(command, "--machine, which sets it"); !ok)
      return ok.error();
    return sim::load_machine(command.machine);
  }
  if (command.alpha.empty() || command.beta.empty())
    return Error{fmt::format("{} is missing", command.alpha.empty() ? "--alpha" : "--beta"),
                 {},
                 "add --alpha 500ns --beta 50GB/s, --machine dgx-h100 or --recorded-calls"};
  const Result<sim::LinkCost> link =
      parse_link(command.alpha, command.beta,
                 command.gamma.empty() ? std::nullopt : std::optional(command.gamma));
  if (!link) return link.error();
  sim::Machine machine;
  machine.ranks_per_node = sim::kMaxRanks;  // one level: all ranks on one node
  machine.links = {*link};
  return machine;
}

// "3=1.2" or "4-7=0.5".
Result<sim::Machine::Slow> parse_slow(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string ranks = text.substr(0, equals);
  const std::size_t dash = ranks.find('-');
  const auto first = parse_number<std::int64_t>(ranks.substr(0, dash));
  const auto last =
      dash == std::string::npos ? first : parse_number<std::int64_t>(ranks.substr(dash + 1));
  const auto factor =
      equals == std::string::npos ? std::nullopt : parse_number<double>(text.substr(equals + 1));
  const bool good = first && last && factor && *first >= 0 && *last >= *first && *factor >= 0.01 &&
                    *factor <= 1000;
  if (!good)
    return Error{fmt::format("--slow: \"{}\" is not RANKS=FACTOR, a factor from 0.01 to 1000",
                             printable(text)),
                 {},
                 "as --slow 3=1.2 or --slow 4-7=2"};
  return sim::Machine::Slow{*first, *last, *factor};
}

// Every --slow.
Result<std::vector<sim::Machine::Slow>> slow_ranks(const TraceCommand& command) {
  std::vector<sim::Machine::Slow> out;
  for (const std::string& text : command.slow) {
    const Result<sim::Machine::Slow> slow = parse_slow(text);
    if (!slow) return slow.error();
    out.push_back(*slow);
  }
  return out;
}

// Whether work of a device was recorded. Stream 0 is the host's thread.
bool has_streams(const trace::RankTrace& trace) {
  return std::any_of(trace.spans.begin(), trace.spans.end(),
                     [](const trace::SpanMark& span) { return span.stream.value != 0; });
}

// What of the recordings could not be used, of the first few ranks.
std::vector<std::string> unused_records(const trace::Run& run) {
  constexpr std::size_t kShownRanks = 3;
  std::vector<std::string> out;
  std::size_t ranks = 0;
  for (const trace::RankTrace& trace : run.ranks) {
    if (trace.damaged_count == 0 || ++ranks > kShownRanks) continue;
    out.push_back(fmt::format("Rank {}: {} could not be used in full: {}", trace.rank.value,
                              plural(trace.damaged_count, "record"),
                              printable(trace.damaged.front().message)));
    const std::size_t more = trace.damaged.size() - 1;
    if (more > 0) out.back() += fmt::format("; {}", printable(trace.damaged[1].message));
    out.back() += more > 1 ? ", …" : ".";
  }
  if (ranks > kShownRanks)
    out.push_back(fmt::format("Records of {} more could not be used in full.",
                              plural(ranks - kShownRanks, "rank")));
  return out;
}

// What to know of ranks whose work is the time between their calls; empty: nothing. Nobody recorded
// how many cores they had.
std::string shared_cores_note(const trace::Run& run, const std::vector<trace::Rank>& hosts) {
  std::map<std::string, std::size_t> on_host;
  std::size_t most = 0;
  for (const trace::RankTrace& trace : run.ranks)
    if (!trace.host.empty() && std::binary_search(hosts.begin(), hosts.end(), trace.rank))
      most = std::max(most, ++on_host[trace.host]);
  if (most < 2) return {};
  return fmt::format(
      "What {} computed is the time between their calls. If the {} on a host shared cores, that "
      "holds time in which others ran, and calls count too short: neither changes with a faster "
      "network, a slower rank or another machine.",
      reports::rank_label(hosts), most);
}

// The times that the recording itself holds. `hosts`: ranks whose host has work.
reports::Recorded recorded_by(const trace::Run& run, const std::vector<trace::Rank>& hosts) {
  reports::Recorded out;
  out.notes = unused_records(run);
  std::vector<trace::Rank> without;
  for (const trace::RankTrace& trace : run.ranks) {
    // A recording without any work lacks most of the time that the job took.
    const bool whole =
        has_streams(trace) || std::binary_search(hosts.begin(), hosts.end(), trace.rank);
    const auto time = whole ? sim::recorded_time(trace) : std::nullopt;
    if (time) out.ranks.emplace(trace.rank.value, *time);
    if (trace.spans.empty()) without.push_back(trace.rank);
  }
  if (std::string note = shared_cores_note(run, hosts); !note.empty())
    out.notes.push_back(std::move(note));
  if (!without.empty() && without.size() < run.ranks.size())
    out.notes.push_back(fmt::format("No work was recorded of {}: only calls are simulated there.",
                                    reports::rank_label(without)));
  return out;
}

// Runs the program with the recorded durations of its calls.
Result<sim::SimulatedProgram> with_recorded_calls(const trace::Run& run, sim::RunProgram program,
                                                  const TraceCommand& command, Picos launch,
                                                  reports::Recorded& recorded) {
  const sim::RecordedCalls calls = sim::recorded_calls(run, program);
  // A single rank's calls wait for nobody, so their durations do not matter.
  if (calls.known == 0 && calls.unknown > 0 && run.world_size > 1)
    return Error{"--recorded-calls: these traces record no call's begin and end",
                 {},
                 "say what calls take: --machine dgx-h100, or --alpha 500ns --beta 50GB/s"};
  if (calls.unknown > 0)
    recorded.notes.push_back(
        fmt::format("{} of {} have no recorded begin and end, and take no time.", calls.unknown,
                    plural(calls.known + calls.unknown, "call")));
  std::vector<trace::Rank> silent;
  for (const std::int32_t rank : program.silent) silent.emplace_back(rank);
  if (!silent.empty())
    recorded.notes.push_back(
        fmt::format("No trace was given of {}: they are taken to come to each call as recorded.",
                    reports::rank_label(silent)));
  return sim::simulate_with_calls(std::move(program), calls, command.scale_calls, launch);
}

// What to know of calls that are priced without their bytes; empty: nothing.
std::string unsized_note(const trace::Run& run) {
  const sim::UnsizedCalls calls = sim::unsized_calls(run);
  if (calls.unsized == 0) return {};
  return fmt::format(
      "{} of {} {} no size, or an element type of unknown width. They are taken to be empty, so "
      "that the job takes longer than this.",
      calls.unsized, plural(calls.all, "call"), calls.unsized == 1 ? "has" : "have");
}

// What to know of traces that could not be read to the end; empty: nothing.
std::string damage_note(const trace::Run& run) {
  std::uint64_t records = 0;
  std::vector<trace::Rank> ranks;
  for (const trace::RankTrace& rank : run.ranks) {
    if (rank.damaged_count == 0) continue;
    records += rank.damaged_count;
    ranks.push_back(rank.rank);
  }
  if (records == 0) return {};
  return fmt::format(
      "{} of {} could not be used (`lockstep verify` says which): what they held is "
      "left out.",
      plural(records, "record"), reports::rank_label(ranks));
}

// Runs the program with calls that take as long as the machine's prices say.
Result<sim::SimulatedProgram> with_priced_calls(sim::RunProgram program,
                                                const sim::Machine& machine, bool apart,
                                                Picos launch) {
  const std::vector<sim::GroupLayout> layouts = sim::layouts_of(program.job, machine);
  const Result<sim::Prices> prices = sim::prices_on(machine, program.job, layouts);
  if (!prices) return prices.error();
  return sim::simulate_on_machine(std::move(program), layouts, *prices, machine, apart, launch);
}

// What the options say.
struct Settings {
  sim::Machine machine;
  std::vector<sim::Machine::Slow> slow;  // of --slow; the machine's own are in `machine`
  Picos launch;
};

Result<Settings> settings_of(const TraceCommand& command) {
  // Before a machine is asked for, which a file that is not there does not need.
  for (const std::string& path : command.paths)
    if (std::error_code unknown; path != "-" && !std::filesystem::exists(path, unknown))
      return Error{"no such file or folder", {path}, "check how the path is written"};
  const std::vector<std::string> made = {command.traces};
  if (const Status outputs = check_simulation_output(command.output, made); !outputs)
    return outputs.error();
  if (const Status folder = check_traces_folder(command.traces); !folder) return folder.error();
  Result<sim::Machine> machine = links_of(command);
  if (!machine) return machine.error();
  Result<std::vector<sim::Machine::Slow>> slow = slow_ranks(command);
  if (!slow) return slow.error();
  const Result<Picos> launch = parse_duration(command.launch);
  if (!launch) return with_option("--launch", launch.error());
  // CLI11's range lets NaN pass.
  if (std::isnan(command.scale_calls))
    return Error{"--scale-calls is no number", {}, "give a factor from 0 to 1000"};
  if (command.scale_calls != 1 && !command.recorded_calls)
    return Error{
        "--scale-calls without --recorded-calls", {}, "add it, or give a machine with other links"};
  return Settings{std::move(*machine), std::move(*slow), *launch};
}

// The machine with the ranks that --slow names. A machine's file may name slow ranks that the job
// does not have; an option may not.
Result<sim::Machine> machine_for(const trace::Run& run, Settings settings) {
  for (const sim::Machine::Slow& ranks : settings.slow)
    if (ranks.last >= run.world_size)
      return Error{fmt::format("--slow: there is no rank {}", ranks.last),
                   {},
                   fmt::format("the job has {}", plural(run.world_size, "rank"))};
  sim::Machine& machine = settings.machine;
  machine.slow.insert(machine.slow.end(), settings.slow.begin(), settings.slow.end());
  return std::move(machine);
}

// Runs the recorded program on the machine. Adds to `recorded` what to know of the result.
Result<sim::SimulatedProgram> simulate(const trace::Run& run, const sim::Machine& machine,
                                       const TraceCommand& command, Picos launch,
                                       reports::Recorded& recorded) {
  // With `cores`, the ranks' work shares processors, and a kernel has none to share.
  if (machine.cores && std::any_of(run.ranks.begin(), run.ranks.end(), has_streams))
    return Error{"the traces contain work of devices, but this machine has no devices",
                 {command.machine},
                 "take a machine without `cores`"};
  Result<sim::RunProgram> program =
      sim::program_of(run, command.recorded_calls ? sim::Ranks::recorded : sim::Ranks::all);
  if (!program) return program.error();
  sim::slow_down(*program, machine);
  if (command.recorded_calls)
    return with_recorded_calls(run, std::move(*program), command, launch, recorded);
  if (std::string note = unsized_note(run); !note.empty())
    recorded.notes.push_back(std::move(note));
  return with_priced_calls(std::move(*program), machine, command.apart, launch);
}

reports::ExitStatus simulate_trace(const TraceCommand& command) {
  Result<Settings> settings = settings_of(command);
  if (!settings) return reports::fail(settings.error());
  const Picos launch = settings->launch;
  trace::LoadOptions load = command.load;
  load.work = true;  // kernels and the host's spans, which the verifier does without
  Result<trace::Run> run = trace::load_run(command.paths, load);
  if (!run) return reports::fail(run.error());
  const Result<sim::Machine> machine = machine_for(*run, std::move(*settings));
  if (!machine) return reports::fail(machine.error());
  const std::vector<trace::Rank> hosts = sim::add_host_times(*run);
  reports::Recorded recorded = recorded_by(*run, hosts);
  if (std::string note = damage_note(*run); !note.empty())
    recorded.notes.push_back(std::move(note));
  const Result<sim::SimulatedProgram> simulated =
      simulate(*run, *machine, command, launch, recorded);
  if (!simulated) return reports::fail(simulated.error());
  if (!command.traces.empty()) {
    const Status kept = sim::write_simulated_traces(*simulated, *run, command.traces);
    if (!kept) return reports::fail(kept.error(), reports::ExitStatus::own_failure);
  }
  // `run` is moved into the report: that of the hang, or that of the whole run.
  if (simulated->result.stuck)
    return write_failure(reports::simulated_hang(*simulated, std::move(*run),
                                                 reports::simulated_json(*simulated, recorded)),
                         command.output);
  const trace::Run played =
      sim::as_simulated(std::move(*run), simulated->program, simulated->folding, simulated->result);
  const auto content = [&](const std::string& kind, bool to_stdout) {
    if (kind == "timeline") return reports::simulated_timeline(verify::verify(played), played);
    if (kind == "json")
      return fmt::format("{}\n", reports::simulated_json(*simulated, recorded).dump(2));
    return reports::simulated_text(*simulated, recorded, reports::text_width(to_stdout));
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
  command
      ->add_option("--gamma", options->gamma,
                   "Bandwidth of the reduction; default: it takes no time")
      ->type_name("RATE");
  command
      ->add_option("--machine", options->machine,
                   "Take links from this machine: a file, or the name of a\nshipped one: dgx-h100")
      ->type_name("NAME|FILE");
  command->add_flag("--recorded-calls", options->recorded_calls,
                    "Let calls take as long as they did when recorded");
  command
      ->add_option("--scale-calls", options->scale_calls,
                   "Multiply the recorded times of calls: 0.5 for a network\ntwice as fast")
      ->check(CLI::Range(0.0, 1000.0))
      ->type_name("FACTOR");
  command
      ->add_option("--slow", options->slow,
                   "Let the work of these ranks take FACTOR times as long:\n3=1.2 or 4-7=2")
      ->allow_extra_args(false)
      ->type_name("RANKS=FACTOR");
  command
      ->add_option("--launch", options->launch, "Time that the host needs to launch an operation")
      ->type_name("TIME")
      ->capture_default_str();
  command->add_flag("--apart", options->apart, "Simulate every rank, even if several do the same");
  command->add_option("--format", options->load.format, "Read the files as this format")
      ->type_name("NAME");
  command
      ->add_option("--traces", options->traces,
                   "Write the simulated run here (new folder), as traces\nthat other commands read")
      ->type_name("DIR");
  options->output.forms.kinds.emplace_back("timeline");
  add_simulation_output(*command, options->output);
  command->footer(kTraceFooter);
  command->callback([options, &status] { status = simulate_trace(*options); });
}

}  // namespace lockstep::cli
