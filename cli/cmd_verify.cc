// lockstep verify PATH…: judges recorded runs.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/report_options.h"
#include "reports/judge.h"
#include "trace/evidence/evidence.h"
#include "trace/formats/format.h"
#include "trace/trace_builder.h"

namespace lockstep::cli {
namespace {

struct VerifyCommand {
  reports::TracesToJudge traces;
  bool product = false;
  reports::ReportOptions report;
};

constexpr const char* kVerifyFooter = R"(Examples:
  Why did this job hang? A folder with the traces of its ranks, and whatever
  else there is of it (logs, stacks, what ncclras said):
    lockstep verify /tmp/job-4711/
  The same for some ranks only; what is missing is said in the report:
    lockstep verify rank_0.trace.jsonl.gz rank_3.ring
  In CI: fail on warnings too, keep the report for other programs:
    lockstep verify traces/ --fail-on warning --output json=report.json --quiet
  Fail only on what is new since the baseline was written:
    lockstep verify traces/ --baseline known.json --output sarif=out.sarif
  Look at it on a timeline, in https://ui.perfetto.dev:
    lockstep verify traces/ --output timeline=run.json
  A proof, if the run neither diverged nor could have deadlocked:
    lockstep verify traces/ --certificate run.txt
  Can any mix of batches over the ranks diverge? And a proof, if not:
    lockstep verify --product derived/ --certificate safe.txt
  The Flight Recorder dumps of a hung PyTorch job, whose names are unusual:
    lockstep verify dumps.tar.gz --rank-pattern 'node\d+-(\d+)\.bin'

Reads, plain, gzipped or in a tar archive, known by content, in any order:
)";

std::string footer() {
  std::string text = kVerifyFooter;
  for (const trace::Format& format : trace::all_formats()) {
    std::string name = "  " + std::string(format.name);
    name.resize(std::max<std::size_t>(name.size() + 1, 19), ' ');
    text += name + std::string(format.summary) + "\n";
  }
  text += "Beside them, as evidence:\n";
  for (const trace::EvidenceSource& source : trace::evidence_sources()) {
    std::string name = "  " + std::string(source.name);
    name.resize(std::max<std::size_t>(name.size() + 1, 19), ' ');
    text += name + std::string(source.summary) + "\n";
  }
  return text;
}

reports::ExitStatus run_verify(const VerifyCommand& command) {
  if (const Status outputs = reports::check_outputs(command.report); !outputs)
    return reports::fail(outputs.error());
  if (command.product && command.traces.paths.size() > 1) {
    return reports::fail({"--product judges one derivation, and several paths were given",
                          {command.traces.paths[1]},
                          "give the folder that holds product.json"});
  }
  if (command.product)
    return reports::judge_product(command.traces.paths.front(), command.traces.certificate,
                                  command.report);
  return reports::judge_traces(command.traces, command.report);
}

}  // namespace

void add_verify(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command = app.add_subcommand("verify", "Judge recorded traces: who, what, where, why");
  const auto options = std::make_shared<VerifyCommand>();
  command->add_option("PATH", options->traces.paths, "Trace files, or folders that hold them")
      ->type_name("")
      ->required();
  command->add_option("--format", options->traces.load.format,
                      "Read the files as this format (below);\n"
                      "default: by content");
  command->add_option("--rank-pattern", options->traces.load.rank_pattern,
                      "Regular expression whose first group is\n"
                      "the rank in a file's name");
  command
      ->add_option("--expect-ranks", options->traces.load.expect_ranks,
                   "The job had so many ranks: those without a\n"
                   "trace are missing; default: as recorded")
      ->type_name("N")
      ->check(CLI::Range(1, trace::kMaxWorldSize));
  command
      ->add_option("--semantics", options->traces.semantics,
                   "What blocks a rank; default: as recorded")
      ->check(CLI::IsMember({"nccl", "gloo", "mpi"}));
  command->add_flag("--product", options->product,
                    "PATH is a derivation: judge every mix of\n"
                    "conditions over the ranks");
  command
      ->add_option("--certificate", options->traces.certificate,
                   "Write the proof that a clean run or a safe\n"
                   "program is one; see check-certificate")
      ->type_name("FILE");
  add_report_options(*command, options->report);
  command->footer(footer());
  command->callback([options, &status] { status = run_verify(*options); });
}

}  // namespace lockstep::cli
