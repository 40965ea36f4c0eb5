// The result of `lockstep simulate plan` for a plan of several towers, as text, JSON, CSV and a
// page; and the verifier's report where such a plan can hang.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/tables.h"
#include "reports/forecasts/simulated_job.h"
#include "sim/multimodal/multimodal_forecast.h"

namespace lockstep::reports {

struct MultimodalResult {
  sim::MultimodalForecast forecast;
  sim::StepPicture picture;                    // of the first step
  std::vector<sim::Alternative> alternatives;  // best first; empty: not asked for
  std::optional<JudgedRun> hang;               // one drawn step that hangs
};

// The forecast with its picture, its alternatives and, if it can hang, the judged step. Errors:
// draw_step()'s, modality_run()'s and those of a program that cannot be simulated.
Result<MultimodalResult> multimodal_result(sim::MultimodalForecast forecast);

// At most `width` columns wide (from 60).
std::string multimodal_text(const MultimodalResult& result, std::size_t width = kReportColumns);
std::string multimodal_json(const MultimodalResult& result);
// A line per figure: quantity, value, unit; RFC 4180, with a header.
std::string multimodal_csv(const MultimodalResult& result);
std::string multimodal_html(const MultimodalResult& result);

}  // namespace lockstep::reports
