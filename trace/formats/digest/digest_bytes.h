// The smallest things of a digest: numbers and texts as bytes, written and read.
//
// A number is a varint (LEB128: seven bits a byte, the lowest first, the top bit says that more
// follow); a signed one is zigzag-coded first (0, -1, 1, -2 … become 0, 1, 2, 3 …). What has all
// its bits is eight bytes, little-endian. A text is its length and its bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

class DigestWriter {
 public:
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) bytes_ += static_cast<char>(value | 0x80U);
    bytes_ += static_cast<char>(value);
  }
  void integer(std::int64_t value) {
    number((static_cast<std::uint64_t>(value) << 1U) ^ static_cast<std::uint64_t>(value >> 63));
  }
  void word(std::uint64_t value) {
    for (unsigned shift = 0; shift < 64; shift += 8)
      bytes_ += static_cast<char>(value >> shift & 0xFFU);
  }
  void real(double value) { word(std::bit_cast<std::uint64_t>(value)); }
  void text(std::string_view value) {
    number(value.size());
    bytes_.append(value);
  }

  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what a DigestWriter wrote. What is not there reads as 0 or "", and ok() is false from then
// on: a reader of a whole table looks once, at its end. Never reads behind the bytes.
class DigestReader {
 public:
  explicit DigestReader(std::string_view bytes) : bytes_(bytes) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(next());
      if (shift == 63 && byte > 1) break;  // more than 64 bits
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if ((byte & 0x80U) == 0) return value;
    }
    ok_ = false;
    return 0;
  }
  std::int64_t integer() {
    const std::uint64_t coded = number();
    return static_cast<std::int64_t>(coded >> 1U) ^ -static_cast<std::int64_t>(coded & 1U);
  }
  // A number below `end`; else 0, and not ok().
  std::uint64_t below(std::uint64_t end) {
    const std::uint64_t value = number();
    if (value < end) return value;
    ok_ = false;
    return 0;
  }
  // How many things follow, each of at least one byte: no more than there are bytes.
  std::uint64_t count() { return below(bytes_.size() + 1); }
  // An integer of 32 bits.
  std::int32_t small() {
    const std::int64_t value = integer();
    if (value == static_cast<std::int32_t>(value)) return static_cast<std::int32_t>(value);
    ok_ = false;
    return 0;
  }
  std::uint64_t word() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 8)
      value |= std::uint64_t{static_cast<unsigned char>(next())} << shift;
    return value;
  }
  double real() { return std::bit_cast<double>(word()); }
  std::string_view text() {
    const std::uint64_t size = count();
    const std::string_view out = bytes_.substr(0, size);
    bytes_.remove_prefix(out.size());
    return out;
  }

  void fail() { ok_ = false; }
  bool ok() const { return ok_; }
  // Everything was read, and could be.
  bool done() const { return ok_ && bytes_.empty(); }

 private:
  char next() {
    if (bytes_.empty()) {
      ok_ = false;
      return 0;
    }
    const char out = bytes_.front();
    bytes_.remove_prefix(1);
    return out;
  }

  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace lockstep
