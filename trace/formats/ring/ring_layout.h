// RingLayout: where the parts of a ring file lie, after every size and offset in its header has
// been checked against the file. Internal to the readers of ring files.
//
// The header's numbers are copied once: a file that changes while it is read cannot move them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/formats/ring/ring_file.h"
#include "trace/run.h"

namespace lockstep {

struct RingLayout {
  // `bytes`: the whole file, 8-byte aligned. Errors: as read_ring_file.
  static Result<RingLayout> of(std::string_view bytes, const std::string& file);

  const ring::Header* header = nullptr;  // for what changes while the job runs
  std::string_view table;                // its whole extent, used or not
  const char* records = nullptr;
  std::uint64_t capacity = 0;  // a power of two
  std::int32_t rank = 0;
  std::int32_t world_size = 0;

  std::uint64_t written() const { return header->written.load(std::memory_order_acquire); }
  // The number of the oldest record that a ring with `written` records can still hold.
  std::uint64_t oldest(std::uint64_t written) const {
    return written > capacity ? written - capacity : 0;
  }
};

// One record, copied out of the ring.
struct RingRecord {
  Nanos time = 0;
  std::uint32_t id = 0;
  ring::RecordKind kind = ring::RecordKind::none;
  std::uint16_t part = 0;
  std::array<std::uint64_t, 5> payload{};  // CallFields, StepFields, …

  template <class Fields>
  Fields as() const;
};

enum class RecordState : std::uint8_t {
  whole,
  unwritten,  // reserved, but not completely written
  torn,       // overwritten with what is no record
  overtaken,  // a newer record stands in its place
};

// Copies record `number` out, consistently even while a writer overwrites it.
RecordState load_record(const RingLayout& layout, std::uint64_t number, RingRecord& record);

template <class Fields>
Fields RingRecord::as() const {
  static_assert(sizeof(Fields) <= sizeof payload);
  Fields fields;
  std::memcpy(&fields, payload.data(), sizeof fields);
  return fields;
}

}  // namespace lockstep
