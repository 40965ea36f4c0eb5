// The frame of a report page: one file that loads nothing, runs nothing and sends nothing.
//
// Its Content-Security-Policy allows the one style sheet, by its hash, and nothing else: no script,
// no image, no font, no frame, no form, no connection. So even markup that got past the escaping
// could neither run nor call home. https://www.w3.org/TR/CSP3/
#pragma once

#include <string>
#include <string_view>

namespace lockstep::reports::html {

// `title` is text, `body` is markup.
std::string page(std::string_view title, std::string_view body);

// The policy for a style sheet.
std::string content_security_policy(std::string_view style);

}  // namespace lockstep::reports::html
