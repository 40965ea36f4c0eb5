#include "runtime/data/image.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::runtime {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kJpegMagic = "\xff\xd8\xff"sv;
constexpr std::string_view kPngMagic = "\x89PNG\r\n\x1a\n"sv;

// What a file that is neither of the two is likely to be; empty where nothing is known of it.
std::string_view other_format(std::string_view bytes) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kOthers = {
      {{"GIF8"sv, "GIF"},
       {"BM"sv, "BMP"},
       {"II*\0"sv, "TIFF"},
       {"MM\0*"sv, "TIFF"},
       {"%PDF"sv, "PDF"},
       {"<svg"sv, "SVG"},
       {"<!DOCTYPE"sv, "HTML"},
       {"version https://git-lfs"sv, "a Git LFS pointer"}}};
  if (bytes.starts_with("RIFF") && bytes.size() > 12 && bytes.substr(8, 4) == "WEBP") return "WebP";
  for (const auto& [magic, format] : kOthers) {
    if (bytes.starts_with(magic)) return format;
  }
  return {};
}

}  // namespace

Result<RgbImage> decode_image(std::string_view bytes, const std::string& name) {
  if (bytes.starts_with(kJpegMagic)) return decode_jpeg(bytes, name);
  if (bytes.starts_with(kPngMagic)) return decode_png(bytes, name);
  if (bytes.empty()) return Error{"the image is empty", {name}, "copy it again from its source"};
  const std::string_view other = other_format(bytes);
  const std::string is = other.empty() ? "" : fmt::format(" (it looks like {})", other);
  return Error{
      fmt::format("neither a JPEG nor a PNG file{}", is), {name}, "convert it to JPEG or PNG"};
}

Status check_image_size(std::int64_t width, std::int64_t height, const std::string& name) {
  if (width <= 0 || height <= 0) {
    return Error{"an image without pixels", {name}, "copy it again from its source"};
  }
  if (width > kMaxPixels / height) {
    return Error{
        fmt::format("an image of {} by {} pixels; at most {} are read", width, height, kMaxPixels),
        {name},
        "scale it down, or leave it out"};
  }
  return Status::ok();
}

}  // namespace lockstep::runtime
