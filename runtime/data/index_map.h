// The frozen map of a data set: which image and which text belong to each index.
//
// It is fixed when a manifest is opened, and ranks compare its digest before they train: one that
// reads another pairing (an index off by one, lists of different length) is found before the first
// step. Each sample that the loader gives carries its key of the map.
#pragma once

#include <cstdint>
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

  const SampleKey& key(std::int64_t index) const { return keys_[static_cast<std::size_t>(index)]; }
  // Over all (index, image, text), in order: equal on two ranks when their maps are.
  std::uint64_t digest() const { return digest_; }

 private:
  std::vector<SampleKey> keys_;
  std::uint64_t digest_ = hash_bytes("lockstep index map 1");
};

}  // namespace lockstep
