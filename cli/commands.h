// The subcommands: one file each, `cmd_<name>.cc`. Every add_<name>() describes the options where
// it defines them; when the user chooses the command, its callback does the work and sets `status`.
#pragma once

#include <CLI/CLI.hpp>

#include "reports/exit_status.h"

namespace lockstep::cli {

void add_run(CLI::App& app, reports::ExitStatus& status);
void add_verify(CLI::App& app, reports::ExitStatus& status);
void add_check_certificate(CLI::App& app, reports::ExitStatus& status);
void add_compare(CLI::App& app, reports::ExitStatus& status);
void add_derive(CLI::App& app, reports::ExitStatus& status);
void add_convert(CLI::App& app, reports::ExitStatus& status);
void add_scenario(CLI::App& app, reports::ExitStatus& status);
void add_simulate(CLI::App& app, reports::ExitStatus& status);
void add_sweep(CLI::App& app, reports::ExitStatus& status);
void add_completion(CLI::App& app, reports::ExitStatus& status);
void add_calibrate(CLI::App& app, reports::ExitStatus& status);
void add_calibrate_check(CLI::App& calibrate, reports::ExitStatus& status);
void add_watch(CLI::App& app, reports::ExitStatus& status);
void add_demo(CLI::App& app, reports::ExitStatus& status);
void add_explain(CLI::App& app, reports::ExitStatus& status);
void add_record(CLI::App& app, reports::ExitStatus& status);

}  // namespace lockstep::cli
