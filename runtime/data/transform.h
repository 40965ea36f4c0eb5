// Converts a picture to an image encoder's input: torchvision's Resize((side, side)), ToTensor and
// Normalize(mean, deviation).
#pragma once

#include <array>
#include <span>

#include "runtime/data/image.h"

namespace lockstep::runtime {

struct ImageTransform {
  int side = 224;  // pixels; pictures are stretched to a square
  // By channel, for values in 0…1: those of ImageNet.
  std::array<float, kRgbChannels> mean = {0.485F, 0.456F, 0.406F};
  std::array<float, kRgbChannels> deviation = {0.229F, 0.224F, 0.225F};

  std::size_t floats() const {
    return static_cast<std::size_t>(kRgbChannels) * static_cast<std::size_t>(side) *
           static_cast<std::size_t>(side);
  }
};

inline constexpr int kMaxSide = 4096;  // pixels of an ImageTransform

// Writes channels × rows × columns. `out` has transform.floats() elements.
void transform_image(const RgbImage& image, const ImageTransform& transform, std::span<float> out);

// Scales 8-bit pictures like Pillow's `Image.resize(…, BILINEAR)`, which torchvision's `Resize`
// calls: separable, the triangle filter widened by the reduction factor (antialiased), integer
// weights of 22 bits, rounded to 8 bits between the two passes. Bit for bit the same. Source:
// Pillow, src/libImaging/Resample.c.

// Stretches to width × height, both > 0. Cost: width · (image height) · taps for the rows, then
// width · height · taps for the columns; memory: width · (image height) · 3 bytes more.
RgbImage resize_bilinear(const RgbImage& image, int width, int height);

}  // namespace lockstep::runtime
