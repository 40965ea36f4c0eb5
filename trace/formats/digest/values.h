// The tables of a digest: the values that traces refer to by ids (names, shapes, signatures, lists
// of ranks), once each and in an order that depends only on the values. So two digests of the same
// traces are the same bytes, in whatever order and from however many parts they were merged.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/run.h"

namespace lockstep::trace {

// Writes numbers and texts as the bytes of a digest.
//
//   number    a varint (LEB128): seven bits per byte, the lowest first; the top bit says that more
//             bytes follow
//   integer   zigzag-coded (0, -1, 1, -2 … become 0, 1, 2, 3 …), then as a number
//   word      eight bytes, little-endian: for values whose bits are all used, as hashes
//   text      its length as a number, then its bytes
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

// Reads what a DigestWriter wrote. Missing bytes read as 0 or "", and ok() is false from then on:
// so the reader of a table may check ok() once, at the end. Never reads past the bytes.
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
  // The number of entries that follow. Each has at least one byte, so more entries than bytes is
  // damage.
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
  // True if everything was read without damage.
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

// Numbers the values that some traces use. Signatures are numbered without their root, because
// calls store it relative to their group (trace/formats/digest/form.h).
class DigestValues {
 public:
  explicit DigestValues(const Tables& tables) : tables_(tables) {}

  // Adds all values that the trace refers to. O(calls + marks).
  void add(const RankTrace& trace);
  // Numbers the values. Call it once, after the last add().
  void number();
  void write(DigestWriter& out) const;

  std::uint64_t of(StringId id) const { return strings_.of(id.value); }
  std::uint64_t of(NameListId id) const { return name_lists_.of(id.value); }
  std::uint64_t of(IntListId id) const { return int_lists_.of(id.value); }
  std::uint64_t of(SignatureId id) const { return signatures_.of(id.value); }
  std::uint64_t of(GroupId id) const { return groups_.of(id.value); }
  std::uint64_t of(const RankList& list) const { return rank_lists_.at(list.identity()).number; }

 private:
  // The used ids of one interner, and their numbers. Id 0, "not recorded", has number 0.
  struct Used {
    std::vector<bool> is_used;
    std::vector<std::uint64_t> numbers;
    std::vector<std::string> coded;  // the values as bytes, by number - 1

    void use(std::uint32_t id) {
      if (id >= is_used.size()) is_used.resize(std::size_t{id} + 1);
      is_used[id] = true;
    }
    std::uint64_t of(std::uint32_t id) const { return id == 0 ? 0 : numbers[id]; }
    template <class Code>
    void number(const Code& code);
    void write(DigestWriter& out) const;
  };
  struct NumberedList {
    RankList list;
    std::uint64_t number = 0;
  };

  void use(StringId id) { strings_.use(id.value); }
  void use_names(NameListId id);
  void use_signature(SignatureId id);
  void use_list(const RankList& list);
  std::string code(SignatureId id) const;

  const Tables& tables_;
  Used strings_, name_lists_, int_lists_, signatures_, groups_;
  std::unordered_map<const void*, NumberedList> rank_lists_;
  std::vector<std::string> coded_lists_;  // by number
};

// The tables of a digest that was read, as ids of a Tables; index 0 is "not recorded".
struct DigestTables {
  std::vector<StringId> strings;
  std::vector<IntListId> int_lists;
  std::vector<NameListId> name_lists;
  std::vector<Signature> signatures;  // without roots
  std::vector<GroupId> groups;
  std::vector<RankList> rank_lists;  // by number - 1: number 0 is "not recorded"
};

// A limit for the memory of a digest's traces: a few bytes of a file can expand to any size.
struct DigestRoom {
  std::size_t most = 0;   // bytes
  std::size_t taken = 0;  // of them
  bool exceeded = false;

  // False if less than `bytes` are left.
  bool take(std::size_t bytes) {
    if (bytes > most - taken) {
      exceeded = true;
      return false;
    }
    taken += bytes;
    return true;
  }
};

// Reads and interns what DigestValues::write wrote. Lists of ranks take room. False if the digest
// is damaged or exceeds the room.
bool read_digest_tables(DigestReader& in, Tables& tables, DigestRoom& room, DigestTables& out);

}  // namespace lockstep::trace
