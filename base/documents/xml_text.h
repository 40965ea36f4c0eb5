// Text as XML 1.0 content (https://www.w3.org/TR/xml/); what XML cannot contain is replaced.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// `bytes` as element content. & < > " ' and the carriage return become references. Bytes that are
// not UTF-8 and characters that XML does not allow (most controls, U+FFFE, U+FFFF) become U+FFFD.
std::string xml_text(std::string_view bytes);

// The same for an attribute value in double quotes. Tabs and line feeds become references, too: a
// parser would turn them into blanks.
std::string xml_attribute(std::string_view bytes);

}  // namespace lockstep
