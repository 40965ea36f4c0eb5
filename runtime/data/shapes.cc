#include "runtime/data/shapes.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>

#include "base/check.h"
#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "base/result.h"
#include "base/splitmix.h"
#include "base/text.h"
#include "runtime/data/image.h"
#include "runtime/data/manifest_readers.h"
#include "runtime/data/transform.h"
#include "runtime/data/wordpiece.h"

namespace lockstep::runtime {
namespace {

constexpr std::array<const char*, 8> kColours = {"red",    "green",  "blue",  "yellow",
                                                 "purple", "orange", "white", "black"};
constexpr std::array<std::array<float, 3>, 8> kRgb = {{{0.9F, 0.1F, 0.1F},
                                                       {0.1F, 0.7F, 0.2F},
                                                       {0.1F, 0.2F, 0.9F},
                                                       {0.95F, 0.9F, 0.1F},
                                                       {0.55F, 0.1F, 0.7F},
                                                       {1.0F, 0.55F, 0.0F},
                                                       {0.95F, 0.95F, 0.95F},
                                                       {0.05F, 0.05F, 0.05F}}};
constexpr std::array<const char*, 6> kShapes = {"circle", "square", "triangle",
                                                "cross",  "ring",   "diamond"};
constexpr std::array<const char*, 3> kSizes = {"small", "", "large"};
constexpr std::array<float, 3> kRadius = {5.0F, 8.0F, 12.0F};  // pixels
constexpr float kNoise = 0.05F;  // the most that is added to a pixel, whose values go from -1 to 1

// Items must be the same everywhere (base/splitmix.h).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() { return splitmix64(state_ += kSplitMixStep); }
  int below(std::size_t n) { return static_cast<int>(next() % n); }
  float uniform() { return static_cast<float>(next() >> 40U) * 0x1p-24F; }  // [0, 1)

 private:
  std::uint64_t state_;
};

bool inside(int shape, float dx, float dy, float r) {
  const float ax = std::abs(dx);
  const float ay = std::abs(dy);
  const float distance = std::sqrt(dx * dx + dy * dy);
  switch (shape) {
    case 0:
      return distance <= r;
    case 1:
      return std::max(ax, ay) <= 0.85F * r;
    case 2:
      return ay <= 0.85F * r && ax <= (dy + 0.85F * r) * 0.6F;
    case 3:
      return std::max(ax, ay) <= r && std::min(ax, ay) <= 0.3F * r;
    case 4:
      return distance <= r && distance >= 0.55F * r;
    default:
      return ax + ay <= r;
  }
}

std::string article(const std::string& noun) { return noun == "orange" ? "an" : "a"; }

std::vector<std::string> words(const Picture& p) {
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  const std::string size = kSizes[at(p.size)];
  const std::string colour = kColours[at(p.colour)];
  const std::string ground = kColours[at(p.ground)];
  std::vector<std::string> sentence;
  sentence.push_back(size.empty() ? article(colour) : "a");
  if (!size.empty()) sentence.push_back(size);
  sentence.insert(sentence.end(),
                  {colour, kShapes[at(p.shape)], "on", article(ground), ground, "ground"});
  return sentence;
}

std::vector<std::string> make_caption_words() {
  std::vector<std::string> all = {"a", "an", "on", "ground", "small", "large"};
  all.insert(all.end(), kColours.begin(), kColours.end());
  all.insert(all.end(), kShapes.begin(), kShapes.end());
  return all;
}

}  // namespace

ShapesDataset::ShapesDataset(std::int64_t items, double text_only, std::uint64_t seed)
    : seed_(seed), has_image_(static_cast<std::size_t>(items), true) {
  LOCKSTEP_CHECK(items > 0 && text_only >= 0 && text_only <= 1, "a data set has items");
  std::vector<std::size_t> order(has_image_.size());
  std::iota(order.begin(), order.end(), 0U);
  Random random(seed ^ 0x7e47U);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.next() % i]);
  const auto bare = static_cast<std::size_t>(std::lround(static_cast<double>(items) * text_only));
  for (std::size_t i = 0; i < bare; ++i) has_image_[order[i]] = false;
}

