// From a form, which ranks of one class share, back to the trace of one rank: group names, peers
// and roots become those of that rank, and its own values are filled in.
#include <algorithm>
#include <map>
#include <optional>

#include "base/numbers.h"
#include "base/text.h"
#include "trace/formats/digest/form.h"
#include "trace/gpus.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

class Expander {
 public:
  Expander(const DigestForm& form, const ColumnViews& columns, const DigestTables& values,
           Tables& tables, RankIndices& rank_indices, DigestRoom& room, RankTrace& trace)
      : form_(form),
        columns_(columns),
        values_(values),
        tables_(tables),
        rank_indices_(rank_indices),
        room_(room),
        trace_(trace) {}

  bool expand() {
    if (!take_room()) return false;
    copy_form();
    return read_groups() && place_calls() && read_ids() && read_steps() && read_states() &&
           read_data() && read_values() && read_times();
  }

 private:
  DigestReader column(DigestColumn which) const { return DigestReader(bytes(which)); }
  std::string_view bytes(DigestColumn which) const {
    return columns_[static_cast<std::size_t>(which)];
  }

  // What the columns hold is at most eight bytes for each of theirs.
  bool take_room() {
    const RankTrace& t = form_.trace;
    std::size_t bytes =
        sizeof(RankTrace) + t.events.size() * sizeof(Event) + t.calls.size() * sizeof(Call) +
        form_.valued * sizeof(CallValues) + t.steps.size() * sizeof(StepMark) +
        t.states.size() * sizeof(StateMark) + t.data.size() * sizeof(DataMark) +
        t.modalities.size() * sizeof(ModalityMark) + t.spans.size() * sizeof(SpanMark) +
        t.exceptions.size() * sizeof(ExceptionMark) + form_.slots * sizeof(RankTrace::Membership) +
        form_.kinds.size() * sizeof(DigestForm::CallKind) + t.backend.size() + t.program.size() +
        t.inconclusive.size() + this->bytes(DigestColumn::host).size() +
        (t.progress.size() + t.first_seq.size()) * 64;
    for (const ExceptionMark& mark : t.exceptions) bytes += mark.what.size();
    for (const DamagedRecord& record : t.damaged) bytes += record.message.size();
    for (const DigestColumn which :
         {DigestColumn::states, DigestColumn::data, DigestColumn::values})
      bytes += 8 * this->bytes(which).size();
    return room_.take(bytes);
  }

  void copy_form() {
    RankTrace copy = form_.trace;
    copy.rank = trace_.rank;
    copy.world_size = trace_.world_size;
    copy.source = std::move(trace_.source);
    copy.pid = trace_.pid;
    const std::string_view host = bytes(DigestColumn::host);
    const std::size_t end = host.rfind('\n');
    copy.host = host.substr(0, end);
    if (end != kNpos)
      copy.gpu = gpu_index(parse_number<std::int64_t>(host.substr(end + 1)).value_or(kNone));
    for (DamagedRecord& record : copy.damaged) record.location.file = copy.source;
    trace_ = std::move(copy);
  }

  // A rank may have declared a name twice, but its calls all name it by one index, or the calls of
  // two groups would become those of one.
  bool read_groups() {
    DigestReader in = column(DigestColumn::groups);
    std::vector<GroupId> seen;
    for (std::uint32_t slot = 0; slot < form_.slots && in.ok(); ++slot) {
      const GroupId group = values_.groups[in.below(values_.groups.size())];
      groups_.push_back(group);
      const std::uint64_t list = in.below(values_.rank_lists.size() + 1);
      if (list == 0) continue;
      if (slot != trace_.groups.size()) in.fail();  // those that were declared come first
      const StringId desc = values_.strings[in.below(values_.strings.size())];
      trace_.groups.push_back({group, values_.rank_lists[list - 1], desc});
    }
    if (!in.done() || trace_.created_in_order > trace_.groups.size()) return false;
    for (const std::uint32_t slot : form_.used_slots) seen.push_back(groups_[slot]);
    std::sort(seen.begin(), seen.end());
    if (std::adjacent_find(seen.begin(), seen.end()) != seen.end()) return false;
    for (RankTrace::Progress& p : trace_.progress) p.group = groups_[p.group.value];
    std::map<GroupId, std::uint64_t> first;
    for (const auto& [slot, seq] : trace_.first_seq) first.emplace(groups_[slot.value], seq);
    trace_.first_seq = std::move(first);
    return true;
  }

  // Nothing: it is not a rank of the group.
  std::optional<Rank> rank_of(const DigestForm::Relative& what, std::uint32_t slot,
                              bool as_distance) {
    using Kind = DigestForm::Relative::Kind;
    if (what.kind == Kind::none) return Rank(kNone);
    if (what.kind == Kind::absolute) return Rank(what.value);
    if (slot >= trace_.groups.size()) return std::nullopt;
    const RankList& list = trace_.groups[slot].ranks;
    const std::uint32_t own = as_distance ? rank_indices_.of(list, trace_.rank) : 0;
    if (own == RankIndices::kNowhere || static_cast<std::size_t>(what.value) >= list.size())
      return std::nullopt;
    return list[(own + static_cast<std::size_t>(what.value)) % list.size()];
  }

