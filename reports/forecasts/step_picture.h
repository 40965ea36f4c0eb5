// One training step as the engine ran it: a row for each stage, time to the right, and the critical
// path.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/engine/step_picture.h"
#include "sim/transformer/plan_forecast.h"

namespace lockstep::reports {

inline constexpr std::size_t kMaxStagesShown = 16;  // in text

// Seconds of the critical path by stage and kind of work; sums up to the step.
std::vector<sim::ForecastPart> step_path(const sim::StepPicture& picture);

// When stages encode, run the model forward or backward, or wait: with characters, at most
// `width` columns wide. From a long step, its beginning. `what`: what is drawn.
std::string step_picture_text(const sim::StepPicture& picture, const std::string& what,
                              std::size_t width);

// A card of the page: the lanes of the stages with their sums, and the critical path.
std::string step_card(const sim::StepPicture& picture, const std::string& what);

}  // namespace lockstep::reports
