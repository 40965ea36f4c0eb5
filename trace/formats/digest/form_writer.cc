// Splits a trace into its form, which all ranks of a class have in common, and the columns of
// values in which they differ; and writes both as bytes (docs/digest.md).
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "trace/formats/digest/form.h"

namespace lockstep::trace {

namespace {

// The rank's own numbering of its groups, in which a form names them: those that it declared come
// first.
class Slots {
 public:
  explicit Slots(const RankTrace& trace) {
    for (const RankTrace::Membership& m : trace.groups) {
      slot_of_.emplace(m.group, static_cast<std::uint32_t>(groups_.size()));
      groups_.push_back(m.group);
      members_.push_back(&m);
    }
    for (const Call& call : trace.calls) add(call.group);
    for (const RankTrace::Progress& p : trace.progress) add(p.group);
    for (const auto& [group, seq] : trace.first_seq) add(group);
  }

  std::uint32_t of(GroupId group) const { return slot_of_.at(group); }
  const std::vector<GroupId>& groups() const { return groups_; }
  // nullptr: the rank declared no such group.
  const RankTrace::Membership* membership(std::uint32_t slot) const {
    return slot < members_.size() ? members_[slot] : nullptr;
  }

 private:
  void add(GroupId group) {
    if (group == last_ && !groups_.empty()) return;
    last_ = group;
    if (slot_of_.emplace(group, static_cast<std::uint32_t>(groups_.size())).second)
      groups_.push_back(group);
  }

  std::vector<GroupId> groups_;
  std::vector<const RankTrace::Membership*> members_;
  std::unordered_map<GroupId, std::uint32_t> slot_of_;
  GroupId last_;
};

class FormWriter {
 public:
  FormWriter(const RankTrace& trace, const Tables& tables, const DigestValues& values,
             RankIndices& rank_indices)
      : trace_(trace),
        tables_(tables),
        values_(values),
        rank_indices_(rank_indices),
        slots_(trace) {}

  CodedColumns write() {
    CodedColumns out;
    const auto column = [&](DigestColumn which) -> std::string& {
      return out[static_cast<std::size_t>(which)];
    };
    column(DigestColumn::form) = form();
    column(DigestColumn::groups) = groups();
    column(DigestColumn::ids) = ids();
    column(DigestColumn::steps) = steps();
    column(DigestColumn::states) = states();
    column(DigestColumn::data) = data();
    column(DigestColumn::values) = call_values();
    column(DigestColumn::times) = times();
    column(DigestColumn::host) = host();
    return out;
  }

 private:
  // "node4", or with the index of its GPU "node4\n5". A name that has a line feed gets one more.
  std::string host() {
    if (trace_.gpu != kNone) return fmt::format("{}\n{}", trace_.host, trace_.gpu);
    return trace_.host.find('\n') == std::string::npos ? trace_.host : trace_.host + '\n';
  }

  std::string form() {
    write_header();
    write_calls();
    write_events();
    write_marks();
    return out_.take();
  }

  void write_header() {
    out_.number(static_cast<std::uint64_t>(trace_.semantics));
    out_.number(static_cast<std::uint64_t>(trace_.end));
    out_.number((trace_.snapshot ? 1U : 0U) | (trace_.open_ended ? 2U : 0U) |
                (trace_.inconclusive.empty() ? 0U : 4U) | (trace_.first_number == 1 ? 8U : 0U) |
                (trace_.damaged_at_end ? 16U : 0U));
    out_.number(trace_.dropped);
    out_.text(trace_.backend);
    out_.text(trace_.program);
    if (!trace_.inconclusive.empty()) out_.text(trace_.inconclusive);
    out_.number(slots_.groups().size());
    out_.number(trace_.created_in_order);
    out_.number(trace_.first_seq.size());
    // By slot, not by id: ids depend on what else was read.
    std::map<std::uint32_t, std::uint64_t> first;
    for (const auto& [group, seq] : trace_.first_seq) first.emplace(slots_.of(group), seq);
    for (const auto& [slot, seq] : first) {
      out_.number(slot);
      out_.number(seq);
    }
    out_.number(trace_.progress.size());
    for (const RankTrace::Progress& p : trace_.progress) {
      out_.number(slots_.of(p.group));
      for (const auto& counter : {p.enqueued, p.started, p.completed}) {
        out_.number(counter ? 1 : 0);
        if (counter) out_.number(*counter);
      }
    }
    out_.number(trace_.damaged_count);
    out_.number(trace_.damaged.size());
    for (const DamagedRecord& d : trace_.damaged) {
      out_.number(static_cast<std::uint64_t>(std::max(d.location.line, 0)));
      out_.text(d.message);
    }
  }

