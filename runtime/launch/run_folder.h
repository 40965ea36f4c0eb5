// The folder of one run: traces, logs, results and the scenario that was run.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/job/scenario.h"

namespace lockstep::runtime {

// The folder's name if the user gives none: "<stem of the scenario's file>-<UTC time>".
std::string run_folder_name(const std::string& scenario_file, std::time_t now);

// Creates the folder and copies the scenario's file into it. With `may_rename`, adds a number if a
// folder of that name exists. Returns the folder. Errors: it cannot be created, or holds the traces
// of an earlier run.
Result<std::string> make_run_folder(const std::string& folder, const Scenario& scenario,
                                    bool may_rename);

std::string ring_file(const std::string& folder, int rank);
std::string log_file(const std::string& folder, int rank);
std::string result_file(const std::string& folder, int rank);
std::string stack_file(const std::string& folder, int rank);
std::string store_file(const std::string& folder);

// The last lines of a log, at most `lines`, from its last few KB; safe to print.
std::vector<std::string> last_lines(const std::string& file, std::size_t lines);

// The error at the end of a log, parsed back into an Error; nothing if it ends otherwise.
std::optional<Error> last_error(const std::string& log);

}  // namespace lockstep::runtime
