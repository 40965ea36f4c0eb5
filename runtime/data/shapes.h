// The built-in data set "shapes": pictures of one coloured shape on a coloured background, each
// with a sentence that describes it ("a large red circle on a blue ground").
//
// Nothing is stored: an item is a pure function of (seed, index), so every rank and every run sees
// the same items without files. Indices below size() are for training; all others are held out.
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

// Tokens of the longest sentence, including the first and last special token.
inline constexpr int kMaxTokens = 10;

// The contents of a picture. The caption names the first four fields; position and noise are not in
// it.
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
  Picture picture;  // of a text-only item: what its sentence describes
};

class ShapesDataset {
 public:
  // `text_only`: share (0…1) of training items without an image, rounded to whole items; the seed
  // decides which.
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

// Paints channels × rows × columns with values in about -1…1 and slight noise.
void paint(const Picture& picture, std::span<float, kImageFloats> pixels);

// The data set as files, which the loader reads like any other: PNG pictures, captions.csv, and a
// vocab.txt for its captions.

struct ShapesFiles {
  std::int64_t items = 1000;  // 1…1 000 000
  int side = 64;              // pixels of a picture, 1…kMaxSide
  std::uint64_t seed = 1;
  double text_only = 0;  // share of the items without a picture, 0…1
};

inline constexpr const char* kShapesMarker = "lockstep-shapes.txt";

// Writes the folder, unless it exists with the same contents: its marker file records the version
// and the options. Atomic: files are written beside it and renamed at the end, so several ranks may
// call it at once. Errors: the folder contains something else, or cannot be written; options out of
// range.
Status write_shapes(const std::string& folder, const ShapesFiles& options);

// The lines of that vocab.txt.
std::string shapes_pieces();

}  // namespace lockstep::runtime
