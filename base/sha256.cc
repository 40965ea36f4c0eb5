#include "base/sha256.h"

#include <array>
#include <cstdint>

#include <nettle/sha2.h>

namespace lockstep {

struct Sha256::State {
  sha256_ctx nettle;
};

Sha256::Sha256() : state_(std::make_unique<State>()) { nettle_sha256_init(&state_->nettle); }
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::add(std::string_view bytes) {
  if (bytes.empty()) return;  // an empty view may have no pointer
  nettle_sha256_update(&state_->nettle, bytes.size(),
                       reinterpret_cast<const std::uint8_t*>(bytes.data()));
}

std::string Sha256::finish() {
  std::array<std::uint8_t, SHA256_DIGEST_SIZE> digest{};
  nettle_sha256_digest(&state_->nettle, digest.size(), digest.data());
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : digest) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 0xfU];
  }
  return text;
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.finish();
}

}  // namespace lockstep
