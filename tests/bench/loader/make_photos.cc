// A data set of JPEG files for the loader's benchmark: pictures with the statistics of photographs
// (amplitudes that fall with the frequency, and hard edges), each different, from a seed.
#include <turbojpeg.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string folder;
  int images = 512;
  int width = 500;  // pixels: ImageNet's mean
  int height = 375;
  int quality = 90;
  std::uint64_t seed = 1;
};

using Random = std::mt19937_64;

float uniform(Random& random) { return static_cast<float>(random() >> 40U) * 0x1p-24F; }  // [0, 1)

// Adds smooth noise: random values `step` pixels apart, and straight lines between them.
void add_noise(std::vector<float>& plane, const Options& options, float step, float amplitude,
               Random& random) {
  const auto columns = static_cast<std::size_t>(static_cast<float>(options.width) / step) + 2;
  const auto rows = static_cast<std::size_t>(static_cast<float>(options.height) / step) + 2;
  std::vector<float> grid(columns * rows);
  for (float& value : grid) value = amplitude * (2 * uniform(random) - 1);
  std::size_t at = 0;
  for (int y = 0; y < options.height; ++y) {
    const float v = static_cast<float>(y) / step;
    const auto row = static_cast<std::size_t>(v);
    const float down = v - static_cast<float>(row);
    for (int x = 0; x < options.width; ++x) {
      const float u = static_cast<float>(x) / step;
      const auto column = static_cast<std::size_t>(u);
      const float right = u - static_cast<float>(column);
      const float* const upper = grid.data() + row * columns + column;
      const float* const lower = upper + columns;
      const float above = upper[0] + right * (upper[1] - upper[0]);
      const float below = lower[0] + right * (lower[1] - lower[0]);
      plane[at++] += above + down * (below - above);
    }
  }
}

// Shifts all that lies on one side of a line, or within a circle: what things look like whose edge
// is in the picture.
void add_thing(std::vector<float>& plane, const Options& options, float shift, Random& random) {
  const float x0 = uniform(random) * static_cast<float>(options.width);
  const float y0 = uniform(random) * static_cast<float>(options.height);
  const float radius = (0.05F + 0.3F * uniform(random)) * static_cast<float>(options.width);
  std::size_t at = 0;
  for (int y = 0; y < options.height; ++y) {
    for (int x = 0; x < options.width; ++x, ++at) {
      const float dx = static_cast<float>(x) - x0;
      const float dy = static_cast<float>(y) - y0;
      if (dx * dx + dy * dy < radius * radius) plane[at] += shift;
    }
  }
}

std::vector<unsigned char> picture(const Options& options, std::uint64_t number) {
  Random random(options.seed * 1'000'003U + number);
  const auto pixels =
      static_cast<std::size_t>(options.width) * static_cast<std::size_t>(options.height);
  std::vector<float> light(pixels, 0.25F + 0.5F * uniform(random));
  for (float step = 128; step >= 1; step /= 2) {
    add_noise(light, options, step, 0.02F + 0.0016F * step, random);
  }
  for (int i = 0; i < 8; ++i) add_thing(light, options, 0.4F * uniform(random) - 0.2F, random);
  std::vector<unsigned char> rgb(pixels * 3);
  for (std::size_t channel = 0; channel < 3; ++channel) {
    std::vector<float> tint(pixels, 0.2F * uniform(random) - 0.1F);
    for (float step = 64; step >= 8; step /= 2) add_noise(tint, options, step, 0.04F, random);
    for (std::size_t i = 0; i < pixels; ++i) {
      const float value = std::clamp(light[i] + tint[i], 0.0F, 1.0F);
      rgb[3 * i + channel] = static_cast<unsigned char>(std::lround(255 * value));
    }
  }
  return rgb;
}

// False: a message was printed.
bool write(const Options& options) {
  std::error_code failed;
  fs::create_directories(fs::path(options.folder) / "images", failed);
  std::ofstream captions(fs::path(options.folder) / "captions.csv");
  captions << "image,caption\n";
  tjhandle encoder = tjInitCompress();
  std::size_t total = 0;
  bool written = encoder != nullptr && captions.good();
  for (int i = 0; i < options.images && written; ++i) {
    const auto rgb = picture(options, static_cast<std::uint64_t>(i));
    unsigned char* bytes = nullptr;
    unsigned long size = 0;
    written = tjCompress2(encoder, rgb.data(), options.width, 0, options.height, TJPF_RGB, &bytes,
                          &size, TJSAMP_420, options.quality, 0) == 0;
    const std::string number = std::to_string(i);
    const std::string name = "images/" + std::string(6 - number.size(), '0') + number + ".jpg";
    std::ofstream file(fs::path(options.folder) / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(size));
    captions << name << ",picture " << i << '\n';
    written = written && file.flush();
    tjFree(bytes);
    total += size;
  }
  tjDestroy(encoder);
  if (!written || !captions.flush()) {
    std::fprintf(stderr, "cannot write %s\n", options.folder.c_str());
    return false;
  }
  std::printf("%d pictures of %d by %d pixels, %zu bytes each on average\n", options.images,
              options.width, options.height, total / static_cast<std::size_t>(options.images));
  return true;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::Options options;
  CLI::App app("Writes a folder of JPEG pictures with captions.csv.");
  app.add_option("folder", options.folder, "where to")->required();
  app.add_option("--images", options.images, "how many")->check(CLI::Range(1, 999'999));
  app.add_option("--width", options.width, "pixels")->check(CLI::Range(1, 10'000));
  app.add_option("--height", options.height, "pixels")->check(CLI::Range(1, 10'000));
  app.add_option("--quality", options.quality, "of the JPEGs")->check(CLI::Range(1, 100));
  app.add_option("--seed", options.seed, "of the pictures");
  CLI11_PARSE(app, argc, argv);
  return lockstep::write(options) ? 0 : 1;
}
