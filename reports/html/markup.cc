#include "reports/html/markup.h"

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::reports::html {
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
