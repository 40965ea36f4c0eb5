// `lockstep verify --product DIR`: every mix of conditions at once.
#pragma once

#include <string>

#include "cli/exit_status.h"
#include "cli/output.h"
#include "verify/product/decide.h"

namespace lockstep {

// 0 safe, 3 inconclusive, else 1.
ExitStatus status_of(ProductVerdict verdict);

// Reads the derivation in `folder`, decides, prints the verdict with its counterexample, and writes
// the certificate to `certificate` (empty: none), which only a safe program has. --output files get
// the report of the counterexample's run. Status: 0 safe, 1 it diverges, may deadlock or raises,
// 3 inconclusive; 2 where the folder cannot be used.
ExitStatus judge_product(const std::string& folder, const std::string& certificate,
                         const ReportOptions& report);

}  // namespace lockstep
