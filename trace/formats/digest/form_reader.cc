// Reads the bytes of a form (docs/digest.md). Nothing in them is trusted: every index is checked.
#include <algorithm>
#include <array>

#include "trace/formats/digest/form.h"

namespace lockstep::trace {

namespace {

constexpr std::uint8_t kCallFlags = 63;
class FormReader {
 public:
  FormReader(std::string_view bytes, const DigestTables& tables, DigestForm& form)
      : in_(bytes), tables_(tables), form_(form), trace_(form.trace) {}

  bool read() {
    read_header();
    read_kinds();
    read_calls();
    read_events();
    read_marks();
    if (!in_.done() || !indices_fit()) return false;
    collect_used_slots();
    return true;
  }

 private:
  void collect_used_slots() {
    std::vector<std::uint32_t>& used = form_.used_slots;
    for (const DigestForm::CallKind& kind : form_.kinds) used.push_back(kind.slot);
    for (const RankTrace::Progress& p : trace_.progress) used.push_back(p.group.value);
    for (const auto& [slot, seq] : trace_.first_seq) used.push_back(slot.value);
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
  }

  void read_header() {
    trace_.semantics = static_cast<Semantics>(in_.below(2));
    trace_.end = static_cast<End>(in_.below(static_cast<std::uint64_t>(End::interrupted) + 1));
    const std::uint64_t flags = in_.below(32);
    trace_.snapshot = (flags & 1U) != 0;
    trace_.open_ended = (flags & 2U) != 0;
    trace_.damaged_at_end = (flags & 16U) != 0;
    trace_.first_number = (flags & 8U) != 0 ? 1 : 0;
    trace_.dropped = in_.number();
    trace_.backend = in_.text();
    trace_.program = in_.text();
    if ((flags & 4U) != 0) trace_.inconclusive = in_.text();
    form_.slots = static_cast<std::uint32_t>(in_.count());
    trace_.created_in_order = static_cast<std::uint32_t>(in_.below(std::uint64_t{form_.slots} + 1));
    for (std::uint64_t n = in_.count(); n > 0 && in_.ok(); --n) {
      const GroupId slot = read_slot();
      trace_.first_seq[slot] = in_.number();
    }
    for (std::uint64_t n = in_.count(); n > 0 && in_.ok(); --n) {
      RankTrace::Progress& p = trace_.progress.emplace_back();
      p.group = read_slot();
      for (auto* counter : {&p.enqueued, &p.started, &p.completed})
        if (in_.below(2) == 1) *counter = in_.number();
    }
    trace_.damaged_count = in_.number();
    const std::uint64_t kept = in_.below(RankTrace::kDamagedKept + 1);
    for (std::uint64_t i = 0; i < kept && in_.ok(); ++i) {
      const auto line = static_cast<int>(in_.below(INT32_MAX));
      trace_.damaged.push_back({{{}, line}, std::string(in_.text())});
    }
  }

  GroupId read_slot() { return GroupId(static_cast<std::uint32_t>(in_.below(form_.slots))); }
  StringId read_string(DigestReader& in) {
    return tables_.strings[in.below(tables_.strings.size())];
  }

  static DigestForm::Relative read_relative(DigestReader& in) {
    DigestForm::Relative out;
    out.kind = static_cast<DigestForm::Relative::Kind>(in.below(3));
    if (out.kind != DigestForm::Relative::Kind::none) out.value = in.small();
    // A group rank or a distance is never negative; past the group's end it is refused later.
    if (out.kind == DigestForm::Relative::Kind::in_group && out.value < 0) in.fail();
    return out;
  }

  void read_kinds() {
    for (std::uint64_t n = in_.count(); n > 0 && in_.ok(); --n) {
      DigestReader in(in_.text());
      DigestForm::CallKind kind;
      Call call;
      kind.signature = tables_.signatures[in.below(tables_.signatures.size())];
      kind.slot = static_cast<std::uint32_t>(in.below(form_.slots));
      kind.root = read_relative(in);
      kind.peer = read_relative(in);
      call.what = tables_.name_lists[in.below(tables_.name_lists.size())];
      for (StringId* id : {&call.at, &call.tag, &call.stream, &call.stack}) *id = read_string(in);
      call.ptag = in.small();
      const std::uint64_t flags = in.below(512);
      call.flags = static_cast<std::uint8_t>(flags & kCallFlags);
      if ((flags & kHasThread) != 0)
        call.thread = static_cast<std::uint16_t>(in.below(std::uint64_t{UINT16_MAX} + 1));
      call.group = GroupId(kind.slot);
      form_.kinds.push_back(kind);
      calls_.push_back({call, (flags & kHasValues) != 0, (flags & kHasBatch) != 0});
      if (!in.done()) in_.fail();
    }
  }

  void read_calls() {
    const std::uint64_t count = in_.count();
    DigestReader in(in_.text());
    std::vector<std::array<std::int64_t, 2>> next(form_.slots);
    std::int64_t step = kNone;
    std::int64_t batch = 0;
    for (std::uint64_t i = 0; i < count && in_.ok() && in.ok(); ++i) {
      const std::uint64_t k = in.below(form_.kinds.size());
      if (!in.ok()) break;
      const DigestForm::CallKind& kind = form_.kinds[k];
      Call call = calls_[k].call;
      const bool message = is_point_to_point(kind.signature.op);
      std::int64_t& expected = next[kind.slot][message ? 1 : 0];
      const std::int64_t off = in.small();
      if (!message && off < 0) in.fail();  // numbers of collectives grow
      const std::int64_t seq = expected + off;
      if (seq < 0 || seq > UINT32_MAX) in.fail();
      call.seq = static_cast<std::uint32_t>(seq);
      expected = seq + 1;
      step = wrapping_sum(step, in.integer());
      if (step < INT32_MIN || step > INT32_MAX) in.fail();
      call.step = static_cast<std::int32_t>(step);
      if (calls_[k].has_batch) {
        batch = wrapping_sum(batch, in.integer());
        if (batch < INT32_MIN || batch > INT32_MAX) in.fail();
        call.coalesced = static_cast<std::int32_t>(batch);
      }
      trace_.calls.push_back(call);
      form_.kind_of.push_back(static_cast<std::uint32_t>(k));
      form_.has_values.push_back(calls_[k].has_values);
      if (calls_[k].has_values) ++form_.valued;
    }
    if (!in.done()) in_.fail();
  }

