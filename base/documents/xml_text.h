// Text as XML 1.0 content (https://www.w3.org/TR/xml/): what XML cannot hold is replaced.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// `bytes` as element content: & < > " ' and the carriage return become references. Bytes that are
// no UTF-8 and characters that XML does not know (most controls, U+FFFE, U+FFFF) become U+FFFD.
std::string xml_text(std::string_view bytes);

// The same for an attribute value in double quotes, where tabs and line feeds become references as
// well: a parser would make blanks of them.
std::string xml_attribute(std::string_view bytes);

}  // namespace lockstep
