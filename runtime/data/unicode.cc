#include "runtime/data/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "runtime/data/newer_characters.h"

namespace lockstep {
namespace {

constexpr char32_t kReplacement = 0xfffd;

utf8proc_category_t category(char32_t c) {
  if (is_newer_than_reference(c)) return UTF8PROC_CATEGORY_LO;
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

int combining_class(char32_t c) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

void append_decomposed(char32_t c, CodePoints& to) {
  if (c < 0xc0) {
    to += c;
    return;
  }
  std::array<utf8proc_int32_t, 32> parts{};
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(), UTF8PROC_DECOMPOSE, &boundary);
  if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
    to += c;
    return;
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    to += static_cast<char32_t>(parts[i]);
  }
}

// Canonical order: runs of combining marks by class. utf8proc's own is quadratic.
void order_marks(CodePoints& text) {
  const auto is_mark = [](char32_t c) { return c >= 0x300 && combining_class(c) != 0; };
  for (auto at = text.begin(); at != text.end();) {
    at = std::find_if(at, text.end(), is_mark);
    const auto end = std::find_if_not(at, text.end(), is_mark);
    std::stable_sort(
        at, end, [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    at = end;
  }
}

}  // namespace

CodePoints decode_utf8(std::string_view bytes) {
  CodePoints out;
  out.reserve(bytes.size());
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(bytes.data());
  auto left = static_cast<utf8proc_ssize_t>(bytes.size());
  while (left > 0) {
    utf8proc_int32_t c = *data;
    utf8proc_ssize_t used = 1;
    if (c >= 0x80) {
      used = utf8proc_iterate(data, left, &c);
      if (used <= 0) {
        used = 1;
        c = static_cast<utf8proc_int32_t>(kReplacement);
      }
    }
    out += static_cast<char32_t>(c);
    data += used;
    left -= used;
  }
  return out;
}

void append_utf8(char32_t code_point, std::string& to) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const utf8proc_ssize_t count =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes.data());
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    to += static_cast<char>(bytes[i]);
  }
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || c == '\t' || c == '\n' || c == '\r';
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL ||
         kind == UTF8PROC_CATEGORY_ZP;
}

bool is_cjk(char32_t c) {
  // As the reference has them: the fifth block begins at 2B920 there, not at 2B820.
  constexpr std::array<std::pair<char32_t, char32_t>, 8> kBlocks = {{{0x4e00, 0x9fff},
                                                                     {0x3400, 0x4dbf},
                                                                     {0x20000, 0x2a6df},
                                                                     {0x2a700, 0x2b73f},
                                                                     {0x2b740, 0x2b81f},
                                                                     {0x2b920, 0x2ceaf},
                                                                     {0xf900, 0xfaff},
                                                                     {0x2f800, 0x2fa1f}}};
  return c >= 0x3400 && std::any_of(kBlocks.begin(), kBlocks.end(), [&](const auto& block) {
           return c >= block.first && c <= block.second;
         });
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_control(char32_t c) {
  if (c < 0x80) return (c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
      return true;
    default:
      return false;
  }
}

CodePoints bert_normalized(const CodePoints& text) {
  CodePoints spread;
  spread.reserve(text.size());
  bool ascii = true;
  for (const char32_t c : text) {
    if (c == kReplacement || is_control(c)) continue;
    ascii = ascii && c < 0x80;
    if (is_space(c)) {
      spread += U' ';
    } else if (is_cjk(c)) {
      spread += U' ';
      append_decomposed(c, spread);
      spread += U' ';
    } else {
      append_decomposed(c, spread);
    }
  }
  if (!ascii) order_marks(spread);
  CodePoints out;
  out.reserve(spread.size());
  for (const char32_t c : spread) {
    if (c >= 0x300 && category(c) == UTF8PROC_CATEGORY_MN) continue;
    out += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  }
  return out;
}

}  // namespace lockstep
