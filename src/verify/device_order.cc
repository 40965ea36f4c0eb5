#include "verify/device_order.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"
#include "verify/wait_words.h"

namespace lockstep {

namespace {

// Where a rank's device stands: its oldest call that did not complete. All before it did, so that
// nothing keeps the device from it, and nothing behind it need have begun.
std::uint32_t open_call(const RankTrace& trace) {
  for (std::uint32_t c = 0; c < trace.calls.size(); ++c) {
    if (!trace.calls[c].has(kCompleted) && !trace.calls[c].has(kWaitEnded)) return c;
  }
  return kNoCall;
}

enum class OtherSide : std::uint8_t { there, behind, never_posted };

// The other side of a message that a rank's device stands in. Of one channel the oldest pending
// send and the oldest pending receive are one message, however much the recorders forgot of it.
OtherSide other_side(const Context& context, CallRef ref) {
  const Call& mine = context.call(ref);
  const RankTrace& here = context.run.ranks[ref.rank];
  const RankTrace* const there = context.run.find(mine.peer);
  if (there == nullptr) return OtherSide::there;  // nothing is known of it
  const bool sends = context.run.tables.signatures[mine.signature].op == Op::send;
  const auto on_channel = [&](const Call& c, Rank peer, bool send) {
    const Op op = context.run.tables.signatures[c.signature].op;
    return c.group == mine.group && c.peer == peer && c.ptag == mine.ptag &&
           op == (send ? Op::send : Op::recv);
  };
  const std::uint32_t open = open_call(*there);
  for (std::uint32_t c = open; c < there->calls.size(); ++c) {
    if (!on_channel(there->calls[c], here.rank, !sends)) continue;
    return c == open ? OtherSide::there : OtherSide::behind;
  }
  // Both recorders begin at different messages: the replay has lined them up.
  const bool unmatched =
      std::binary_search(context.where.unmatched.begin(), context.where.unmatched.end(),
                         std::pair(ref.rank, ref.call));
  return unmatched ? OtherSide::never_posted : OtherSide::there;
}

// Devices that hold each other up. Every call has its queue, and a call that its rank enqueued
// behind another unfinished one need not have begun: two ranks that enqueued the same two calls in
// opposite orders wait for each other although both calls are there on both.
class DeviceOrder {
 public:
  explicit DeviceOrder(const Context& context) : context_(context) {
    for (const RankTrace& trace : context.run.ranks) open_.push_back(open_call(trace));
    for (std::size_t g = 0; g < context.groups.size(); ++g) {
      group_index_[context.groups[g].group] = g;
    }
  }

  std::optional<Cause> find_circle() {
    enum class Colour : std::uint8_t { white, grey, black };
    std::vector<Colour> colours(open_.size(), Colour::white);
    for (std::uint32_t start = 0; start < open_.size(); ++start) {
      // Depth first; a path that comes back to itself is a circle.
      std::vector<std::pair<std::uint32_t, std::size_t>> path = {{start, 0}};
      if (colours[start] != Colour::white) continue;
      colours[start] = Colour::grey;
      while (!path.empty()) {
        auto& [rank, next] = path.back();
        const std::vector<std::uint32_t>& ahead = missed_by(rank);
        if (next == ahead.size()) {
          colours[rank] = Colour::black;
          path.pop_back();
          continue;
        }
        const std::uint32_t to = ahead[next++];
        if (colours[to] == Colour::grey) {
          const auto from = std::find_if(path.begin(), path.end(),
                                         [&](const auto& step) { return step.first == to; });
          std::vector<std::uint32_t> circle;
          for (auto step = from; step != path.end(); ++step) circle.push_back(step->first);
          return explain(circle);
        }
        if (colours[to] != Colour::white) continue;
        colours[to] = Colour::grey;
        path.emplace_back(to, 0);
      }
    }
    return std::nullopt;
  }

 private:
  // A call that several ranks stand in.
  using Place =
      std::tuple<GroupId, std::uint64_t, std::uint32_t>;  // the last: the rank of a message
  static constexpr std::uint32_t kEverybody = UINT32_MAX;

  bool is_message(const Call& c) const {
    return is_point_to_point(context_.run.tables.signatures[c.signature].op);
  }
  Place place_of(std::uint32_t rank) const {
    const Call& c = context_.call({rank, open_[rank]});
    return {c.group, c.seq, is_message(c) ? rank : kEverybody};
  }

  // The ranks whose devices have not come to the call in which this rank's device stands.
  const std::vector<std::uint32_t>& missed_by(std::uint32_t rank) {
    static const std::vector<std::uint32_t> nobody;
    if (open_[rank] == kNoCall) return nobody;
    const auto [known, is_new] = missed_.try_emplace(place_of(rank));
    if (is_new) known->second = find_missed(rank);
    return known->second;
  }