  // A rank as its group rank or its distance in the call's group, where it is in the group.
  void write_relative(Rank rank, std::uint32_t slot, bool as_distance) {
    if (rank.value == kNone) return out_kind_.number(0);
    const RankTrace::Membership* m = slots_.membership(slot);
    if (m != nullptr && !m->ranks.empty()) {
      const std::uint32_t index = rank_indices_.of(m->ranks, rank);
      const std::uint32_t own = as_distance ? rank_indices_.of(m->ranks, trace_.rank) : 0;
      if (index != RankIndices::kNowhere && own != RankIndices::kNowhere) {
        const auto size = static_cast<std::uint32_t>(m->ranks.size());
        out_kind_.number(1);
        return out_kind_.integer((index + size - own) % size);
      }
    }
    out_kind_.number(2);
    out_kind_.integer(rank.value);
  }

  std::string kind_of(const Call& call) {
    const std::uint32_t slot = slots_.of(call.group);
    out_kind_.number(values_.of(call.signature));
    out_kind_.number(slot);
    write_relative(Rank(tables_.signatures[call.signature].root), slot, false);
    write_relative(call.peer, slot, true);
    out_kind_.number(values_.of(call.what));
    for (const StringId id : {call.at, call.tag, call.stream, call.stack})
      out_kind_.number(values_.of(id));
    out_kind_.integer(call.ptag);
    out_kind_.number(call.flags | (call.values != 0 ? kHasValues : 0) |
                     (call.coalesced != kNone ? kHasBatch : 0) |
                     (call.thread != 0 ? kHasThread : 0));
    if (call.thread != 0) out_kind_.number(call.thread);
    return out_kind_.take();
  }

  void write_calls() {
    std::unordered_map<std::string, std::uint64_t> kinds;
    std::vector<const std::string*> in_order;
    DigestWriter calls;
    std::vector<std::array<std::int64_t, 2>> next(slots_.groups().size());
    std::int64_t step = kNone;
    std::int64_t batch = 0;
    for (const Call& call : trace_.calls) {
      const auto [kind, is_new] = kinds.emplace(kind_of(call), in_order.size());
      if (is_new) in_order.push_back(&kind->first);
      calls.number(kind->second);
      const bool message = tables_.is_message(call);
      std::int64_t& expected = next[slots_.of(call.group)][message ? 1 : 0];
      calls.integer(std::int64_t{call.seq} - expected);
      expected = std::int64_t{call.seq} + 1;
      calls.integer(call.step - step);
      step = call.step;
      if (call.coalesced == kNone) continue;
      calls.integer(call.coalesced - batch);
      batch = call.coalesced;
    }
    out_.number(in_order.size());
    for (const std::string* kind : in_order) out_.text(*kind);
    out_.number(trace_.calls.size());
    out_.text(calls.bytes());
  }

