// Text and small elements of the HTML report. All bytes from traces pass through text() or code();
// nothing else puts them into the page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::reports::html {

// `bytes` as element content or attribute value: valid UTF-8 without control characters (which
// become "\xNN"), with every character that has a meaning in HTML or SVG escaped.
std::string text(std::string_view bytes);

// The same with a capital, for the beginning of a sentence.
std::string sentence(std::string_view bytes);

// The same in a fixed-width font. Characters that change the direction of writing have no effect
// outside of it.
std::string code(std::string_view bytes);

// `<tag class="…">inner</tag>`; `inner` is markup. An empty class is left out.
std::string element(std::string_view tag, std::string_view classes, std::string_view inner);

// A section of the page with a heading; empty without content. `title` is text.
std::string card(std::string_view title, std::string_view content);

// A figure with its name, both text: {"step time", "25.2 s"}.
struct NamedFigure {
  std::string what, value;
};
// The figures of a page's header, as a list.
std::string figures(const std::vector<NamedFigure>& all);

// A list with an item for each text, which gets a capital and a full stop.
std::string sentences(const std::vector<std::string>& texts);

// A <details> element, which opens by click, key, or a link to its content.
std::string details(std::string_view summary, std::string_view inner);

// A region that scrolls sideways on a narrow screen and can take the keyboard's focus; `label` is
// for screen readers.
std::string scroller(std::string_view label, std::string_view inner);

// What every text above goes through: XML 1.0 content (https://www.w3.org/TR/xml/). What XML cannot
// contain is replaced.

// `bytes` as element content. & < > " ' and the carriage return become references. Bytes that are
// not UTF-8 and characters that XML does not allow (most controls, U+FFFE, U+FFFF) become U+FFFD.
std::string xml_text(std::string_view bytes);

// The same for an attribute value in double quotes. Tabs and line feeds become references, too: a
// parser would turn them into blanks.
std::string xml_attribute(std::string_view bytes);

}  // namespace lockstep::reports::html
