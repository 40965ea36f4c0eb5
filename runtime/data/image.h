// Pictures in memory, and reading them from the bytes of a JPEG or PNG file.
//
// What comes out is what Pillow's `Image.open(f).convert("RGB")` gives, bit by bit, for the same
// version of the JPEG library: alpha and transparency are dropped, palettes looked up, grey spread
// over the three channels, 16 bits cut to their upper 8, CMYK taken as Adobe's inverted and
// multiplied out, an EXIF rotation and colour profiles not applied.
//
// Bounded: no picture has more than kMaxPixels, nor (a JPEG of up to 4 million pixels apart) more
// than its bytes can hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

// 300 MB of RGB; a progressive JPEG takes up to three times that while it is decoded.
inline constexpr std::int64_t kMaxPixels = 100'000'000;
inline constexpr int kRgbChannels = 3;

// Rows from the top, pixels from the left, red green blue interleaved, 8 bits each.
struct RgbImage {
  int width = 0;   // pixels, > 0
  int height = 0;  // pixels, > 0
  std::vector<std::uint8_t> pixels;
  // What the decoder complained about but read over, as Pillow does; empty for a sound file.
  std::string damage;

  std::size_t row_bytes() const { return static_cast<std::size_t>(width) * kRgbChannels; }
};

// Decodes by content, not by name. `name` stands in messages only.
// Errors: neither JPEG nor PNG, cut off or damaged, more than kMaxPixels, no memory.
Result<RgbImage> decode_image(std::string_view bytes, const std::string& name);

// The same for one format. Errors as above.
Result<RgbImage> decode_jpeg(std::string_view bytes, const std::string& name);
Result<RgbImage> decode_png(std::string_view bytes, const std::string& name);

// A PNG file of the picture: 8-bit RGB, not interlaced; the same bytes for the same picture.
Result<std::string> encode_png(const RgbImage& image);

// Ok where a picture of this size may be decoded.
Status check_image_size(std::int64_t width, std::int64_t height, const std::string& name);

}  // namespace lockstep::runtime
