// What `simulate table` and `simulate fit` share: reading a table, and choosing a calibration.
#pragma once

#include <string>

#include "base/result.h"
#include "sim/transformer/cost_parameters.h"
#include "sim/transformer/measured_table.h"

namespace lockstep {

// Reads and parses the table at `path`, of at most 256 MiB.
Result<sim::MeasuredTable> load_measured_table(const std::string& path);

// `given` is a file, the name of a shipped calibration, or empty: then that of `machine_type`.
Result<sim::Calibration> load_calibration(const std::string& given,
                                          const std::string& machine_type);

}  // namespace lockstep
