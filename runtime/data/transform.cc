#include "runtime/data/transform.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace lockstep::runtime {

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

namespace {

// 8 bits of a pixel, and room for sums of weights slightly above 1 (Pillow's PRECISION_BITS).
constexpr int kWeightBits = 32 - 8 - 2;
constexpr std::int32_t kHalf = std::int32_t{1} << (kWeightBits - 1);

// Which input pixels make an output pixel, and with what weight.
struct Window {
  std::size_t first = 0;    // input pixel
  std::size_t count = 0;    // of input pixels
  std::size_t weights = 0;  // where its weights start in Filter::weights
};
struct Filter {
  std::vector<Window> windows;  // one per output pixel
  std::vector<std::int32_t> weights;
};

// In double precision and in Pillow's order of operations, so that the integers come out alike.
Filter make_filter(int input, int output) {
  const double scale = static_cast<double>(input) / output;
  const double support = std::max(scale, 1.0);
  const double inverse = 1.0 / support;
  Filter filter;
  filter.windows.reserve(static_cast<std::size_t>(output));
  std::vector<double> weights;
  for (int at = 0; at < output; ++at) {
    const double centre = (at + 0.5) * scale;
    const int first = std::max(static_cast<int>(centre - support + 0.5), 0);
    const int end = std::min(static_cast<int>(centre + support + 0.5), input);
    weights.clear();
    double sum = 0;
    for (int x = first; x < end; ++x) {
      weights.push_back(std::max(1.0 - std::abs((x - centre + 0.5) * inverse), 0.0));
      sum += weights.back();
    }
    filter.windows.push_back(
        {static_cast<std::size_t>(first), weights.size(), filter.weights.size()});
    for (const double weight : weights) {
      const double share = sum != 0.0 ? weight / sum : weight;
      filter.weights.push_back(static_cast<std::int32_t>(0.5 + share * (1 << kWeightBits)));
    }
  }
  return filter;
}

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

RgbImage resize_rows(const RgbImage& image, int width) {
  const Filter filter = make_filter(image.width, width);
  RgbImage out{width, image.height, {}, {}};
  out.pixels.resize(out.row_bytes() * static_cast<std::size_t>(image.height));
  std::uint8_t* to = out.pixels.data();
  for (std::size_t row = 0; row < static_cast<std::size_t>(image.height); ++row) {
    const std::uint8_t* const from = image.pixels.data() + row * image.row_bytes();
    for (const Window& window : filter.windows) {
      const std::uint8_t* pixel = from + window.first * kRgbChannels;
      const std::int32_t* weight = filter.weights.data() + window.weights;
      std::int32_t red = kHalf;
      std::int32_t green = kHalf;
      std::int32_t blue = kHalf;
      for (std::size_t i = 0; i < window.count; ++i, pixel += kRgbChannels) {
        red += pixel[0] * weight[i];
        green += pixel[1] * weight[i];
        blue += pixel[2] * weight[i];
      }
      *to++ = to_byte(red);
      *to++ = to_byte(green);
      *to++ = to_byte(blue);
    }
  }
  return out;
}

// Row by row with a row of sums, so that the compiler uses vector instructions.
RgbImage resize_columns(const RgbImage& image, int height) {
  const Filter filter = make_filter(image.height, height);
  const std::size_t bytes = image.row_bytes();
  RgbImage out{image.width, height, {}, {}};
  out.pixels.resize(bytes * static_cast<std::size_t>(height));
  std::vector<std::int32_t> sums(bytes);
  std::uint8_t* to = out.pixels.data();
  for (const Window& window : filter.windows) {
    std::fill(sums.begin(), sums.end(), kHalf);
    for (std::size_t i = 0; i < window.count; ++i) {
      const std::uint8_t* const from = image.pixels.data() + (window.first + i) * bytes;
      const std::int32_t weight = filter.weights[window.weights + i];
      for (std::size_t x = 0; x < bytes; ++x) sums[x] += from[x] * weight;
    }
    for (const std::int32_t sum : sums) *to++ = to_byte(sum);
  }
  return out;
}

}  // namespace

RgbImage resize_bilinear(const RgbImage& image, int width, int height) {
  LOCKSTEP_CHECK(image.width > 0 && image.height > 0 && width > 0 && height > 0,
                 "a picture has pixels");
  if (image.width == width && image.height == height) return image;
  if (image.width == width) return resize_columns(image, height);
  RgbImage narrow = resize_rows(image, width);
  if (image.height == height) return narrow;
  return resize_columns(narrow, height);
}

}  // namespace lockstep::runtime
