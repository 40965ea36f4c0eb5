// lockstep simulate WHAT: predicts how long things take, on machines that you do not have.
#include "cli/cmd_simulate.h"

#include <filesystem>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "base/quantities.h"
#include "cli/commands.h"
#include "cli/report_options.h"

namespace lockstep::cli {
namespace {

constexpr const char* kSimulateFooter = R"(Examples:
  How long does a ring all-reduce over 64 ranks take?
    lockstep simulate collective --op all_reduce --algorithm ring \
      --ranks 64 --bytes 1MiB --alpha 500ns --beta 50GB/s
  How long does a step of this job take on other machines?
    lockstep simulate job.yaml --machine dgx-h100
  Where does the time go, and what would help? Also as an HTML page, and with
  random variation between ranks:
    lockstep simulate job.yaml --machine dgx-h100 \
      --output html=forecast.html --trials 200 --jitter compute=5%,image=20%
  How would this transformer train on a cluster, and does it fit?
    lockstep simulate plan llama3-70b
  Does this program hang, and how long does it take?
    lockstep simulate trace program/ --alpha 1us --beta 1GB/s
  `lockstep simulate WHAT --help` has more.

Exit status: 0 the job ends; 1 it hangs, raises an exception, or pairs wrong
calls, and the report says why; 2 bad usage or scenario, or a job that cannot be
derived; 4 the tool failed.
docs/simulate.md explains what is computed, and from which sources.)";

}  // namespace

void add_simulation_output(CLI::App& command, SimulationOutput& output) {
  std::string kinds;  // "text, json or html"
  for (const std::string& kind : output.forms.kinds)
    kinds += (kinds.empty() ? "" : kind == output.forms.kinds.back() ? " or " : ", ") + kind;
  const std::string help = fmt::format(
      "Write the result as {},\nby the ending (r.json) or as json=PATH; \"-\" is\nstandard output",
      kinds);
  command.add_option("-o,--output", output.outputs, help)
      ->type_name("[KIND=]PATH")
      ->allow_extra_args(false);
  command.add_flag("-q,--quiet", output.quiet, "Do not print the text");
}

Status check_simulation_output(const SimulationOutput& output,
                               const std::vector<std::string>& made) {
  const auto targets = reports::parse_output_targets(output.outputs, output.forms);
  if (!targets) return targets.error();
  return reports::check_writable(*targets, made);
}

Status check_traces_folder(const std::string& folder) {
  std::error_code missing;
  if (folder.empty() || !std::filesystem::is_directory(folder, missing) ||
      std::filesystem::is_empty(folder, missing))
    return Status::ok();
  return Error{"--traces: this folder is not empty", {folder}, "name a new one"};
}

reports::ExitStatus write_simulation(const reports::OutputContent& content,
                                     const SimulationOutput& output, reports::ExitStatus status) {
  const auto targets = reports::parse_output_targets(output.outputs, output.forms);
  const Status written =
      targets ? reports::write_targets(*targets, output.quiet, content) : Status(targets.error());
  return written ? status : reports::fail(written.error(), reports::ExitStatus::own_failure);
}

reports::ExitStatus write_simulation(const std::function<std::string(std::size_t width)>& text,
                                     const std::string& json, const SimulationOutput& output) {
  const auto content = [&](const std::string& kind, bool to_stdout) {
    return kind == "json" ? json : text(reports::text_width(to_stdout));
  };
  return write_simulation(content, output);
}

reports::ExitStatus write_failure(const reports::SimulatedFailure& failure,
                                  const SimulationOutput& output) {
  const auto content = [&](const std::string& kind, bool to_stdout) {
    return reports::failure_content(failure, kind, reports::text_width(to_stdout));
  };
  return write_simulation(content, output, reports::ExitStatus::findings);
}

Error with_option(const std::string& option, Error error) {
  error.message = fmt::format("{}: {}", option, error.message);
  return error;
}

Result<sim::LinkCost> parse_link(std::string_view alpha, std::string_view beta,
                                 std::optional<std::string_view> gamma) {
  const Result<Picos> latency = parse_duration(alpha);
  if (!latency) return with_option("--alpha", latency.error());
  const Result<Bandwidth> bandwidth = parse_bandwidth(beta);
  if (!bandwidth) return with_option("--beta", bandwidth.error());
  sim::LinkCost link{*latency, *bandwidth, std::nullopt};
  if (gamma) {
    const Result<Bandwidth> reducing = parse_bandwidth(*gamma);
    if (!reducing) return with_option("--gamma", reducing.error());
    link.gamma = *reducing;
  }
  return link;
}

void add_simulate(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command =
      app.add_subcommand("simulate", "Predict times on machines that you do not have");
  command->require_subcommand(0, 1);
  command->footer(kSimulateFooter);
  add_simulate_collective(*command, status);
  add_simulate_scenario(*command, status);
  add_simulate_trace(*command, status);
  add_simulate_pipeline(*command, status);
  add_simulate_plan(*command, status);
}

}  // namespace lockstep::cli
