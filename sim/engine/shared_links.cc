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
  coming_.push({begin, alone, kind, bytes, id});
}

void CallsOnLinks::skip_void() {
  while (!ends_.empty() && (!calls_[ends_.top().call].under_way ||
                            calls_[ends_.top().call].version != ends_.top().version))
    ends_.pop();
}

std::optional<Picos> CallsOnLinks::next() {
  // Calls that begin at this moment do so before anything is shared: many begin together.
  if (!coming_.empty() && coming_.top().begin == now_) return now_;
  share_anew();
  skip_void();
  Picos out = Picos::forever();
  if (coming_.empty() && ends_.empty()) return std::nullopt;
  if (!coming_.empty()) out = coming_.top().begin;
  if (!ends_.empty()) out = std::min(out, ends_.top().time);
  return out;
}

std::vector<CallsOnLinks::Ended> CallsOnLinks::advance() {
  const std::optional<Picos> time = next();
  std::vector<Ended> out;
  if (!time) return out;
  now_ = *time;
  for (skip_void(); !ends_.empty() && ends_.top().time == now_; skip_void()) {
    const std::uint32_t call = ends_.top().call;
    ends_.pop();
    Under& under = calls_[call];
    out.push_back({under.id, under.begin, now_});
    const Picos took = now_ - under.begin;
    if (took > under.alone) {
      ++slowed_;
      if (under.alone.value > 0)
        most_slowed_ = std::max(
            most_slowed_, static_cast<double>(took.value) / static_cast<double>(under.alone.value));
    }
    leave(call);
  }
  for (; !coming_.empty() && coming_.top().begin == now_; coming_.pop()) {
    const Coming& coming = coming_.top();
    std::uint32_t call = 0;
    if (spare_.empty()) {
      call = static_cast<std::uint32_t>(calls_.size());
      calls_.emplace_back();
    } else {
      call = spare_.back();
      spare_.pop_back();
    }
    Under& under = calls_[call];
    const std::uint32_t version = under.version + 1;
    std::vector<std::uint32_t> seats = std::move(under.seats);  // its memory
    under = {};
    under.seats = std::move(seats);
    under.begin = under.updated = now_;
    under.alone = coming.alone;
    under.end = now_ + coming.alone;
    under.left = static_cast<double>(coming.alone.value);
    under.kind = coming.kind;
    under.id = coming.id;
    under.version = version;
    under.under_way = true;
    // A call that takes no time, or has no bytes, uses no bandwidth.
    if (coming.alone.value > 0 && coming.bytes > 0)
      under.scale =
          std::min(coming.bytes / coming.alone.seconds(), 1 / links_.kinds[coming.kind].busiest);
    ends_.push({under.end, call, version});
    enter(call);
  }
  std::sort(out.begin(), out.end(), [](const Ended& a, const Ended& b) { return a.id < b.id; });
  return out;
}

bool CallsOnLinks::full(std::uint32_t link) const {
  return wanted_[link] > links_.capacities[link] * kRoom;
}

void CallsOnLinks::enter(std::uint32_t call) {
  Under& under = calls_[call];
  under.seats.clear();
  if (under.scale == 0) return;
  for (const CallTraffic::Use& use : links_.kinds[under.kind].uses) {
    ++visits_;
    const auto number = static_cast<std::uint32_t>(under.seats.size());
    under.seats.push_back(static_cast<std::uint32_t>(users_[use.link].size()));
    users_[use.link].push_back({call, number});
    wanted_[use.link] += use.bytes * under.scale;
    if (full(use.link)) dirty_.push_back(use.link);
  }
}

