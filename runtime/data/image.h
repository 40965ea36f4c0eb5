// Pictures in memory, decoded from JPEG or PNG files.
//
// The result is that of Pillow's `Image.open(f).convert("RGB")`, bit for bit, with the same version
// of the JPEG library: alpha and transparency are dropped, palettes looked up, grey copied to the
// three channels, 16 bits cut to the upper 8, CMYK treated as Adobe's inverted form and multiplied
// out. EXIF rotation and colour profiles are not applied.
//
// Bounded: no picture has more than kMaxPixels, or more than its bytes can hold (except JPEGs of up
// to 4 million pixels).
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
  // The decoder's complaint about damage that it tolerated, as Pillow does; empty for a sound file.
  std::string damage;

  std::size_t row_bytes() const { return static_cast<std::size_t>(width) * kRgbChannels; }
};

// Decodes by content, not by name. `name` is for messages. Errors: neither JPEG nor PNG, cut off or
// damaged, more than kMaxPixels, out of memory.
Result<RgbImage> decode_image(std::string_view bytes, const std::string& name);

// The same for one format. Errors as above.
Result<RgbImage> decode_jpeg(std::string_view bytes, const std::string& name);
Result<RgbImage> decode_png(std::string_view bytes, const std::string& name);

// A PNG file of the picture: 8-bit RGB, not interlaced; the same bytes for the same picture.
Result<std::string> encode_png(const RgbImage& image);

// Ok if a picture of this size may be decoded.
Status check_image_size(std::int64_t width, std::int64_t height, const std::string& name);

}  // namespace lockstep::runtime
