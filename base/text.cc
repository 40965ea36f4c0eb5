#include "base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <utility>

#include <boost/locale/utf.hpp>

#include "base/quantities.h"

namespace lockstep {

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == kNpos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool contains_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return contains_text(text, part); });
}

std::string_view take_until(std::string_view& rest, char end) {
  const std::size_t length = std::min(rest.find(end), rest.size());
  const std::string_view out = rest.substr(0, length);
  rest.remove_prefix(std::min(length + 1, rest.size()));
  return out;
}

std::vector<std::string_view> split(std::string_view text, char between) {
  std::vector<std::string_view> out;
  for (std::size_t end; (end = text.find(between)) != kNpos; text.remove_prefix(end + 1))
    out.push_back(text.substr(0, end));
  out.push_back(text);
  return out;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // One row of the dynamic program; `diagonal` is the value that it replaces.
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  // A third of the letters may be wrong, two at least; never the whole candidate, or "ab" would
  // match every short word.
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> names,
                         std::string otherwise) {
  const std::string near = nearest(word, names);
  return near.empty() ? std::move(otherwise) : "did you mean \"" + near + "\"?";
}

std::string join_and(std::span<const std::string> items, std::size_t limit) {
  const bool cut = limit > 0 && items.size() > limit;
  const std::size_t shown = cut ? limit : items.size();
  std::string out;
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) out += !cut && i + 1 == shown ? " and " : ", ";
    out += items[i];
  }
  if (cut) out += " and " + std::to_string(items.size() - shown) + " more";
  return out;
}

std::string ranges(std::span<const std::int32_t> sorted) {
  std::string out;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    if (!out.empty()) out += ",";
    out += std::to_string(sorted[i]);
    // Two in a row are not a range: "3,4", but "3-5".
    if (last == i + 1) out += "," + std::to_string(sorted[last]);
    if (last > i + 1) out += "-" + std::to_string(sorted[last]);
    i = last + 1;
  }
  return out;
}

std::string plural(std::uint64_t n, std::string_view singular, std::string_view many) {
  std::string out = grouped(n) + " ";
  if (n == 1) return out.append(singular);
  return many.empty() ? out.append(singular) + "s" : out.append(many);
}

std::string hex(std::uint64_t value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[(value >> shift) & 15U];
  return text;
}

std::string fixed(double value, int decimals) {
  // The largest double has 309 digits before the point.
  std::array<char, 400> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::fixed, std::min(decimals, 20));
  return {text.data(), end.ptr};
}

namespace {

// The length of the valid UTF-8 sequence at the start of `bytes`, or 0.
std::size_t sequence_length(std::string_view bytes) {
  namespace utf = boost::locale::utf;
  const char* end = bytes.data();
  const utf::code_point code = utf::utf_traits<char>::decode(end, bytes.data() + bytes.size());
  if (code == utf::illegal || code == utf::incomplete) return 0;
  return static_cast<std::size_t>(end - bytes.data());
}

bool is_control(std::string_view sequence) {
  const auto lead = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return lead < 0x20 || lead == 0x7F;
  // C1 controls, U+0080 … U+009F.
  return sequence.size() == 2 && lead == 0xC2 && static_cast<unsigned char>(sequence[1]) < 0xA0;
}

}  // namespace

std::size_t utf8_length(std::string_view bytes) {
  std::size_t valid = 0;
  while (valid < bytes.size()) {
    const std::size_t length = sequence_length(bytes.substr(valid));
    if (length == 0) break;
    valid += length;
  }
  return valid;
}

bool is_utf8(std::string_view bytes) { return utf8_length(bytes) == bytes.size(); }

std::string to_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const std::size_t length = sequence_length(bytes);
    out += length == 0 ? std::string_view("\uFFFD") : bytes.substr(0, length);
    bytes.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

std::string printable(std::string_view bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  while (!bytes.empty()) {
    const std::size_t length = sequence_length(bytes);
    if (length == 0) {
      out += "\uFFFD";
      bytes.remove_prefix(1);
      continue;
    }
    const std::string_view sequence = bytes.substr(0, length);
    if (is_control(sequence)) {
      const auto code = static_cast<unsigned char>(sequence.back());
      out += "\\x";
      out += kHex[code >> 4U];
      out += kHex[code & 15U];
    } else {
      out += sequence;
    }
    bytes.remove_prefix(length);
  }
  return out;
}

std::string one_line(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  constexpr std::string_view kPunctuation = ".,:;!?";
  std::string out;
  for (std::string_view line : split(text, '\n')) {
    const std::size_t begin = std::min(line.find_first_not_of(kBlanks), line.size());
    line = line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin);
    if (line.empty()) continue;
    if (!out.empty()) out += kPunctuation.find(out.back()) == std::string_view::npos ? "; " : " ";
    out += line;
  }
  return out;
}

std::size_t columns_of(std::string_view utf8) {
  return static_cast<std::size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string wrap(std::string_view text, std::size_t width, std::size_t indent, std::size_t begin) {
  std::string out;
  std::size_t column = begin;
  while (!text.empty()) {
    const std::size_t blank = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, blank);
    text.remove_prefix(std::min(blank + 1, text.size()));
    if (word.empty()) continue;
    const std::size_t wide = columns_of(word);
    if (column > indent && column + 1 + wide > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > 0 && !out.empty() && out.back() != ' ') {
      out += ' ';
      ++column;
    }
    out += word;
    column += wide;
  }
  return out;
}

}  // namespace lockstep
