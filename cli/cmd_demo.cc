// lockstep demo: explains a hang that comes with the program.
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/input_files.h"
#include "cli/report_options.h"
#include "reports/judge.h"

namespace lockstep::cli {
namespace {

constexpr const char* kDemoFooter = R"(Examples:
  lockstep demo
  See the page that you would send to a colleague:
    lockstep demo -o report.html

The job had 8 ranks, and each left the dump of PyTorch's Flight Recorder. The
program that hung is next to the dumps. Exit status: 0 if the hang was
explained, 4 otherwise.)";

constexpr const char* kExample = "hung-job";

// As a shell's comment, in the columns of standard output.
std::string comment(const std::string& text) {
  std::string out = "# ";
  for (const char c : wrap(text, stdout_columns() - 2)) {
    out += c;
    if (c == '\n') out += "# ";
  }
  return out;
}

// Shows the command line that a user would type, its output, and what to type for another job.
reports::ExitStatus run_demo(const reports::ReportOptions& report) {
  const std::optional<std::string> examples = shipped_folder("examples");
  std::error_code unknown;
  const std::string folder = fmt::format("{}/{}", examples.value_or(""), kExample);
  if (!examples || !std::filesystem::is_directory(folder, unknown))
    return reports::fail({"the example's files are not next to this program",
                          {},
                          "install the package or the wheel, or run it from its build folder"},
                         reports::ExitStatus::own_failure);
  const bool prints_text = !report.quiet && !reports::takes_stdout(report);
  const Paint paint{stdout_wants_color()};
  if (prints_text)
    std::cout << paint.dim(
                     comment("A training job of 8 ranks hung. Each left a Flight Recorder dump, "
                             "and this is what Lockstep makes of them:"))
              << "\n"
              << paint.bold(fmt::format("$ lockstep verify {}", printable(folder))) << "\n\n"
              << std::flush;
  reports::TracesToJudge traces{.paths = {folder}};
  const reports::ExitStatus judged = reports::judge_traces(traces, report);
  if (judged != reports::ExitStatus::findings)
    // The example hangs: a clean verdict is our mistake.
    return judged == reports::ExitStatus::clean ? reports::ExitStatus::own_failure : judged;
  if (prints_text)
    std::cout << "\n"
              << paint.dim(
                     comment("Your own job: give the folder with its dumps, logs and stacks."))
              << "\n"
              << paint.bold("$ lockstep verify PATH") << "\n"
              << std::flush;
  return reports::ExitStatus::clean;
}

}  // namespace

void add_demo(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command =
      app.add_subcommand("demo", "Explain a sample hang that comes with the program");
  const auto options = std::make_shared<reports::ReportOptions>();
  add_output_option(*command, options->outputs);
  command->add_flag("-q,--quiet", options->quiet, "Do not print the text report");
  command->footer(kDemoFooter);
  command->callback([options, &status] { status = run_demo(*options); });
}

}  // namespace lockstep::cli
