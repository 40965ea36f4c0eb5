#include "runtime/data/transform.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "runtime/data/npy.h"
#include "tests/runtime/data/shared_data.h"

namespace lockstep::runtime {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TransformImage, EqualsTorchvisionOnEveryReference) {
  const auto folder = shared_data("images");
  SKIP_WITHOUT(folder);
  const ImageTransform transform;
  for (const auto& entry : nlohmann::json::parse(file_bytes(folder / "images.json"))) {
    const std::string name = entry["file"];
    const Result<RgbImage> image = decode_image(file_bytes(folder / "images" / name), name);
    ASSERT_TRUE(image) << image.error().str();
    EXPECT_EQ(image->damage, "") << name;
    EXPECT_EQ(image->width, entry["size"][0]);
    std::vector<float> pixels(transform.floats());
    transform_image(*image, transform, pixels);
    const auto wanted = read_half_npy(folder / entry["reference"].get<std::string>());
    ASSERT_EQ(wanted.size(), pixels.size());
    float worst = 0;
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      worst = std::max(worst, std::abs(pixels[i] - wanted[i]));
    }
    // float16 is off by up to 1e-3 near 2; one step of a byte is 0.017.
    EXPECT_LT(worst, 2e-3F) << name;
  }
}

TEST(TransformImage, NormalizesEachChannel) {
  const RgbImage grey{1, 1, {0, 51, 255}, {}};
  const ImageTransform transform{2, {0.5F, 0.1F, 0.0F}, {0.5F, 0.1F, 1.0F}};
  std::vector<float> pixels(transform.floats());
  transform_image(grey, transform, pixels);
  EXPECT_THAT(std::vector(pixels.begin(), pixels.begin() + 4), Each(-1.0F));
  EXPECT_THAT(std::vector(pixels.begin() + 4, pixels.begin() + 8), Each(testing::FloatEq(1.0F)));
  EXPECT_THAT(std::vector(pixels.begin() + 8, pixels.end()), Each(1.0F));
}

// The values are Pillow 13's: Image.resize(…, Image.BILINEAR).
TEST(ResizeBilinear, RoundsAsPillow) {
  const RgbImage small = resize_bilinear(gradient(7, 5), 3, 2);
  EXPECT_THAT(small.pixels,
              ElementsAre(9, 15, 11, 24, 26, 39, 39, 37, 67, 15, 37, 33, 30, 48, 112, 45, 59, 137));
  const RgbImage large = resize_bilinear(gradient(3, 2), 5, 4);
  EXPECT_THAT(std::vector(large.pixels.end() - 15, large.pixels.end()),
              ElementsAre(3, 11, 0, 6, 13, 5, 10, 16, 13, 14, 19, 21, 17, 21, 26));
  const RgbImage same = resize_bilinear(gradient(4, 3), 4, 3);
  EXPECT_EQ(same.pixels, gradient(4, 3).pixels);
}

TEST(Npy, HasNumpysLayout) {
  const std::vector<float> values = {1.0F, 2.0F};
  const std::vector<std::int64_t> shape = {1, 2};
  const std::string bytes = npy_bytes(values, shape);
  EXPECT_EQ(bytes.size(), 128U + 8U);
  EXPECT_THAT(bytes, HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, ), }"));
  EXPECT_EQ(bytes[127], '\n');
}

}  // namespace
}  // namespace lockstep::runtime
