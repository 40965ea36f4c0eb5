// A scenario's forecast as comma-separated values: a row for each class of ranks and step.
//
//   step        0, 1, …; the first one arranges buffers
//   ranks       of the class: "0-3,5"; one of them is meant by what follows
//   count       how many they are
//   begin_s     when a rank of them ended the step before, on the simulated clock
//   end_s       … and this one
//   busy_s, exposed_s, idle_s, hidden_s   what it does meanwhile: sim/forecast/forecast.h
#pragma once

#include <string>

#include "cli/simulate_scenario_result.h"

namespace lockstep {

// RFC 4180: a header, rows that end in CR LF.
std::string forecast_csv(const ScenarioForecast& forecast);

}  // namespace lockstep
