// The result of `lockstep simulate plan` as text, JSON, CSV and a page.
#pragma once

#include <cstddef>
#include <string>

#include "base/tables.h"
#include "sim/transformer/plan_forecast.h"

namespace lockstep::reports {

// At most `width` columns wide (from 60).
std::string plan_text(const sim::PlanForecast& forecast, std::size_t width = kReportColumns);
std::string plan_json(const sim::PlanForecast& forecast);
// A line per figure: quantity, value, unit, what it is based on; RFC 4180, with a header.
std::string plan_csv(const sim::PlanForecast& forecast);
std::string plan_html(const sim::PlanForecast& forecast);

}  // namespace lockstep::reports
