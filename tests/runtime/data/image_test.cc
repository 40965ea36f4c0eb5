#include "runtime/data/image.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "tests/runtime/data/shared_data.h"

namespace lockstep::runtime {
namespace {

using testing::HasSubstr;

std::string decoding_error(std::string_view bytes) {
  const Result<RgbImage> image = decode_image(bytes, "x.img");
  return image ? "" : image.error().str();
}

TEST(DecodeImage, ReadsBackWhatWasEncoded) {
  const RgbImage image = gradient(31, 17);
  const Result<RgbImage> back = decode_image(png_of(image), "x.png");
  ASSERT_TRUE(back) << back.error().str();
  EXPECT_EQ(back->width, 31);
  EXPECT_EQ(back->height, 17);
  EXPECT_EQ(back->pixels, image.pixels);
}

TEST(DecodeImage, SaysWhatAFileIsInstead) {
  EXPECT_THAT(decoding_error(""), HasSubstr("empty"));
  EXPECT_THAT(decoding_error("GIF89a"), HasSubstr("looks like GIF"));
  EXPECT_THAT(decoding_error("RIFF\x10\x00\x10\x10WEBPVP8 "),
              HasSubstr("neither a JPEG nor a PNG"));
  EXPECT_THAT(decoding_error("hello"), HasSubstr("x.img: error: neither a JPEG nor a PNG file"));
}

TEST(DecodeImage, RefusesTheBrokenReferences) {
  const auto folder = shared_data("images/images");
  SKIP_WITHOUT(folder);
  for (const char* name : {"broken_crc.png", "broken_empty.png", "broken_garbage.jpg",
                           "broken_huge_header.png", "broken_truncated.jpg"}) {
    const Result<RgbImage> image = decode_image(file_bytes(folder / name), name);
    EXPECT_FALSE(image) << name;
  }
}

TEST(DecodeImage, APngCutAnywhereIsRefused) {
  const std::string all = png_of(gradient(9, 6));
  // What follows the pixels is the checksum of their chunk and the end: 4 + 12 bytes.
  for (std::size_t size = 0; size + 20 < all.size(); ++size) {
    EXPECT_NE(decoding_error(std::string_view(all).substr(0, size)), "") << size;
  }
}

TEST(DecodeImage, APngWithAnyByteDamagedDoesNoHarm) {
  const std::string all = png_of(gradient(9, 6));
  for (std::size_t at = 0; at < all.size(); ++at) {
    for (const unsigned flip : {0x01U, 0x80U, 0xffU}) {
      std::string bytes = all;
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ flip);
      const Result<RgbImage> image = decode_image(bytes, "x.png");
      if (!image) continue;
      EXPECT_EQ(image->pixels.size(), image->row_bytes() * static_cast<std::size_t>(image->height));
    }
  }
}

// Small JPEG files, and what Pillow makes of each, as PNG.
TEST(DecodeImage, JpegsAreReadAsPillowReadsThem) {
  const auto folder = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/runtime/data/files";
  for (const std::string name : {"progressive.jpg", "cmyk.jpg", "grey.jpg"}) {
    const std::string all = file_bytes(folder / name);
    const Result<RgbImage> image = decode_image(all, name);
    const Result<RgbImage> wanted = decode_image(file_bytes(folder / (name + ".png")), name);
    ASSERT_TRUE(image) << image.error().str();
    ASSERT_TRUE(wanted);
    EXPECT_EQ(image->pixels, wanted->pixels) << name;
    for (std::size_t size = 0; size < all.size(); ++size) {
      EXPECT_NE(decoding_error(std::string_view(all).substr(0, size)), "") << name << " " << size;
      std::string bytes = all;
      bytes[size] = static_cast<char>(static_cast<unsigned char>(bytes[size]) ^ 0x10U);
      (void)decode_image(bytes, name);  // damaged: read or refused, and no harm done
    }
  }
}

TEST(CheckImageSize, BoundsTheProduct) {
  EXPECT_TRUE(check_image_size(10'000, 10'000, "x"));
  EXPECT_FALSE(check_image_size(10'000, 10'001, "x"));
  EXPECT_FALSE(check_image_size(0x7fffffff, 0x7fffffff, "x"));
  EXPECT_FALSE(check_image_size(0, 5, "x"));
}

}  // namespace
}  // namespace lockstep::runtime
