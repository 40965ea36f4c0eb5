// The built-in data set "shapes": pictures of one coloured shape on a coloured ground, and the
// sentence that describes each ("a large red circle on a blue ground").
//
// Nothing is stored: an item is a pure function of (seed, index), so every rank and every run sees
// the same items without a file. Indices below size() are for training; all others are held out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

inline constexpr int kImageChannels = 3;
inline constexpr int kImageSide = 32;  // pixels
inline constexpr int kImageFloats = kImageChannels * kImageSide * kImageSide;

// Tokens of the longest sentence, with the two that begin and end it.
inline constexpr int kMaxTokens = 10;

// What is in a picture. The first four fields are in its caption; place and noise are not.
struct Picture {
  int size = 0;    // 0 small, 1 (not said), 2 large
  int colour = 0;  // index into the colours; never equal to `ground`
  int shape = 0;
  int ground = 0;
  float x = 0, y = 0;  // centre, in pixels
  std::uint64_t noise_seed = 0;
};

struct Item {
  std::int64_t index = 0;
  bool has_image = true;
  Picture picture;  // of a text-only item: what its sentence speaks of
};

class ShapesDataset {
 public:
  // `text_only`: share (0…1) of the training items without an image, rounded to whole items; which
  // ones is drawn from the seed.
  ShapesDataset(std::int64_t items, double text_only, std::uint64_t seed);

  std::int64_t size() const { return static_cast<std::int64_t>(has_image_.size()); }
  bool has_image(std::int64_t index) const;                           // true for held-out items
  const std::vector<bool>& has_images() const { return has_image_; }  // of the training items
  Item item(std::int64_t index) const;                                // index >= 0

 private:
  std::uint64_t seed_;
  std::vector<bool> has_image_;
};

// Every word that a caption may use.
std::span<const std::string> caption_words();
std::string caption(const Picture& picture);

// Paints channels × rows × columns, values in about -1…1, with slight noise.
void paint(const Picture& picture, std::span<float, kImageFloats> pixels);

// The built-in data set "shapes" as files, which the loader reads like any other: PNG pictures,
// captions.csv, and a vocab.txt for its captions.

struct ShapesFiles {
  std::int64_t items = 1000;  // 1…1 000 000
  int side = 64;              // pixels of a picture, 1…kMaxSide
  std::uint64_t seed = 1;
  double text_only = 0;  // share of the items without a picture, 0…1
};

inline constexpr const char* kShapesMarker = "lockstep-shapes.txt";

// Writes the folder unless it is there with the same contents: its marker says of which form and
// with which options. All or nothing: the files are written beside it, and renamed at the end, so
// several ranks may do this at once.
// Errors: the folder holds something else, or cannot be written; options outside their limits.
Status write_shapes(const std::string& folder, const ShapesFiles& options);

// The lines of that vocab.txt.
std::string shapes_pieces();

}  // namespace lockstep::runtime
