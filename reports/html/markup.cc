#include "reports/html/markup.h"

#include "base/documents/xml_text.h"
#include "base/text.h"

namespace lockstep::reports::html {

std::string text(std::string_view bytes) { return xml_attribute(printable(bytes)); }

std::string sentence(std::string_view bytes) {
  std::string out(bytes);
  if (!out.empty() && out[0] >= 'a' && out[0] <= 'z') out[0] = static_cast<char>(out[0] - 32);
  return text(out);
}

std::string code(std::string_view bytes) { return "<code>" + text(bytes) + "</code>"; }

std::string element(std::string_view tag, std::string_view classes, std::string_view inner) {
  std::string out = "<" + std::string(tag);
  if (!classes.empty()) out += " class=\"" + std::string(classes) + "\"";
  return out + ">" + std::string(inner) + "</" + std::string(tag) + ">";
}

std::string details(std::string_view summary, std::string_view inner) {
  return "<details><summary>" + std::string(summary) + "</summary>" + std::string(inner) +
         "</details>\n";
}

std::string scroller(std::string_view label, std::string_view inner) {
  return "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"" + text(label) +
         "\">" + std::string(inner) + "</div>\n";
}

}  // namespace lockstep::reports::html
