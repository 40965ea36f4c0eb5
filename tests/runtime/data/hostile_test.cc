// A few bytes that declare sizes beyond all measure: refused with a message, and without memory in
// proportion to what they declare.
#include <sys/resource.h>

#include <array>
#include <cstdio>
#include <filesystem>

#include <gmock/gmock.h>

#include "runtime/data/image.h"
#include "runtime/data/manifest.h"
#include "runtime/models/safetensors.h"
#include "tests/runtime/data/shared_data.h"
#include "tests/runtime/data/tar_bytes.h"

namespace lockstep::runtime {
namespace {

using testing::HasSubstr;

// What this process took at most so far, in MiB.
long peak_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

// Less than any of the sizes below, more than what else a test takes.
constexpr long kLittle = 64;  // MiB

std::string big_endian(int value) {
  return {static_cast<char>(value >> 8), static_cast<char>(value & 0xff)};
}

// A real JPEG file of a few hundred bytes whose header declares another size.
std::string jpeg_declaring(int width, int height) {
  const auto folder = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/runtime/data/files";
  std::string bytes = file_bytes(folder / "progressive.jpg");
  const std::size_t frame = bytes.find("\xff\xc2");  // marker, length, precision, height, width
  EXPECT_NE(frame, std::string::npos);
  bytes.replace(frame + 5, 4, big_endian(height) + big_endian(width));
  return bytes;
}

TEST(HostileSizes, AJpegThatDeclaresMoreThanItsBytesCanHold) {
  const long before = peak_memory();
  EXPECT_FALSE(decode_image(jpeg_declaring(65535, 65535), "x.jpg"));
  const Result<RgbImage> beyond = decode_image(jpeg_declaring(65500, 65500), "x.jpg");
  ASSERT_FALSE(beyond);
  EXPECT_THAT(beyond.error().str(), HasSubstr("65500 by 65500 pixels; at most 100000000"));
  const Result<RgbImage> allowed = decode_image(jpeg_declaring(10000, 10000), "x.jpg");
  ASSERT_FALSE(allowed);
  EXPECT_THAT(allowed.error().str(), HasSubstr("promises more than it can hold"));
  EXPECT_LT(peak_memory() - before, kLittle);
}

// A grey picture of one value is as small as JPEGs get: 2 bits for each block of 8 by 8 pixels.
TEST(HostileSizes, ALargeJpegOfOneGreyIsRead) {
  const auto folder = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/runtime/data/files";
  const Result<RgbImage> image = decode_image(file_bytes(folder / "one_grey.jpg"), "one_grey.jpg");
  ASSERT_TRUE(image) << image.error().str();
  EXPECT_EQ(image->damage, "");
  EXPECT_EQ(image->width, 2048);
}

TEST(HostileSizes, APngThatDeclaresMoreThanItsBytesCanHold) {
  const long before = peak_memory();
  std::string bytes = png_of(gradient(5, 4));
  bytes.replace(16, 8, std::string("\0\0\x27\x10\0\0\x27\x10", 8));  // 10000 by 10000
  EXPECT_FALSE(decode_image(bytes, "x.png"));                        // its checksum is wrong, too
  EXPECT_LT(peak_memory() - before, kLittle);
}

// Where a tar header has the size of its member, in octal, and the sum of its bytes.
void declare_size(std::string& tar, const std::string& octal) {
  tar.replace(124, 11, octal);
  tar.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (std::size_t at = 0; at < 512; ++at) sum += static_cast<unsigned char>(tar[at]);
  std::array<char, 8> digits{};
  std::snprintf(digits.data(), digits.size(), "%06o", sum);
  tar.replace(148, 7, digits.data(), 7);
}

TEST(HostileSizes, AMemberThatDeclaresMoreThanTheArchiveHas) {
  const TemporaryFolder folder;
  std::string tar = tar_bytes({{"0.png", png_of(gradient(5, 4))}});
  declare_size(tar, "01777777770");  // just below 256 MiB, which an image may have
  const long before = peak_memory();
  const Result<Manifest> data = Manifest::open({folder.write("s.tar", tar)});
  ASSERT_TRUE(data) << data.error().str();
  ASSERT_TRUE(data->item(0).image);
  EXPECT_GT(data->item(0).image->size, 200'000'000);
  const Result<std::string> bytes = data->read_image(0);
  ASSERT_FALSE(bytes);
  EXPECT_THAT(bytes.error().str(), HasSubstr("ends within \"0.png\""));
  EXPECT_LT(peak_memory() - before, kLittle);
}

TEST(HostileSizes, ALineOfAManifestIsBounded) {
  const TemporaryFolder folder;
  const std::string line =
      R"({"text": "x", "more": [)" + std::string(std::size_t{17} << 20U, '[') + "\n";
  const Result<Manifest> data =
      Manifest::open({folder.write("m.jsonl", line + "{\"text\": \"next\"}\n")});
  ASSERT_TRUE(data) << data.error().str();
  EXPECT_EQ(data->item(0).problem, "the line is longer than 16 MiB");
  EXPECT_EQ(data->item(1).text, "next");
}

TEST(HostileSizes, ASafetensorsHeaderOf2To60Bytes) {
  const TemporaryFolder folder;
  const long before = peak_memory();
  for (const std::string& size : {std::string("\0\0\0\0\0\0\0\x10", 8), std::string(8, '\xff')}) {
    const auto file = SafetensorsFile::open(folder.write("m.safetensors", size + "{}"));
    ASSERT_FALSE(file);
    EXPECT_THAT(file.error().str(), HasSubstr("the format allows 100000000"));
  }
  EXPECT_LT(peak_memory() - before, kLittle);
}

}  // namespace
}  // namespace lockstep::runtime
