#include "trace/formats/ring/table_writer.h"

#include <cstring>

namespace lockstep::trace {

namespace {

template <class T>
std::string_view bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

std::uint32_t RingTableWriter::append(ring::EntryKind kind, std::string_view payload) {
  const std::uint64_t used = header_.table_used.load(std::memory_order_relaxed);
  const std::uint64_t room = header_.table_bytes - used;
  const std::uint64_t padded = (payload.size() + 7) / 8 * 8;
  if (room < sizeof(ring::TableEntry) || padded > room - sizeof(ring::TableEntry)) {
    count_lost();
    return 0;
  }
  const ring::TableEntry entry{static_cast<std::uint32_t>(kind),
                               static_cast<std::uint32_t>(payload.size())};
  std::memcpy(table_ + used, &entry, sizeof entry);
  std::memcpy(table_ + used + sizeof entry, payload.data(), payload.size());
  header_.table_used.store(used + sizeof entry + padded, std::memory_order_release);
  return static_cast<std::uint32_t>(used / 8 + 1);
}

std::uint32_t RingTableWriter::find_or_append(ring::EntryKind kind, std::string_view payload) {
  Index& index = index_[static_cast<std::size_t>(kind)];
  if (const auto found = index.find(payload); found != index.end()) return found->second;
  const std::uint32_t id = append(kind, payload);
  if (id != 0) index.emplace(payload, id);
  return id;
}

std::uint32_t RingTableWriter::string_locked(std::string_view text) {
  return text.empty() ? 0 : find_or_append(ring::EntryKind::string, text);
}

std::uint32_t RingTableWriter::string(std::string_view text) {
  const std::lock_guard lock(mutex_);
  return string_locked(text);
}

std::uint32_t RingTableWriter::names(std::span<const std::string> names) {
  if (names.empty()) return 0;
  const std::lock_guard lock(mutex_);
  scratch_.clear();
  for (const std::string& name : names) {
    scratch_.push_back(string_locked(name));
    // Half a list of parameters would be taken for another list.
    if (scratch_.back() == 0 && !name.empty()) return 0;
  }
  return find_or_append(ring::EntryKind::names, bytes_of(std::span<const std::uint32_t>(scratch_)));
}

std::uint32_t RingTableWriter::ints(std::span<const std::int64_t> values) {
  if (values.empty()) return 0;
  const std::lock_guard lock(mutex_);
  return find_or_append(ring::EntryKind::ints, bytes_of(values));
}

std::uint32_t RingTableWriter::group(std::string_view name, std::span<const std::int32_t> ranks,
                                     std::string_view desc) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t name_id = string_locked(name);
  if (name_id == 0 && !name.empty()) return 0;
  scratch_.assign({name_id, string_locked(desc)});
  for (const std::int32_t rank : ranks) scratch_.push_back(static_cast<std::uint32_t>(rank));
  return find_or_append(ring::EntryKind::group, bytes_of(std::span<const std::uint32_t>(scratch_)));
}

std::uint32_t RingTableWriter::communicator(std::string_view name, std::string_view desc,
                                            std::int32_t place, std::int32_t size) {
  const std::lock_guard lock(mutex_);
  const ring::CommunicatorEntry entry{string_locked(name), string_locked(desc), place, size};
  if (entry.name == 0) return 0;
  return find_or_append(ring::EntryKind::communicator,
                        bytes_of(std::span<const ring::CommunicatorEntry>(&entry, 1)));
}

std::uint32_t RingTableWriter::signature(const ring::SignatureEntry& entry) {
  const std::lock_guard lock(mutex_);
  return find_or_append(ring::EntryKind::signature,
                        bytes_of(std::span<const ring::SignatureEntry>(&entry, 1)));
}

}  // namespace lockstep::trace
