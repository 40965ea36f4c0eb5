#include "base/documents/xml_text.h"

#include "base/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

// The reference or replacement for `c`; empty: `c` itself.
std::string_view entity(char c, bool in_attribute) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&apos;";
    case '\t':
      return in_attribute ? "&#9;" : "";
    case '\n':
      return in_attribute ? "&#10;" : "";
    case '\r':
      return "&#13;";
    default:
      return static_cast<unsigned char>(c) < 0x20 ? kReplacement : std::string_view();
  }
}

std::string escaped_for_xml(std::string_view bytes, bool in_attribute) {
  const std::string text = to_utf8(bytes);
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view three = std::string_view(text).substr(i, 3);
    if (three == "\xEF\xBF\xBE" || three == "\xEF\xBF\xBF") {  // U+FFFE, U+FFFF
      out += kReplacement;
      i += 2;
    } else if (const std::string_view special = entity(text[i], in_attribute); !special.empty()) {
      out += special;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::string xml_text(std::string_view bytes) { return escaped_for_xml(bytes, false); }

std::string xml_attribute(std::string_view bytes) { return escaped_for_xml(bytes, true); }

}  // namespace lockstep
