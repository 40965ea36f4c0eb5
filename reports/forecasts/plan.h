// The result of `lockstep simulate plan` as text, JSON, CSV and a page.
#pragma once

#include <string>
#include <vector>

#include "sim/transformer/plan_forecast.h"

namespace lockstep::reports {

// At most 80 columns wide.
std::string plan_text(const sim::PlanForecast& forecast);
std::string plan_json(const sim::PlanForecast& forecast);
// A line per figure: quantity, value, unit, what it is based on; RFC 4180, with a header.
std::string plan_csv(const sim::PlanForecast& forecast);
std::string plan_html(const sim::PlanForecast& forecast);

// The plan and its results, in a few words each.
struct PlanLine {
  std::string what, value;
};
std::vector<PlanLine> plan_description(const sim::PlanForecast& forecast);
std::vector<PlanLine> plan_headlines(const sim::PlanForecast& forecast);
// "fits 80 GB, 12 GB are left", "does not fit: …"; empty: the GPU's memory is not known.
std::string plan_fit(const sim::PlanForecast& forecast);

}  // namespace lockstep::reports
