// RingTableReader: the interned values of a ring file, interned anew in a run's Tables. Internal to
// the ring reader.
//
// Table ids are offsets, so a plain vector leads from each to the run's id: no hashing per record.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trace/formats/ring/ring_file.h"
#include "trace/run.h"
#include "trace/trace_builder.h"

namespace lockstep {

class RingTableReader {
 public:
  // Reads the entries of `used` bytes. What is damaged is counted in `trace`, and what cannot be
  // reached behind it is unknown. Groups are declared through `builder`. O(bytes).
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
  bool add_signature(std::string_view payload, Value& value);

  std::vector<Value> values_;  // by table id - 1
  RankTrace& trace_;
  TraceBuilder& builder_;
  Tables& tables_;
};

}  // namespace lockstep
