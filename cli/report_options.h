// The options that every command that judges has, for CLI11; what they mean:
// reports/findings/forms.h and reports/filter/filter.h.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "reports/exit_status.h"
#include "reports/filter/filter.h"
#include "reports/findings/forms.h"
#include "reports/output_targets.h"

namespace lockstep::cli {

// Adds the options to `command`, which fills in `options` when it is parsed.
void add_report_options(CLI::App& command, reports::ReportOptions& options);

// Only --output, for a command whose report has no severities to fail on or to filter.
void add_output_option(CLI::App& command, std::vector<std::string>& outputs);

// Adds --meta and --no-meta, of which one may be given. Returns --meta.
CLI::Option* add_meta_options(CLI::App& command, bool& meta, bool& no_meta);

}  // namespace lockstep::cli
