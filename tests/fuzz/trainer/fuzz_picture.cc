#include "tests/fuzz/trainer/fuzz_picture.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "runtime/data/transform.h"

namespace lockstep {

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

}  // namespace lockstep
