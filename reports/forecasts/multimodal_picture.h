// The slowest pipeline of a drawn step as a picture: a row for each place, time to the right, and
// whether it encodes, runs the LLM forward or backward, or waits.
#pragma once

#include <string>

#include "sim/multimodal/multimodal_forecast.h"

namespace lockstep::reports {

inline constexpr std::size_t kMostPlacesShown = 16;  // of a pipeline, in text

// With characters, at most 80 columns wide. Of a long step its beginning.
std::string multimodal_picture_text(const sim::MultimodalForecast& forecast);
// Markup: boxes with their legend.
std::string multimodal_picture_html(const sim::MultimodalForecast& forecast);

}  // namespace lockstep::reports