bool ShapesDataset::has_image(std::int64_t index) const {
  return index >= size() || has_image_[static_cast<std::size_t>(index)];
}

Item ShapesDataset::item(std::int64_t index) const {
  LOCKSTEP_CHECK(index >= 0, "item indices are not negative");
  Random random(Random(seed_ * 0x1000003U + static_cast<std::uint64_t>(index)).next());
  Picture p;
  p.size = random.below(kSizes.size());
  p.shape = random.below(kShapes.size());
  p.colour = random.below(kColours.size());
  p.ground = (p.colour + 1 + random.below(kColours.size() - 1)) % static_cast<int>(kColours.size());
  const float radius = kRadius[static_cast<std::size_t>(p.size)];
  const float room = static_cast<float>(kImageSide) - 2 * radius;
  p.x = radius + random.uniform() * room;
  p.y = radius + random.uniform() * room;
  p.noise_seed = random.next();
  return {index, has_image(index), p};
}

std::span<const std::string> caption_words() {
  static const std::vector<std::string> all = make_caption_words();
  return all;
}

std::string caption(const Picture& picture) {
  std::string text;
  for (const std::string& word : words(picture)) text += (text.empty() ? "" : " ") + word;
  return text;
}

void paint(const Picture& picture, std::span<float, kImageFloats> pixels) {
  Random random(picture.noise_seed);
  const auto& figure = kRgb[static_cast<std::size_t>(picture.colour)];
  const auto& ground = kRgb[static_cast<std::size_t>(picture.ground)];
  const float radius = kRadius[static_cast<std::size_t>(picture.size)];
  std::size_t next = 0;
  for (std::size_t channel = 0; channel < kImageChannels; ++channel) {
    for (int row = 0; row < kImageSide; ++row) {
      for (int column = 0; column < kImageSide; ++column) {
        const float dx = static_cast<float>(column) + 0.5F - picture.x;
        const float dy = static_cast<float>(row) + 0.5F - picture.y;
        const float value =
            inside(picture.shape, dx, dy, radius) ? figure[channel] : ground[channel];
        pixels[next++] = 2 * value - 1 + kNoise * (2 * random.uniform() - 1);
      }
    }
  }
}

namespace fs = std::filesystem;

namespace {

constexpr int kFormat = 1;  // raise it when other files are written for the same options
constexpr std::size_t kLargestMarker = 4096;

std::string marker_of(const ShapesFiles& options) {
  return fmt::format("lockstep shapes, format {}\nitems {}\nside {}\nseed {}\ntext-only {}\n",
                     kFormat, options.items, options.side, options.seed,
                     fixed(options.text_only, 6));
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
  return fmt::format("images/{}.png", digits);
}

Status write_files(const fs::path& folder, const ShapesFiles& options) {
  const ShapesDataset data(options.items, options.text_only, options.seed);
  std::string captions = "image,caption\n";
  for (std::int64_t index = 0; index < options.items; ++index) {
    const Item item = data.item(index);
    const std::string name = item.has_image ? image_name(index) : "";
    captions += fmt::format("{},{}\n", name, caption(item.picture));
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
  for (const std::string_view special : kSpecialPieces) pieces += fmt::format("{}\n", special);
  for (const std::string& word : caption_words()) pieces += fmt::format("{}\n", word);
  return pieces;
}

Status write_shapes(const std::string& folder, const ShapesFiles& options) {
  if (options.items < 1 || options.items > 1'000'000 || options.side < 1 ||
      options.side > kMaxSide || !(options.text_only >= 0 && options.text_only <= 1)) {
    return Error{"a data set of that size cannot be written",
                 {folder},
                 fmt::format("1 to 1000000 items of 1 to {} pixels a side", kMaxSide)};
  }
  std::error_code failed;
  if (fs::exists(folder, failed)) return check_written(folder, options);
  fs::path target(folder);
  if (!target.has_filename()) target = target.parent_path();  // a trailing slash
  // Named after this thread, because several ranks may run in one process.
  const fs::path work = fmt::format("{}.part-{}", target.string(), ::gettid());
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

}  // namespace lockstep::runtime
