#include "runtime/data/index_map.h"

#include <string>

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

}  // namespace lockstep
