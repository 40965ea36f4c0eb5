// Checks of the fusion's input without tensors: its options, the encoders' widths, and shapes.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"

namespace lockstep::runtime {

struct FusionOptions {
  std::int64_t image_width = 2048;  // of the image encoder's features
  std::int64_t text_width = 768;    // of the text encoder's hidden states
  std::int64_t width = 768;         // common width of both
  std::int64_t heads = 8;
  std::int64_t layers = 1;
  std::int64_t feed_forward = 3072;  // width inside each layer's feed-forward part
  std::int64_t outputs = 2;          // of the task head
  double dropout = 0.1;              // in training
};

// Errors: sizes below 1, heads that do not divide the width, a dropout outside of [0, 1).
Status check_fusion_options(const FusionOptions& options);

// Whether encoders of these widths fit the projections. For checks before training starts.
Status check_fusion_widths(const FusionOptions& options, std::int64_t image_width,
                           std::int64_t text_width);

// Whether these shapes fit: image [n, image_width] or [n, regions, image_width], text [n, t,
// text_width], mask [n, t]. The error names the projection, the actual and the expected shape, and
// says if batch and sequence seem to be swapped (which only different sizes can show).
Status check_fusion_shapes(const FusionOptions& options, std::span<const std::int64_t> image,
                           std::span<const std::int64_t> text, std::span<const std::int64_t> mask);

}  // namespace lockstep::runtime
