// A SequenceDiff as a table: what most ranks called on the left, what the culprits called on the
// right.
#pragma once

#include <string>

#include "reports/findings/figures/sequence_diff.h"

namespace lockstep::html {

std::string diff_table(const SequenceDiff& diff, const Run& run);

}  // namespace lockstep::html
