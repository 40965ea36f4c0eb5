// The result of `lockstep simulate SCENARIO`: figures, and the assumptions behind each.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/tables.h"
#include "reports/forecasts/simulated_job.h"
#include "reports/table.h"
#include "sim/forecast/scenario.h"
#include "sim/forecast/trials.h"

namespace lockstep::reports {

// `wrong`, in all forms: the job and the verifier's findings on its calls, which can pair wrongly
// in a job that reaches its end. Not owned; null: there are none.

// {"scenario", "machine", "ranks", "steps", "step_time_ps", …}: docs/simulate-scenarios.md.
nlohmann::ordered_json forecast_json(const sim::ScenarioForecast& forecast,
                                     const JudgedRun* wrong = nullptr);

struct Headline {
  std::string what, value;  // "step time", "4.77 ms"
  std::string rests_on;     // keys of assumptions
};
// The figures of the whole job.
std::vector<Headline> headlines(const sim::ScenarioForecast& forecast);

struct Assumption {
  std::string key;   // "calls"
  std::string text;  // a sentence
};
// The assumptions behind the figures.
std::vector<Assumption> assumptions(const sim::ScenarioForecast& forecast);

// By class, for people: "ranks 0-3,5", or where all are one stage of a pipeline "stage 1 (ranks
// 1,5)".
std::vector<std::string> names_of_classes(const sim::ScenarioForecast& forecast);
// At most `width` columns wide (from 60).
std::string forecast_text(const sim::ScenarioForecast& forecast, std::size_t width = kReportColumns,
                          const JudgedRun* wrong = nullptr);

// Comma-separated values: a row for each class of ranks and step.
//
//   step        0, 1, …; the first one arranges buffers
//   ranks       of the class: "0-3,5"; the other columns are about one of them
//   count       how many they are
//   begin_s     when the rank ended the step before, on the simulated clock
//   end_s       … and this one
//   busy_s, exposed_s, idle_s, hidden_s   what it does meanwhile: sim/forecast/forecast.h
//
// RFC 4180: a header, rows that end in CR LF.
std::string forecast_csv(const sim::ScenarioForecast& forecast);

// The quantiles of trials: a row for single steps, one for the means of trials.
Table quantiles_table(const sim::TrialsForecast& trials);

// A scenario's forecast as one self-contained HTML page, in the frame of the reports
// (reports/html/page.h): the figures, what ranks do over the steps, the critical path, what would
// change the result, and the assumptions. Names from the job are escaped.
//
// A document. Its size depends on the number of *different* ranks; only the first ones are
// shown.
std::string forecast_page(const sim::ScenarioForecast& forecast, const JudgedRun* wrong = nullptr);

}  // namespace lockstep::reports
