#include "trace/run.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::trace {

void RankTrace::add_damage(std::string message, int line) {
  ++damaged_count;
  if (damaged.size() < kDamagedKept) damaged.push_back({{source, line}, std::move(message)});
}

std::vector<std::string> Tables::names(NameListId id) const {
  std::vector<std::string> out;
  for (const StringId name : name_lists[id]) out.push_back(strings[name]);
  return out;
}

SignatureId Tables::make_signature(Signature s) {
  const std::vector<StringId>& types = name_lists[s.dtypes];
  if (types.size() > 1 &&
      std::adjacent_find(types.begin(), types.end(), std::not_equal_to<>()) == types.end()) {
    s.dtypes = name_lists.intern({types.front()});
  }
  s.in_elements = s.in == IntListId{} ? kNone : total_elements(int_lists[s.in]);
  s.out_elements = s.out == IntListId{} ? kNone : total_elements(int_lists[s.out]);
  return signatures.intern(s);
}

NameListId Tables::make_names(const std::vector<std::string>& names) {
  std::vector<StringId> ids;
  ids.reserve(names.size());
  for (const std::string& name : names) ids.push_back(strings.intern(name));
  return name_lists.intern(ids);
}

std::string describe(const Tables& tables, SignatureId id) {
  const Signature& s = tables.signatures[id];
  std::string out = s.op == Op::other && s.other_op.value != 0 ? tables.str(s.other_op)
                                                               : std::string(op_name(s.op));
  // Only the root of a scatter has an input, for all: its output is what all ranks have.
  const bool output = s.in_elements == kNone || (s.op == Op::scatter && s.out_elements != kNone);
  const std::int64_t elements = !output                   ? s.in_elements
                                : s.out_elements != kNone ? s.out_elements
                                                          : s.count;
  if (s.op != Op::barrier && elements != kNone) {
    out += fmt::format(" of {}", elements);
    const auto& dtypes = tables.name_lists[s.dtypes];
    if (!dtypes.empty()) out += fmt::format(" {}", tables.str(dtypes[0]));
  }
  if (s.redop.value != 0) out += fmt::format(" ({})", tables.str(s.redop));
  if (s.root != kNone) out += fmt::format(" (root {})", s.root);
  return printable(out);
}

std::string describe(const Tables& tables, const Call& call) {
  if (call.what.value == 0) return describe(tables, call.signature);
  const Signature& s = tables.signatures[call.signature];
  const std::vector<std::string> names = tables.names(call.what);
  return printable(fmt::format("{}({})", op_name(s.op), join_and(names, 2)));
}

const RankTrace* Run::find(Rank rank) const {
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank,
                                      [](const RankTrace& t, Rank r) { return t.rank < r; });
  return found != ranks.end() && found->rank == rank ? &*found : nullptr;
}

std::uint64_t Run::event_count() const {
  std::uint64_t count = 0;
  for (const RankTrace& trace : ranks) count += trace.events.size();
  return count;
}

namespace {

// The ids of one interner, as those of another; filled in on first use.
template <class Id>
class IdMap {
 public:
  explicit IdMap(std::size_t size) : known_(size) {}

  template <class Intern>
  Id get(Id id, const Intern& intern) {
    if (id == Id{}) return id;  // id 0 is the same everywhere
    Id& to = known_[id.value];
    if (to == Id{}) to = intern(id);
    return to;
  }

 private:
  std::vector<Id> known_;
};

class Mover {
 public:
  Mover(Tables& into, const Tables& from)
      : into_(into),
        from_(from),
        strings_(from.strings.size()),
        int_lists_(from.int_lists.size()),
        name_lists_(from.name_lists.size()),
        signatures_(from.signatures.size()),
        groups_(from.groups.size()) {}

