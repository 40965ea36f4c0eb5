#include "verify/schedules/search.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_set>
#include <utility>

namespace lockstep::verify {

namespace {

Schedule as_schedule(const std::vector<ScheduleChoice>& path) {
  Schedule out;
  for (const ScheduleChoice& c : path) out.matches.push_back(c.match);
  return out;
}

// The peer of the first point-to-point call that the rank posts after the receive completes;
// nothing for another receive from any source. A server that answers its client addresses the
// sender: recv(any), send(to that one).
std::optional<std::uint32_t> addressed_after(const SchedulePrograms& p, std::uint32_t rank,
                                             std::uint32_t receive) {
  const auto& actions = p.ranks()[rank].actions;
  bool done = false;
  for (const ScheduleAction& a : actions) {
    if (a.blocks && a.call == receive) done = true;
    if (!done || a.blocks || !trace::is_point_to_point(p.op(rank, a.call))) continue;
    if (p.is_wildcard(rank, a.call) || !p.has_partner(rank, a.call)) return std::nullopt;
    const Message m = p.message(rank, a.call);
    return p.op(rank, a.call) == trace::Op::send ? m.dest : m.source;
  }
  return std::nullopt;
}

// What a walk over schedules looks for. The walk is depth first over the states at rest of a
// ScheduleMachine, and enters no state twice.
class ScheduleVisitor {
 public:
  virtual ~ScheduleVisitor() = default;

  // Whether a match may be chosen; and sorts the choices of a state, the first to be tried first.
  virtual bool allows(const WildcardMatch& match) const = 0;
  virtual void order(std::vector<ScheduleChoice>& choices) const = 0;

  // Called for a message that does not fit its receive, and for a state without further choices.
  // `path`: the choices that lead there.
  virtual void misfit(const WildcardMatch& match, const std::vector<ScheduleChoice>& path) = 0;
  virtual void end(ScheduleMachine& machine, const ScheduleState& state,
                   const std::vector<ScheduleChoice>& path) = 0;

  // Whether the walk may end.
  virtual bool done() const = 0;
};

// Looks for one schedule that agrees with the record.
class FittingVisitor final : public ScheduleVisitor {
 public:
  FittingVisitor(const SchedulePrograms& programs, ScheduleSearch& result)
      : p_(programs), result_(result) {}

  // A match must agree with the sender and tag that the trace recorded, if it did.
  bool allows(const WildcardMatch& m) const override {
    const trace::Call& receive = p_.call(m.receiver, m.receive);
    if (receive.values == 0) return true;
    const trace::CallValues& values = p_.run().ranks[m.receiver].values[receive.values - 1];
    if (values.from != trace::kNone && p_.run().ranks[m.sender].rank.value != values.from)
      return false;
    return values.fromtag == trace::kNoPeerTag || p_.call(m.sender, m.send).ptag == values.fromtag;
  }
  // The sender that the rank addresses next is the most likely one.
  void order(std::vector<ScheduleChoice>& choices) const override {
    std::stable_partition(choices.begin(), choices.end(), [&](const ScheduleChoice& c) {
      return addressed_after(p_, c.match.receiver, c.match.receive) == c.match.sender;
    });
  }
  void misfit(const WildcardMatch&, const std::vector<ScheduleChoice>&) override {}
  void end(ScheduleMachine& machine, const ScheduleState& state,
           const std::vector<ScheduleChoice>& path) override {
    if (!machine.fits_record(state)) return;
    result_.fitting = as_schedule(path);
    for (const ScheduleChoice& c : path) {
      if (c.contested) result_.contested.push_back(c.match);
    }
    done_ = true;
  }
  bool done() const override { return done_; }

 private:
  const SchedulePrograms& p_;
  ScheduleSearch& result_;
  bool done_ = false;
};

// Tries all schedules, but keeps the senders on which the recorded calls depend.
class AllVisitor final : public ScheduleVisitor {
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

  bool allows(const WildcardMatch& m) const override {
    const auto kept = kept_.find({m.receiver, m.receive});
    return kept == kept_.end() || kept->second == m.sender;
  }
  void order(std::vector<ScheduleChoice>&) const override {}
  void misfit(const WildcardMatch& match, const std::vector<ScheduleChoice>& path) override {
    if (result_.differing) return;
    result_.differing = as_schedule(path);
    result_.misfit = match;
  }
  void end(ScheduleMachine& machine, const ScheduleState& state,
           const std::vector<ScheduleChoice>& path) override {
    auto& found = machine.has_stuck(state) ? result_.stuck : result_.ending;
    if (!found) found = as_schedule(path);
  }
  // One stuck schedule and one that ends are a race; more of either add nothing.
  bool done() const override { return result_.stuck && result_.ending; }

