#include "trace/formats/digest/values.h"

#include <algorithm>
#include <map>

#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

std::string code(const IntList& list) {
  DigestWriter out;
  for (const std::int64_t value : list) out.integer(value);
  return out.take();
}

// Runs of ranks at equal distances, as (distance, count): [0, 8, 16] is (0, 1) (8, 2). All ranks,
// or every eighth, are one or two runs, whatever their number.
std::string code(const RankList& list) {
  DigestWriter out;
  std::int32_t last = 0;
  for (std::size_t i = 0; i < list.size();) {
    const std::int64_t distance = std::int64_t{list[i].value} - last;
    std::size_t end = i;
    while (end < list.size() && std::int64_t{list[end].value} - last == distance) {
      last = list[end++].value;
    }
    out.integer(distance);
    out.number(end - i);
    i = end;
  }
  return out.take();
}

}  // namespace

template <class Code>
void DigestValues::Used::number(const Code& code) {
  std::vector<std::pair<std::string, std::uint32_t>> values;
  for (std::uint32_t id = 1; id < is_used.size(); ++id) {
    if (is_used[id]) values.emplace_back(code(id), id);
  }
  std::sort(values.begin(), values.end());
  numbers.assign(is_used.size(), 0);
  for (auto& [bytes, id] : values) {
    // Signatures that differ only in their root have equal bytes, and share a number.
    if (coded.empty() || coded.back() != bytes) coded.push_back(std::move(bytes));
    numbers[id] = coded.size();
  }
}

void DigestValues::Used::write(DigestWriter& out) const {
  out.number(coded.size());
  for (const std::string& bytes : coded) out.text(bytes);
}

void DigestValues::use_names(NameListId id) {
  if (id.value < name_lists_.is_used.size() && name_lists_.is_used[id.value]) return;
  name_lists_.use(id.value);
  for (const StringId name : tables_.name_lists[id]) use(name);
}

void DigestValues::use_signature(SignatureId id) {
  if (id.value < signatures_.is_used.size() && signatures_.is_used[id.value]) return;
  signatures_.use(id.value);
  const Signature& s = tables_.signatures[id];
  use(s.other_op);
  use(s.redop);
  use(s.mode);
  use_names(s.dtypes);
  for (const IntListId list : {s.in, s.out, s.splits_in, s.splits_out}) int_lists_.use(list.value);
}

void DigestValues::use_list(const RankList& list) {
  rank_lists_.try_emplace(list.identity(), NumberedList{list});
}

void DigestValues::add(const RankTrace& trace) {
  for (const Call& call : trace.calls) {
    use_signature(call.signature);
    groups_.use(call.group.value);
    use_names(call.what);
    for (const StringId id : {call.at, call.tag, call.stream, call.stack}) use(id);
  }
  for (const StateMark& mark : trace.states) {
    use(mark.name);
    use(mark.dtype);
    int_lists_.use(mark.shape.value);
  }
  for (const DataMark& mark : trace.data) use(mark.modality);
  for (const ModalityMark& mark : trace.modalities) use_names(mark.has);
  for (const SpanMark& mark : trace.spans) {
    use(mark.name);
    use(mark.stream);
  }
  for (const RankTrace::Membership& m : trace.groups) {
    groups_.use(m.group.value);
    use(m.desc);
    use_list(m.ranks);
  }
  for (const RankTrace::Progress& p : trace.progress) groups_.use(p.group.value);
  for (const auto& [group, seq] : trace.first_seq) groups_.use(group.value);
}

std::string DigestValues::code(SignatureId id) const {
  const Signature& s = tables_.signatures[id];
  DigestWriter out;
  out.number(static_cast<std::uint64_t>(s.op));
  out.number(of(s.other_op));
  for (const IntListId list : {s.in, s.out, s.splits_in, s.splits_out}) out.number(of(list));
  out.number(of(s.dtypes));
  out.number(of(s.redop));
  out.number(of(s.mode));
  out.integer(s.count);
  return out.take();
}

void DigestValues::number() {
  strings_.number([&](std::uint32_t id) { return tables_.str(StringId(id)); });
  groups_.number([&](std::uint32_t id) { return tables_.str(GroupId(id)); });
  int_lists_.number(
      [&](std::uint32_t id) { return trace::code(tables_.int_lists[IntListId(id)]); });
  name_lists_.number([&](std::uint32_t id) {
    DigestWriter out;
    for (const StringId name : tables_.name_lists[NameListId(id)]) out.number(of(name));
    return out.take();
  });
  signatures_.number([&](std::uint32_t id) { return code(SignatureId(id)); });
  // Several objects may hold equal lists.
  std::map<std::string, std::vector<NumberedList*>> lists;
  for (auto& [identity, list] : rank_lists_) lists[trace::code(list.list)].push_back(&list);
  for (auto& [bytes, same] : lists) {
    for (NumberedList* list : same) list->number = coded_lists_.size();
    coded_lists_.push_back(bytes);
  }
}

