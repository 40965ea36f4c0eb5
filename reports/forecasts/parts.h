// What the forms of a plan's forecast share: named figures, the parts of a step's time or of a
// GPU's memory, and what each figure rests on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "reports/html/markup.h"
#include "sim/transformer/plan_forecast.h"

namespace lockstep::reports {

using html::NamedFigure;

// "Llama 3 70B on 512 H100 with gpus=64, tensor=4": the plan's own name often tells how many GPUs
// it has, so a title says beside it what was set.
std::string plan_title(const sim::PlanFile& plan);

// A line for each, the value wrapped to the right of the names; at most `width` columns. A
// figure without a name continues the one above it.
std::string figures_text(const std::vector<NamedFigure>& figures, std::size_t width);

// "what: value" for each, as the items of an HTML list.
std::string description_html(const std::vector<NamedFigure>& figures);

// ", context 2, pipeline 4 (1f1b, 2 chunks), data 8, ZeRO 1". `of_schedule`: ", 2 chunks", or
// empty.
std::string layout_beyond_tensor(const sim::TrainingPlan& plan, const std::string& of_schedule);

// "26.4 s (24.9 s to 28.1 s in four cases of five)": seconds.
std::string step_time_text(double seconds, const sim::StepRange& range);

// "fits 80 GiB, 12 GiB are left", "may not fit 80 GiB: 3 GiB too much on stage 1, …", or "does not
// fit …". The GPU's memory has to be known. `where`: what needs it.
std::string fit_text(const sim::MemoryNeed& need, const std::string& where);

// Adds what the GPU has, and whether that is enough; nothing where it is not known.
void add_fit(nlohmann::ordered_json& to, const sim::MemoryNeed& need);

// "93.3 %: 2,434,565 tokens/s; a failure every …", and the same as an object.
std::string goodput_text(const sim::PlanForecast::Goodput& goodput, double tokens_per_second);
nlohmann::ordered_json goodput_json(const sim::PlanForecast::Goodput& goodput,
                                    double tokens_per_second);

// Parts that add up to `whole`.
struct PartsOfWhole {
  const std::vector<sim::ForecastPart>& parts;
  double whole = 0;
  std::string (*text)(double) = nullptr;  // of a value: duration_text or bytes_text
};

// A table: each part, its value, its share, and their sum; in HTML also what it rests on, if any
// says so.
std::string parts_text(const PartsOfWhole& parts, std::size_t width);
std::string parts_html(const std::string& label, const PartsOfWhole& parts);

// [{"part", "what", unit: value, "share", "rests_on"}]
nlohmann::ordered_json parts_json(const PartsOfWhole& parts, const char* unit);

// What the forecast rests on: `sentences`, then what each of the parts does.
std::string basis_text(const std::vector<std::string>& sentences,
                       const std::vector<const std::vector<sim::ForecastPart>*>& parts,
                       std::size_t width);

}  // namespace lockstep::reports
