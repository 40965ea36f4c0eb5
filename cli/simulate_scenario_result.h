// What `lockstep simulate SCENARIO` answers: figures, and the assumption that each rests on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/forecast_path.h"
#include "cli/simulate_trials.h"
#include "reports/forecasts/memory.h"
#include "sim/collectives/nccl_tuning.h"
#include "sim/forecast/forecast.h"
#include "sim/machine/machine.h"
#include "trace/signature.h"

namespace lockstep {

// Calls that NCCL carries alike, and how large they are.
struct CarriedCalls {
  Op op = Op::all_reduce;
  sim::NcclAlgorithm algorithm = sim::NcclAlgorithm::ring;
  sim::NcclProtocol protocol = sim::NcclProtocol::simple;
  sim::Bytes least, most;
};

struct ScenarioForecast {
  std::string scenario;  // its name
  sim::Machine machine;
  std::int64_t steps = 0;               // simulated
  std::int64_t samples = 0;             // of all ranks in a step
  std::vector<std::uint32_t> class_of;  // of each rank
  sim::Forecast figures;
  std::int64_t checkpoints = 0;  // saved
  sim::Picos checkpoint_time;    // of one: mean; 0 where none is saved
  sim::FlopUse flops;            // of the measured steps
  double flops_share = 0;        // of the peak
  bool dummies = false;          // samples that nobody asked for are computed as well
  bool pipeline = false;         // the classes of ranks are its stages
  ForecastPath path;
  std::vector<sim::WhatIf> what_ifs;
  std::optional<TrialsForecast> trials;
  std::vector<CarriedCalls> carried;  // of the simulated ranks; none where it is not NCCL
  double state_bytes = 0;  // the most that a rank keeps: parameters, gradients, optimizer's state
  MemoryForecast memory;
  bool on_meta = false;
  bool timed_work = false;  // on this machine
  std::string derived_by;   // the worker's version
};

nlohmann::ordered_json forecast_json(const ScenarioForecast& forecast);
struct Headline {
  std::string what, value;  // "step time", "4.765 ms"
  std::string rests_on;     // keys of assumptions
};
// The figures of the whole job.
std::vector<Headline> headlines(const ScenarioForecast& forecast);

struct Assumption {
  std::string key;   // "calls"
  std::string text;  // a sentence
};
// What the figures rest on.
std::vector<Assumption> assumptions(const ScenarioForecast& forecast);

// Of each class all ranks: "0-3,5".
std::vector<std::string> ranks_by_class(const ScenarioForecast& forecast);
// At most 80 columns wide.
std::string forecast_text(const ScenarioForecast& forecast);

}  // namespace lockstep
