// Scaling 8-bit pictures as Pillow's `Image.resize(…, BILINEAR)` does, which is what torchvision's
// `Resize` calls: separable, the triangle filter widened by the factor of reduction (antialiased),
// integer weights of 22 bits, rounded to 8 bits between the two passes. Bit by bit the same.
// Source: Pillow, src/libImaging/Resample.c.
#pragma once

#include "runtime/data/image.h"

namespace lockstep {

// Stretches to width × height, both > 0. Cost: width · (image height) · taps for the rows, then
// width · height · taps for the columns; memory: width · (image height) · 3 bytes more.
RgbImage resize_bilinear(const RgbImage& image, int width, int height);

}  // namespace lockstep
