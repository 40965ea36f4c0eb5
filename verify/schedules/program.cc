#include "verify/schedules/program.h"

#include <algorithm>

namespace lockstep::verify {

bool takes(const Message& receive, const Message& send) {
  if (receive.group != send.group || receive.dest != send.dest) return false;
  if (receive.source != Message::kAnySource && receive.source != send.rank) return false;
  return receive.tag == -1 || receive.tag == send.tag;
}

namespace {

// Whether any operation of the run may receive from any source (is_any_source).
bool may_have_wildcards(const trace::Tables& tables, CallSemantics semantics) {
  for (std::uint32_t s = 0; s < tables.signatures.size(); ++s) {
    const trace::Op op = tables.signatures[trace::SignatureId(s)].op;
    if (op == trace::Op::recv_any || (op == trace::Op::recv && semantics == CallSemantics::mpi))
      return true;
  }
  return false;
}

}  // namespace

SchedulePrograms::SchedulePrograms(const trace::Run& run, const std::vector<GroupStreams>& groups,
                                   CallSemantics semantics, bool buffered_sends)
    : run_(run), groups_(groups), semantics_(semantics), buffered_sends_(buffered_sends) {
  // Signatures are few: most runs need no look at their calls.
  if (!may_have_wildcards(run.tables, semantics)) return;
  for (std::uint32_t r = 0; r < run.ranks.size() && !has_wildcards_; ++r) {
    const auto& calls = run.ranks[r].calls;
    for (std::uint32_t c = 0; c < calls.size() && !has_wildcards_; ++c) {
      has_wildcards_ = op(r, c) != trace::Op::probe && is_wildcard(r, c);
    }
  }
  if (!has_wildcards_) return;
  index_instances();
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
    programs_.push_back(compile(r));
    note_record(r, programs_.back());
    index_traffic(r);
    whole_ = whole_ && run.ranks[r].dropped == 0 && run.ranks[r].damaged_count == 0;
  }
  whole_ = whole_ && run.ranks.size() == static_cast<std::size_t>(run.world_size);
}

void SchedulePrograms::index_instances() {
  instances_.resize(run_.ranks.size());
  for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) {
    instances_[r].resize(run_.ranks[r].calls.size());
  }
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].comparable) whole_ = false;
    if (!groups_[g].comparable) continue;
    for (std::uint32_t member = 0; member < groups_[g].streams.size(); ++member) {
      const Stream& stream = groups_[g].streams[member];
      for (std::uint32_t index = 0; index < stream.calls.size(); ++index) {
        instances_[stream.rank_index][stream.calls[index]] = {g, member, index};
      }
    }
  }
}

// The order of posts and waits is that of the replay: calls of a batch post together and block
// after the last of them.
ScheduleProgram SchedulePrograms::compile(std::uint32_t rank) const {
  const trace::RankTrace& trace = run_.ranks[rank];
  ScheduleProgram out;
  std::vector<std::uint32_t> batch;
  std::int32_t batch_number = trace::kNone;
  const auto flush = [&] {
    for (const std::uint32_t c : batch) out.actions.push_back({c, true});
    batch.clear();
    batch_number = trace::kNone;
  };
  for (const trace::Event& event : trace.events) {
    if (event.kind == trace::EventKind::wait) {
      flush();
      out.actions.push_back({event.index, true});
    }
    if (event.kind != trace::EventKind::issue) continue;
    const trace::Call& call = trace.calls[event.index];
    if (call.coalesced == trace::kNone || call.coalesced != batch_number) flush();
    out.actions.push_back({event.index, false});
    if (!call.has(trace::kAsync)) batch.push_back(event.index);
    batch_number = call.coalesced;
    if (batch_number == trace::kNone) flush();
  }
  flush();
  return out;
}

void SchedulePrograms::note_record(std::uint32_t rank, ScheduleProgram& program) const {
  const trace::RankTrace& trace = run_.ranks[rank];
  const bool recorded = was_recorded(run_);
  const bool ended = trace.end == trace::End::clean || (trace.end == trace::End::cut && !recorded);
  program.open_end = !ended;
  program.passed = program.actions.size();
  if (!recorded) {
    program.passed = 0;
    return;
  }
  if (ended) return;
  // The rank passed every blocking action but the last few, which it may still be in.
  while (program.passed > 0) {
    const ScheduleAction& last = program.actions[program.passed - 1];
    const trace::Call& call = trace.calls[last.call];
    if (!last.blocks || call.has(trace::kCompleted) || call.has(trace::kWaitEnded)) break;
    --program.passed;
  }
  program.must_hang = trace.end == trace::End::hung && program.passed < program.actions.size();
}

