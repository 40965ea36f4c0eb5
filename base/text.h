// Small functions on text that several layers need.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The result of a std::string_view search that finds nothing.
inline constexpr std::size_t kNpos = std::string_view::npos;

inline bool contains_text(std::string_view text, std::string_view part) {
  return text.find(part) != kNpos;
}

// Whether it contains one of the parts, at least.
bool contains_any(std::string_view text, std::initializer_list<std::string_view> parts);

// Of ASCII, in any locale.
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// `text` without the blanks and tabs at both ends.
std::string_view trimmed(std::string_view text);

// Takes what is before the first `end` off `rest`, and `end` with it; all of it where there is
// none. So `while (!rest.empty())` sees each line of "a\nb\n": "a" and "b".
std::string_view take_until(std::string_view& rest, char end);

// The parts between each `between`: three of "a,,b", one of "".
std::vector<std::string_view> split(std::string_view text, char between);
// Deleted: the string would be gone before its parts are used.
std::vector<std::string_view> split(std::same_as<std::string> auto&& text, char between) = delete;

// Levenshtein distance; O(|a|·|b|).
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, for "did you mean"; empty if none is similar enough.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// A fix for `word`, which is not in `names`: did you mean "ddp"? If no name is similar,
// `otherwise`.
std::string did_you_mean(std::string_view word, std::span<const std::string> names,
                         std::string otherwise = {});

// "a, b and c"; with `limit` > 0 and more items: "a, b and 3 more".
std::string join_and(std::span<const std::string> items, std::size_t limit = 0);

// Sorted integers as ranges: "0-3,7".
std::string ranges(std::span<const std::int32_t> sorted);

// "1 rank", "1,024 ranks". `many`: the plural, unless it is `singular` with an "s". `n` >= 0.
std::string plural(std::uint64_t n, std::string_view singular, std::string_view many = {});
template <std::integral Count>
std::string plural(Count n, std::string_view singular, std::string_view many = {}) {
  return plural(static_cast<std::uint64_t>(n), singular, many);
}

// 16 lower-case hexadecimal digits.
std::string hex(std::uint64_t value);

// `value` with `decimals` digits after the point, in any locale: "3.14".
std::string fixed(double value, int decimals);

// `bytes` as valid UTF-8 without control characters: text from a file becomes safe to print on a
// terminal. Invalid bytes become U+FFFD, control characters "\xNN".
std::string printable(std::string_view bytes);

// The lines of `text` as one, for a sentence: without the blanks around them, and joined by a blank
// where a line ends in punctuation, otherwise by "; ". Empty lines are left out.
std::string one_line(std::string_view text);

// How many of the first bytes are valid UTF-8: all, or those before the first that is not.
std::size_t utf8_length(std::string_view bytes);
bool is_utf8(std::string_view bytes);

// `bytes` as valid UTF-8: each invalid byte becomes U+FFFD.
std::string to_utf8(std::string_view bytes);

// How many columns of a terminal `utf8` takes, at one per code point. That is wrong for wide and
// combining characters, but these are rare in names of parameters and only disturb the alignment.
std::size_t columns_of(std::string_view utf8);

// Breaks `text` at blanks so that no line is wider than `width` columns. Every line after the first
// starts with `indent` blanks; the first one continues a line of `begin` columns. A word that is
// too wide is not broken.
std::string wrap(std::string_view text, std::size_t width, std::size_t indent = 0,
                 std::size_t begin = 0);

}  // namespace lockstep
