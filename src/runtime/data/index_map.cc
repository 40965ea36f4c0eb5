#include "runtime/data/index_map.h"

#include <algorithm>

namespace lockstep {
namespace {

std::uint64_t hash_number(std::uint64_t value, std::uint64_t start) {
  std::string bytes;
  for (unsigned shift = 0; shift < 64; shift += 8) {
    bytes += static_cast<char>((value >> shift) & 0xffU);
  }
  return hash_bytes(bytes, start);
}

}  // namespace

std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t start) {
  std::uint64_t hash = start;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  }
  return hash;
}

void IndexMap::add(std::uint64_t image, std::uint64_t text) {
  const auto index = static_cast<std::int64_t>(keys_.size());
  keys_.push_back({index, image, text});
  digest_ = hash_number(static_cast<std::uint64_t>(index), digest_);
  digest_ = hash_number(image, digest_);
  digest_ = hash_number(text, digest_);
}

std::vector<std::size_t> IndexMap::mispaired(std::span<const SampleKey> samples) const {
  std::vector<std::size_t> places;
  for (std::size_t place = 0; place < samples.size(); ++place) {
    const SampleKey& sample = samples[place];
    const bool known = sample.index >= 0 && sample.index < size();
    if (!known || key(sample.index) != sample) places.push_back(place);
  }
  return places;
}

Coverage coverage(std::int64_t items, std::span<const std::vector<std::int64_t>> indices_of_ranks) {
  Coverage out;
  std::vector<bool> seen(static_cast<std::size_t>(std::max<std::int64_t>(items, 0)));
  for (const auto& indices : indices_of_ranks) {
    for (const std::int64_t index : indices) {
      if (index < 0 || index >= items) {
        ++out.unknown;
      } else if (seen[static_cast<std::size_t>(index)]) {
        ++out.repeated;
      } else {
        seen[static_cast<std::size_t>(index)] = true;
      }
    }
  }
  out.missing = std::count(seen.begin(), seen.end(), false);
  return out;
}

}  // namespace lockstep
