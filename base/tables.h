// Fits text into the columns of a terminal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/text.h"

namespace lockstep {

// The width of the reports that people read.
inline constexpr std::size_t kReportColumns = 80;

// `text` in at most `width` columns, with ".." for what is left out in the middle. Names of
// parameters differ at both ends ("image.…", "….weight"), so both ends stay.
std::string shorten_middle(std::string_view text, std::size_t width);

// `text` in at most `width` columns, cut at a blank if there is one, with " .." at the end.
std::string shorten_end(std::string_view text, std::size_t width);

// `text` followed by blanks up to `width` columns; longer text stays as it is.
std::string pad_right(std::string_view text, std::size_t width);

// `text` preceded by blanks up to `width` columns; longer text stays as it is.
inline std::string pad_left(std::string_view text, std::size_t width) {
  return std::string(width - std::min(width, columns_of(text)), ' ').append(text);
}

}  // namespace lockstep
