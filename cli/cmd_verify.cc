// lockstep verify PATH…: judges recorded runs, derivations and scenarios; with --ci for a CI
// service.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/terminal.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/report_options.h"
#include "reports/ci/ci_reports.h"
#include "reports/judge.h"
#include "runtime/derive/derive.h"
#include "trace/evidence/evidence.h"
#include "trace/formats/format.h"
#include "trace/trace_builder.h"

namespace lockstep::cli {
namespace {

struct VerifyCommand {
  reports::TracesToJudge traces;
  std::string ci;  // a service's name, or "auto": by the environment; empty: not in CI
  reports::ReportOptions report;
};

constexpr const char* kVerifyFooter = R"(Examples:
  Why did this job hang? Give a folder with the traces of its ranks, and other
  evidence (logs, stacks, the output of ncclras):
    lockstep verify /tmp/job-4711/
  The same for some ranks only; the report lists what is missing:
    lockstep verify rank_0.trace.jsonl.gz rank_3.ring
  In CI: fail on warnings, too, and write the reports that the service shows:
    lockstep verify --ci traces/
  Fail only on what is new since the baseline was written:
    lockstep verify traces/ --baseline known.json --output sarif=out.sarif
  See it on a timeline, in https://ui.perfetto.dev:
    lockstep verify traces/ --output timeline=run.json
  Write a proof if the run neither diverged nor could have deadlocked:
    lockstep verify traces/ --certificate run.txt
  Can any mix of batches over the ranks diverge? For a scenario; or for a folder
  that `lockstep derive` or your own program wrote, with a proof:
    lockstep verify job.yaml
    lockstep verify derived/ --certificate safe.txt
  Dumps on another machine:
    ssh node4 tar cz dumps | lockstep verify -
  Flight Recorder dumps with unusual file names:
    lockstep verify dumps.tar.gz --rank-pattern 'node\d+-(\d+)\.bin'

With --ci, --fail-on is "warning" unless given, and these reports are written:
  github   annotations in the log, lockstep.sarif, the step's summary
  gitlab   lockstep.xml, lockstep.codequality.json
  junit    lockstep.xml
docs/ci/README.md has complete files for GitHub Actions, GitLab CI and Jenkins.

Exit status: 0 clean; 1 findings at or above --fail-on, or a mix of batches that
can go wrong; 2 bad usage or input; 3 inconclusive; 4 the tool failed.

Folders are searched two levels deep (node0/, node1/), "-" is standard input.
Reads these formats, plain, packed (gzip, xz, zstd) or in a tar or zip archive,
recognised by content:
)";

std::string footer() {
  std::string text = kVerifyFooter;
  const auto add = [&](const auto& one) {
    text += fmt::format("  {:<16} {}\n", one.name, one.summary);
  };
  for (const trace::Format& format : trace::all_formats()) add(format);
  text += "Also reads, as evidence:\n";
  for (const trace::EvidenceSource& source : trace::evidence_sources()) add(source);
  return text;
}

bool is_scenario(const std::filesystem::path& path) {
  std::error_code none;
  // By its name, since traces are recognised by content and YAML reads almost anything.
  const bool named_so = path.extension() == ".yaml" || path.extension() == ".yml";
  return named_so && !std::filesystem::is_directory(path, none);
}

bool is_derivation(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::exists(path / "product.json", none);
}

// A scenario or a derivation must be the only path, and its verdict cannot be filtered: it either
// holds for all mixes of batches or does not.
Status check_whole(const VerifyCommand& command, const std::string& path) {
  if (command.traces.paths.size() > 1)
    return Error{"this is judged by itself, and several paths were given",
                 {path},
                 "call `lockstep verify` once for each"};
  if (const reports::FilterOptions& filter = command.report.filter;
      filter.any() || !filter.write_baseline.empty())
    return Error{"only findings of recorded runs are filtered; this is decided for all mixes",
                 {path},
                 "leave out the options that filter"};
  return Status::ok();
}

reports::ExitStatus run_verify(VerifyCommand command, const reports::CiEnvironment& environment) {
  reports::ReportOptions& report = command.report;
  if (!command.ci.empty()) {
    const reports::CiService service =
        // "auto" names no service: the environment does.
        reports::ci_service_named(command.ci).value_or(reports::ci_service(environment));
    for (std::string& output : reports::ci_outputs(service, environment))
      report.outputs.push_back(std::move(output));
  }
  if (const Status outputs = reports::check_outputs(report); !outputs)
    return reports::fail(outputs.error());
  const std::vector<std::string>& paths = command.traces.paths;
  // A folder with traces and a product.json is a derivation.
  const auto whole = std::find_if(paths.begin(), paths.end(), [](const std::string& path) {
    return is_scenario(path) || is_derivation(path);
  });
  if (whole == paths.end()) return reports::judge_traces(command.traces, report);
  if (const Status alone = check_whole(command, *whole); !alone)
    return reports::fail(alone.error());
  if (is_derivation(*whole))
    return reports::judge_product(*whole, command.traces.certificate, report);
  runtime::DeriveOptions derived;
  derived.path = *whole;
  derived.certificate = command.traces.certificate;
  derived.outputs = report.outputs;
  derived.quiet = report.quiet;
  if (!report.quiet)
    print_error(
        fmt::format("note: {0} is a scenario: every mix of batches is judged, as by "
                    "`lockstep derive`\n  to train it and judge that run: lockstep run {0}",
                    printable(*whole)));
  return runtime::derive_scenario(derived);
}

}  // namespace