void DigestValues::write(DigestWriter& out) const {
  for (const Used* used : {&strings_, &groups_, &int_lists_, &name_lists_, &signatures_})
    used->write(out);
  out.number(coded_lists_.size());
  for (const std::string& bytes : coded_lists_) out.text(bytes);
}

namespace {

// Reads the tables one after the other; each may refer to those before it.
class TablesReader {
 public:
  TablesReader(DigestReader& in, Tables& tables, DigestRoom& room, DigestTables& out)
      : in_(in), tables_(tables), room_(room), out_(out) {}

  bool read() {
    out_.strings.resize(1);
    out_.groups.resize(1);
    out_.int_lists.resize(1);
    out_.name_lists.resize(1);
    out_.signatures.resize(1);
    for_each(
        [&](DigestReader& entry) { out_.strings.push_back(tables_.strings.intern(rest(entry))); });
    for_each(
        [&](DigestReader& entry) { out_.groups.push_back(tables_.groups.intern(rest(entry))); });
    for_each([&](DigestReader& entry) { read_ints(entry); });
    for_each([&](DigestReader& entry) { read_names(entry); });
    for_each([&](DigestReader& entry) { read_signature(entry); });
    for_each([&](DigestReader& entry) { read_ranks(entry); });
    return in_.ok();
  }

 private:
  template <class Read>
  void for_each(const Read& read) {
    const std::uint64_t count = in_.count();
    for (std::uint64_t i = 0; i < count && in_.ok(); ++i) {
      entry_ = in_.text();
      DigestReader entry(entry_);
      read(entry);
      if (!entry.done()) in_.fail();
    }
  }

  // The whole entry as a text, for tables of plain texts.
  std::string rest(DigestReader& entry) {
    entry = DigestReader({});
    return std::string(entry_);
  }

  void read_ints(DigestReader& entry) {
    IntList list;
    while (!entry.done() && entry.ok()) {
      list.push_back(entry.integer());
      if (list.back() < -1) entry.fail();  // -1 ends a shape; no other value is negative
    }
    out_.int_lists.push_back(tables_.int_lists.intern(list));
  }

  void read_names(DigestReader& entry) {
    std::vector<StringId> names;
    while (!entry.done() && entry.ok()) names.push_back(string(entry));
    out_.name_lists.push_back(tables_.name_lists.intern(names));
  }

  void read_signature(DigestReader& entry) {
    Signature s;
    s.op = static_cast<Op>(entry.below(static_cast<std::uint64_t>(Op::finalize) + 1));
    s.other_op = string(entry);
    for (IntListId* list : {&s.in, &s.out, &s.splits_in, &s.splits_out})
      *list = out_.int_lists[entry.below(out_.int_lists.size())];
    for (const IntListId shapes : {s.in, s.out}) {
      const IntList& list = tables_.int_lists[shapes];
      if (!list.empty() && list.back() != -1) entry.fail();  // the last shape has no end
    }
    s.dtypes = out_.name_lists[entry.below(out_.name_lists.size())];
    s.redop = string(entry);
    s.mode = string(entry);
    s.count = entry.integer();
    out_.signatures.push_back(s);
  }

  void read_ranks(DigestReader& entry) {
    std::vector<Rank> ranks;
    std::int64_t last = 0;
    while (!entry.done() && entry.ok()) {
      const std::int64_t distance = entry.small();
      const std::uint64_t times = entry.below(std::uint64_t{kMaxWorldSize} + 1);
      if (!room_.take(times * sizeof(Rank))) entry.fail();
      for (std::uint64_t i = 0; i < times && entry.ok(); ++i) {
        last += distance;
        // kMaxWorldSize itself is not a rank. It may occur in traces of NCCL's logs, where the
        // second number of a communicator is its size until it is linked (nccl_log.cc).
        if (last < 0 || last > kMaxWorldSize) entry.fail();
        ranks.emplace_back(static_cast<std::int32_t>(last));
      }
    }
    out_.rank_lists.push_back(tables_.rank_lists.intern(ranks));
    if (ranks.empty()) in_.fail();
  }

  StringId string(DigestReader& entry) { return out_.strings[entry.below(out_.strings.size())]; }

  DigestReader& in_;
  Tables& tables_;
  DigestRoom& room_;
  DigestTables& out_;
  std::string_view entry_;
};

}  // namespace

bool read_digest_tables(DigestReader& in, Tables& tables, DigestRoom& room, DigestTables& out) {
  return TablesReader(in, tables, room, out).read();
}

}  // namespace lockstep::trace