  void write_events() {
    std::array<std::int64_t, 16> next{};  // by kind; all kinds of a call's life follow its issue
    DigestWriter events;
    for (const Event& event : trace_.events) {
      const auto kind = static_cast<std::size_t>(event.kind);
      const bool of_call = event.kind > EventKind::issue && event.kind <= EventKind::write;
      const std::int64_t expected = of_call ? next[0] - 1 : next[kind];
      const std::int64_t off = std::int64_t{event.index} - expected;
      const auto zigzag =
          (static_cast<std::uint64_t>(off) << 1U) ^ static_cast<std::uint64_t>(off >> 63);
      events.number(zigzag << 4U | kind);
      if (!of_call) next[kind] = std::int64_t{event.index} + 1;
    }
    out_.number(trace_.events.size());
    out_.text(events.bytes());
  }

  void write_marks() {
    out_.number(trace_.steps.size());
    for (const StepMark& mark : trace_.steps) {
      write_step(mark.n);
      out_.number((mark.loss ? 1U : 0U) | (mark.samples ? 2U : 0U));
    }
    out_.number(trace_.states.size());
    for (const StateMark& mark : trace_.states) {
      write_step(mark.n);
      out_.number(values_.of(mark.name));
      out_.number(values_.of(mark.shape));
      out_.number(values_.of(mark.dtype));
      out_.number(static_cast<std::uint64_t>(mark.kind) |
                  static_cast<std::uint64_t>(mark.when) << 2U | (mark.sharded ? 16U : 0U) |
                  (mark.hash ? 32U : 0U) | (mark.norm ? 64U : 0U));
    }
    out_.number(trace_.data.size());
    for (const DataMark& mark : trace_.data) {
      write_step(mark.n);
      out_.number(values_.of(mark.modality));
    }
    out_.number(trace_.modalities.size());
    for (const ModalityMark& mark : trace_.modalities) {
      write_step(mark.n);
      out_.number(values_.of(mark.has));
    }
    out_.number(trace_.spans.size());
    for (const SpanMark& mark : trace_.spans) {
      out_.number(values_.of(mark.name));
      out_.number(values_.of(mark.stream));
    }
    out_.number(trace_.exceptions.size());
    for (const ExceptionMark& mark : trace_.exceptions) {
      out_.text(mark.what);
      out_.number(mark.call ? std::uint64_t{*mark.call} + 1 : 0);
    }
  }

  // Wraps around, as the reader does: steps may be any number.
  void write_step(std::int64_t n) {
    out_.integer(static_cast<std::int64_t>(static_cast<std::uint64_t>(n) -
                                           static_cast<std::uint64_t>(step_)));
    step_ = n;
  }

  std::string groups() const {
    DigestWriter out;
    for (std::uint32_t slot = 0; slot < slots_.groups().size(); ++slot) {
      out.number(values_.of(slots_.groups()[slot]));
      const RankTrace::Membership* m = slots_.membership(slot);
      out.number(m == nullptr ? 0 : values_.of(m->ranks) + 1);
      if (m != nullptr) out.number(values_.of(m->desc));
    }
    return out.take();
  }

  // Runs of equal distance: 0, 1, 2 … is one.
  std::string ids() const {
    DigestWriter out;
    std::int64_t last = -1;
    for (std::size_t i = 0; i < trace_.calls.size();) {
      const std::int64_t distance = trace_.calls[i].id - last;
      std::size_t end = i;
      while (end < trace_.calls.size() && trace_.calls[end].id - last == distance)
        last = trace_.calls[end++].id;
      out.integer(distance);
      out.number(end - i);
      i = end;
    }
    return out.take();
  }

  std::string steps() const {
    DigestWriter out;
    for (const StepMark& mark : trace_.steps) {
      if (mark.loss) out.real(*mark.loss);
      if (mark.samples) out.integer(*mark.samples);
    }
    return out.take();
  }

  static void write_sketch(DigestWriter& out, const std::vector<double>& sketch) {
    out.number(sketch.size());
    for (const double value : sketch) out.real(value);
  }

  std::string states() const {
    DigestWriter out;
    for (const StateMark& mark : trace_.states) {
      if (mark.hash) out.word(*mark.hash);
      if (mark.norm) out.real(*mark.norm);
      write_sketch(out, mark.sketch);
    }
    return out.take();
  }

