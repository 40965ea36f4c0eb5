#include "sim/engine/shared_links.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"

namespace lockstep::sim {
namespace {

// Sums of rates are compared with capacities up to rounding.
constexpr double kRoom = 1 + 1e-9;
constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

CallsOnLinks::CallsOnLinks(const SharedLinks& links)
    : links_(links),
      users_(links.capacities.size()),
      wanted_(links.capacities.size()),
      link_round_(links.capacities.size()),
      link_index_(links.capacities.size()) {}

void CallsOnLinks::begin(Picos begin, Picos alone, std::uint32_t kind, double bytes,
                         std::uint32_t id) {
  LOCKSTEP_CHECK(begin >= now_, "a call begins in the past");
  future_.push({begin, alone, kind, bytes, id});
}

void CallsOnLinks::drop_stale_ends() {
  while (!ends_.empty() && (!calls_[ends_.top().call].is_active ||
                            calls_[ends_.top().call].version != ends_.top().version))
    ends_.pop();
}

std::optional<Picos> CallsOnLinks::next() {
  // Many calls begin at the same moment: let all of them begin before the links are shared.
  if (!future_.empty() && future_.top().begin == now_) return now_;
  share_dirty_links();
  drop_stale_ends();
  Picos out = Picos::forever();
  if (future_.empty() && ends_.empty()) return std::nullopt;
  if (!future_.empty()) out = future_.top().begin;
  if (!ends_.empty()) out = std::min(out, ends_.top().time);
  return out;
}

std::vector<CallsOnLinks::Ended> CallsOnLinks::advance() {
  const std::optional<Picos> time = next();
  std::vector<Ended> out;
  if (!time) return out;
  now_ = *time;
  end_calls(out);
  for (; !future_.empty() && future_.top().begin == now_; future_.pop()) begin_call(future_.top());
  std::sort(out.begin(), out.end(), [](const Ended& a, const Ended& b) { return a.id < b.id; });
  return out;
}

void CallsOnLinks::end_calls(std::vector<Ended>& out) {
  for (drop_stale_ends(); !ends_.empty() && ends_.top().time == now_; drop_stale_ends()) {
    const std::uint32_t call = ends_.top().call;
    ends_.pop();
    ActiveCall& active = calls_[call];
    out.push_back({active.id, active.begin, now_});
    const Picos took = now_ - active.begin;
    if (took > active.alone) {
      ++slowed_;
      if (active.alone.value > 0)
        most_slowed_ = std::max(most_slowed_, static_cast<double>(took.value) /
                                                  static_cast<double>(active.alone.value));
    }
    leave(call);
  }
}

void CallsOnLinks::begin_call(const FutureCall& future) {
  std::uint32_t call = 0;
  if (unused_.empty()) {
    call = static_cast<std::uint32_t>(calls_.size());
    calls_.emplace_back();
  } else {
    call = unused_.back();
    unused_.pop_back();
  }
  ActiveCall& active = calls_[call];
  // Keep two things of the call that was here before: the version, so that its ends stay stale,
  // and the memory.
  const std::uint32_t version = active.version + 1;
  std::vector<std::uint32_t> slots = std::move(active.slots);
  active = {};
  active.slots = std::move(slots);
  active.begin = active.updated = now_;
  active.alone = future.alone;
  active.end = now_ + future.alone;
  active.left = static_cast<double>(future.alone.value);
  active.kind = future.kind;
  active.id = future.id;
  active.version = version;
  active.is_active = true;
  // A call that takes no time, or has no bytes, uses no bandwidth.
  if (future.alone.value > 0 && future.bytes > 0)
    active.scale =
        std::min(future.bytes / future.alone.seconds(), 1 / links_.kinds[future.kind].busiest);
  ends_.push({active.end, call, version});
  enter(call);
}

bool CallsOnLinks::full(std::uint32_t link) const {
  return wanted_[link] > links_.capacities[link] * kRoom;
}

void CallsOnLinks::enter(std::uint32_t call) {
  ActiveCall& active = calls_[call];
  active.slots.clear();
  if (active.scale == 0) return;
  for (const CallTraffic::Use& use : links_.kinds[active.kind].uses) {
    ++visits_;
    const auto number = static_cast<std::uint32_t>(active.slots.size());
    active.slots.push_back(static_cast<std::uint32_t>(users_[use.link].size()));
    users_[use.link].push_back({call, number});
    wanted_[use.link] += use.bytes * active.scale;
    if (full(use.link)) dirty_.push_back(use.link);
  }
}

void CallsOnLinks::leave(std::uint32_t call) {
  ActiveCall& active = calls_[call];
  active.is_active = false;
  unused_.push_back(call);
  if (active.scale == 0) return;
  for (std::size_t u = 0; u < active.slots.size(); ++u) {
    ++visits_;
    const CallTraffic::Use& use = links_.kinds[active.kind].uses[u];
    if (full(use.link)) dirty_.push_back(use.link);
    std::vector<User>& users = users_[use.link];
    const std::uint32_t slot = active.slots[u];
    LOCKSTEP_CHECK(slot < users.size() && users[slot].call == call,
                   "a call leaves a link that it does not use");
    // The last user takes its slot.
    users[slot] = users.back();
    calls_[users[slot].call].slots[users[slot].use] = slot;
    users.pop_back();
    // An unused link starts from 0 again, so that rounding errors do not accumulate.
    wanted_[use.link] = users.empty() ? 0 : wanted_[use.link] - use.bytes * active.scale;
  }
}

CallsOnLinks::Component CallsOnLinks::component_of(std::uint32_t link) {
  Component out{{link}, {}};
  link_round_[link] = round_, link_index_[link] = 0;
  for (std::size_t i = 0; i < out.links.size(); ++i)
    for (const auto& [call, number] : users_[out.links[i]]) {
      ++visits_;
      ActiveCall& active = calls_[call];
      if (active.round == round_) continue;
      active.round = round_;
      out.calls.push_back(call);
      visits_ += links_.kinds[active.kind].uses.size();
      for (const CallTraffic::Use& use : links_.kinds[active.kind].uses) {
        if (link_round_[use.link] == round_ || !full(use.link)) continue;
        link_round_[use.link] = round_;
        link_index_[use.link] = static_cast<std::uint32_t>(out.links.size());
        out.links.push_back(use.link);
      }
    }
  return out;
}

// Progressive filling: the level, the rate of a port, rises for all calls until a link is full or a
// call has its full speed. The rates of these calls are then settled, and the level rises further
// for the others.
class CallsOnLinks::Filling {
 public:
  Filling(CallsOnLinks& on, Component component)
      : on_(on), component_(std::move(component)), settled_(component_.calls.size(), 0) {
    for (const std::uint32_t link : component_.links)
      links_.push_back({on_.links_.capacities[link], 0});
    std::vector<std::uint32_t>& calls = component_.calls;
    // By the rate of a port at full speed: calls that reach it first come first.
    std::sort(calls.begin(), calls.end(), [&](std::uint32_t a, std::uint32_t b) {
      return most(a) != most(b) ? most(a) < most(b) : on_.calls_[a].id < on_.calls_[b].id;
    });
    for (std::size_t m = 0; m < calls.size(); ++m) {
      on_.calls_[calls[m]].index = static_cast<std::uint32_t>(m);
      each_use(calls[m], [](Link& link, double flows) { link.flows += flows; });
    }
    for (std::size_t l = 0; l < links_.size(); ++l) put_level(l);
  }

