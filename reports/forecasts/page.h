// A scenario's forecast as one HTML page that needs nothing else, in the frame of the reports
// (reports/html/page.h): the figures, what ranks do over the steps, the critical path, what would
// change, and what all of it rests on. Names from the job are escaped.
#pragma once

#include <string>

#include "sim/forecast/scenario.h"

namespace lockstep::reports {

// A document. Its size follows the number of *different* ranks, of which the first ones are shown.
std::string forecast_page(const sim::ScenarioForecast& forecast);

}  // namespace lockstep::reports
