#include "reports/html/markup.h"

#include <fmt/format.h>

#include "base/documents/xml_text.h"
#include "base/text.h"

namespace lockstep::reports::html {

std::string text(std::string_view bytes) { return xml_attribute(printable(bytes)); }

std::string sentence(std::string_view bytes) {
  std::string out(bytes);
  if (!out.empty() && out[0] >= 'a' && out[0] <= 'z') out[0] = static_cast<char>(out[0] - 32);
  return text(out);
}

std::string code(std::string_view bytes) { return fmt::format("<code>{}</code>", text(bytes)); }

std::string element(std::string_view tag, std::string_view classes, std::string_view inner) {
  return classes.empty() ? fmt::format("<{0}>{1}</{0}>", tag, inner)
                         : fmt::format("<{0} class=\"{2}\">{1}</{0}>", tag, inner, classes);
}

std::string card(std::string_view title, std::string_view content) {
  if (content.empty()) return {};
  return fmt::format("<section class=\"card\"><h2>{}</h2>{}</section>\n", text(title), content);
}

std::string figures(const std::vector<NamedFigure>& all) {
  std::string out;
  for (const NamedFigure& one : all)
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", text(one.what), text(one.value));
  return element("dl", "numbers", out);
}

std::string sentences(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& one : texts) out += fmt::format("<li>{}.</li>\n", sentence(one));
  return element("ul", "plain", out);
}

std::string details(std::string_view summary, std::string_view inner) {
  return fmt::format("<details><summary>{}</summary>{}</details>\n", summary, inner);
}

std::string scroller(std::string_view label, std::string_view inner) {
  return fmt::format(R"(<div class="scroll" role="region" tabindex="0" aria-label="{}">{}</div>)"
                     "\n",
                     text(label), inner);
}

}  // namespace lockstep::reports::html
