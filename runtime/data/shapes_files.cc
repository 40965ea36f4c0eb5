#include "runtime/data/shapes_files.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "base/system_error.h"
#include "base/text.h"
#include "runtime/data/image.h"
#include "runtime/data/manifest_readers.h"
#include "runtime/data/resize.h"
#include "runtime/data/shapes.h"
#include "runtime/data/transform.h"
#include "runtime/data/vocabulary.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

constexpr int kFormat = 1;  // raise it when other files are written for the same options
constexpr std::size_t kLargestMarker = 4096;

std::string marker_of(const ShapesFiles& options) {
  return "lockstep shapes, format " + std::to_string(kFormat) + "\nitems " +
         std::to_string(options.items) + "\nside " + std::to_string(options.side) + "\nseed " +
         std::to_string(options.seed) + "\ntext-only " + fixed(options.text_only, 6) + "\n";
}

// Ok: `folder` holds these files. An error says what is there instead.
Status check_written(const std::string& folder, const ShapesFiles& options) {
  const Result<std::string> marker =
      read_file((fs::path(folder) / kShapesMarker).string(), kLargestMarker);
  if (marker && *marker == marker_of(options)) return Status::ok();
  return Error{marker ? "the folder holds a data set \"shapes\" of other options or format"
                      : "the folder is there, and holds no data set \"shapes\"",
               {folder},
               "name another folder, or delete this one"};
}

std::string picture_png(const Picture& picture, int side, Status& status) {
  std::array<float, kImageFloats> values{};
  paint(picture, values);
  RgbImage image{kImageSide, kImageSide, {}, {}};
  constexpr std::size_t kPlane = std::size_t{kImageSide} * kImageSide;
  for (std::size_t pixel = 0; pixel < kPlane; ++pixel) {
    for (std::size_t channel = 0; channel < kRgbChannels; ++channel) {
      const float value = (values[channel * kPlane + pixel] + 1) * 127.5F;
      image.pixels.push_back(static_cast<std::uint8_t>(std::clamp(value, 0.0F, 255.0F)));
    }
  }
  const Result<std::string> bytes = encode_png(resize_bilinear(image, side, side));
  if (bytes) return *bytes;
  status = bytes.error();
  return {};
}

std::string image_name(std::int64_t index) {
  std::string digits = std::to_string(index);
  digits.insert(0, digits.size() < 6 ? 6 - digits.size() : 0, '0');
  return "images/" + digits + ".png";
}

Status write_files(const fs::path& folder, const ShapesFiles& options) {
  const ShapesDataset data(options.items, options.text_only, options.seed);
  std::string captions = "image,caption\n";
  for (std::int64_t index = 0; index < options.items; ++index) {
    const Item item = data.item(index);
    const std::string name = item.has_image ? image_name(index) : "";
    captions += name + "," + caption(item.picture) + "\n";
    if (!item.has_image) continue;
    Status encoded = Status::ok();
    const std::string png = picture_png(item.picture, options.side, encoded);
    if (!encoded) return encoded;
    if (Status written = write_file((folder / name).string(), png); !written) return written;
  }
  for (const auto& [name, bytes] : {std::pair<const char*, std::string>{kCaptionsFile, captions},
                                    {"vocab.txt", shapes_pieces()},
                                    {kShapesMarker, marker_of(options)}}) {
    if (Status written = write_file((folder / name).string(), bytes); !written) return written;
  }
  return Status::ok();
}

}  // namespace

std::string shapes_pieces() {
  std::string pieces;
  for (const std::string_view special : kSpecialPieces) pieces += std::string(special) + "\n";
  for (const std::string& word : caption_words()) pieces += word + "\n";
  return pieces;
}

Status write_shapes(const std::string& folder, const ShapesFiles& options) {
  if (options.items < 1 || options.items > 1'000'000 || options.side < 1 ||
      options.side > kMaxSide || !(options.text_only >= 0 && options.text_only <= 1)) {
    return Error{"a data set of that size cannot be written",
                 {folder},
                 "1 to 1000000 items of 1 to " + std::to_string(kMaxSide) + " pixels a side"};
  }
  std::error_code failed;
  if (fs::exists(folder, failed)) return check_written(folder, options);
  fs::path target(folder);
  if (!target.has_filename()) target = target.parent_path();  // a trailing slash
  // Of this thread: ranks may be played side by side in one process.
  const fs::path work = target.string() + ".part-" + std::to_string(::gettid());
  fs::remove_all(work, failed);
  fs::create_directories(work / "images", failed);
  if (failed) return system_error("cannot make the folder", failed.value(), work.string());
  Status written = write_files(work, options);
  if (written && std::rename(work.c_str(), target.c_str()) != 0) {
    const int cause = errno;
    // Another rank may have been first.
    written = fs::exists(target, failed)
                  ? check_written(folder, options)
                  : Status(system_error("cannot rename the folder", cause, target.string()));
  }
  if (fs::exists(work, failed)) fs::remove_all(work, failed);
  return written;
}

}  // namespace lockstep
