// Fitting text into terminal columns. A column is a code point: wide and combining characters, rare
// in names of parameters, only spoil the alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// The width of the reports that people read.
inline constexpr std::size_t kReportColumns = 80;

std::size_t columns_of(std::string_view utf8);

// `text` in at most `width` columns; what is left out of its middle is shown as "..".  Names of
// parameters differ at both ends ("image.…", "….weight"), so both ends stay.
std::string shorten_middle(std::string_view text, std::size_t width);

// `text` in at most `width` columns, cut at a blank where there is one; a cut ends in " ..".
std::string shorten_end(std::string_view text, std::size_t width);

// `text` followed by blanks up to `width` columns; longer text stays as it is.
std::string pad_right(std::string_view text, std::size_t width);

// "1,234,567".
std::string grouped(std::uint64_t n);

}  // namespace lockstep
