// The formats of pictures.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"
#include "runtime/data/image.h"
#include "runtime/data/transform.h"
#include "tests/fuzz/targets.h"

namespace lockstep {

namespace {

// A decoder's result: an error that says what is wrong and what to do, or a picture whose pixels
// are there, and that can be transformed.
void check_picture(const Result<runtime::RgbImage>& picture) {
  if (!picture) {
    LOCKSTEP_CHECK(!picture.error().message.empty() && !picture.error().fix.empty(),
                   "an error says what is wrong and what to do");
    return;
  }
  LOCKSTEP_CHECK(picture->width > 0 && picture->height > 0, "a picture has pixels");
  LOCKSTEP_CHECK(
      picture->pixels.size() == picture->row_bytes() * static_cast<std::size_t>(picture->height),
      "all pixels are there");
  runtime::ImageTransform transform;
  transform.side = 5;
  std::vector<float> pixels(transform.floats());
  runtime::transform_image(*picture, transform, pixels);
  LOCKSTEP_CHECK(std::all_of(pixels.begin(), pixels.end(), [](float x) { return std::abs(x) < 3; }),
                 "values are of the order of one");
}

}  // namespace

// Any bytes as a JPEG file.
void fuzz_jpeg(std::string_view bytes) {
  const std::string copy(bytes);  // of that size: reading past its end is seen
  check_picture(runtime::decode_jpeg(copy, "fuzz.jpeg"));
}

// Any bytes as a PNG file.
void fuzz_png(std::string_view bytes) {
  const std::string copy(bytes);  // of that size: reading past its end is seen
  check_picture(runtime::decode_png(copy, "fuzz.png"));
}

}  // namespace lockstep
