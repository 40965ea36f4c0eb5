// The vocabulary of Flight Recorder dumps: keys of entries, names of operations, source locations.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/formats/flight_recorder/data_tree.h"
#include "trace/formats/torch_names.h"
#include "trace/ids.h"
#include "trace/run.h"
#include "trace/signature.h"

namespace lockstep::trace {

// The keys of an entry that the reader uses. unresolved: not looked up yet; other: not used.
enum class DumpKey : std::uint8_t {
  unresolved,
  other,
  frames,
  pg_id,
  process_group,
  collective_seq_id,
  p2p_seq_id,
  profiling_name,
  time_created_ns,
  input_sizes,
  input_dtypes,
  output_sizes,
  output_dtypes,
  state,
  started,
  completed,
  retired,
  is_p2p,
};

DumpKey dump_key(std::string_view name);

// A profiling_name taken apart: "nccl:send 0->3" is {send, "send", peer 3}.
struct DumpOperation {
  Op op = Op::other;
  std::string_view name;  // without the backend
  bool closes_batch = false;
  bool gloo = false;          // "gloo:all_reduce"
  std::int32_t peer = kNone;  // group rank
};

// An entry's `state`. unresolved: not looked up yet; other: scheduled, or no word that is known.
enum class DumpState : std::uint8_t { unresolved, other, started, completed };

// Parses an entry's profiling_name. The result's name is a view into it. Unknown operations are
// Op::other.
DumpOperation parse_dump_operation(std::string_view name);

// The rank where the dump itself has it ("rank"): PyTorch's own tools add it to dumps that they
// pass on. The dump of a process has the rank only in its file name.
std::optional<Rank> rank_in_dump(const DataTree& tree);

// Whether a frame is of PyTorch or Python rather than of the user's program. `file`: its path.
bool is_library_frame(std::string_view file);

// Caches what the strings of one dump mean: keys, types, states and operations are looked up once
// per string and not once per entry. Keeps references to both arguments.
class DumpNames {
 public:
  DumpNames(const DataTree& tree, Tables& tables) : tree_(tree), tables_(tables) {
    keys_.resize(tree.string_count());
    strings_.resize(tree.string_count());
    dtypes_.resize(tree.string_count());
    operations_.resize(tree.string_count());
    states_.resize(tree.string_count());
  }

  DumpKey key(const DataTree::Value& v) {
    if (!v.is(DataTree::Kind::string)) return DumpKey::other;
    DumpKey& k = keys_[v.number()];
    if (k == DumpKey::unresolved) k = dump_key(tree_.text(v));
    return k;
  }
  StringId string(const DataTree::Value& v) {
    if (!v.is(DataTree::Kind::string)) return {};
    StringId& s = strings_[v.number()];
    if (s == StringId{}) s = tables_.strings.intern(std::string(tree_.text(v)));
    return s;
  }
  StringId dtype(const DataTree::Value& v) {
    if (!v.is(DataTree::Kind::string)) return {};
    StringId& s = dtypes_[v.number()];
    if (s == StringId{}) s = tables_.strings.intern(dtype_from_torch(tree_.text(v)));
    return s;
  }
  const DumpOperation& operation(const DataTree::Value& v) {
    std::optional<DumpOperation>& o = operations_[v.number()];
    if (!o) o = parse_dump_operation(tree_.text(v));
    return *o;
  }
  DumpState state(const DataTree::Value& v) {
    if (!v.is(DataTree::Kind::string)) return DumpState::other;
    DumpState& s = states_[v.number()];
    if (s == DumpState::unresolved) {
      const std::string_view word = tree_.text(v);
      s = word == "completed" ? DumpState::completed
          : word == "started" ? DumpState::started
                              : DumpState::other;
    }
    return s;
  }

 private:
  const DataTree& tree_;
  Tables& tables_;
  std::vector<DumpKey> keys_;
  std::vector<StringId> strings_, dtypes_;
  std::vector<std::optional<DumpOperation>> operations_;
  std::vector<DumpState> states_;
};

// The values of an entry by their keys; missing ones are kNothing.
struct DumpEntry {
  DumpEntry() { fields.fill(&kNothing); }
  const DataTree::Value& operator[](DumpKey k) const {
    return *fields[static_cast<std::size_t>(k)];
  }
  bool has(DumpKey k) const { return fields[static_cast<std::size_t>(k)] != &kNothing; }
  // Whether the entry has all keys that a call needs.
  bool complete() const {
    return has(DumpKey::profiling_name) &&
           (*this)[DumpKey::profiling_name].is(DataTree::Kind::string) &&
           has(DumpKey::process_group) && has(DumpKey::collective_seq_id) && has(DumpKey::state);
  }

  inline static const DataTree::Value kNothing = DataTree::none();
  std::array<const DataTree::Value*, 32> fields;
};

}  // namespace lockstep::trace
