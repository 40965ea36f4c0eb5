// The command line of `lockstep` as a function, so that tests can call it.
#pragma once

namespace lockstep::cli {

// Parses the arguments, runs the command, prints to standard output and standard error, and returns
// the exit status. Never throws.
int run_program(int argc, const char* const* argv);

}  // namespace lockstep::cli
