// `lockstep simulate WHAT`: one file per WHAT, simulate_<what>.cc, and what they have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/result.h"
#include "reports/exit_status.h"
#include "reports/forecasts/simulated_job.h"
#include "reports/output_targets.h"
#include "sim/collectives/collective.h"
#include "sim/forecast/trials.h"

namespace lockstep::cli {

void add_simulate_collective(CLI::App& simulate, reports::ExitStatus& status);
void add_simulate_scenario(CLI::App& simulate, reports::ExitStatus& status);
void add_simulate_trace(CLI::App& simulate, reports::ExitStatus& status);
void add_simulate_pipeline(CLI::App& simulate, reports::ExitStatus& status);
void add_simulate_plan(CLI::App& simulate, reports::ExitStatus& status);

// Outputs of a simulation: the text on standard output, and every --output KIND=PATH.
struct SimulationOutput {
  std::vector<std::string> outputs;  // as given: text=PATH or json=PATH; PATH "-": standard output
  bool quiet = false;
  reports::OutputForms forms{"result", {"text", "json"}};  // set before the options are added
};

// Adds --output and --quiet to `command`, which fills in `output` when it is parsed.
void add_simulation_output(CLI::App& command, SimulationOutput& output);

// Call it before the work starts. Errors: an --output that is not KIND=PATH, two on standard
// output; a file that cannot be written. `made`: folders that the command makes, in which files are
// written later.
Status check_simulation_output(const SimulationOutput& output,
                               const std::vector<std::string>& made = {});

// Call it before the work starts. Errors: `folder` (of --traces; empty: none is asked for) is not
// empty. Traces of another job that were left there, or the ones that are simulated, would be mixed
// with what is written.
Status check_traces_folder(const std::string& folder);

// Prints the text and writes every --output, as write_targets() does. Returns `status`, or that of
// an error in writing, which it reports.
reports::ExitStatus write_simulation(const reports::OutputContent& content,
                                     const SimulationOutput& output,
                                     reports::ExitStatus status = reports::ExitStatus::clean);

// The same for a result that is text for a width in columns, or `json`; both end with a line break.
reports::ExitStatus write_simulation(const std::function<std::string(std::size_t width)>& text,
                                     const std::string& json, const SimulationOutput& output);

// Reports that a simulated job does not end well, and why. Returns `findings`, or the status of an
// error in writing.
reports::ExitStatus write_failure(const reports::SimulatedFailure& failure,
                                  const SimulationOutput& output);

// The error with the option's name before the message: "--alpha: "5" has no unit".
Error with_option(const std::string& option, Error error);

// The link that --alpha, --beta and --gamma describe; without gamma, reducing takes no time. Errors
// name the option.
Result<sim::LinkCost> parse_link(std::string_view alpha, std::string_view beta,
                                 std::optional<std::string_view> gamma);

// `lockstep simulate SCENARIO --trials N`: its options.

struct TrialsCommand {
  int trials = 0;                     // 0: none
  std::optional<std::uint64_t> seed;  // empty: 1
  std::string jitter;                 // as given
  bool redraw_batches = false;
  int jobs = 0;  // 0: as many as there are processors
};

void add_trials(CLI::App& command, TrialsCommand& options);

// Parses "compute=5%,communication=10%,image=20%,text=3%"; an empty text means no jitter. Errors:
// an unknown name, a name twice, not a percentage, more than kMaxJitter.
Result<sim::Jitter> parse_jitter(const std::string& text);

// The options of the trials. Errors: those of parse_jitter; trials without variation; options of
// trials without --trials.
Result<sim::TrialOptions> trial_options(const TrialsCommand& command);

}  // namespace lockstep::cli
