#include "base/tables.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kCut = "..";

bool continues_sequence(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

// The byte at which column `column` of `text` begins.
std::size_t byte_of_column(std::string_view text, std::size_t column) {
  std::size_t byte = 0;
  for (; byte < text.size(); ++byte) {
    if (continues_sequence(text[byte])) continue;
    if (column == 0) break;
    --column;
  }
  return byte;
}

}  // namespace

std::size_t columns_of(std::string_view utf8) {
  return utf8.size() -
         static_cast<std::size_t>(std::count_if(utf8.begin(), utf8.end(), continues_sequence));
}

std::string shorten_middle(std::string_view text, std::size_t width) {
  const std::size_t wide = columns_of(text);
  if (wide <= width) return std::string(text);
  if (width <= kCut.size()) return std::string(kCut.substr(0, width));
  const std::size_t kept = width - kCut.size();
  const std::size_t head = kept / 2;
  std::string out(text.substr(0, byte_of_column(text, head)));
  out += kCut;
  out += text.substr(byte_of_column(text, wide - (kept - head)));
  return out;
}

std::string shorten_end(std::string_view text, std::size_t width) {
  if (columns_of(text) <= width) return std::string(text);
  const std::size_t room = width - std::min(width, kCut.size() + 1);
  std::string_view head = text.substr(0, byte_of_column(text, room + 1));
  const std::size_t blank = head.find_last_of(' ');
  head = text.substr(0, blank == std::string_view::npos ? byte_of_column(text, room) : blank);
  return std::string(head).append(" ").append(kCut);
}

std::string pad_right(std::string_view text, std::size_t width) {
  std::string out(text);
  out.append(width - std::min(width, columns_of(text)), ' ');
  return out;
}

std::string grouped(std::uint64_t n) {
  std::string out = std::to_string(n);
  for (std::size_t i = out.size(); i > 3; i -= 3) out.insert(i - 3, ",");
  return out;
}

std::string amount(double bytes) {
  constexpr std::string_view kPrefixes = " kMGTPE";
  std::size_t power = 0;
  for (; bytes >= 999.5 && power + 1 < kPrefixes.size(); ++power) bytes /= 1000;
  return fixed(bytes, power == 0 ? 0 : 2) + " " +
         (power == 0 ? "" : std::string(1, kPrefixes[power])) + "B";
}

std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

std::string milliseconds(double seconds) { return fixed(seconds * 1e3, 3) + " ms"; }

std::string scientific(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", x);
  return text;
}

}  // namespace lockstep
