// This process's environment: its variables, and the files that they lead to.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// The variable's value; empty if it is not set.
std::string environment_variable(const char* name);

// The folder for what can be made or fetched again: LOCKSTEP_CACHE, else "lockstep" in the user's
// cache folder (XDG_CACHE_HOME, or ~/.cache). It need not exist.
std::string cache_folder();

// Whether the file is there and may be run.
bool is_program(const std::string& file);

// The file that a shell runs for `program`, where `path` is its PATH: "/usr/bin:/bin". A name with
// a slash is a file, as in execvp(3). Empty: there is none.
std::string find_program(const std::string& program, std::string_view path);

}  // namespace lockstep
