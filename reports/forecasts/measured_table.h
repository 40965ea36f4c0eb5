// The result of `lockstep calibrate check`: each figure of a table of measurements next to its
// prediction, and the errors.
#pragma once

#include <cstddef>
#include <string>

#include "sim/measured/evaluation.h"

namespace lockstep::reports {

// At most `width` columns wide (from 60); labels take what the figures leave.
std::string table_answer_text(const sim::TableAnswer& answer, std::size_t width);
// {"file", "calibration", "rows": [], "summary": {}, "held_out": {}}; held_out leaves out the rows
// that the calibration was fitted to.
std::string table_answer_json(const sim::TableAnswer& answer);

}  // namespace lockstep::reports