  // A call's life begins with its issue, and calls stand in the order of theirs.
  void read_events() {
    const std::uint64_t count = in_.count();
    DigestReader in(in_.text());
    std::array<std::int64_t, 16> next{};
    for (std::uint64_t i = 0; i < count && in.ok(); ++i) {
      const std::uint64_t coded = in.number();
      Event event;
      if ((coded & 15U) > static_cast<std::uint64_t>(EventKind::span)) return in_.fail();
      event.kind = static_cast<EventKind>(coded & 15U);
      const std::uint64_t zigzag = coded >> 4U;
      const std::int64_t off =
          static_cast<std::int64_t>(zigzag >> 1U) ^ -static_cast<std::int64_t>(zigzag & 1U);
      const bool of_call = event.kind > EventKind::issue && event.kind <= EventKind::write;
      const std::int64_t index = (of_call ? next[0] - 1 : next[coded & 15U]) + off;
      if (index < 0 || index > UINT32_MAX) return in_.fail();
      if (event.kind == EventKind::issue && off != 0) return in_.fail();
      if (of_call && index >= next[0]) return in_.fail();
      if (!of_call) next[coded & 15U] = index + 1;
      event.index = static_cast<std::uint32_t>(index);
      trace_.events.push_back(event);
    }
    issued_ = static_cast<std::uint64_t>(next[0]);
    if (!in.done()) in_.fail();
  }

  std::int64_t read_step() { return step_ = wrapping_sum(step_, in_.integer()); }

  void read_marks() {
    for (std::uint64_t n = in_.count(); n > 0 && in_.ok(); --n) {
      trace_.steps.emplace_back().n = read_step();
      form_.measured_steps.push_back(static_cast<std::uint8_t>(in_.below(4)));
    }
    for (std::uint64_t n = in_.count(); n > 0 && in_.ok(); --n) read_state();
    for (std::uint64_t n = in_.count(); n > 0 && in_.ok(); --n) {
      DataMark& mark = trace_.data.emplace_back();
      mark.n = read_step();
      mark.modality = read_string(in_);
    }
    for (std::uint64_t n = in_.count(); n > 0 && in_.ok(); --n) {
      ModalityMark& mark = trace_.modalities.emplace_back();
      mark.n = read_step();
      mark.has = tables_.name_lists[in_.below(tables_.name_lists.size())];
    }
    for (std::uint64_t n = in_.count(); n > 0 && in_.ok(); --n) {
      SpanMark& mark = trace_.spans.own().emplace_back();
      mark.name = read_string(in_);
      mark.stream = read_string(in_);
    }
    for (std::uint64_t n = in_.count(); n > 0 && in_.ok(); --n) {
      ExceptionMark& mark = trace_.exceptions.emplace_back();
      mark.what = in_.text();
      const std::uint64_t call = in_.below(trace_.calls.size() + 1);
      if (call > 0) mark.call = static_cast<std::uint32_t>(call - 1);
    }
  }

  void read_state() {
    StateMark& mark = trace_.states.emplace_back();
    mark.n = read_step();
    mark.name = read_string(in_);
    mark.shape = tables_.int_lists[in_.below(tables_.int_lists.size())];
    mark.dtype = read_string(in_);
    const std::uint64_t bits = in_.below(128);
    mark.kind = static_cast<StateMark::Kind>(bits & 3U);
    if ((bits >> 2U & 3U) > static_cast<std::uint64_t>(StateMark::When::synced)) in_.fail();
    mark.when = static_cast<StateMark::When>(bits >> 2U & 3U);
    mark.sharded = (bits & 16U) != 0;
    form_.measured_states.push_back(static_cast<std::uint8_t>(bits >> 5U));
  }

  bool indices_fit() const {
    if (issued_ != trace_.calls.size()) return false;
    return std::all_of(trace_.events.begin(), trace_.events.end(), [&](const Event& event) {
      switch (event.kind) {
        case EventKind::exception:
          return event.index < trace_.exceptions.size();
        case EventKind::step:
          return event.index < trace_.steps.size();
        case EventKind::state:
          return event.index < trace_.states.size();
        case EventKind::data:
          return event.index < trace_.data.size();
        case EventKind::modality:
          return event.index < trace_.modalities.size();
        case EventKind::span:
          return event.index < trace_.spans.size();
        default:
          return event.index < trace_.calls.size();
      }
    });
  }

  struct CodedCall {
    Call call;
    bool has_values = false, has_batch = false;
  };

  DigestReader in_;
  const DigestTables& tables_;
  DigestForm& form_;
  RankTrace& trace_;
  std::vector<CodedCall> calls_;  // by kind
  std::uint64_t issued_ = 0;
  std::int64_t step_ = 0;
};

}  // namespace

bool read_form(std::string_view bytes, const DigestTables& tables, DigestForm& form) {
  return FormReader(bytes, tables, form).read();
}

}  // namespace lockstep::trace