  std::vector<std::uint32_t> find_missed(std::uint32_t rank) const {
    const Call& mine = context_.call({rank, open_[rank]});
    std::vector<std::uint32_t> out;
    if (is_message(mine)) {
      if (other_side(context_, {rank, open_[rank]}) == OtherSide::there) return out;
      const RankTrace* const peer = context_.run.find(mine.peer);
      out.push_back(static_cast<std::uint32_t>(peer - context_.run.ranks.data()));
      return out;
    }
    const auto group = group_index_.find(mine.group);
    if (group == group_index_.end()) return out;
    for (const Stream& s : context_.groups[group->second].streams) {
      // Who passed it, or stands in it, is there.
      const std::uint32_t open = open_[s.rank_index];
      if (open == kNoCall) continue;
      const std::vector<Call>& calls = context_.run.ranks[s.rank_index].calls;
      const bool there = std::any_of(
          calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(open) + 1, [&](const Call& c) {
            return c.group == mine.group && !is_message(c) && c.seq >= mine.seq;
          });
      if (!there) out.push_back(s.rank_index);
    }
    return out;
  }

  Cause explain(const std::vector<std::uint32_t>& circle) {
    std::map<Place, std::vector<std::uint32_t>> waiting;
    for (const std::uint32_t r : circle) waiting[place_of(r)];
    bool messages = true;
    std::set<GroupId> groups;
    Cause cause;
    for (std::uint32_t r = 0; r < open_.size(); ++r) {
      if (open_[r] == kNoCall) continue;
      const auto there = waiting.find(place_of(r));
      if (there == waiting.end()) continue;
      there->second.push_back(r);
      cause.deviants.push_back(r);
      messages &= is_message(context_.call({r, open_[r]}));
      groups.insert(std::get<0>(there->first));
    }
    cause.finding = make_finding(messages            ? RuleId::p2p_cycle
                                 : groups.size() > 1 ? RuleId::cross_group_deadlock
                                                     : RuleId::deadlock);
    Finding& f = cause.finding;
    // Placed where most wait, then first.
    const auto first = std::max_element(waiting.begin(), waiting.end(), [](auto& a, auto& b) {
      return std::pair(a.second.size(), UINT64_MAX - std::get<1>(a.first)) <
             std::pair(b.second.size(), UINT64_MAX - std::get<1>(b.first));
    });
    for (const auto& [place, ranks] : waiting) {
      const CallRef call{ranks[0], open_[ranks[0]]};
      if (!f.message.empty()) f.message += "; ";
      f.message += context_.rank_words(ranks) + (ranks.size() == 1 ? " waits in " : " wait in ") +
                   context_.call_words(call) + " (" +
                   context_.place_words(call, std::get<1>(place)) + ") for " +
                   context_.rank_words(missed_by(ranks[0]));
      f.evidence.push_back(context_.evidence(call, "the oldest call that is not done"));
    }
    f.why =
        "On each device the call stands behind an unfinished one that the others have not come to.";
    f.group = printable(context_.run.tables.str(std::get<0>(first->first)));
    f.seq = cause.seq = std::get<1>(first->first);
    if (const auto g = group_index_.find(std::get<0>(first->first)); g != group_index_.end()) {
      cause.group = g->second;
    }
    f.ranks = context_.ranks(cause.deviants);
    if (waiting.size() == 2) {  // the few that took them in the other order stand out
      const auto& a = waiting.begin()->second;
      const auto& b = std::next(waiting.begin())->second;
      if (a.size() != b.size()) f.culprits = context_.ranks(a.size() < b.size() ? a : b);
    }
    const CallRef call{first->second[0], open_[first->second[0]]};
    set_fingerprint(f, describe(context_.run.tables, context_.call(call).signature));
    return cause;
  }

  const Context& context_;
  std::vector<std::uint32_t> open_;  // by rank index
  std::map<GroupId, std::size_t> group_index_;
  std::map<Place, std::vector<std::uint32_t>> missed_;
};

}  // namespace

bool all_posted(const Context& context, const WaitCause& wait) {
  bool any = false;
  for (const std::size_t p : wait.points) {
    const WaitPoint& point = context.where.wait_points[p];
    const auto& concerned = wait.circle ? point.waiting : point.missing;
    const bool of_roots = std::any_of(concerned.begin(), concerned.end(), [&](std::uint32_t r) {
      return std::binary_search(wait.roots.begin(), wait.roots.end(), r);
    });
    if (!of_roots) continue;
    if (point.group != WaitPoint::kPointToPoint) return false;
    const CallRef call = waiting_call(context, point.waiting[0]);
    if (other_side(context, call) == OtherSide::never_posted) return false;
    any = true;
  }
  return any;
}

std::optional<Cause> find_device_circle(const Context& context) {
  const std::vector<WaitCause> waits = wait_causes(context.where);
  const bool somebody_missing = std::any_of(waits.begin(), waits.end(), [&](const WaitCause& wait) {
    return !all_posted(context, wait);
  });
  if (somebody_missing) return std::nullopt;
  return DeviceOrder(context).find_circle();
}

}  // namespace lockstep
