// What a ring file contains: where its parts lie (RingLayout), its records (RingRecord), and its
// table of interned values (RingTableReader). Internal to the readers of ring files.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/formats/ring/ring_file.h"
#include "trace/run.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

// Where the parts lie, after every size and offset in the header has been checked against the file.
// The header's numbers are copied once: a file that changes while it is read cannot move them.
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
  torn,       // overwritten with what is not a record
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

// The interned values of a ring file, interned in a run's Tables. An id of the file is its entry's
// offset in units of 8 bytes, plus 1. So a plain vector leads from each to the run's id: no hashing
// per record.
class RingTableReader {
 public:
  // Reads the entries of `used` bytes. What is damaged is counted in `trace`, and what cannot be
  // reached after it is unknown. Groups are declared through `builder`. O(bytes).
  RingTableReader(std::string_view used, RankTrace& trace, TraceBuilder& builder, Tables& tables);

  // Each gives the run's id of a table id; `ok` becomes false, and stays so, where there is no such
  // value. Table id 0 is "not recorded" everywhere.
  StringId string(std::uint32_t id, bool& ok) const {
    return StringId(find(id, ring::EntryKind::string, ok));
  }
  NameListId names(std::uint32_t id, bool& ok) const {
    return NameListId(find(id, ring::EntryKind::names, ok));
  }
  IntListId ints(std::uint32_t id, bool& ok) const {
    return IntListId(find(id, ring::EntryKind::ints, ok));
  }
  GroupId group(std::uint32_t id, bool& ok) const {
    return GroupId(find(id, ring::EntryKind::group, ok));
  }
  SignatureId signature(std::uint32_t id, bool& ok) const {
    return SignatureId(find(id, ring::EntryKind::signature, ok));
  }

 private:
  struct Value {
    ring::EntryKind kind{};
    std::uint32_t id = 0;  // in the run
  };

  std::uint32_t find(std::uint32_t id, ring::EntryKind kind, bool& ok) const {
    if (id == 0) return 0;
    if (id > values_.size() || values_[id - 1].kind != kind) {
      ok = false;
      return 0;
    }
    return values_[id - 1].id;
  }

  // Each interns one entry; false where its payload is not what its kind wants.
  bool add(ring::EntryKind kind, std::string_view payload, Value& value);
  bool add_names(std::string_view payload, Value& value);
  bool add_ints(std::string_view payload, Value& value);
  bool add_group(std::string_view payload, Value& value);
  bool add_communicator(std::string_view payload, Value& value);
  void note_order();
  bool add_signature(std::string_view payload, Value& value);

  bool is_order_known_ = true;  // every group so far was written when the rank created it

  std::vector<Value> values_;  // by table id - 1
  RankTrace& trace_;
  TraceBuilder& builder_;
  Tables& tables_;
};

}  // namespace lockstep::trace
