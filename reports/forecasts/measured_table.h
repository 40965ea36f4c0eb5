// What `lockstep calibrate check` answers: each figure of a table of measurements beside its
// prediction, and how far off these are.
#pragma once

#include <string>

#include "sim/transformer/evaluation.h"

namespace lockstep::reports {

std::string table_answer_text(const sim::TableAnswer& answer);
// {"file", "calibration", "rows": [], "summary": {}, "held_out": {}}: the last without the rows
// that the calibration was fitted to.
std::string table_answer_json(const sim::TableAnswer& answer);

}  // namespace lockstep::reports
