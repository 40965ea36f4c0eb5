#include "trace/merge_tables.h"

#include <map>
#include <utility>
#include <vector>

namespace lockstep {

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
    for (Call& call : trace.calls) {
      set(call.signature);
      set(call.group);
      set(call.what);
      set(call.at);
      set(call.tag);
      set(call.stream);
      set(call.stack);
    }
    for (StateMark& mark : trace.states) {
      set(mark.name);
      set(mark.shape);
      set(mark.dtype);
    }
    for (DataMark& mark : trace.data) set(mark.modality);
    for (ModalityMark& mark : trace.modalities) set(mark.has);
    for (SpanMark& mark : trace.spans) {
      set(mark.name);
      set(mark.stream);
    }
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
};

}  // namespace

void move_to_tables(Tables& into, const Tables& from, std::span<RankTrace> traces) {
  Mover mover(into, from);
  for (RankTrace& trace : traces) mover.move(trace);
}

}  // namespace lockstep
