#include "verify/schedule_search.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "verify/schedule_program.h"

namespace lockstep {

namespace {

constexpr std::uint32_t kNoNode = UINT32_MAX;
constexpr std::size_t kStateBytes = std::size_t{256} << 20U;  // of all states kept at once

// How far everybody is, and what has not met.
struct State {
  std::vector<std::uint32_t> next;                 // by rank: the action to take
  std::vector<std::vector<std::uint32_t>> issued;  // by group and member: its collectives so far
  struct Frontier {                                // the members that have issued fewest
    std::uint32_t least = 0, members = 0;
  };
  std::vector<Frontier> frontiers;             // by group
  std::vector<std::vector<Message>> sends;     // by receiver, ascending
  std::vector<std::vector<Message>> receives;  // by receiver, ascending: in the order of posting

  std::size_t bytes() const {
    std::size_t out =
        next.size() * 4 + frontiers.size() * 8 + (sends.size() + receives.size()) * 24;
    for (const auto& members : issued) out += 24 + members.size() * 4;
    for (const auto& list : sends) out += list.size() * sizeof(Message);
    for (const auto& list : receives) out += list.size() * sizeof(Message);
    return out;
  }
};

// Two independent 64-bit hashes: with the number of states bounded, a collision of both is less
// likely than a fault of the machine.
struct Digest {
  std::uint64_t a = 0x9E3779B97F4A7C15ULL, b = 0xD1B54A32D192ED03ULL;
  void add(std::uint64_t value) {
    a = (a ^ value) * 0xBF58476D1CE4E5B9ULL;
    a ^= a >> 29U;
    b = (b + value) * 0x94D049BB133111EBULL;
    b ^= b >> 32U;
  }
  friend bool operator==(const Digest&, const Digest&) = default;
};
struct DigestHash {
  std::size_t operator()(const Digest& d) const noexcept { return d.a; }
};

// `issued` and the frontiers follow from `next`.
Digest digest(const State& state) {
  Digest out;
  for (const std::uint32_t n : state.next) out.add(n);
  for (const auto* side : {&state.sends, &state.receives}) {
    for (const auto& list : *side) {
      out.add(list.size() | 1ULL << 63U);
      for (const Message& m : list) out.add(std::uint64_t{m.rank} << 32U | m.call);
    }
  }
  return out;
}

// A match that a state at rest leaves open, and whether the receive had others.
struct Choice {
  WildcardMatch match;
  bool contested = false;
};

class Machine {
 public:
  Machine(const SchedulePrograms& programs, std::uint64_t work_limit)
      : p_(programs), work_limit_(work_limit) {}

