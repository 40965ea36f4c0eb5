// The verdict about a product as text: the counterexample as a table of ranks and steps, the two
// sequences side by side where they diverge, and what verify() says of the run.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "reports/filter/filter.h"
#include "reports/findings/forms.h"
#include "verify/product/decide.h"

namespace lockstep::reports {

struct ProductTextOptions {
  bool color = false;
  std::size_t width = 80;       // columns; at least 60
  std::size_t most_ranks = 12;  // in the table; ranks that differ are always there
  std::size_t most_steps = 8;
};

// For people: the verdict with its reasons or its counterexample. Ends with a line break.
std::string product_text_report(const verify::ProductModel& model,
                                const verify::ProductDecision& decision,
                                const ProductTextOptions& options = {});

// The other forms of reports.

// Writes every --output of `options`: the report of the counterexample's run, after `filter`, and
// the verdict about all mixes with what it assumes. Without a counterexample there is that verdict
// alone; forms that are about a run (timeline, csv, …) then hold the first steps under the
// conditions that most ranks have, without findings. Errors: what cannot be written.
Status write_product_reports(const verify::ProductModel& model,
                             const verify::ProductDecision& decision, const ReportOptions& options,
                             const Filter& filter = {});

}  // namespace lockstep::reports
