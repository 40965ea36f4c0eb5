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

}  // namespace lockstep
