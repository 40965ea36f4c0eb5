// Fits text into terminal columns. A column is a code point: wide and combining characters, rare in
// names of parameters, only disturb the alignment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// The width of the reports that people read.
inline constexpr std::size_t kReportColumns = 80;

std::size_t columns_of(std::string_view utf8);

// `text` in at most `width` columns, with ".." for what is left out in the middle. Names of
// parameters differ at both ends ("image.…", "….weight"), so both ends stay.
std::string shorten_middle(std::string_view text, std::size_t width);

// `text` in at most `width` columns, cut at a blank if there is one, with " .." at the end.
std::string shorten_end(std::string_view text, std::size_t width);

// `text` followed by blanks up to `width` columns; longer text stays as it is.
std::string pad_right(std::string_view text, std::size_t width);

// "1,234,567".
std::string grouped(std::uint64_t n);

// Figures in tables.

// "1.25 MB", in powers of 1000; below 1000 without decimals. `bytes` >= 0.
std::string amount(double bytes);

std::string percent(double share);         // "45.3 %" of 0.453
std::string milliseconds(double seconds);  // "12.345 ms"
std::string scientific(double x);          // "1.2e-03"

// `text` preceded by blanks up to `width` columns; longer text stays as it is.
inline std::string pad_left(std::string_view text, std::size_t width) {
  return std::string(width - std::min(width, columns_of(text)), ' ').append(text);
}

}  // namespace lockstep
