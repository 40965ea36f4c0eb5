// lockstep gate PATH…: judge what a CI job produced, and leave the reports that its service shows.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "cli/report_options.h"
#include "reports/ci/ci_service.h"
#include "reports/judge.h"
#include "runtime/derive/derive.h"

namespace lockstep::cli {
namespace {

constexpr const char* kGateFooter = R"(Examples:
  What a training test recorded:
    lockstep gate traces/
  What any mix of batches would do, of a scenario, or of a program of your own:
    lockstep gate job.yaml
    lockstep gate derived/
  Let accepted findings pass until their date, and keep a page to look at:
    lockstep gate traces/ --suppressions lockstep.known.yaml -o html=report.html

It is `verify --fail-on warning`, `derive` or `verify --product`, by what PATH
is, with the reports that the service shows:
  github   annotations in the log, lockstep.sarif, the step's summary
  gitlab   lockstep.xml, lockstep.codequality.json
  junit    lockstep.xml
docs/ci/README.md has whole files for GitHub Actions, GitLab CI and Jenkins.

Exit status: 0 clean; 1 findings at or above --fail-on, or a mix of batches that
goes wrong; 2 bad usage or scenario; 3 inconclusive: what cannot be judged does
not pass; 4 the tool failed.)";

struct GateCommand {
  std::vector<std::string> paths;
  std::string service;  // empty: by the environment
  reports::ReportOptions report;
};

bool is_scenario(const std::filesystem::path& path) {
  std::error_code none;
  const bool named_so = path.extension() == ".yaml" || path.extension() == ".yml";
  return named_so && !std::filesystem::is_directory(path, none);
}

bool is_derivation(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::exists(path / "product.json", none);
}

// What is decided for all mixes of batches is one thing, and holds or does not.
Status check_whole(const GateCommand& command, const std::string& path) {
  if (command.paths.size() > 1)
    return Error{"this is decided by itself, and several paths were given",
                 {path},
                 "call `lockstep gate` once for each"};
  if (const reports::FilterOptions& filter = command.report.filter;
      filter.any() || !filter.write_baseline.empty())
    return Error{"findings are filtered of recorded runs only; this is decided for all mixes",
                 {path},
                 "leave the options that filter out"};
  return Status::ok();
}

reports::ExitStatus gate(const GateCommand& command, const reports::CiEnvironment& environment) {
  reports::ReportOptions report = command.report;
  const reports::CiService service =
      reports::ci_service_named(command.service).value_or(reports::ci_service(environment));
  for (std::string& output : reports::ci_outputs(service, environment))
    report.outputs.push_back(std::move(output));
  if (const Status outputs = reports::check_outputs(report); !outputs)
    return reports::fail(outputs.error());
  const auto whole = std::find_if(command.paths.begin(), command.paths.end(), [](const auto& path) {
    return is_scenario(path) || is_derivation(path);
  });
  if (whole == command.paths.end()) return reports::judge_traces({.paths = command.paths}, report);
  if (const Status one = check_whole(command, *whole); !one) return reports::fail(one.error());
  if (!is_scenario(*whole)) return reports::judge_product(*whole, "", report);
  runtime::DeriveOptions derived;
  derived.path = *whole;
  derived.outputs = report.outputs;
  derived.quiet = report.quiet;
  return runtime::derive_scenario(derived);
}

}  // namespace

void add_gate(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command =
      app.add_subcommand("gate", "Judge in CI, with the reports that the service shows");
  const auto options = std::make_shared<GateCommand>();
  options->report.fail_on = "warning";
  command
      ->add_option("PATH", options->paths,
                   "Recorded traces; or a scenario, or a folder with\nproduct.json")
      ->type_name("")
      ->required();
  command
      ->add_option("--service", options->service,
                   "Whose reports; default: by GITHUB_ACTIONS and\nGITLAB_CI, else junit")
      ->type_name("github|gitlab|junit")
      ->check(CLI::IsMember({"github", "gitlab", "junit"}).description(""));
  add_report_options(*command, options->report);
  command->footer(kGateFooter);
  command->callback(
      [options, &status] { status = gate(*options, reports::ci_environment_of_this_process()); });
}

}  // namespace lockstep::cli
