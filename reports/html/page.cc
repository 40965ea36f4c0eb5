#include "reports/html/page.h"

#include <cstdint>

#include "base/sha256.h"
#include "reports/html/markup.h"
#include "reports/html/style.h"

namespace lockstep::reports::html {
namespace {

std::uint32_t nibble(char digit) {
  return static_cast<std::uint32_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

// Hexadecimal digits as base64 (RFC 4648): three bytes become four characters, and what is missing
// of the last three "=".
std::string base64_of_hex(std::string_view hex) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 6) {
    const std::string_view part = hex.substr(i, 6);
    std::uint32_t bits = 0;
    for (std::size_t d = 0; d < 6; ++d) bits = bits << 4U | (d < part.size() ? nibble(part[d]) : 0);
    const std::size_t characters = part.size() / 2 + 1;
    for (std::size_t c = 0; c < 4; ++c)
      out += c < characters ? kAlphabet[bits >> (18U - 6U * c) & 63U] : '=';
  }
  return out;
}

}  // namespace

std::string content_security_policy(std::string_view style) {
  return "default-src 'none'; style-src 'sha256-" + base64_of_hex(sha256(style)) +
         "'; base-uri 'none'; form-action 'none'";
}

std::string page(std::string_view title, std::string_view body) {
  const std::string style(html_style());
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"" +
         content_security_policy(style) +
         "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"referrer\" content=\"no-referrer\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n<title>" +
         text(title) + "</title>\n<style>" + style + "</style>\n</head>\n<body>\n" +
         std::string(body) + "</body>\n</html>\n";
}

}  // namespace lockstep::reports::html