  State start() const {
    State s;
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

  // Lets everything happen that no choice decides.
  void settle(State& s, std::vector<std::uint32_t> ready) {
    while (!ready.empty() && !exhausted()) {
      const std::uint32_t r = ready.back();
      ready.pop_back();
      advance(s, r, ready);
    }
  }

  void take(State& s, const WildcardMatch& m, std::vector<std::uint32_t>& ready) {
    const Message send = p_.message(m.sender, m.send);
    const Message receive = p_.message(m.receiver, m.receive);
    meet(s, receive, send, ready);
    match_forced(s, m.receiver, ready);
  }

  // The choices to try in a state at rest; empty where it is an end.
  // `allowed(match)` filters what may be chosen at all.
  template <class Allowed>
  std::vector<Choice> choices(const State& s, const Allowed& allowed) {
    std::vector<Choice> all;
    for (std::uint32_t dest = 0; dest < s.receives.size(); ++dest) {
      const auto& receives = s.receives[dest];
      for (std::size_t i = 0; i < receives.size(); ++i) {
        if (receives[i].source != Message::kAnySource) continue;
        bool closed = false;
        std::vector<Choice> mine = choices_of_receive(s, dest, i, closed);
        std::erase_if(mine, [&](const Choice& c) { return !allowed(c.match); });
        if (mine.empty()) continue;
        if (p_.indifferent(receives[i]) || absorbs_all(s, dest, receives[i])) {
          mine.resize(1);
          return mine;
        }
        if (closed) return mine;
        all.insert(all.end(), mine.begin(), mine.end());
      }
    }
    return all;
  }

  // Whether some rank can never go on, whatever follows behind the ends that are not known: the
  // complement of the least fixpoint of "may still be let go".
  bool has_stuck(const State& s) {
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

  // Whether everybody passed what its record shows it passed, and hangs where it hung.
  bool fits_record(const State& s) const {
    for (std::size_t r = 0; r < s.next.size(); ++r) {
      const ScheduleProgram& program = p_.ranks()[r];
      if (s.next[r] < program.passed) return false;
      if (program.must_hang && s.next[r] == program.actions.size()) return false;
    }
    return true;
  }

  bool exhausted() const { return work_ > work_limit_; }
  std::uint64_t work() const { return work_; }
  void charge(std::uint64_t work) { work_ += work; }

  // The first match in which the message does not fit, since the last call of this.
  std::optional<WildcardMatch> take_misfit() { return std::exchange(misfit_, std::nullopt); }

 private:
  bool at_end(const State& s, std::uint32_t r) const {
    return s.next[r] == p_.ranks()[r].actions.size();
  }

  void advance(State& s, std::uint32_t r, std::vector<std::uint32_t>& ready) {
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

  bool passes(const State& s, std::uint32_t r, std::uint32_t c) {
    const Op op = p_.op(r, c);
    if (!is_point_to_point(op)) {
      const auto m = p_.meeting(r, c);
      if (m.group == UINT32_MAX || !p_.groups()[m.group].absent.empty()) return true;
      return s.frontiers[m.group].least > m.place;
    }
    if (!p_.has_partner(r, c)) return true;
    const Message mine = p_.message(r, c);
    if (op == Op::probe) return sees_message(s, mine);
    if (op == Op::send && p_.returns_at_once(r, c)) return true;
    const auto& pending = op == Op::send ? s.sends[mine.dest] : s.receives[r];
    return !std::binary_search(pending.begin(), pending.end(), mine);
  }

  // Whether a message waits for the probe that no posted receive would take.
  bool sees_message(const State& s, const Message& probe) {
    for (const Message& send : s.sends[probe.dest]) {
      ++work_;
      if (takes(probe, send) && first_receive_for(s, send) == nullptr) return true;
    }
    return false;
  }

  void post(State& s, std::uint32_t r, std::uint32_t c, std::vector<std::uint32_t>& ready) {
    const Op op = p_.op(r, c);
    if (!is_point_to_point(op)) {
      const auto m = p_.meeting(r, c);
      if (m.group != UINT32_MAX) arrive(s, m, ready);
      return;
    }
    if (op == Op::probe || !p_.has_partner(r, c)) return;
    const Message mine = p_.message(r, c);
    auto& pending = op == Op::send ? s.sends[mine.dest] : s.receives[r];
    pending.insert(std::lower_bound(pending.begin(), pending.end(), mine), mine);
    match_forced(s, mine.dest, ready);
    if (op == Op::send) ready.push_back(mine.dest);  // it may be in a probe
  }

  void arrive(State& s, const SchedulePrograms::Meeting& m, std::vector<std::uint32_t>& ready) {
    auto& issued = s.issued[m.group];
    auto& frontier = s.frontiers[m.group];
    if (issued[m.member]++ != frontier.least || --frontier.members > 0) return;
    frontier.least = *std::min_element(issued.begin(), issued.end());
    frontier.members =
        static_cast<std::uint32_t>(std::count(issued.begin(), issued.end(), frontier.least));
    work_ += issued.size();
    for (const Stream& stream : p_.groups()[m.group].streams) ready.push_back(stream.rank_index);
  }

  // The receive that takes the message as soon as it is free to.
  const Message* first_receive_for(const State& s, const Message& send) {
    for (const Message& receive : s.receives[send.dest]) {
      ++work_;
      if (takes(receive, send)) return &receive;
    }
    return nullptr;
  }

  // The first message from this sender that the receive takes.
  const Message* first_send_for(const State& s, const Message& receive, std::uint32_t sender) {
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

  // Receives that name their sender take its first message for them, unless a receive posted
  // earlier takes that one.
  void match_forced(State& s, std::uint32_t dest, std::vector<std::uint32_t>& ready) {
    for (std::size_t i = 0; i < s.receives[dest].size();) {
      const Message receive = s.receives[dest][i];
      const Message* send = receive.source == Message::kAnySource
                                ? nullptr
                                : first_send_for(s, receive, receive.source);
      const Message* first = send == nullptr ? nullptr : first_receive_for(s, *send);
      if (first != nullptr && first->call == receive.call) {
        meet(s, receive, Message(*send), ready);
        i = 0;
      } else {
        ++i;
      }
    }
  }

  void meet(State& s, const Message& receive, const Message& send,
            std::vector<std::uint32_t>& ready) {
    const auto remove = [](std::vector<Message>& list, const Message& m) {
      list.erase(std::lower_bound(list.begin(), list.end(), m));
    };
    remove(s.receives[receive.rank], receive);
    remove(s.sends[receive.rank], send);
    ready.push_back(receive.rank);
    ready.push_back(send.rank);
    const Tables& tables = p_.run().tables;
    const Call& from = p_.call(send.rank, send.call);
    const Call& to = p_.call(receive.rank, receive.call);
    if (!misfit_ &&
        message_differs(tables.signatures[from.signature], tables.signatures[to.signature])) {
      misfit_ = WildcardMatch{receive.rank, receive.call, send.rank, send.call};
    }
  }

  // `closed`: no other message can ever become one of the choices.
  std::vector<Choice> choices_of_receive(const State& s, std::uint32_t dest, std::size_t index,
                                         bool& closed) {
    const Message& receive = s.receives[dest][index];
    std::vector<Choice> out;
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
    for (Choice& c : out) c.contested = out.size() > 1 || others_may_come;
    return out;
  }

  // Whether the receive begins a run in which its rank does nothing but take messages from anybody,
  // at least as many as can come during the run: then all of them are taken, in whatever order.
  bool absorbs_all(const State& s, std::uint32_t dest, const Message& receive) {
    if (!p_.uniform(receive)) return false;
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
      const Op op = p_.op(dest, actions[a].call);
      if (op != Op::recv && op != Op::recv_any) break;
      if (!in_run(p_.message(dest, actions[a].call))) break;
      if (!actions[a].blocks) ++receives;
    }
    std::size_t messages = 0;
    for (const std::uint32_t sender : p_.senders_to(receive)) {
      messages += messages_of(s, sender, receive, receives - messages);
      if (messages > receives) return false;
    }
    return true;
  }

  // The messages for the receive that the sender has there, or may send before it has to wait for
  // the receiver in a collective. Stops behind `enough`.
  std::size_t messages_of(const State& s, std::uint32_t sender, const Message& receive,
                          std::size_t enough) {
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
      const Op op = p_.op(sender, c);
      if (!is_point_to_point(op)) {
        if (actions[a].blocks && waits_for(s, p_.meeting(sender, c), receive.dest)) break;
      } else if (op == Op::send && !actions[a].blocks && p_.has_partner(sender, c)) {
        out += takes(receive, p_.message(sender, c)) ? 1U : 0U;
      }
    }
    return out;
  }

  // Whether the meeting lacks that rank.
  bool waits_for(const State& s, const SchedulePrograms::Meeting& m, std::uint32_t rank) {
    if (m.group == UINT32_MAX || !p_.groups()[m.group].absent.empty()) return false;
    const auto& streams = p_.groups()[m.group].streams;
    const auto at = std::lower_bound(
        streams.begin(), streams.end(), rank,
        [](const Stream& stream, std::uint32_t r) { return stream.rank_index < r; });
    if (at == streams.end() || at->rank_index != rank) return false;
    return s.issued[m.group][static_cast<std::size_t>(at - streams.begin())] <= m.place;
  }

  bool may_be_let_go(const State& s, std::uint32_t r, const std::vector<bool>& may_move) {
    const std::uint32_t c = p_.ranks()[r].actions[s.next[r]].call;
    if (!is_point_to_point(p_.op(r, c))) {
      const auto m = p_.meeting(r, c);
      if (m.group == UINT32_MAX) return true;
      const auto& streams = p_.groups()[m.group].streams;
      for (std::uint32_t i = 0; i < streams.size(); ++i) {
        if (s.issued[m.group][i] <= m.place && !may_move[streams[i].rank_index]) return false;
      }
      return true;
    }
    const Message mine = p_.message(r, c);
    const std::uint32_t partner = p_.op(r, c) == Op::send ? mine.dest : mine.source;
    if (partner != Message::kAnySource) return may_move[partner];
    for (std::uint32_t other = 0; other < may_move.size(); ++other) {
      if (other != r && may_move[other]) return true;
    }
    return false;
  }

  const SchedulePrograms& p_;
  const std::uint64_t work_limit_;
  std::uint64_t work_ = 0;
  std::optional<WildcardMatch> misfit_;
};

// A depth-first walk over the states at rest. `Visitor` says which matches are allowed, sees every
// end, and says when to stop.
template <class Visitor>
class Walk {
 public:
  Walk(Machine& machine, std::size_t state_limit, Visitor& visitor)
      : machine_(machine), state_limit_(state_limit), visitor_(visitor) {}

  // False where a bound ended the walk.
  bool run(State start, const std::vector<std::uint32_t>& everybody) {
    machine_.settle(start, everybody);
    if (!explore(std::move(start), kNoNode)) return false;
    while (!frames_.empty() && !visitor_.done()) {
      Frame& top = frames_.back();
      if (top.tried == top.choices.size()) {
        kept_ -= top.bytes;
        frames_.pop_back();
        continue;
      }
      const Choice choice = top.choices[top.tried++];
      const std::uint32_t node = top.node;
      const bool last = top.tried == top.choices.size();
      State next = last ? std::move(top.state) : top.state;
      machine_.charge(top.bytes / 64);
      if (last) {
        kept_ -= top.bytes;
        frames_.pop_back();
      }
      const std::uint32_t child = apply(next, choice, node);
      if (!explore(std::move(next), child)) return false;
    }
    return !machine_.exhausted();
  }

 private:
  struct Node {  // how a state was reached
    std::uint32_t parent;
    Choice choice;
  };
  struct Frame {
    State state;
    std::uint32_t node;
    std::vector<Choice> choices;
    std::size_t tried = 0;
    std::size_t bytes = 0;
  };

  std::uint32_t apply(State& state, const Choice& choice, std::uint32_t parent) {
    nodes_.push_back({parent, choice});
    const auto node = static_cast<std::uint32_t>(nodes_.size() - 1);
    std::vector<std::uint32_t> ready;
    machine_.take(state, choice.match, ready);
    machine_.settle(state, std::move(ready));
    return node;
  }

  // Follows the state until it branches or ends. False at a bound.
  bool explore(State state, std::uint32_t node) {
    while (!machine_.exhausted()) {
      if (const auto misfit = machine_.take_misfit()) visitor_.misfit(*misfit, path(node));
      std::vector<Choice> choices =
          machine_.choices(state, [&](const WildcardMatch& m) { return visitor_.allows(m); });
      if (choices.empty()) {
        visitor_.end(machine_, state, path(node));
        return true;
      }
      visitor_.order(choices);
      if (choices.size() == 1) {
        node = apply(state, choices[0], node);
        continue;
      }
      if (!seen_.insert(digest(state)).second) return true;
      const std::size_t bytes = state.bytes();
      kept_ += bytes;
      if (seen_.size() > state_limit_ || kept_ > kStateBytes) return false;
      frames_.push_back({std::move(state), node, std::move(choices), 0, bytes});
      return true;
    }
    return false;
  }

  std::vector<Choice> path(std::uint32_t node) const {
    std::vector<Choice> out;
    for (; node != kNoNode; node = nodes_[node].parent) out.push_back(nodes_[node].choice);
    std::reverse(out.begin(), out.end());
    return out;
  }

  Machine& machine_;
  const std::size_t state_limit_;
  Visitor& visitor_;
  std::vector<Node> nodes_;
  std::vector<Frame> frames_;
  std::unordered_set<Digest, DigestHash> seen_;
  std::size_t kept_ = 0;  // bytes of the states in frames_
};

Schedule as_schedule(const std::vector<Choice>& path) {
  Schedule out;
  for (const Choice& c : path) out.matches.push_back(c.match);
  return out;
}

// The rank that the first point-to-point call addresses which the rank posts behind the receive's
// completion, if it is not a receive from any source again.
std::optional<std::uint32_t> addressed_after(const SchedulePrograms& p, std::uint32_t rank,
                                             std::uint32_t receive) {
  const auto& actions = p.ranks()[rank].actions;
  bool done = false;
  for (const ScheduleAction& a : actions) {
    if (a.blocks && a.call == receive) done = true;
    if (!done || a.blocks || !is_point_to_point(p.op(rank, a.call))) continue;
    if (p.is_wildcard(rank, a.call) || !p.has_partner(rank, a.call)) return std::nullopt;
    const Message m = p.message(rank, a.call);
    return p.op(rank, a.call) == Op::send ? m.dest : m.source;
  }
  return std::nullopt;
}

// Looks for a schedule like the recorded one.
class FittingVisitor {
 public:
  FittingVisitor(const SchedulePrograms& programs, ScheduleSearch& result)
      : p_(programs), result_(result) {}

  bool allows(const WildcardMatch& m) const {
    const Call& receive = p_.call(m.receiver, m.receive);
    if (receive.values == 0) return true;
    const CallValues& values = p_.run().ranks[m.receiver].values[receive.values - 1];
    if (values.from != kNone && p_.run().ranks[m.sender].rank.value != values.from) return false;
    return values.fromtag == kNoPeerTag || p_.call(m.sender, m.send).ptag == values.fromtag;
  }
  // The sender to which the rank turns next is the likeliest.
  void order(std::vector<Choice>& choices) const {
    std::stable_partition(choices.begin(), choices.end(), [&](const Choice& c) {
      return addressed_after(p_, c.match.receiver, c.match.receive) == c.match.sender;
    });
  }
  void misfit(const WildcardMatch&, const std::vector<Choice>&) const {}
  void end(Machine& machine, const State& state, const std::vector<Choice>& path) {
    if (!machine.fits_record(state)) return;
    result_.fitting = as_schedule(path);
    for (const Choice& c : path) {
      if (c.contested) result_.contested.push_back(c.match);
    }
    done_ = true;
  }
  bool done() const { return done_; }

 private:
  const SchedulePrograms& p_;
  ScheduleSearch& result_;
  bool done_ = false;
};

// Tries all schedules, but keeps the senders by which the recorded program was steered.
class AllVisitor {
 public:
  AllVisitor(const SchedulePrograms& programs, bool keep_steered, ScheduleSearch& result)
      : result_(result) {
    if (!keep_steered || !result.fitting) return;
    for (const WildcardMatch& m : result.fitting->matches) {
      if (addressed_after(programs, m.receiver, m.receive) != m.sender) continue;
      kept_[{m.receiver, m.receive}] = m.sender;
      result.steered.push_back(m.receiver);
    }
    std::sort(result.steered.begin(), result.steered.end());
    result.steered.erase(std::unique(result.steered.begin(), result.steered.end()),
                         result.steered.end());
  }

  bool allows(const WildcardMatch& m) const {
    const auto kept = kept_.find({m.receiver, m.receive});
    return kept == kept_.end() || kept->second == m.sender;
  }
  void order(std::vector<Choice>&) const {}
  void misfit(const WildcardMatch& match, const std::vector<Choice>& path) {
    if (result_.differing) return;
    result_.differing = as_schedule(path);
    result_.misfit = match;
  }
  void end(Machine& machine, const State& state, const std::vector<Choice>& path) {
    auto& found = machine.has_stuck(state) ? result_.stuck : result_.ending;
    if (!found) found = as_schedule(path);
  }
  // A stuck schedule beside one that ends says all there is to say.
  bool done() const { return result_.stuck && result_.ending; }

 private:
  ScheduleSearch& result_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> kept_;
};

}  // namespace

WildcardChoices choices_of(const Schedule& schedule) {
  WildcardChoices out;
  for (const WildcardMatch& m : schedule.matches) out.sender[{m.receiver, m.receive}] = m.sender;
  out.others_wait = true;
  return out;
}

ScheduleSearch search_schedules(const Run& run, const std::vector<GroupStreams>& groups,
                                CallSemantics semantics, const SearchOptions& options) {
  ScheduleSearch out;
  const SchedulePrograms programs(run, groups, semantics, options.buffered_sends);
  out.has_wildcards = programs.has_wildcards();
  if (!out.has_wildcards) return out;
  std::vector<std::uint32_t> everybody(run.ranks.size());
  for (std::uint32_t r = 0; r < everybody.size(); ++r) everybody[r] = r;
  if (options.fitting != nullptr) {
    out.fitting = *options.fitting;
  } else if (was_recorded(run)) {
    Machine machine(programs, options.work);
    FittingVisitor visitor(programs, out);
    Walk walk(machine, options.states, visitor);
    walk.run(machine.start(), everybody);
  }
  const bool ended_well = std::all_of(run.ranks.begin(), run.ranks.end(),
                                      [](const RankTrace& t) { return t.end == End::clean; });
  Machine machine(programs, options.work);
  AllVisitor visitor(programs, ended_well, out);
  Walk walk(machine, options.states, visitor);
  const bool finished = walk.run(machine.start(), everybody);
  out.whole = programs.whole();
  out.complete = finished && out.whole;
  return out;
}

}  // namespace lockstep
