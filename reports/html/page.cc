#include "reports/html/page.h"

#include <cstdint>

#include <fmt/format.h>

#include "base/sha256.h"
#include "base/tool_version.h"
#include "reports/html/markup.h"

namespace lockstep::reports::html {
namespace {

std::uint32_t nibble(char digit) {
  return static_cast<std::uint32_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

// Converts hexadecimal digits to base64 (RFC 4648): three bytes become four characters; "=" fills
// up the last group.
std::string base64_of_hex(std::string_view hex) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 6) {
    const std::string_view part = hex.substr(i, 6);
    std::uint32_t bits = 0;
    for (std::size_t d = 0; d < 6; ++d) bits = bits << 4U | (d < part.size() ? nibble(part[d]) : 0);
    // One byte gives two characters, two give three, three give four.
    const std::size_t characters = part.size() / 2 + 1;
    for (std::size_t c = 0; c < 4; ++c)
      out += c < characters ? kAlphabet[bits >> (18U - 6U * c) & 63U] : '=';
  }
  return out;
}

}  // namespace

std::string content_security_policy(std::string_view style, std::string_view script) {
  const std::string scripts =
      script.empty() ? "" : fmt::format("; script-src 'sha256-{}'", base64_of_hex(sha256(script)));
  return fmt::format(
      "default-src 'none'; style-src 'sha256-{}'{}; base-uri 'none'; "
      "form-action 'none'",
      base64_of_hex(sha256(style)), scripts);
}

std::string page(std::string_view title, std::string_view body, Scripts scripts) {
  const std::string_view script = scripts == Scripts::explore ? explore_script() : "";
  return fmt::format(R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>{}</title>
<style>{}</style>
</head>
<body>
{}{}</body>
</html>
)",
                     content_security_policy(html_style(), script), text(title), html_style(), body,
                     script.empty() ? "" : fmt::format("<script>{}</script>\n", script));
}

std::string result_page(std::string_view kind, std::string_view name, std::string_view header,
                        std::string_view sections, Scripts scripts) {
  return page(fmt::format("Lockstep {}: {}", kind, name),
              fmt::format("<p class=\"brand\">Lockstep {}</p>\n<main>\n"
                          "<header class=\"verdict\"><h1>{}</h1>{}</header>\n{}</main>\n"
                          "<footer><p>{}</p></footer>\n",
                          text(kind), text(name), header, sections, text(tool_version())),
              scripts);
}

}  // namespace lockstep::reports::html