  void run() {
    std::size_t slowest = 0;  // the first that is not settled
    double reached = 0;       // the level; the maximum, because rounding may lower a link's level
    for (;;) {
      while (slowest < settled_.size() && settled_[slowest] != 0) ++slowest;
      if (slowest == settled_.size()) return;
      while (!levels_.empty() && levels_.top().first != level_of(levels_.top().second))
        levels_.pop();
      const double level = levels_.empty() ? kNever : std::max(reached, levels_.top().first);
      const double full_speed = most(component_.calls[slowest]);
      reached = std::min(level, full_speed);
      if (full_speed <= level)
        settle(slowest, full_speed);
      else
        settle_users(levels_.top().second, level);
    }
  }

 private:
  struct Link {
    double left = 0;   // capacity that is not given to settled calls
    double flows = 0;  // of the others: bytes on the link for each byte on their ports
  };
  // The level at which a link is full, and the link. Levels only rise as calls are settled, so an
  // entry below the link's present level is stale.
  using Level = std::pair<double, std::size_t>;

  double most(std::uint32_t call) const {
    return on_.links_.kinds[on_.calls_[call].kind].port * on_.calls_[call].scale;
  }

  // Calls visit(link, flows) for each of the call's links in the component.
  template <typename Visit>
  void each_use(std::uint32_t call, const Visit& visit) {
    const CallTraffic& kind = on_.links_.kinds[on_.calls_[call].kind];
    on_.visits_ += kind.uses.size();
    for (const CallTraffic::Use& use : kind.uses) {
      if (on_.link_round_[use.link] != on_.round_) continue;
      const std::uint32_t l = on_.link_index_[use.link];
      // The link may belong to another component of this round.
      if (l < links_.size() && component_.links[l] == use.link)
        visit(links_[l], use.bytes / kind.port);
    }
  }