  std::string data() const {
    DigestWriter out;
    for (const DataMark& mark : trace_.data) {
      out.number(mark.indices.size());
      std::int64_t last = 0;
      for (const std::int64_t index : mark.indices) {
        out.integer(static_cast<std::int64_t>(static_cast<std::uint64_t>(index) -
                                              static_cast<std::uint64_t>(last)));
        last = index;
      }
    }
    return out.take();
  }

  std::string call_values() const {
    DigestWriter out;
    for (const Call& call : trace_.calls) {
      if (call.values == 0) continue;
      const CallValues& v = trace_.values[call.values - 1];
      out.number(v.hash ? 1 : 0);
      if (v.hash) out.word(*v.hash);
      write_sketch(out, v.sketch);
      out.integer(v.from);
      out.integer(v.fromtag);
    }
    return out.take();
  }

  std::string times() const {
    DigestWriter out;
    std::uint32_t next = 0;
    Nanos last = 0;
    for (const auto& [event, time] : kept_times(trace_, tables_)) {
      out.number(event - next);
      next = event + 1;
      out.integer(static_cast<std::int64_t>(static_cast<std::uint64_t>(time) -
                                            static_cast<std::uint64_t>(last)));
      last = time;
    }
    if (trace_.longest_open != kNoTime) {  // in place of an event after the last one
      out.number(trace_.events.size() - next);
      out.integer(trace_.longest_open);
      out.integer(trace_.longest_completed);
    }
    return out.take();
  }

  const RankTrace& trace_;
  const Tables& tables_;
  const DigestValues& values_;
  RankIndices& rank_indices_;
  const Slots slots_;
  DigestWriter out_, out_kind_;
  std::int64_t step_ = 0;
};

}  // namespace

std::uint32_t RankIndices::of(const RankList& list, Rank rank) {
  if (!list.distinct()) return kNowhere;
  auto [known, is_new] = rank_indices_.try_emplace(list.identity());
  if (is_new) {
    for (std::uint32_t i = 0; i < list.size(); ++i) known->second.emplace(list[i], i);
  }
  const auto found = known->second.find(rank);
  return found == known->second.end() ? kNowhere : found->second;
}

std::vector<std::pair<std::uint32_t, Nanos>> kept_times(const RankTrace& trace,
                                                        const Tables& tables) {
  std::vector<std::pair<std::uint32_t, Nanos>> out;
  const auto keep = [&](std::uint32_t e) { out.emplace_back(e, trace.events[e].time); };
  const auto size = static_cast<std::uint32_t>(trace.events.size());
  const bool messages = std::any_of(trace.calls.begin(), trace.calls.end(),
                                    [&](const Call& call) { return tables.is_message(call); });
  // Lost messages are sought by the times of all events; a hang by the last ones; a trace that
  // ended cleanly needs only one time, which says that times were recorded.
  const bool all = messages && (trace.snapshot || trace.dropped > 0);
  const bool ended = trace.end == End::clean && !trace.snapshot && trace.progress.empty();
  if (all || ended) {
    for (std::uint32_t e = 0; e < size; ++e) {
      if (trace.events[e].time == kNoTime) continue;
      keep(e);
      if (!all) return {{e, 0}};
    }
    return out;
  }
  std::optional<std::uint32_t> newest;
  std::size_t completions = 0;
  for (std::uint32_t e = size; e-- > 0;) {
    const Event& event = trace.events[e];
    if (event.time == kNoTime) continue;
    if (!newest || event.time > trace.events[*newest].time) newest = e;
    if (event.kind == EventKind::complete && completions++ < kCompletionsTimed) keep(e);
  }
  if (newest) keep(*newest);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

CodedColumns code_columns(const RankTrace& trace, const Tables& tables, const DigestValues& values,
                          RankIndices& rank_indices) {
  return FormWriter(trace, tables, values, rank_indices).write();
}

}  // namespace lockstep::trace
