// What every command that judges has in common: where the report goes, in which form, and which
// exit status it gives.
//
//   --output KIND=PATH   (report_forms(); PATH "-": standard output; may be given several
//   times)
//   --fail-on error|warning|note|never
//   --quiet
//   and the filter
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/result.h"
#include "reports/exit_status.h"
#include "reports/filter/filter.h"
#include "reports/output_targets.h"
#include "trace/run.h"
#include "verify/replay/semantics.h"
#include "verify/report.h"

// The options by which a CI gate chooses what counts, on every command that judges:
//
//   --only RULE,…  --disable RULE,…      rules that count, rules that do not
//   --suppressions FILE                  accepted findings (reports/filter/suppressions.h)
//   --baseline FILE                      findings that were there before
//   (reports/filter/baseline.h)
//   --write-baseline FILE                writes that file

namespace lockstep {

struct FilterOptions {
  std::vector<std::string> only, disable;              // as given: rule ids
  std::string suppressions, baseline, write_baseline;  // paths; empty: not given

  // Whether anything that was given changes what counts.
  bool any() const {
    return !only.empty() || !disable.empty() || !suppressions.empty() || !baseline.empty();
  }
};

void add_filter_options(CLI::App& command, FilterOptions& options);

// Reads the files. Errors: an unknown rule (with the nearest ids), a rule both wanted and not, a
// file that cannot be read or is not what it should be.
Result<Filter> load_filter(const FilterOptions& options);

// --write-baseline, where it was given. Errors: the file cannot be written.
Status write_baseline(const FilteredReport& filtered, const FilterOptions& options);

// The day it is, UTC. Read once per command and passed on.
std::chrono::sys_days today_utc();

struct ReportOptions {
  std::vector<std::string> outputs;  // as given: KIND=PATH
  std::string fail_on = "error";     // as given; CLI11 has checked it
  bool quiet = false;
  FilterOptions filter = {};
  // The rules by which verify() judged, where they were not those of the traces.
  std::optional<CallSemantics> semantics = std::nullopt;
};

// Adds the options to `command`, which fills in `options` when it is parsed.
void add_report_options(CLI::App& command, ReportOptions& options);

// Only --output, for a command whose report has no severities to fail on or to filter.
void add_output_option(CLI::App& command, std::vector<std::string>& outputs);

// The forms of a report.
OutputForms report_forms();

// Prints the text report and writes every --output, as write_targets() does, and the baseline.
// Errors: a bad --output (check_outputs says so before any work), a file that cannot be written.
Status write_reports(const FilteredReport& report, const Run& run, const ReportOptions& options);

// Whether an --output takes standard output, so that nothing else may be printed there. Valid where
// check_outputs() finds nothing.
bool takes_stdout(const ReportOptions& options);

// The same check of the --output options as write_reports', for the start of a command.
Status check_outputs(const ReportOptions& options);

// By the contract: findings at or above `fail_on` (never: none), else inconclusive, else clean.
ExitStatus exit_status(const Report& report, const std::string& fail_on);

// Prints "lockstep: error: …" and the fix on standard error; gives `status` back.
ExitStatus fail(const Error& error, ExitStatus status = ExitStatus::bad_usage);

// Colour only on a terminal that can show it, and never against NO_COLOR (https://no-color.org).
// `no_color` and `term` are those variables; null: not set.
bool wants_color(bool is_terminal, const char* no_color, const char* term);

// wants_color() for this process's standard output.
bool stdout_wants_color();

}  // namespace lockstep
