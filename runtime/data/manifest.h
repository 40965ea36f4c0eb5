// Manifest: the items of a data set. An item is an image, a text, or both, under one index.
//
//   Result<Manifest> data = Manifest::open({"train/"});
//   const ManifestItem& item = data->item(7);
//   Result<std::string> jpeg = data->read_image(7);
//
// Three forms (docs/data.md): a folder with captions.csv, a JSONL file, WebDataset tar shards. The
// order of items, and so the pairing of images with texts, is fixed when the manifest is opened. An
// item that cannot be used keeps its index, so later items do not move.
//
// Memory: the manifest's text, and about 200 bytes per item. Reading is const and thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

// The index map of a data set: which image and which text belong to each index.
//
// It is fixed when a manifest is opened, and ranks compare its digest before they train. So a rank
// that reads another pairing (an index off by one, lists of different length) is found before the
// first step. Each sample of the loader carries its key of the map.

// 64-bit FNV-1a (RFC 9923). Distinguishes different data, but not against an adversary.
std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t start = 0xcbf29ce484222325U);

// The image and text of a sample; 0: it has none.
struct SampleKey {
  std::int64_t index = 0;
  std::uint64_t image = 0;  // hash of the image's id: its path in the data set, or its member
  std::uint64_t text = 0;   // hash of the text's id: the item's, and the text itself

  bool operator==(const SampleKey&) const = default;
};

class IndexMap {
 public:
  void add(std::uint64_t image, std::uint64_t text);

  const SampleKey& key(std::int64_t index) const { return keys_[static_cast<std::size_t>(index)]; }
  // Over all (index, image, text), in order: equal on two ranks if their maps are equal.
  std::uint64_t digest() const { return digest_; }

 private:
  std::vector<SampleKey> keys_;
  std::uint64_t digest_ = hash_bytes("lockstep index map 1");
};

// The location of an encoded image's bytes.
struct ImageSource {
  std::string name;         // as in the manifest, or the archive member
  std::string file;         // the image itself, or the archive
  std::int64_t offset = 0;  // bytes into `file`
  std::int64_t size = -1;   // bytes; -1: the whole file
};

struct ManifestItem {
  std::string id;     // its own name if it has one (JSONL's id, a tar key), else its image's
  Location location;  // file, and line if there are lines
  std::optional<ImageSource> image;
  std::optional<std::string> text;
  std::optional<std::int64_t> declared_index;  // JSONL's "index"
  std::string problem;                         // why it cannot be used; empty: it can
};

// Limits: manifest text 2 GiB, image file 256 MiB, text 1 MiB.
inline constexpr std::size_t kLargestManifest = std::size_t{2} << 30U;
inline constexpr std::size_t kLargestImageFile = std::size_t{256} << 20U;
inline constexpr std::size_t kLongestText = std::size_t{1} << 20U;

class Manifest {
 public:
  // Opens a folder, a JSONL file, or tar shards; {000..007} or {a,b} in a name stands for several
  // shards. Errors: nothing there, none of the three forms, shards mixed with others, a manifest
  // without items, captions.csv without its header or with unbalanced quotes. Problems of single
  // items are in the items.
  static Result<Manifest> open(const std::vector<std::string>& sources);

  std::int64_t size() const { return static_cast<std::int64_t>(items_.size()); }
  const ManifestItem& item(std::int64_t index) const {
    return items_[static_cast<std::size_t>(index)];
  }
  // Oddities of the data set as a whole, such as images that no caption names.
  const std::vector<std::string>& notes() const { return notes_; }
  const IndexMap& map() const { return map_; }
  // The key that a sample of this item must have.
  const SampleKey& key(std::int64_t index) const { return map_.key(index); }

  // Describes where declared indices first differ from the items' indices; empty if none does.
  std::string misalignment() const;

  // The bytes of the item's image file; the item must have one. Errors: the file is gone, too
  // large, cannot be read, or has become shorter.
  Result<std::string> read_image(std::int64_t index) const;

 private:
  Manifest() = default;
  std::vector<ManifestItem> items_;
  std::vector<std::string> notes_;
  IndexMap map_;
};

}  // namespace lockstep::runtime
