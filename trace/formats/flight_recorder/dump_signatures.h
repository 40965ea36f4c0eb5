// What the entries of a Flight Recorder dump call: operation, sizes and types, as signatures.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "trace/formats/flight_recorder/data_tree.h"
#include "trace/formats/flight_recorder/names.h"
#include "trace/ids.h"
#include "trace/run.h"

namespace lockstep::trace {

// Entries repeat each other, since each step makes the same calls: what an entry says is looked up
// first, and made a signature only where it is new. Keeps references to its arguments.
class DumpSignatures {
 public:
  DumpSignatures(const DataTree& tree, VisitBudget& visits, DumpNames& names, Tables& tables)
      : tree_(tree), visits_(visits), names_(names), tables_(tables) {}

  // `operation`: the one that the entry's profiling_name names, or its frames. O(1) where the
  // entry's parts are those of an earlier one, otherwise O(sizes).
  SignatureId of(const DumpEntry& entry, const DumpOperation& operation);

 private:
  using SaidId = StrongId<struct SaidTag, std::uint32_t>;
  using SaidParts = std::array<DataTree::Value, 5>;

  const IntList& said_of(const DumpEntry& entry, const DumpOperation& operation);
  SignatureId make(const DumpEntry& entry, const DumpOperation& operation);
  NameListId types(const DataTree::Value& dtypes);
  IntListId shapes(const DataTree::Value& sizes);

  const DataTree& tree_;
  VisitBudget& visits_;
  DumpNames& names_;
  Tables& tables_;
  Interner<IntList, SaidId, IntListHash> said_;
  std::vector<SignatureId> signatures_;  // by SaidId; the empty one: not made yet
  // The same by the values that say it, of which entries of a pickle share many (RepeatedDicts).
  // Where two have one place, the later one stays.
  std::array<std::pair<SaidParts, SignatureId>, 256> by_parts_{};
  std::vector<StringId> scratch_types_;
  IntList scratch_sizes_, scratch_said_;
};

}  // namespace lockstep::trace
