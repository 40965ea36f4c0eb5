// RingTableWriter: appends interned values to the table of a ring file. Internal to the ring
// writer; the layout is in ring_file.h.
//
// Thread-safe: one mutex. A value that is in the table already is found without allocating. An
// entry is complete before `table_used` covers it, so a killed process leaves whole entries.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/formats/ring/ring_file.h"

namespace lockstep::trace {

class RingTableWriter {
 public:
  // `table` is header.table_bytes long; both stay the file's and must outlive this.
  RingTableWriter(ring::Header& header, char* table) : header_(header), table_(table) {}

  // Each returns the value's table id; 0 for an empty value and for one that has no room, or that
  // refers to one without room (counted in Header::table_lost).
  std::uint32_t string(std::string_view text);
  std::uint32_t names(std::span<const std::string> names);
  std::uint32_t ints(std::span<const std::int64_t> values);
  std::uint32_t group(std::string_view name, std::span<const std::int32_t> ranks,
                      std::string_view desc);
  std::uint32_t communicator(std::string_view name, std::string_view desc, std::int32_t place,
                             std::int32_t size);
  std::uint32_t signature(const ring::SignatureEntry& entry);

  void count_lost() { header_.table_lost.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view bytes) const {
      return std::hash<std::string_view>{}(bytes);
    }
  };
  using Index = std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>>;

  // These want the mutex held.
  std::uint32_t string_locked(std::string_view text);
  std::uint32_t find_or_append(ring::EntryKind kind, std::string_view payload);
  std::uint32_t append(ring::EntryKind kind, std::string_view payload);

  ring::Header& header_;
  char* table_;
  std::mutex mutex_;
  std::vector<Index> index_{static_cast<std::size_t>(ring::EntryKind::communicator) + 1};
  std::vector<std::uint32_t> scratch_;
};

}  // namespace lockstep::trace
