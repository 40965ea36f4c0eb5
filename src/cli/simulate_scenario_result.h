// What `lockstep simulate SCENARIO` answers: figures, and the assumption that each rests on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/simulate_memory_result.h"
#include "sim/machine/forecast.h"
#include "sim/machine/machine.h"

namespace lockstep {

struct ScenarioForecast {
  std::string scenario;  // its name
  sim::Machine machine;
  std::int64_t steps = 0;               // simulated
  std::int64_t samples = 0;             // of all ranks in a step
  std::vector<std::uint32_t> class_of;  // of each rank
  sim::Forecast figures;
  double state_bytes = 0;  // the most that a rank keeps: parameters, gradients, optimizer's state
  MemoryForecast memory;
  bool on_meta = false;
  std::string derived_by;  // the worker's version
};

nlohmann::ordered_json forecast_json(const ScenarioForecast& forecast);
// At most 80 columns wide.
std::string forecast_text(const ScenarioForecast& forecast);

}  // namespace lockstep
