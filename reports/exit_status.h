// The exit statuses of every command, as in the report contract.
#pragma once

namespace lockstep {

enum class ExitStatus : int {
  clean = 0,
  findings = 1,   // findings at or above --fail-on
  bad_usage = 2,  // bad usage or a bad scenario
  inconclusive = 3,
  own_failure = 4,
};

// A command that a signal ended gives 128 + the signal's number, as shells do: 130 for Ctrl-C.
constexpr ExitStatus interrupted_by(int signal) { return static_cast<ExitStatus>(128 + signal); }

}  // namespace lockstep
