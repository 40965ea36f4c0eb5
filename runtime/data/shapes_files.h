// The built-in data set "shapes" as files, which the loader reads like any other: PNG pictures,
// captions.csv, and a vocab.txt for its captions.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace lockstep {

struct ShapesFiles {
  std::int64_t items = 1000;  // 1…1 000 000
  int side = 64;              // pixels of a picture, 1…kMaxSide
  std::uint64_t seed = 1;
  double text_only = 0;  // share of the items without a picture, 0…1
};

inline constexpr const char* kShapesMarker = "lockstep-shapes.txt";

// Writes the folder unless it is there with the same contents: its marker says of which form and
// with which options. All or nothing: the files are written beside it, and renamed at the end, so
// several ranks may do this at once.
// Errors: the folder holds something else, or cannot be written; options outside their limits.
Status write_shapes(const std::string& folder, const ShapesFiles& options);

// The lines of that vocab.txt.
std::string shapes_pieces();

}  // namespace lockstep
