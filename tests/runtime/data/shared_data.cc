#include "tests/runtime/data/shared_data.h"

#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

namespace lockstep::runtime {

namespace fs = std::filesystem;

fs::path shared_data(std::string_view part) {
  return fs::path(LOCKSTEP_SOURCE_DIR) / ".." / "shared" / "data" / part;
}

std::string file_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> file_lines(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<float> read_half_npy(const fs::path& path) {
  const std::string bytes = file_bytes(path);
  constexpr std::size_t kLengthAt = 8;
  if (bytes.size() < 10 || bytes.find("'<f2'") == std::string::npos) return {};
  std::uint16_t header = 0;
  std::memcpy(&header, bytes.data() + kLengthAt, sizeof header);
  std::vector<float> values;
  for (std::size_t at = 10U + header; at + 1 < bytes.size(); at += 2) {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes.data() + at, sizeof half);
    const int exponent = (half >> 10) & 31;
    const int mantissa = half & 1023;
    const float magnitude = exponent == 0
                                ? std::ldexp(static_cast<float>(mantissa), -24)
                                : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
    values.push_back((half & 0x8000) != 0 ? -magnitude : magnitude);
  }
  return values;
}

TemporaryFolder::TemporaryFolder() {
  static std::atomic<int> count = 0;
  path_ = fs::path(testing::TempDir()) /
          ("data_test_" + std::to_string(getpid()) + "_" + std::to_string(count++));
  fs::create_directories(path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(const std::string& name, std::string_view bytes) const {
  const fs::path file = path_ / name;
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
  return file.string();
}

RgbImage gradient(int width, int height) {
  RgbImage image{width, height, {}, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (const int value : {7 * x + 3 * y, 5 * x + 11 * y, 13 * x * y}) {
        image.pixels.push_back(static_cast<std::uint8_t>(value));
      }
    }
  }
  return image;
}

std::string png_of(const RgbImage& image) {
  const Result<std::string> bytes = encode_png(image);
  EXPECT_TRUE(bytes);
  return bytes ? *bytes : "";
}

}  // namespace lockstep::runtime
