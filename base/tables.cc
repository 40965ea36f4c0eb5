#include "base/tables.h"

#include <algorithm>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::string_view kCut = "..";

// Whether the byte continues a character of UTF-8, as columns_of() counts them.
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
  // Cut at a blank where there is one: "all but the last ..", else within the word.
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

}  // namespace lockstep
