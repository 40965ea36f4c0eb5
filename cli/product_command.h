// `lockstep verify --product DIR`: every mix of conditions at once. `lockstep derive` writes the
// same reports.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/output.h"
#include "reports/exit_status.h"
#include "reports/filter/filter.h"
#include "verify/product/decide.h"
#include "verify/product/model.h"

namespace lockstep {

// 0 safe, 3 inconclusive, else 1.
ExitStatus status_of(ProductVerdict verdict);

// Writes every --output of `options`: the report of the counterexample's run, as `filter` leaves
// it. Without a counterexample it is a report without findings, of the first steps as most ranks
// may meet them. Errors: what cannot be written.
Status write_product_reports(const ProductModel& model, const ProductDecision& decision,
                             const ReportOptions& options, const Filter& filter = {});

// Reads the derivation in `folder`, decides, prints the verdict with its counterexample, and writes
// the certificate to `certificate` (empty: none), which only a safe program has, and the --output
// files. Status: 0 safe, 1 it diverges, may deadlock or raises,
// 3 inconclusive; 2 where the folder cannot be used.
ExitStatus judge_product(const std::string& folder, const std::string& certificate,
                         const ReportOptions& report);

}  // namespace lockstep
