// Pieces that the reports of a sweep have in common: a row's fields, and equal reasons together.
#pragma once

#include <string>
#include <vector>

#include "reports/sweeps/report.h"

namespace lockstep::sweep {

// The columns that tell points apart, and a row's values in them: the varied keys, short where that
// is clear ("batch_size"), and the machine where there are several.
std::vector<std::string> value_heads(const Summary& summary);
std::vector<std::string> value_cells(const Summary& summary, const Row& row);
// "ranks=4 strategy=ddp": the same in one text.
std::string point_text(const Summary& summary, const Row& row);

std::string in_milliseconds(double seconds);  // "12.345"

// "48 of 48 points", "40 of 1,200 points; a search with seed 7, which is not exhaustive".
std::string tried_text(const Summary& summary);
std::string objective_text(Objective objective);  // "samples/s"
std::string memory_text(const Summary& summary);  // what Row::memory_bytes counts

struct Reason {
  std::string text;
  std::vector<std::size_t> rows;  // at least one
};
// Most frequent first.
std::vector<Reason> by_reason(const Summary& summary, const std::vector<std::size_t>& rows);

}  // namespace lockstep::sweep
