// The frame of a report page: one file that loads nothing, runs nothing and sends nothing.
//
// Its Content-Security-Policy allows the one style sheet, by its hash, and nothing else: no script,
// image, font, frame, form or connection. Even markup that got past the escaping could neither run
// nor connect to anything. https://www.w3.org/TR/CSP3/
#pragma once

#include <string>
#include <string_view>

namespace lockstep::reports::html {

// `title` is text, `body` is markup.
std::string page(std::string_view title, std::string_view body);

// The policy for a style sheet.
std::string content_security_policy(std::string_view style);

// The style sheet of the HTML report.
//
// Colours have names (--ink, --error …) with a value for light and one for dark mode, chosen by the
// reader's system; print uses the light ones. Text has a contrast of at least 4.5 to its background
// in both (WCAG 2.2, 1.4.3), which the tests compute. Nothing is said by colour alone: words, marks
// or dashes say it, too.
std::string_view html_style();

}  // namespace lockstep::reports::html
