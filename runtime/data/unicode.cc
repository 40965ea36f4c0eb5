#include "runtime/data/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"

namespace lockstep::runtime {
namespace {

constexpr char32_t kReplacement = 0xfffd;

// First and last of each range of marks, punctuation and format characters that the Hugging Face
// tokenizers treat as parts of words, because their tables are Unicode 8's. In ascending order.
// Found by comparing bert_normalized and the splitting after it with version 0.23 of the reference
// on every code point.
constexpr std::array<std::pair<char32_t, char32_t>, 115> kNewer = {{
    {0x61d, 0x61d},     {0x7fd, 0x7fd},     {0x890, 0x891},     {0x898, 0x89f},
    {0x8ca, 0x8e2},     {0x9fd, 0x9fe},     {0xa76, 0xa76},     {0xafa, 0xaff},
    {0xb55, 0xb55},     {0xc04, 0xc04},     {0xc3c, 0xc3c},     {0xc77, 0xc77},
    {0xc84, 0xc84},     {0xd00, 0xd00},     {0xd3b, 0xd3c},     {0xd81, 0xd81},
    {0xeba, 0xeba},     {0xece, 0xece},     {0x180f, 0x180f},   {0x1885, 0x1886},
    {0x1abf, 0x1ace},   {0x1b7d, 0x1b7e},   {0x1df6, 0x1dfb},   {0x2e43, 0x2e4f},
    {0x2e52, 0x2e5d},   {0xa82c, 0xa82c},   {0xa8c5, 0xa8c5},   {0xa8ff, 0xa8ff},
    {0xa9bd, 0xa9bd},   {0x10d24, 0x10d27}, {0x10eab, 0x10ead}, {0x10efd, 0x10eff},
    {0x10f46, 0x10f50}, {0x10f55, 0x10f59}, {0x10f82, 0x10f89}, {0x11070, 0x11070},
    {0x11073, 0x11074}, {0x110c2, 0x110c2}, {0x110cd, 0x110cd}, {0x111cf, 0x111cf},
    {0x1123e, 0x1123e}, {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x11438, 0x1143f},
    {0x11442, 0x11444}, {0x11446, 0x11446}, {0x1144b, 0x1144f}, {0x1145a, 0x1145b},
    {0x1145d, 0x1145e}, {0x11660, 0x1166c}, {0x116b9, 0x116b9}, {0x1182f, 0x11837},
    {0x11839, 0x1183b}, {0x11938, 0x11938}, {0x1193b, 0x1193c}, {0x1193e, 0x1193e},
    {0x11943, 0x11946}, {0x119d4, 0x119d7}, {0x119da, 0x119db}, {0x119e0, 0x119e0},
    {0x119e2, 0x119e2}, {0x11a01, 0x11a0a}, {0x11a33, 0x11a38}, {0x11a3b, 0x11a47},
    {0x11a51, 0x11a56}, {0x11a59, 0x11a5b}, {0x11a8a, 0x11a96}, {0x11a98, 0x11a9c},
    {0x11a9e, 0x11aa2}, {0x11b00, 0x11b09}, {0x11c30, 0x11c36}, {0x11c38, 0x11c3d},
    {0x11c3f, 0x11c3f}, {0x11c41, 0x11c45}, {0x11c70, 0x11c71}, {0x11c92, 0x11ca7},
    {0x11caa, 0x11cb0}, {0x11cb2, 0x11cb3}, {0x11cb5, 0x11cb6}, {0x11d31, 0x11d36},
    {0x11d3a, 0x11d3a}, {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45}, {0x11d47, 0x11d47},
    {0x11d90, 0x11d91}, {0x11d95, 0x11d95}, {0x11d97, 0x11d97}, {0x11ef3, 0x11ef4},
    {0x11ef7, 0x11ef8}, {0x11f00, 0x11f01}, {0x11f36, 0x11f3a}, {0x11f40, 0x11f40},
    {0x11f42, 0x11f4f}, {0x11fff, 0x11fff}, {0x12ff1, 0x12ff2}, {0x13430, 0x13440},
    {0x13447, 0x13455}, {0x16e97, 0x16e9a}, {0x16f4f, 0x16f4f}, {0x16fe2, 0x16fe2},
    {0x16fe4, 0x16fe4}, {0x1cf00, 0x1cf2d}, {0x1cf30, 0x1cf46}, {0x1e000, 0x1e006},
    {0x1e008, 0x1e018}, {0x1e01b, 0x1e021}, {0x1e023, 0x1e024}, {0x1e026, 0x1e02a},
    {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef}, {0x1e944, 0x1e94a}, {0x1e95e, 0x1e95f},
}};
static_assert(std::is_sorted(kNewer.begin(), kNewer.end()));

// O(log n).
bool is_newer_than_reference(char32_t c) {
  const auto* const range =
      std::lower_bound(kNewer.begin(), kNewer.end(), c,
                       [](const auto& one, char32_t value) { return one.second < value; });
  return range != kNewer.end() && c >= range->first;
}

utf8proc_category_t category(char32_t c) {
  if (is_newer_than_reference(c)) return UTF8PROC_CATEGORY_LO;
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

// The ideographs that BERT splits one by one.
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

}  // namespace lockstep::runtime