Message SchedulePrograms::message(std::uint32_t rank, std::uint32_t c) const {
  const trace::Call& k = call(rank, c);
  Message out;
  out.rank = rank;
  out.call = c;
  out.tag = k.ptag;
  out.group = k.group;
  const trace::RankTrace* peer = k.peer.value < 0 ? nullptr : run_.find(k.peer);
  const std::uint32_t other =
      peer == nullptr ? Message::kAnySource : static_cast<std::uint32_t>(peer - run_.ranks.data());
  const bool sends = op(rank, c) == trace::Op::send;
  out.source = sends ? rank : is_wildcard(rank, c) ? Message::kAnySource : other;
  out.dest = sends ? other : rank;
  return out;
}

bool SchedulePrograms::has_partner(std::uint32_t rank, std::uint32_t c) const {
  if (is_wildcard(rank, c)) return true;
  const trace::Call& k = call(rank, c);
  return k.peer.value >= 0 && run_.find(k.peer) != nullptr;
}

SchedulePrograms::Instance SchedulePrograms::instance(std::uint32_t rank, std::uint32_t c) const {
  return instances_[rank][c];
}

void SchedulePrograms::index_traffic(std::uint32_t rank) {
  const auto& actions = programs_[rank].actions;
  for (std::size_t a = 0; a < actions.size(); ++a) {
    const std::uint32_t c = actions[a].call;
    const trace::Op kind = op(rank, c);
    if (actions[a].blocks || !trace::is_point_to_point(kind)) continue;
    if (!has_partner(rank, c)) {
      whole_ = false;
      continue;
    }
    const Message m = message(rank, c);
    Traffic& traffic = traffic_[{m.dest, m.group.value}];
    if (kind == trace::Op::send) {
      traffic.waiting_sender |= !returns_at_once(rank, c);
      if (traffic.senders.empty() || traffic.senders.back() != rank)
        traffic.senders.push_back(rank);
      traffic.last[rank][m.tag] = a;
      traffic.many_tags_sent |= traffic.sent && traffic.tag_sent != m.tag;
      traffic.many_forms |= traffic.sent && traffic.form_sent != call(rank, c).signature;
      traffic.form_sent = call(rank, c).signature;
      traffic.tag_sent = m.tag;
      traffic.sent = true;
    } else {
      traffic.selective |= m.source != Message::kAnySource;
      traffic.probes |= kind == trace::Op::probe;
      traffic.many_tags_received |= traffic.received && traffic.tag_received != m.tag;
      traffic.tag_received = m.tag;
      traffic.received = true;
    }
  }
}

bool SchedulePrograms::may_send(std::uint32_t sender, std::size_t from,
                                const Message& receive) const {
  const auto traffic = traffic_.find({receive.dest, receive.group.value});
  if (traffic == traffic_.end()) return false;
  const auto tags = traffic->second.last.find(sender);
  if (tags == traffic->second.last.end()) return false;
  if (receive.tag != -1) {
    const auto last = tags->second.find(receive.tag);
    return last != tags->second.end() && last->second >= from;
  }
  return std::any_of(tags->second.begin(), tags->second.end(),
                     [&](const auto& entry) { return entry.second >= from; });
}

const std::vector<std::uint32_t>& SchedulePrograms::senders_to(const Message& receive) const {
  static const std::vector<std::uint32_t> kNobody;
  const auto traffic = traffic_.find({receive.dest, receive.group.value});
  return traffic == traffic_.end() ? kNobody : traffic->second.senders;
}

bool SchedulePrograms::uniform(const Message& receive) const {
  const auto found = traffic_.find({receive.dest, receive.group.value});
  return found != traffic_.end() && !found->second.probes && !found->second.many_forms;
}

bool SchedulePrograms::indifferent(const Message& receive) const {
  const auto found = traffic_.find({receive.dest, receive.group.value});
  if (found == traffic_.end()) return false;
  const Traffic& t = found->second;
  return !t.selective && !t.probes && !t.waiting_sender && !t.many_forms &&
         (!t.many_tags_received || !t.many_tags_sent);
}

}  // namespace lockstep::verify
