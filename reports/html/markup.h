// Text and small elements of the HTML report. Everything that came from a trace passes through
// text() or code(); nothing else puts bytes of a trace into the page.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::reports::html {

// `bytes` as element content or attribute value: valid UTF-8 without control characters (which
// become "\xNN"), and none of it has a meaning in HTML or SVG.
std::string text(std::string_view bytes);

// The same as the beginning of a sentence: with a capital.
std::string sentence(std::string_view bytes);

// The same in a fixed-width font. Characters that turn the direction of writing have no effect
// beyond it.
std::string code(std::string_view bytes);

// `<tag class="…">inner</tag>`; `inner` is markup. An empty class is left out.
std::string element(std::string_view tag, std::string_view classes, std::string_view inner);

// <details> that opens at a click, a key or a link to what is in it.
std::string details(std::string_view summary, std::string_view inner);

// A region that scrolls sideways on a narrow screen; `label` is what it is called for those who do
// not see it, and it takes the keyboard's focus.
std::string scroller(std::string_view label, std::string_view inner);

}  // namespace lockstep::reports::html
