// The exit statuses of every command (docs/verify.md).
#pragma once

#include <string>

#include "base/result.h"
#include "verify/product/decide.h"
#include "verify/report.h"

namespace lockstep::reports {

enum class ExitStatus : int {
  clean = 0,
  findings = 1,   // findings at or above --fail-on
  bad_usage = 2,  // bad usage or a bad scenario
  inconclusive = 3,
  own_failure = 4,
};

// After a signal: 128 + its number, as in shells; 130 for Ctrl-C.
constexpr ExitStatus interrupted_by(int signal) { return static_cast<ExitStatus>(128 + signal); }

// 1 for findings at or above `fail_on` ("never": none), else 3 if inconclusive, else 0.
ExitStatus exit_status(const verify::Report& report, const std::string& fail_on);

// 0 safe, 3 inconclusive, else 1.
ExitStatus status_of(verify::ProductVerdict verdict);

// Prints "lockstep: error: …" and the fix on standard error; returns `status`.
ExitStatus fail(const Error& error, ExitStatus status = ExitStatus::bad_usage);

}  // namespace lockstep::reports
