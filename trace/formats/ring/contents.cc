#include "trace/formats/ring/contents.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include "trace/groups.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

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
  if (!std::has_single_bit(header.capacity)) return "its capacity is not a power of two";
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
    return fmt::format("rank {} is not below world_size {}", header.rank, header.world_size);
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
                 "copy it again from where the job ran"};
  }
  const auto& header = *reinterpret_cast<const ring::Header*>(bytes.data());
  if (header.version != ring::kVersion) {
    return Error{fmt::format("ring file version {} is not known", header.version),
                 {file},
                 "this lockstep reads version 2"};
  }
  if (std::string problem = layout_problem(header, bytes.size()); !problem.empty()) {
    return Error{fmt::format("damaged ring file: {}", problem),
                 {file},
                 "copy it again from where the job ran"};
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

namespace {

template <class T>
bool copy_values(std::string_view payload, std::vector<T>& values) {
  if (payload.size() % sizeof(T) != 0) return false;
  values.resize(payload.size() / sizeof(T));
  if (!payload.empty()) std::memcpy(values.data(), payload.data(), payload.size());
  return true;
}

}  // namespace

RingTableReader::RingTableReader(std::string_view used, RankTrace& trace, TraceBuilder& builder,
                                 Tables& tables)
    : trace_(trace), builder_(builder), tables_(tables) {
  values_.resize(used.size() / 8);
  std::size_t at = 0;
  while (used.size() - at >= sizeof(ring::TableEntry)) {
    ring::TableEntry entry{};
    std::memcpy(&entry, used.data() + at, sizeof entry);
    const std::string_view rest = used.substr(at + sizeof entry);
    Value& value = values_[at / 8];
    if (entry.bytes > rest.size()) {
      trace_.add_damage(fmt::format("table entry {} is longer than the table", at / 8 + 1));
      return;
    }
    const auto kind = static_cast<ring::EntryKind>(entry.kind);
    if (add(kind, rest.substr(0, entry.bytes), value)) {
      // Calls refer to all kinds of groups alike.
      const bool is_group =
          kind == ring::EntryKind::communicator || kind == ring::EntryKind::used_group;
      value.kind = is_group ? ring::EntryKind::group : kind;
    } else {
      trace_.add_damage(fmt::format("table entry {} cannot be used", at / 8 + 1));
    }
    const std::size_t padded = (std::size_t{entry.bytes} + 7) / 8 * 8;
    at += sizeof entry + std::min(padded, rest.size());
  }
}

bool RingTableReader::add(ring::EntryKind kind, std::string_view payload, Value& value) {
  switch (kind) {
    case ring::EntryKind::string:
      value.id = tables_.strings.intern(std::string(payload)).value;
      return true;
    case ring::EntryKind::names:
      return add_names(payload, value);
    case ring::EntryKind::ints:
      return add_ints(payload, value);
    case ring::EntryKind::group:
      return add_group(payload, value);
    case ring::EntryKind::used_group:
      // When it was created is not known, nor therefore what was created before those after it.
      is_order_known_ = false;
      return add_group(payload, value);
    case ring::EntryKind::signature:
      return add_signature(payload, value);
    case ring::EntryKind::communicator:
      return add_communicator(payload, value);
  }
  return false;
}

bool RingTableReader::add_names(std::string_view payload, Value& value) {
  std::vector<std::uint32_t> ids;
  if (!copy_values(payload, ids)) return false;
  bool ok = true;
  std::vector<StringId> names;
  names.reserve(ids.size());
  for (const std::uint32_t id : ids) names.push_back(string(id, ok));
  value.id = tables_.name_lists.intern(names).value;
  return ok;
}

bool RingTableReader::add_ints(std::string_view payload, Value& value) {
  IntList values;
  if (!copy_values(payload, values)) return false;
  value.id = tables_.int_lists.intern(values).value;
  // -1 ends a shape; nothing else is negative.
  return std::all_of(values.begin(), values.end(), [](std::int64_t v) { return v >= -1; });
}

bool RingTableReader::add_group(std::string_view payload, Value& value) {
  constexpr std::size_t kNames = 2 * sizeof(std::uint32_t);
  std::vector<std::uint32_t> names;
  std::vector<Rank> ranks;
  if (payload.size() < kNames || !copy_values(payload.substr(0, kNames), names) ||
      !copy_values(payload.substr(kNames), ranks)) {
    return false;
  }
  bool ok = true;
  const StringId name = string(names[0], ok);
  const StringId desc = string(names[1], ok);
  if (!ok) return false;
  const GroupId group = tables_.groups.intern(tables_.str(name));
  value.id = group.value;
  const std::string_view refused =
      builder_.add_group(group, tables_.rank_lists.intern(ranks), desc);
  note_order();
  // The group is known by its name even where its members cannot be believed.
  if (!refused.empty()) trace_.add_damage(std::string(refused));
  return true;
}

// All groups so far are in the order of their creation, unless that is not known.
void RingTableReader::note_order() {
  if (is_order_known_) trace_.created_in_order = static_cast<std::uint32_t>(trace_.groups.size());
}

bool RingTableReader::add_communicator(std::string_view payload, Value& value) {
  ring::CommunicatorEntry entry{};
  if (payload.size() != sizeof entry) return false;
  std::memcpy(&entry, payload.data(), sizeof entry);
  bool ok = entry.name != 0;
  const StringId name = string(entry.name, ok);
  const StringId desc = string(entry.desc, ok);
  if (!ok || entry.size > trace_.world_size || !is_possible_rank(entry.group_rank, entry.size)) {
    return false;
  }
  const GroupId group = tables_.groups.intern(tables_.str(name));
  value.id = group.value;
  const std::string_view refused = builder_.add_unlinked(
      unlinked_membership(group, entry.group_rank, entry.size, tables_.str(desc), tables_));
  note_order();
  if (!refused.empty()) trace_.add_damage(std::string(refused));
  return true;
}

bool RingTableReader::add_signature(std::string_view payload, Value& value) {
  ring::SignatureEntry entry{};
  if (payload.size() != sizeof entry) return false;
  std::memcpy(&entry, payload.data(), sizeof entry);
  bool ok = true;
  Signature signature;
  const StringId name = string(entry.op, ok);
  signature.op = op_from_name(tables_.str(name)).value_or(Op::other);
  if (signature.op == Op::other) signature.other_op = name;
  signature.in = ints(entry.in, ok);
  signature.out = ints(entry.out, ok);
  signature.dtypes = names(entry.dtypes, ok);
  signature.redop = string(entry.redop, ok);
  signature.root = entry.root;
  signature.splits_in = ints(entry.splits_in, ok);
  signature.splits_out = ints(entry.splits_out, ok);
  const bool root_ok = entry.root == kNone || is_possible_rank(entry.root, trace_.world_size);
  if (!ok || !root_ok) return false;
  value.id = tables_.make_signature(signature).value;
  return true;
}

}  // namespace lockstep::trace
