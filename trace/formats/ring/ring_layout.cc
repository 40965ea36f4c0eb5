#include "trace/formats/ring/ring_layout.h"

#include <bit>

#include "trace/trace_builder.h"

namespace lockstep {

namespace {

// The words of a file that may change at any time, without a data race.
std::uint64_t load_word(const char* from, std::memory_order order) {
  // atomic_ref wants a pointer to non-const, and never writes when it loads.
  auto* word = reinterpret_cast<std::uint64_t*>(const_cast<char*>(from));
  return std::atomic_ref<std::uint64_t>(*word).load(order);
}

// What it means that record `number` has a stamp that is not its own. A slot only ever holds the
// stamps of the records that fall on it, one lap of the ring apart, or none.
RecordState state_of(const RingLayout& layout, std::uint64_t number, std::uint64_t stamp) {
  if (stamp == 0) return RecordState::unwritten;
  if ((stamp - 1 - number) % layout.capacity != 0) return RecordState::torn;
  return stamp <= number ? RecordState::unwritten : RecordState::overtaken;
}

// Empty where the header describes a file of `size` bytes.
std::string layout_problem(const ring::Header& header, std::uint64_t size) {
  if (header.header_bytes != ring::kHeaderBytes || header.record_bytes != sizeof(ring::Record)) {
    return "its header has sizes that version 2 does not have";
  }
  if (!std::has_single_bit(header.capacity)) return "its capacity is no power of two";
  if (header.table_offset < ring::kHeaderBytes || header.table_offset % 8 != 0 ||
      header.table_offset > size || header.table_bytes > size - header.table_offset) {
    return "its table lies outside of the file";
  }
  if (header.ring_offset < header.table_offset + header.table_bytes) {
    return "its table and its ring overlap";
  }
  if (header.ring_offset % 8 != 0 || header.ring_offset > size ||
      header.capacity > (size - header.ring_offset) / sizeof(ring::Record)) {
    return "it is shorter than its header says";
  }
  if (!is_possible_rank(header.rank, header.world_size)) {
    return "rank " + std::to_string(header.rank) + " is not below world_size " +
           std::to_string(header.world_size);
  }
  return {};
}

}  // namespace

Result<RingLayout> RingLayout::of(std::string_view bytes, const std::string& file) {
  LOCKSTEP_CHECK(std::bit_cast<std::uintptr_t>(bytes.data()) % 8 == 0, "a ring file is aligned");
  if (bytes.size() < ring::kHeaderBytes ||
      !bytes.starts_with(std::string_view(ring::kMagic, sizeof ring::kMagic))) {
    return Error{"not a ring file, or one cut off in its header",
                 {file},
                 "copy it anew from where the job ran"};
  }
  const auto& header = *reinterpret_cast<const ring::Header*>(bytes.data());
  if (header.version != ring::kVersion) {
    return Error{"ring file version " + std::to_string(header.version) + " is not known",
                 {file},
                 "this lockstep reads version 2"};
  }
  if (std::string problem = layout_problem(header, bytes.size()); !problem.empty()) {
    return Error{"damaged ring file: " + problem, {file}, "copy it anew from where the job ran"};
  }
  RingLayout layout;
  layout.header = &header;
  layout.table = bytes.substr(header.table_offset, header.table_bytes);
  layout.records = bytes.data() + header.ring_offset;
  layout.capacity = header.capacity;
  layout.rank = header.rank;
  layout.world_size = header.world_size;
  return layout;
}

RecordState load_record(const RingLayout& layout, std::uint64_t number, RingRecord& record) {
  const char* from = layout.records + (number & (layout.capacity - 1)) * sizeof(ring::Record);
  const std::uint64_t stamp = load_word(from, std::memory_order_acquire);
  if (stamp != number + 1) return state_of(layout, number, stamp);
  // Acquire: the stamp is looked at again only when all words have been copied.
  const auto word = [&](std::size_t i) {
    return load_word(from + 8 * i, std::memory_order_acquire);
  };
  record.time = static_cast<Nanos>(word(1));
  const std::uint64_t packed = word(2);
  record.id = static_cast<std::uint32_t>(packed);
  record.kind = static_cast<ring::RecordKind>(packed >> 32U & 0xFFFFU);
  record.part = static_cast<std::uint16_t>(packed >> 48U);
  for (std::size_t i = 0; i < record.payload.size(); ++i) record.payload[i] = word(3 + i);
  // What was copied is the record only if nobody began to overwrite it in the meantime.
  const bool still = load_word(from, std::memory_order_relaxed) == stamp;
  return still ? RecordState::whole : RecordState::overtaken;
}

}  // namespace lockstep
