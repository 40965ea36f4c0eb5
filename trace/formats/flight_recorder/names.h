// The vocabulary of Flight Recorder dumps: keys of entries, names of operations, states and types.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/formats/flight_recorder/data_tree.h"
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
  thread_name,
  thread_id,
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
  op_id,
  record_id,
};
inline constexpr std::size_t kDumpKeys = static_cast<std::size_t>(DumpKey::record_id) + 1;

// A bit that flips on a disk turns a name into one that nobody knows, and a rank into one whose
// calls differ from all others'. So a name that differs in one byte from a known one is taken for
// that one.
bool differ_in_a_byte(std::string_view a, std::string_view b);

// A profiling_name taken apart: "nccl:send 0->3" is {send, "send", peer 3}.
struct DumpOperation {
  Op op = Op::other;      // also of unknown names
  std::string_view name;  // without the backend; a view into the dump, or into DumpNames
  bool closes_batch = false;
  bool gloo = false;          // "gloo:all_reduce"
  std::string_view library;   // "hccl" of "hccl:all_reduce"; empty: none
  std::int32_t peer = kNone;  // group rank
  std::int32_t own = kNone;   // of a message: the group rank of the one that posts it
};

// An entry's `state`. unresolved: not looked up yet; other: scheduled, or no word that is known.
enum class DumpState : std::uint8_t { unresolved, other, started, completed };

// The operation that a function of torch.distributed issues: "all_reduce", "isend"; nothing where
// it is none ("wrapper", "all_gather_object").
std::optional<Op> op_of_function(std::string_view name);

// The operation of an entry that does not name it, by the function that issued it; empty: not
// known.
DumpOperation operation_of_function(std::string_view function);

// The rank where the dump itself has it ("rank"): PyTorch's own tools add it to dumps that they
// pass on. The dump of a process has the rank only in its file name.
std::optional<Rank> rank_in_dump(const DataTree& tree);

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
    if (k == DumpKey::unresolved) k = key_of(tree_.text(v));
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
    if (s == StringId{}) s = dtype_of(tree_.text(v));
    return s;
  }
  const DumpOperation& operation(const DataTree::Value& v) {
    std::optional<DumpOperation>& o = operations_[v.number()];
    if (!o) o = operation_of(tree_.text(v));
    return *o;
  }
  DumpState state(const DataTree::Value& v) {
    if (!v.is(DataTree::Kind::string)) return DumpState::other;
    DumpState& s = states_[v.number()];
    if (s == DumpState::unresolved) s = state_of(tree_.text(v));
    return s;
  }

  // What was damaged and could be mended: "nccl:all_reeuce", taken as "nccl:all_reduce".
  const std::vector<std::string>& all_mended() const { return mended_; }

 private:
  // Of a string that was not looked up before.
  DumpKey key_of(std::string_view name);
  StringId dtype_of(std::string_view name);
  DumpOperation operation_of(std::string_view name);
  DumpState state_of(std::string_view name);

  // `known`, where `name` is a damaged form of it; else `name`.
  std::string_view mended(std::string_view name, std::optional<std::string_view> known);

  const DataTree& tree_;
  Tables& tables_;
  std::vector<std::string> mended_;
  std::deque<std::string> whole_;
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
  std::array<const DataTree::Value*, kDumpKeys> fields;
};

}  // namespace lockstep::trace
