// A comparison of two runs as text and as a page.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/tables.h"
#include "reports/findings/forms.h"
#include "reports/output_targets.h"
#include "verify/compare_runs.h"

namespace lockstep::reports {

// What diverged and where, then a line per step (at most `lines`: the first and the last ones). At
// most `width` columns wide (from 60); names of tensors are shortened to fit.
std::string comparison_text(const verify::Comparison& comparison, std::size_t lines = 24,
                            std::size_t width = kReportColumns);

// The forms in which `lockstep compare` writes it, for write_targets(). `width`: of the text.
OutputForms comparison_forms();
std::string comparison_in(const std::string& kind, const verify::Comparison& comparison,
                          std::size_t width = kReportColumns);

// For the report of a job that was compared with its reference. `why_none`: why there is no
// reference; empty: there is one.
Supplement reference_supplement(const std::string& why_none, const verify::Comparison& comparison);

// A table of jobs and their one-process references: `lockstep run --reference`.

struct ReferenceRow {
  std::string scenario;
  std::string why_none;  // why there is no reference; empty: there is one
  std::optional<verify::FinalLoss> loss;
  std::optional<verify::TensorDifference> first_difference;  // as in Comparison
};

enum class ReferenceVerdict {
  agrees,         // the final losses agree, and so does every value that both recorded
  loss_differs,   // the losses differ
  values_differ,  // the losses agree, but a gradient or a parameter differs
  no_reference,   // there is none, for a reason that is not a fault
  no_loss,        // nothing was recorded to compare
};

ReferenceVerdict verdict_of(const ReferenceRow& row);

// A line per row: scenario, steps, both losses, their relative difference and its limit, the
// verdict. Below it, why some have no reference. At most `width` columns (from 60); ends in a line
// break.
std::string reference_table(const std::vector<ReferenceRow>& rows,
                            std::size_t width = kReportColumns);

}  // namespace lockstep::reports
