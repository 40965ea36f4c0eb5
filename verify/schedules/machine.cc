#include "verify/schedules/machine.h"

#include <algorithm>

namespace lockstep::verify {

// Roughly, with 24 bytes for an empty vector: good enough to bound the memory of the search.
std::size_t ScheduleState::bytes() const {
  std::size_t out = next.size() * 4 + frontiers.size() * 8 + (sends.size() + receives.size()) * 24;
  for (const auto& members : issued) out += 24 + members.size() * 4;
  for (const auto& list : sends) out += list.size() * sizeof(Message);
  for (const auto& list : receives) out += list.size() * sizeof(Message);
  return out;
}

ScheduleState ScheduleMachine::start() const {
  ScheduleState s;
  const std::size_t ranks = p_.ranks().size();
  s.next.assign(ranks, 0);
  s.sends.resize(ranks);
  s.receives.resize(ranks);
  for (const GroupStreams& group : p_.groups()) {
    const auto members = static_cast<std::uint32_t>(group.streams.size());
    s.issued.emplace_back(members, 0);
    s.frontiers.push_back({0, members});
  }
  return s;
}

void ScheduleMachine::settle(ScheduleState& s, std::vector<std::uint32_t> ready) {
  while (!ready.empty() && !exhausted()) {
    const std::uint32_t r = ready.back();
    ready.pop_back();
    advance(s, r, ready);
  }
}

void ScheduleMachine::take(ScheduleState& s, const WildcardMatch& m,
                           std::vector<std::uint32_t>& ready) {
  const Message send = p_.message(m.sender, m.send);
  const Message receive = p_.message(m.receiver, m.receive);
  pair(s, receive, send, ready);
  match_forced(s, m.receiver, ready);
}

std::vector<ScheduleChoice> ScheduleMachine::choices(const ScheduleState& s,
                                                     const Allowed& allowed) {
  std::vector<ScheduleChoice> all;
  for (std::uint32_t dest = 0; dest < s.receives.size(); ++dest) {
    const auto& receives = s.receives[dest];
    for (std::size_t i = 0; i < receives.size(); ++i) {
      if (receives[i].source != Message::kAnySource) continue;
      bool closed = false;
      std::vector<ScheduleChoice> mine = choices_of_receive(s, dest, i, closed);
      std::erase_if(mine, [&](const ScheduleChoice& c) { return !allowed(c.match); });
      if (mine.empty()) continue;
      // The order makes no difference, so one choice is enough.
      if (p_.indifferent(receives[i]) || absorbs_all(s, dest, receives[i])) {
        mine.resize(1);
        return mine;
      }
      // A persistent set: nothing else can interfere with these choices, so they go first, alone.
      if (closed) return mine;
      all.insert(all.end(), mine.begin(), mine.end());
    }
  }
  return all;
}

bool ScheduleMachine::has_stuck(const ScheduleState& s) {
  const std::size_t n = s.next.size();
  std::vector<bool> may_move(n);
  for (std::size_t r = 0; r < n; ++r) {
    may_move[r] = s.next[r] == p_.ranks()[r].actions.size() && p_.ranks()[r].open_end;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (std::uint32_t r = 0; r < n; ++r) {
      if (may_move[r] || at_end(s, r)) continue;
      if (may_be_let_go(s, r, may_move)) changed = may_move[r] = true;
    }
    work_ += n;
  }
  for (std::uint32_t r = 0; r < n; ++r) {
    if (!may_move[r] && !at_end(s, r)) return true;
  }
  return false;
}

bool ScheduleMachine::fits_record(const ScheduleState& s) const {
  for (std::size_t r = 0; r < s.next.size(); ++r) {
    const ScheduleProgram& program = p_.ranks()[r];
    if (s.next[r] < program.passed) return false;
    if (program.must_hang && s.next[r] == program.actions.size()) return false;
  }
  return true;
}

bool ScheduleMachine::at_end(const ScheduleState& s, std::uint32_t r) const {
  return s.next[r] == p_.ranks()[r].actions.size();
}

void ScheduleMachine::advance(ScheduleState& s, std::uint32_t r,
                              std::vector<std::uint32_t>& ready) {
  const auto& actions = p_.ranks()[r].actions;
  while (s.next[r] < actions.size() && !exhausted()) {
    ++work_;
    const ScheduleAction& a = actions[s.next[r]];
    if (a.blocks) {
      if (!passes(s, r, a.call)) return;
      ++s.next[r];
    } else {
      ++s.next[r];
      post(s, r, a.call, ready);
    }
  }
}

bool ScheduleMachine::passes(const ScheduleState& s, std::uint32_t r, std::uint32_t c) {
  const trace::Op op = p_.op(r, c);
  if (!trace::is_point_to_point(op)) {
    const auto m = p_.instance(r, c);
    // A member without a trace is assumed to take part.
    if (m.group == UINT32_MAX || !p_.groups()[m.group].absent.empty()) return true;
    return s.frontiers[m.group].least > m.index;
  }
  if (!p_.has_partner(r, c)) return true;
  const Message mine = p_.message(r, c);
  if (op == trace::Op::probe) return sees_message(s, mine);
  if (op == trace::Op::send && p_.returns_at_once(r, c)) return true;
  const auto& pending = op == trace::Op::send ? s.sends[mine.dest] : s.receives[r];
  return !std::binary_search(pending.begin(), pending.end(), mine);
}

bool ScheduleMachine::sees_message(const ScheduleState& s, const Message& probe) {
  for (const Message& send : s.sends[probe.dest]) {
    ++work_;
    if (takes(probe, send) && first_receive_for(s, send) == nullptr) return true;
  }
  return false;
}

void ScheduleMachine::post(ScheduleState& s, std::uint32_t r, std::uint32_t c,
                           std::vector<std::uint32_t>& ready) {
  const trace::Op op = p_.op(r, c);
  if (!trace::is_point_to_point(op)) {
    const auto m = p_.instance(r, c);
    if (m.group != UINT32_MAX) arrive(s, m, ready);
    return;
  }
  if (op == trace::Op::probe || !p_.has_partner(r, c)) return;
  const Message mine = p_.message(r, c);
  auto& pending = op == trace::Op::send ? s.sends[mine.dest] : s.receives[r];
  pending.insert(std::lower_bound(pending.begin(), pending.end(), mine), mine);
  match_forced(s, mine.dest, ready);
  if (op == trace::Op::send) ready.push_back(mine.dest);  // it may be in a probe
}

void ScheduleMachine::arrive(ScheduleState& s, const SchedulePrograms::Instance& m,
                             std::vector<std::uint32_t>& ready) {
  // A collective can complete only when the last of the slowest members arrives. Any other arrival
  // costs O(1), which matters for large groups.
  auto& issued = s.issued[m.group];
  auto& frontier = s.frontiers[m.group];
  if (issued[m.member]++ != frontier.least || --frontier.members > 0) return;
  frontier.least = *std::min_element(issued.begin(), issued.end());
  frontier.members =
      static_cast<std::uint32_t>(std::count(issued.begin(), issued.end(), frontier.least));
  work_ += issued.size();
  for (const Stream& stream : p_.groups()[m.group].streams) ready.push_back(stream.rank_index);
}

const Message* ScheduleMachine::first_receive_for(const ScheduleState& s, const Message& send) {
  for (const Message& receive : s.receives[send.dest]) {
    ++work_;
    if (takes(receive, send)) return &receive;
  }
  return nullptr;
}

const Message* ScheduleMachine::first_send_for(const ScheduleState& s, const Message& receive,
                                               std::uint32_t sender) {
  const auto& sends = s.sends[receive.dest];
  Message first;
  first.rank = sender;
  for (auto i = std::lower_bound(sends.begin(), sends.end(), first);
       i != sends.end() && i->rank == sender; ++i) {
    ++work_;
    if (takes(receive, *i)) return &*i;
  }
  return nullptr;
}

void ScheduleMachine::match_forced(ScheduleState& s, std::uint32_t dest,
                                   std::vector<std::uint32_t>& ready) {
  for (std::size_t i = 0; i < s.receives[dest].size();) {
    const Message receive = s.receives[dest][i];
    const Message* send = receive.source == Message::kAnySource
                              ? nullptr
                              : first_send_for(s, receive, receive.source);
    const Message* first = send == nullptr ? nullptr : first_receive_for(s, *send);
    if (first != nullptr && first->call == receive.call) {
      pair(s, receive, Message(*send), ready);
      i = 0;  // the match may free an earlier receive
    } else {
      ++i;
    }
  }
}

void ScheduleMachine::pair(ScheduleState& s, const Message& receive, const Message& send,
                           std::vector<std::uint32_t>& ready) {
  const auto remove = [](std::vector<Message>& list, const Message& m) {
    list.erase(std::lower_bound(list.begin(), list.end(), m));
  };
  remove(s.receives[receive.rank], receive);
  remove(s.sends[receive.rank], send);
  ready.push_back(receive.rank);
  ready.push_back(send.rank);
  const trace::Tables& tables = p_.run().tables;
  const trace::Call& from = p_.call(send.rank, send.call);
  const trace::Call& to = p_.call(receive.rank, receive.call);
  if (!misfit_ &&
      message_differs(tables.signatures[from.signature], tables.signatures[to.signature])) {
    misfit_ = WildcardMatch{receive.rank, receive.call, send.rank, send.call};
  }
}

std::vector<ScheduleChoice> ScheduleMachine::choices_of_receive(const ScheduleState& s,
                                                                std::uint32_t dest,
                                                                std::size_t index, bool& closed) {
  const Message& receive = s.receives[dest][index];
  std::vector<ScheduleChoice> out;
  bool others_may_come = false;
  for (const std::uint32_t sender : p_.senders_to(receive)) {
    const Message* send = first_send_for(s, receive, sender);
    const Message* first = send == nullptr ? nullptr : first_receive_for(s, *send);
    if (first != nullptr && first->call == receive.call) {
      out.push_back({{dest, receive.call, sender, send->call}, false});
    } else if (send != nullptr || p_.may_send(sender, s.next[sender], receive)) {
      others_may_come = true;
    }
  }
  closed = !others_may_come;
  for (ScheduleChoice& c : out) c.contested = out.size() > 1 || others_may_come;
  return out;
}

bool ScheduleMachine::absorbs_all(const ScheduleState& s, std::uint32_t dest,
                                  const Message& receive) {
  if (!p_.uniform(receive)) return false;
  // Count the receives: those posted, and those that follow without any other call in between.
  std::size_t receives = 0;
  const auto in_run = [&](const Message& m) {
    return m.source == Message::kAnySource && m.tag == receive.tag && m.group == receive.group;
  };
  for (const Message& pending : s.receives[dest]) {
    if (pending.group == receive.group && !in_run(pending)) return false;
    receives += in_run(pending) ? 1U : 0U;
  }
  const auto& actions = p_.ranks()[dest].actions;
  for (std::size_t a = s.next[dest]; a < actions.size(); ++a) {
    ++work_;
    const trace::Op op = p_.op(dest, actions[a].call);
    if (op != trace::Op::recv && op != trace::Op::recv_any) break;
    if (!in_run(p_.message(dest, actions[a].call))) break;
    if (!actions[a].blocks) ++receives;
  }
  // Count the messages. If there are more than receives, it matters which of them are left over.
  std::size_t messages = 0;
  for (const std::uint32_t sender : p_.senders_to(receive)) {
    messages += messages_of(s, sender, receive, receives - messages);
    if (messages > receives) return false;
  }
  return true;
}

std::size_t ScheduleMachine::messages_of(const ScheduleState& s, std::uint32_t sender,
                                         const Message& receive, std::size_t enough) {
  std::size_t out = 0;
  for (const Message& send : s.sends[receive.dest]) {
    ++work_;
    out += send.rank == sender && takes(receive, send) ? 1U : 0U;
  }
  const auto& actions = p_.ranks()[sender].actions;
  for (std::size_t a = s.next[sender];
       a < actions.size() && out <= enough && sender != receive.dest; ++a) {
    ++work_;
    const std::uint32_t c = actions[a].call;
    const trace::Op op = p_.op(sender, c);
    if (!trace::is_point_to_point(op)) {
      if (actions[a].blocks && waits_for(s, p_.instance(sender, c), receive.dest)) break;
    } else if (op == trace::Op::send && !actions[a].blocks && p_.has_partner(sender, c)) {
      out += takes(receive, p_.message(sender, c)) ? 1U : 0U;
    }
  }
  return out;
}

bool ScheduleMachine::waits_for(const ScheduleState& s, const SchedulePrograms::Instance& m,
                                std::uint32_t rank) {
  if (m.group == UINT32_MAX || !p_.groups()[m.group].absent.empty()) return false;
  const GroupStreams& group = p_.groups()[m.group];
  const Stream* const stream = stream_of(group, rank);
  if (stream == nullptr) return false;
  return s.issued[m.group][static_cast<std::size_t>(stream - group.streams.data())] <= m.index;
}

bool ScheduleMachine::may_be_let_go(const ScheduleState& s, std::uint32_t r,
                                    const std::vector<bool>& may_move) {
  const std::uint32_t c = p_.ranks()[r].actions[s.next[r]].call;
  if (!trace::is_point_to_point(p_.op(r, c))) {
    const auto m = p_.instance(r, c);
    if (m.group == UINT32_MAX) return true;
    const auto& streams = p_.groups()[m.group].streams;
    for (std::uint32_t i = 0; i < streams.size(); ++i) {
      if (s.issued[m.group][i] <= m.index && !may_move[streams[i].rank_index]) return false;
    }
    return true;
  }
  const Message mine = p_.message(r, c);
  const std::uint32_t partner = p_.op(r, c) == trace::Op::send ? mine.dest : mine.source;
  if (partner != Message::kAnySource) return may_move[partner];
  for (std::uint32_t other = 0; other < may_move.size(); ++other) {
    if (other != r && may_move[other]) return true;
  }
  return false;
}

}  // namespace lockstep::verify