void CallsOnLinks::leave(std::uint32_t call) {
  Under& under = calls_[call];
  under.under_way = false;
  spare_.push_back(call);
  if (under.scale == 0) return;
  for (std::size_t u = 0; u < under.seats.size(); ++u) {
    ++visits_;
    const CallTraffic::Use& use = links_.kinds[under.kind].uses[u];
    if (full(use.link)) dirty_.push_back(use.link);
    std::vector<User>& users = users_[use.link];
    const std::uint32_t seat = under.seats[u];
    LOCKSTEP_CHECK(seat < users.size() && users[seat].call == call,
                   "a call leaves a link that it does not use");
    // The last user takes its seat.
    users[seat] = users.back();
    calls_[users[seat].call].seats[users[seat].use] = seat;
    users.pop_back();
    // From nothing again, so that rounding does not add up.
    wanted_[use.link] = users.empty() ? 0 : wanted_[use.link] - use.bytes * under.scale;
  }
}

CallsOnLinks::Component CallsOnLinks::component_of(std::uint32_t link) {
  Component out{{link}, {}};
  link_round_[link] = round_, link_index_[link] = 0;
  for (std::size_t i = 0; i < out.links.size(); ++i)
    for (const auto& [call, number] : users_[out.links[i]]) {
      ++visits_;
      Under& under = calls_[call];
      if (under.round == round_) continue;
      under.round = round_;
      out.calls.push_back(call);
      visits_ += links_.kinds[under.kind].uses.size();
      for (const CallTraffic::Use& use : links_.kinds[under.kind].uses) {
        if (link_round_[use.link] == round_ || !full(use.link)) continue;
        link_round_[use.link] = round_;
        link_index_[use.link] = static_cast<std::uint32_t>(out.links.size());
        out.links.push_back(use.link);
      }
    }
  return out;
}

// Progressive filling: the level, a port's rate, rises for all calls until a link is full or a call
// has its full speed; these calls are settled, and it rises on for the others.
class CallsOnLinks::Filling {
 public:
  Filling(CallsOnLinks& on, Component component)
      : on_(on), component_(std::move(component)), settled_(component_.calls.size(), 0) {
    for (const std::uint32_t link : component_.links)
      links_.push_back({on_.links_.capacities[link], 0});
    std::vector<std::uint32_t>& calls = component_.calls;
    // By the rate of a port at full speed, so that those which reach it are in front.
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
    double reached = 0;       // the level, which never falls but for rounding
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
  // A link, after the level at which it is full. That only rises as calls are settled: what is
  // older than the link's level now is void.
  using Level = std::pair<double, std::size_t>;

  double most(std::uint32_t call) const {
    return on_.links_.kinds[on_.calls_[call].kind].port * on_.calls_[call].scale;
  }

  // Calls visit(link, flows) for each of the call's links that are of the component.
  template <typename Visit>
  void each_use(std::uint32_t call, const Visit& visit) {
    const CallTraffic& kind = on_.links_.kinds[on_.calls_[call].kind];
    on_.visits_ += kind.uses.size();
    for (const CallTraffic::Use& use : kind.uses) {
      if (on_.link_round_[use.link] != on_.round_) continue;
      const std::uint32_t l = on_.link_index_[use.link];
      // Another component of this round may have had it.
      if (l < links_.size() && component_.links[l] == use.link)
        visit(links_[l], use.bytes / kind.port);
    }
  }

  // What is left of sums of settled flows is rounding.
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

  // The calls on a link that is full at this level.
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

void CallsOnLinks::share_anew() {
  if (dirty_.empty()) return;
  ++round_;
  std::vector<std::uint32_t> dirty;
  dirty.swap(dirty_);
  for (const std::uint32_t link : dirty)
    if (link_round_[link] != round_) Filling(*this, component_of(link)).run();
}

void CallsOnLinks::set_rate(std::uint32_t call, double rate) {
  Under& under = calls_[call];
  if (under.rate == rate) return;
  under.left =
      std::max(0.0, under.left - under.rate * static_cast<double>((now_ - under.updated).value));
  under.updated = now_;
  under.rate = rate;
  const double picos = under.left / rate;
  under.end = picos < 9.2e18 ? now_ + Picos{std::llround(picos)} : Picos::forever();
  ++under.version;
  ends_.push({under.end, call, under.version});
}

}  // namespace lockstep::sim