 private:
  ScheduleSearch& result_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> kept_;
};

constexpr std::uint32_t kNoNode = UINT32_MAX;
constexpr std::size_t kStateBytes = std::size_t{256} << 20U;  // of all states kept at once

// A state's hash, 128 bits in two independent halves. With at most 50,000 states, a collision is
// less likely than a hardware fault.
struct StateDigest {
  std::uint64_t a = 0x9E3779B97F4A7C15ULL, b = 0xD1B54A32D192ED03ULL;
  void add(std::uint64_t value) {
    a = (a ^ value) * 0xBF58476D1CE4E5B9ULL;
    a ^= a >> 29U;
    b = (b + value) * 0x94D049BB133111EBULL;
    b ^= b >> 32U;
  }
  friend bool operator==(const StateDigest&, const StateDigest&) = default;
};
struct DigestHash {
  std::size_t operator()(const StateDigest& d) const noexcept { return d.a; }
};

// Hashes positions and open messages. `issued` and the frontiers follow from `next`.
StateDigest digest(const ScheduleState& state) {
  StateDigest out;
  for (const std::uint32_t n : state.next) out.add(n);
  for (const auto* side : {&state.sends, &state.receives}) {
    for (const auto& list : *side) {
      // The highest bit, which no message has, marks a length: {1}, {2, 3} and {1, 2}, {3} differ.
      out.add(list.size() | 1ULL << 63U);
      for (const Message& m : list) out.add(std::uint64_t{m.rank} << 32U | m.call);
    }
  }
  return out;
}

// The depth-first walk. Frames are the states on the current path that have untried choices; nodes
// record how each state was reached, so that a path can be read off backwards.
class Walk {
 public:
  Walk(ScheduleMachine& machine, std::size_t state_limit, ScheduleVisitor& visitor)
      : machine_(machine),
        state_limit_(state_limit),
        visitor_(visitor),
        allowed_([&visitor](const WildcardMatch& m) { return visitor.allows(m); }) {}

  // False where a bound ended the walk.
  bool run() {
    ScheduleState start = machine_.start();
    machine_.settle(start, everybody(start));
    if (!explore(std::move(start), kNoNode)) return false;
    while (!frames_.empty() && !visitor_.done()) {
      Frame& top = frames_.back();
      if (top.tried == top.choices.size()) {
        kept_ -= top.bytes;
        frames_.pop_back();
        continue;
      }
      const ScheduleChoice choice = top.choices[top.tried++];
      const std::uint32_t node = top.node;
      // The last choice takes the state itself instead of a copy.
      const bool last = top.tried == top.choices.size();
      ScheduleState next = last ? std::move(top.state) : top.state;
      machine_.charge(top.bytes / 64);  // copying counts as work, too: one step per cache line
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
  static std::vector<std::uint32_t> everybody(const ScheduleState& state) {
    std::vector<std::uint32_t> out(state.next.size());
    std::iota(out.begin(), out.end(), 0U);
    return out;
  }

  struct Node {  // how a state was reached
    std::uint32_t parent;
    ScheduleChoice choice;
  };
  struct Frame {
    ScheduleState state;
    std::uint32_t node;
    std::vector<ScheduleChoice> choices;
    std::size_t tried = 0;
    std::size_t bytes = 0;
  };

  std::uint32_t apply(ScheduleState& state, const ScheduleChoice& choice, std::uint32_t parent) {
    nodes_.push_back({parent, choice});
    const auto node = static_cast<std::uint32_t>(nodes_.size() - 1);
    std::vector<std::uint32_t> ready;
    machine_.take(state, choice.match, ready);
    machine_.settle(state, std::move(ready));
    return node;
  }

  // Follows the state until it branches or ends. False at a bound.
  bool explore(ScheduleState state, std::uint32_t node) {
    while (!machine_.exhausted()) {
      if (const auto misfit = machine_.take_misfit()) visitor_.misfit(*misfit, path(node));
      std::vector<ScheduleChoice> choices = machine_.choices(state, allowed_);
      if (choices.empty()) {
        visitor_.end(machine_, state, path(node));
        return true;
      }
      visitor_.order(choices);
      // A single choice needs no frame and no lookup.
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

  std::vector<ScheduleChoice> path(std::uint32_t node) const {
    std::vector<ScheduleChoice> out;
    for (; node != kNoNode; node = nodes_[node].parent) out.push_back(nodes_[node].choice);
    std::reverse(out.begin(), out.end());
    return out;
  }

  ScheduleMachine& machine_;
  const std::size_t state_limit_;
  ScheduleVisitor& visitor_;
  const ScheduleMachine::Allowed allowed_;
  std::vector<Node> nodes_;
  std::vector<Frame> frames_;
  std::unordered_set<StateDigest, DigestHash> seen_;
  std::size_t kept_ = 0;  // bytes of the states in frames_
};

// Walks from the start. False where a limit ended it: the machine's work, `state_limit` states with
// more than one choice, or kStateBytes.
bool walk_schedules(ScheduleMachine& machine, std::size_t state_limit, ScheduleVisitor& visitor) {
  return Walk(machine, state_limit, visitor).run();
}

}  // namespace

WildcardChoices choices_of(const Schedule& schedule) {
  WildcardChoices out;
  for (const WildcardMatch& m : schedule.matches) out.sender[{m.receiver, m.receive}] = m.sender;
  out.others_wait = true;
  return out;
}

ScheduleSearch search_schedules(const trace::Run& run, const std::vector<GroupStreams>& groups,
                                CallSemantics semantics, const SearchOptions& options) {
  ScheduleSearch out;
  const SchedulePrograms programs(run, groups, semantics, options.buffered_sends);
  out.has_wildcards = programs.has_wildcards();
  if (!out.has_wildcards) return out;
  if (options.fitting != nullptr) {
    out.fitting = *options.fitting;
  } else if (was_recorded(run)) {
    ScheduleMachine machine(programs, options.work);
    FittingVisitor visitor(programs, out);
    walk_schedules(machine, options.states, visitor);
  }
  const bool ended_well =
      std::all_of(run.ranks.begin(), run.ranks.end(),
                  [](const trace::RankTrace& t) { return t.end == trace::End::clean; });
  ScheduleMachine machine(programs, options.work);
  AllVisitor visitor(programs, ended_well, out);
  const bool finished = walk_schedules(machine, options.states, visitor);
  out.whole = programs.whole();
  out.complete = finished && out.whole;
  return out;
}

}  // namespace lockstep::verify
