// The independent checker, check_certificate.py, in one process of Python for all tests of a
// program: a test asks it hundreds of times.
#pragma once

#include <string>

#include "trace/derivation.h"
#include "trace/run.h"

namespace lockstep::verify {

// Its exit status, and what it printed.
struct CheckerSays {
  int status = -1;
  std::string why;
  explicit operator bool() const { return status == 0; }
};

CheckerSays check_certificate(const std::string& certificate, const trace::Derivation& derivation);
CheckerSays check_run_certificate(const std::string& certificate, const trace::Run& run);

}  // namespace lockstep::verify
