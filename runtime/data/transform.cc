#include "runtime/data/transform.h"

#include "base/check.h"
#include "runtime/data/resize.h"

namespace lockstep {

void transform_image(const RgbImage& image, const ImageTransform& transform, std::span<float> out) {
  LOCKSTEP_CHECK(out.size() == transform.floats(), "room for one transformed picture");
  const RgbImage square = resize_bilinear(image, transform.side, transform.side);
  const std::size_t plane = out.size() / kRgbChannels;
  for (std::size_t channel = 0; channel < kRgbChannels; ++channel) {
    // In the order and precision of ToTensor and Normalize; a byte has only 256 values.
    std::array<float, 256> value{};
    for (std::size_t byte = 0; byte < value.size(); ++byte) {
      value[byte] = (static_cast<float>(byte) / 255.0F - transform.mean[channel]) /
                    transform.deviation[channel];
    }
    float* const to = out.data() + channel * plane;
    const std::uint8_t* const from = square.pixels.data() + channel;
    for (std::size_t i = 0; i < plane; ++i) to[i] = value[from[i * kRgbChannels]];
  }
}

}  // namespace lockstep