  // Roots, peers and groups: once for each kind of call.
  bool place_calls() {
    struct Placed {
      SignatureId signature;
      GroupId group;
      Rank peer;
    };
    std::vector<Placed> placed;
    for (const DigestForm::CallKind& kind : form_.kinds) {
      const std::optional<Rank> root = rank_of(kind.root, kind.slot, false);
      const std::optional<Rank> peer = rank_of(kind.peer, kind.slot, true);
      if (!root || !peer) return false;
      if (root->value < kNone || root->value >= kMaxWorldSize) return false;
      if (peer->value < kNone || peer->value >= kMaxWorldSize) return false;
      Signature signature = kind.signature;
      signature.root = root->value;
      placed.push_back({tables_.make_signature(signature), groups_[kind.slot], *peer});
    }
    std::vector<Call>& calls = trace_.calls.own();
    for (std::size_t c = 0; c < calls.size(); ++c) {
      const Placed& p = placed[form_.kind_of[c]];
      Call& call = calls[c];
      call.signature = p.signature;
      call.group = p.group;
      call.peer = p.peer;
    }
    return true;
  }

  bool read_ids() {
    DigestReader in = column(DigestColumn::ids);
    std::vector<Call>& calls = trace_.calls.own();
    std::size_t next = 0;
    std::int64_t last = -1;
    while (next < calls.size() && in.ok()) {
      const std::int64_t distance = in.integer();
      const std::uint64_t times = in.below(calls.size() - next + 1);
      if (times == 0 || (next > 0 && distance < 1)) return false;
      for (std::uint64_t i = 0; i < times; ++i) {
        if (distance > 0 && last > INT64_MAX - distance) return false;
        if (i > 0 && distance < 1) return false;  // ids grow
        last = wrapping_sum(last, distance);
        calls[next++].id = last;
      }
    }
    return in.done();
  }

  bool read_steps() {
    DigestReader in = column(DigestColumn::steps);
    for (std::size_t i = 0; i < trace_.steps.size(); ++i) {
      if ((form_.measured_steps[i] & 1U) != 0) trace_.steps[i].loss = in.real();
      if ((form_.measured_steps[i] & 2U) != 0) trace_.steps[i].samples = in.integer();
    }
    return in.done();
  }

  static std::vector<double> read_sketch(DigestReader& in) {
    std::vector<double> out(in.count());
    for (double& value : out) value = in.real();
    return out;
  }

  bool read_states() {
    DigestReader in = column(DigestColumn::states);
    for (std::size_t i = 0; i < trace_.states.size() && in.ok(); ++i) {
      if ((form_.measured_states[i] & 1U) != 0) trace_.states[i].hash = in.word();
      if ((form_.measured_states[i] & 2U) != 0) trace_.states[i].norm = in.real();
      trace_.states[i].sketch = read_sketch(in);
    }
    return in.done();
  }

  bool read_data() {
    DigestReader in = column(DigestColumn::data);
    for (DataMark& mark : trace_.data) {
      mark.indices.resize(in.count());
      std::int64_t last = 0;
      for (std::int64_t& index : mark.indices) index = last = wrapping_sum(last, in.integer());
      if (!in.ok()) return false;
    }
    return in.done();
  }

  bool read_values() {
    DigestReader in = column(DigestColumn::values);
    std::vector<Call>& calls = trace_.calls.own();
    for (std::size_t c = 0; c < calls.size() && in.ok(); ++c) {
      if (!form_.has_values[c]) continue;
      CallValues& v = trace_.values.emplace_back();
      calls[c].values = static_cast<std::uint32_t>(trace_.values.size());
      if (in.below(2) == 1) v.hash = in.word();
      v.sketch = read_sketch(in);
      v.from = in.small();
      v.fromtag = in.small();
    }
    return in.done();
  }

  bool read_times() {
    DigestReader in = column(DigestColumn::times);
    std::vector<Event>& events = trace_.events.own();
    std::uint64_t next = 0;
    Nanos last = 0;
    while (!in.done() && in.ok()) {
      const std::uint64_t gap = in.below(events.size() + 1);
      const std::uint64_t event = next + gap;
      if (event == events.size()) {
        trace_.longest_open = in.integer();
        trace_.longest_completed = in.integer();
        return in.done() && trace_.longest_open >= 0 && trace_.longest_completed >= 0;
      }
      last = wrapping_sum(last, in.integer());
      if (!in.ok() || event >= events.size() || last < 0) return false;
      events[event].time = last;
      next = event + 1;
    }
    return in.done();
  }

  const DigestForm& form_;
  const ColumnViews& columns_;
  const DigestTables& values_;
  Tables& tables_;
  RankIndices& rank_indices_;
  DigestRoom& room_;
  RankTrace& trace_;
  std::vector<GroupId> groups_;  // by slot
};

}  // namespace

bool expand_form(const DigestForm& form, const ColumnViews& columns, const DigestTables& values,
                 Tables& tables, RankIndices& rank_indices, DigestRoom& room, RankTrace& trace) {
  return Expander(form, columns, values, tables, rank_indices, room, trace).expand();
}

}  // namespace lockstep::trace
