// A comparison of two runs as text, at most 80 columns wide.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/compare_runs.h"

namespace lockstep::reports {

// What parted where, then a line for each step (at most `lines`, the first and the last ones).
std::string comparison_text(const verify::Comparison& comparison, std::size_t lines = 24);

// The table of jobs beside their one-process references: `lockstep run --reference`.

struct ReferenceRow {
  std::string scenario;
  std::string none;  // why there is nothing to compare with, or empty
  std::optional<verify::FinalLoss> loss;
  std::optional<verify::TensorDifference> parted;  // Comparison's
};

enum class ReferenceVerdict {
  agrees,        // the final losses do, and no value that both recorded parted
  loss_parts,    // they do not
  values_part,   // they do, but a gradient or a parameter does not
  no_reference,  // there is none, for a reason that is no fault
  no_loss,       // nothing was recorded that could tell
};

ReferenceVerdict verdict_of(const ReferenceRow& row);

// A line for each row: scenario, steps, both losses, how far they are apart and may be (relative),
// the verdict; the reasons of those without a reference below. At most 80 columns; ends in a line
// feed.
std::string reference_table(const std::vector<ReferenceRow>& rows);

}  // namespace lockstep::reports
