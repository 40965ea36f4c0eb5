#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "base/columns.h"

namespace lockstep {

// `text` behind as many blanks as make it `width` columns wide; longer text stays as it is.
inline std::string pad_left(std::string_view text, std::size_t width) {
  return std::string(width - std::min(width, columns_of(text)), ' ').append(text);
}

}  // namespace lockstep
