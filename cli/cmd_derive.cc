// lockstep derive SCENARIO: what the job's ranks would call under every mix of batches, without
// running it.
#include <memory>

#include "cli/commands.h"
#include "cli/input_files.h"
#include "cli/report_options.h"
#include "runtime/derive/derive.h"

namespace lockstep::cli {
namespace {

constexpr const char* kDeriveFooter = R"(Examples:
  Can any mix of batches make this job hang or mix up its tensors?
    lockstep derive scenarios/modality/manual_hang_bad.yaml
  See it happen:
    lockstep derive job.yaml --write-scenario hangs.yaml
    lockstep run hangs.yaml
  Which remedies make it safe?
    lockstep derive job.yaml --remedies
  Keep every sequence of calls, as traces:
    lockstep derive job.yaml --output-dir derived
  See how it goes wrong, on a page and in https://ui.perfetto.dev:
    lockstep derive job.yaml -o html=derived.html -o timeline=derived.json
  Does the derivation agree with a recorded run, call by call?
    lockstep derive job.yaml --against lockstep-runs/job-20261122T101500Z

A lockstep-worker runs each rank alone for a few steps, with each kind of batch;
collectives complete at once. docs/derive.md explains why that is enough for all
mixes and any number of steps, and what it assumes.

Exit status: 0 no mix of batches diverges or hangs; 1 some mix does (or the
recorded run differs); 2 bad usage or scenario, or a job that cannot be derived;
3 inconclusive; 4 the tool failed.)";

}  // namespace

void add_derive(CLI::App& app, reports::ExitStatus& status) {
  CLI::App* command =
      app.add_subcommand("derive", "Check all mixes of batches without running the job");
  const auto options = std::make_shared<runtime::DeriveOptions>();
  command->add_option("SCENARIO", options->path, "Scenario file")->type_name("")->required();
  CLI::Option* output_dir = command
                                ->add_option("--output-dir", options->output_dir,
                                             "Keep the derived calls here, as traces (new folder)")
                                ->type_name("DIR");
  command
      ->add_option("--against", options->against,
                   "Compare with a recorded run of this scenario,\ncall by call; may be given for "
                   "several runs")
      ->type_name("RUN")
      ->allow_extra_args(false);
  command
      ->add_option("--certificate", options->certificate,
                   "Write the proof here, if there is one;\n`lockstep check-certificate` checks it")
      ->type_name("FILE")
      ->needs(output_dir)
      ->excludes("--against");
  command
      ->add_option("--write-scenario", options->write_scenario,
                   "Write the counterexample here, as a scenario for\n`lockstep run`")
      ->type_name("FILE")
      ->excludes("--against");
  command
      ->add_flag("--remedies", options->remedies,
                 "If the job can go wrong, also derive it with each\nremedy")
      ->excludes("--against");
  add_output_option(*command, options->outputs);
  command->get_option("--output")->excludes("--against");
  add_meta_options(*command, options->meta, options->no_meta);
  command->add_flag("-q,--quiet", options->quiet, "Print nothing but errors");
  command->footer(kDeriveFooter);
  command->callback([options, &status] {
    StandardInput input;
    const Status taken = input.take(options->path);
    options->name_of = input.names();
    status = taken ? runtime::derive_scenario(*options) : reports::fail(taken.error());
  });
}

}  // namespace lockstep::cli