  // The level at which the link is full. Flows this small are the rounding error of a sum whose
  // flows are all settled.
  double level_of(std::size_t l) const {
    return links_[l].flows <= 1e-9 ? kNever : links_[l].left / links_[l].flows;
  }

  void put_level(std::size_t l) {
    if (level_of(l) < kNever) levels_.push({level_of(l), l});
  }

  void settle(std::size_t m, double level) {
    const std::uint32_t call = component_.calls[m];
    settled_[m] = 1;
    on_.set_rate(call, std::min(1.0, level / most(call)));
    each_use(call, [&](Link& link, double flows) {
      link.left = std::max(0.0, link.left - flows * level);
      link.flows -= flows;
      put_level(static_cast<std::size_t>(&link - links_.data()));
    });
  }

  // Settles the calls on a link that is full at this level.
  void settle_users(std::size_t l, double level) {
    const double flows = links_[l].flows;
    for (const auto& [call, number] : on_.users_[component_.links[l]]) {
      ++on_.visits_;
      const std::size_t m = on_.calls_[call].index;
      if (settled_[m] == 0) settle(m, level);
    }
    LOCKSTEP_CHECK(links_[l].flows < flows, "a full link whose calls are all settled");
    links_[l].flows = 0;
  }

  CallsOnLinks& on_;
  Component component_;
  std::vector<Link> links_;    // as component_.links
  std::vector<char> settled_;  // as component_.calls
  std::priority_queue<Level, std::vector<Level>, std::greater<>> levels_;
};

void CallsOnLinks::share_dirty_links() {
  if (dirty_.empty()) return;
  ++round_;
  std::vector<std::uint32_t> dirty;
  dirty.swap(dirty_);
  for (const std::uint32_t link : dirty)
    if (link_round_[link] != round_) Filling(*this, component_of(link)).run();
}

void CallsOnLinks::set_rate(std::uint32_t call, double rate) {
  ActiveCall& active = calls_[call];
  if (active.rate == rate) return;
  active.left =
      std::max(0.0, active.left - active.rate * static_cast<double>((now_ - active.updated).value));
  active.updated = now_;
  active.rate = rate;
  const double picos = active.left / rate;
  active.end = picos < 9.2e18 ? now_ + Picos{std::llround(picos)} : Picos::forever();
  ++active.version;
  ends_.push({active.end, call, active.version});
}

}  // namespace lockstep::sim