  void move(RankTrace& trace) {
    move(trace.calls, calls_, [this](Call& call) {
      set(call.signature);
      set(call.group);
      set(call.what);
      set(call.at);
      set(call.tag);
      set(call.stream);
      set(call.stack);
    });
    for (StateMark& mark : trace.states) {
      set(mark.name);
      set(mark.shape);
      set(mark.dtype);
    }
    for (DataMark& mark : trace.data) set(mark.modality);
    for (ModalityMark& mark : trace.modalities) set(mark.has);
    move(trace.spans, spans_, [this](SpanMark& mark) {
      set(mark.name);
      set(mark.stream);
    });
    for (RankTrace::Membership& membership : trace.groups) {
      set(membership.group);
      set(membership.desc);
    }
    for (RankTrace::Progress& progress : trace.progress) set(progress.group);
    std::map<GroupId, std::uint64_t> first_seq;
    for (const auto& [old_group, seq] : trace.first_seq) {
      GroupId group = old_group;
      set(group);
      first_seq.emplace(group, seq);
    }
    trace.first_seq = std::move(first_seq);
  }

 private:
  // What a list became, by its identity; the list is kept, so that no other gets its address.
  template <class T>
  using Moved = std::unordered_map<const void*, std::pair<Column<T>, Column<T>>>;

  // A list that traces share is moved once, and shared again.
  template <class T, class Move>
  static void move(Column<T>& list, Moved<T>& known, const Move& move) {
    if (list.empty()) return;
    const auto [found, is_new] = known.try_emplace(list.identity(), list, list);
    Column<T>& moved = found->second.second;
    if (is_new)
      for (T& element : moved.own()) move(element);
    list = moved;
  }

  void set(StringId& id) {
    id = strings_.get(id, [&](StringId s) { return into_.strings.intern(from_.str(s)); });
  }
  void set(GroupId& id) {
    id = groups_.get(id, [&](GroupId g) { return into_.groups.intern(from_.str(g)); });
  }
  void set(IntListId& id) {
    id =
        int_lists_.get(id, [&](IntListId l) { return into_.int_lists.intern(from_.int_lists[l]); });
  }
  void set(NameListId& id) {
    id = name_lists_.get(id, [&](NameListId l) {
      std::vector<StringId> names = from_.name_lists[l];
      for (StringId& name : names) set(name);
      return into_.name_lists.intern(names);
    });
  }
  void set(SignatureId& id) {
    id = signatures_.get(id, [&](SignatureId s) {
      Signature signature = from_.signatures[s];
      set(signature.other_op);
      set(signature.in);
      set(signature.out);
      set(signature.dtypes);
      set(signature.redop);
      set(signature.splits_in);
      set(signature.splits_out);
      set(signature.mode);
      return into_.signatures.intern(signature);
    });
  }

  Tables& into_;
  const Tables& from_;
  IdMap<StringId> strings_;
  IdMap<IntListId> int_lists_;
  IdMap<NameListId> name_lists_;
  IdMap<SignatureId> signatures_;
  IdMap<GroupId> groups_;
  Moved<Call> calls_;
  Moved<SpanMark> spans_;
};

}  // namespace

void move_to_tables(Tables& into, const Tables& from, std::span<RankTrace> traces) {
  Mover mover(into, from);
  for (RankTrace& trace : traces) mover.move(trace);
}

std::optional<std::int64_t> element_bytes(std::string_view dtype) {
  if (dtype.starts_with("float8_")) return 1;
  static constexpr std::array<std::pair<std::string_view, std::int64_t>, 14> kBytes = {
      {{"float32", 4},
       {"float64", 8},
       {"float16", 2},
       {"bfloat16", 2},
       {"int64", 8},
       {"int32", 4},
       {"int16", 2},
       {"int8", 1},
       {"uint8", 1},
       {"uint16", 2},
       {"uint32", 4},
       {"uint64", 8},
       {"bool", 1},
       {"complex64", 8}}};
  const auto found = std::find_if(kBytes.begin(), kBytes.end(),
                                  [&](const auto& entry) { return entry.first == dtype; });
  if (found == kBytes.end()) return std::nullopt;
  return found->second;
}

double call_bytes(const Run& run, const Call& call) {
  const Signature& signature = run.tables.signatures[call.signature];
  std::int64_t elements = signature.in_elements;
  if (elements == kNone) elements = signature.out_elements;
  const std::vector<std::string> dtypes = run.tables.names(signature.dtypes);
  if (elements == kNone || dtypes.empty()) return 0;
  return static_cast<double>(elements) *
         static_cast<double>(element_bytes(dtypes.front()).value_or(0));
}

}  // namespace lockstep::trace
