// The frame of a report page: one file that loads nothing and sends nothing.
//
// Its Content-Security-Policy allows the one style sheet and, on pages with tables to explore, the
// one script, each by its hash, and nothing else: no other script, image, font, frame, form or
// connection. Even markup that got past the escaping could neither run nor connect to anything.
// https://www.w3.org/TR/CSP3/
#pragma once

#include <string>
#include <string_view>

namespace lockstep::reports::html {

// explore: filters and sorts the tables of class "explore" (explore.js). Everything is on the page
// and can be read without it.
enum class Scripts : unsigned char { none, explore };

// `title` is text, `body` is markup.
std::string page(std::string_view title, std::string_view body, Scripts scripts = Scripts::none);

// The page of a result of the simulator: "Lockstep forecast: name". `kind` and `name` are text;
// `header`: markup below the name, `sections`: markup of the cards.
std::string result_page(std::string_view kind, std::string_view name, std::string_view header,
                        std::string_view sections, Scripts scripts = Scripts::none);

// The policy for a style sheet and a script; an empty script: none may run.
std::string content_security_policy(std::string_view style, std::string_view script = {});

// The style sheet of the pages (page.css).
//
// Colours have names (--ink, --error …) with a value for light and one for dark mode, chosen by the
// reader's system; print uses the light ones. Text has a contrast of at least 4.5 to its background
// in both (WCAG 2.2, 1.4.3), which the tests compute. Nothing is said by colour alone: words, marks
// or dashes say it, too.
std::string_view html_style();

// The script of the pages (explore.js).
std::string_view explore_script();

}  // namespace lockstep::reports::html
