// The frozen map of a data set: which image and which text belong to each index.
//
// It is fixed when a manifest is opened. Ranks compare its digest before they train; a loader's
// batches are checked against it. So a pairing that slipped (an index off by one, image and text
// loaders merged out of step) is found on the first sample.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// 64-bit FNV-1a. Not against an adversary: it tells different things apart, no more.
// Source: RFC 9923.
std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t start = 0xcbf29ce484222325U);

// Which image and text a sample shows. 0: it has none.
struct SampleKey {
  std::int64_t index = 0;
  std::uint64_t image = 0;  // hash of the image's id: its path in the data set, or its member
  std::uint64_t text = 0;   // hash of the text's id: the item's, and the text itself

  bool operator==(const SampleKey&) const = default;
};

class IndexMap {
 public:
  void add(std::uint64_t image, std::uint64_t text);

  std::int64_t size() const { return static_cast<std::int64_t>(keys_.size()); }
  const SampleKey& key(std::int64_t index) const { return keys_[static_cast<std::size_t>(index)]; }
  // Over all (index, image, text), in order: equal on two ranks when their maps are.
  std::uint64_t digest() const { return digest_; }

  // Places in `samples` that the map does not have so: an unknown index, another image or text.
  std::vector<std::size_t> mispaired(std::span<const SampleKey> samples) const;

 private:
  std::vector<SampleKey> keys_;
  std::uint64_t digest_ = hash_bytes("lockstep index map 1");
};

// How often an epoch shows the items of a data set over all ranks.
struct Coverage {
  std::int64_t missing = 0;   // items that no rank read
  std::int64_t repeated = 0;  // reads beyond an item's first
  std::int64_t unknown = 0;   // indices outside the data set
};
Coverage coverage(std::int64_t items, std::span<const std::vector<std::int64_t>> indices_of_ranks);

}  // namespace lockstep