void add_verify(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command = app.add_subcommand("verify", "Judge recorded traces: who, what, where, why");
  const auto options = std::make_shared<VerifyCommand>();
  command
      ->add_option("PATH", options->traces.paths,
                   "Trace files, or folders that hold them; or a\n"
                   "scenario, or a folder with product.json")
      ->type_name("")
      ->required();
  command
      ->add_option("--format", options->traces.load.format,
                   "Read the files as this format (below);\n"
                   "default: by content")
      ->type_name("NAME");
  command
      ->add_option("--rank-pattern", options->traces.load.rank_pattern,
                   "Regular expression whose first group is\n"
                   "the rank in a file's name")
      ->type_name("REGEX");
  command
      ->add_option("--expect-ranks", options->traces.load.expect_ranks,
                   "Number of ranks of the job: ranks without a\n"
                   "trace are missing; default: as recorded")
      ->type_name("N")
      ->check(CLI::Range(1, trace::kMaxWorldSize));
  command
      ->add_option("--semantics", options->traces.semantics,
                   "Library whose rules say when a call blocks its rank;\ndefault: as recorded")
      ->check(CLI::IsMember({"nccl", "gloo", "mpi"}));
  command->add_flag("--hung", options->traces.hung,
                    "The job had hung when it was killed, or dumped:\n"
                    "what a rank still waited for never came");
  command
      ->add_flag("--ci{auto}", options->ci,
                 "Write the reports that this CI service shows:\n"
                 "--ci=github, gitlab or junit; --ci alone goes\n"
                 "by GITHUB_ACTIONS and GITLAB_CI, else junit")
      ->check(CLI::IsMember({"auto", "github", "gitlab", "junit"}).description(""));
  command
      ->add_option("--certificate", options->traces.certificate,
                   "Write a proof that the run is clean or the\n"
                   "program is safe; see check-certificate")
      ->type_name("FILE");
  add_report_options(*command, options->report);
  command->footer(footer());
  command->callback([options, command, &status] {
    // In CI, warnings fail the job unless --fail-on says otherwise.
    if (!options->ci.empty() && command->count("--fail-on") == 0)
      options->report.fail_on = "warning";
    status = run_verify(*options, reports::ci_environment_of_this_process());
  });
}

}  // namespace lockstep::cli
