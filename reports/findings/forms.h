// Every form of a report, by name, and the options for where a report goes, what it counts and
// which exit status it gives:
//
//   --output KIND=PATH   (report_forms(); PATH "-": standard output; may be given several times;
//                         without KIND, by the ending of PATH)
//   --fail-on error|warning|note|never
//   --quiet
//   --stacks
//   --map-path FROM=TO   (reports/ci/locations.h)
//   and the filter (reports/filter/filter.h)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "reports/ci/locations.h"
#include "reports/filter/filter.h"
#include "reports/output_targets.h"
#include "trace/run.h"
#include "verify/replay/semantics.h"

namespace lockstep::reports {

// What a command found besides findings: the comparison with a reference, the proof of a
// derivation. Part of the forms text, json, html and markdown.
struct Supplement {
  std::string title;
  std::string text;  // lines of at most 80 columns
  std::string key;   // of the JSON report, with this value, a JSON text
  std::string json;
  // True: it takes the place of the report, except in JSON. For a verdict that is not about a run.
  bool alone = false;
};

struct ReportOptions {
  std::vector<std::string> outputs;  // as given: KIND=PATH, or PATH
  std::string fail_on = "error";     // as given, one of the above: exit_status()
  bool quiet = false;
  FilterOptions filter = {};
  std::vector<PathMap> path_maps = {};  // for the forms of CI services
  bool stacks = false;                  // text shows all frames of the calls in the evidence
  std::string scenario = {};            // the file of the scenario that ran; empty: no such run
  // The semantics by which verify() judged, if not the traces' own.
  std::optional<verify::CallSemantics> semantics = std::nullopt;
  std::optional<Supplement> supplement = std::nullopt;
};

// The forms of a report.
OutputForms report_forms();

// Writes the baseline and every --output, and prints the text report, as write_targets() does.
// Errors: a bad --output (check_outputs() reports it before any work), a file that cannot be
// written.
Status write_reports(const FilteredReport& report, const trace::Run& run,
                     const ReportOptions& options);

// True if an --output uses standard output, so that nothing else may be printed there. Requires
// options that check_outputs() accepts.
bool takes_stdout(const ReportOptions& options);

// For the start of a command, before it computes: checks the --output options, and that the files
// of these and of --write-baseline could be written now (reports/output_targets.h). `made`: folders
// that the command makes itself, in which nothing is looked for.
Status check_outputs(const ReportOptions& options, const std::vector<std::string>& made = {});

}  // namespace lockstep::reports
