// The style sheet of the HTML report.
//
// Colours have names (--ink, --error …) with a value for light and one for dark, chosen by the
// reader's system; print takes the light ones. Text on its ground has a contrast of 4.5 or more in
// both (WCAG 2.2, 1.4.3), which the tests compute. Colour never says anything alone: words, marks
// or dashes say it too.
#pragma once

#include <string_view>

namespace lockstep::reports::html {

std::string_view html_style();

}  // namespace lockstep::reports::html
