#include "cli/report_options.h"

namespace lockstep::cli {

namespace {

// The options by which a CI job chooses which findings count.
void add_filter_options(CLI::App& command, reports::FilterOptions& options) {
  command
      .add_option("--only", options.only, "Count only findings of this rule, or of several: a,b")
      ->type_name("RULE")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      .add_option("--disable", options.disable,
                  "Leave out findings of this rule, or of several: a,b")
      ->type_name("RULE")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      .add_option("--suppressions", options.suppressions,
                  "Set aside accepted findings: a YAML list\n(docs/reports.md)")
      ->type_name("FILE");
  command
      .add_option("--baseline", options.baseline,
                  "Set aside findings that are in this file;\nonly new ones count")
      ->type_name("FILE");
  command
      .add_option("--write-baseline", options.write_baseline,
                  "Write the findings as a new baseline")
      ->type_name("FILE");
}

}  // namespace

void add_output_option(CLI::App& command, std::vector<std::string>& outputs) {
  command
      .add_option("-o,--output", outputs,
                  "Write the report: r.html, r.json, r.md, r.csv, r.sarif\n"
                  "or r.xml (JUnit), by its ending; or KIND=PATH: text,\n"
                  "json, html, markdown, csv, timeline, dot, sarif,\n"
                  "junit, github, gitlab. \"-\" is standard output")
      ->type_name("[KIND=]PATH")
      ->allow_extra_args(false);
}

CLI::Option* add_meta_options(CLI::App& command, bool& meta, bool& no_meta) {
  CLI::Option* out = command.add_flag("--meta", meta,
                                      "Derive with tensors without values; the default for\n"
                                      "the published models, and for more than 64 ranks");
  command.add_flag("--no-meta", no_meta, "Derive with real values, whatever memory they take")
      ->excludes(out);
  return out;
}

void add_report_options(CLI::App& command, reports::ReportOptions& options) {
  add_output_option(command, options.outputs);
  command.add_option("--fail-on", options.fail_on, "Exit with 1 for findings this severe or worse")
      ->type_name("error|warning|note|never")
      ->check(CLI::IsMember({"error", "warning", "note", "never"}).description(""))
      ->capture_default_str();
  // Parsed at once: a mistake is one of usage, and is reported before a long job runs.
  command
      .add_option_function<std::vector<std::string>>(
          "--map-path",
          [&options](const std::vector<std::string>& maps) {
            for (const std::string& text : maps) {
              const auto map = reports::parse_path_map(text);
              if (!map) throw CLI::ValidationError(map.error().message);
              options.path_maps.push_back(*map);
            }
          },
          "In sarif, github and gitlab: replace the start FROM\n"
          "of paths by TO, their path in the repository:\n/app=")
      ->type_name("FROM=TO")
      ->allow_extra_args(false);
  command.add_flag("--stacks", options.stacks,
                   "Print group, shapes and all stack frames of each call\nin the evidence");
  command.add_flag("-q,--quiet", options.quiet, "Do not print the text report");
  add_filter_options(command, options.filter);
}

}  // namespace lockstep::cli
