#include "verify/streams/exchanges.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "trace/groups.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

// A round is known by the number of the collective with which it ends.
using Round = std::uint32_t;

// The messages that a rank posted to a peer, or from it, in one round.
struct Posted {
  Round round = 0;
  std::uint32_t count = 0;
  std::uint32_t last_call = 0;
};

// One side of a channel: by the peer, and whether the rank sends.
using SideKey = std::pair<trace::Rank, bool>;

struct Side {
  std::vector<Posted> rounds;  // ascending

  const Posted* in(Round round) const {
    const auto found =
        std::lower_bound(rounds.begin(), rounds.end(), round,
                         [](const Posted& p, Round number) { return p.round < number; });
    return found != rounds.end() && found->round == round ? &*found : nullptr;
  }
  std::uint32_t count_in(Round round) const {
    const Posted* const posted = in(round);
    return posted == nullptr ? 0 : posted->count;
  }
};

// What a rank exchanges with other members of a group between the group's collectives.
struct Exchanges {
  std::map<SideKey, Side> sides;
  // The rounds whose beginning and end were recorded: from `first` to before `end`. Sides hold the
  // one that follows, too.
  Round first = 0, end = 0;
  std::vector<std::uint32_t> ends;  // the call with which each of these ends

  bool knows(Round round) const { return round >= first && round < end; }
  std::uint32_t count(const SideKey& key, Round round) const {
    const auto found = sides.find(key);
    return found == sides.end() ? 0 : found->second.count_in(round);
  }
};

// The groups whose collectives cut a rank's messages into rounds, with the peers of these messages:
// for each peer the largest group of both in which the rank issues collectives; of several, the one
// with most calls. Only a rank's largest groups are asked: it has few, unless its trace is hostile.
using Cuts = std::map<trace::GroupId, std::set<trace::Rank>>;

Cuts cuts_of(const trace::Run& run, const trace::RankTrace& trace) {
  constexpr std::size_t kMaxGroups = 16;
  std::map<trace::GroupId, std::size_t> calls;
  std::set<trace::Rank> peers;
  for (const trace::Call& call : trace.calls) {
    if (run.tables.is_message(call)) {
      if (call.peer != trace.rank) peers.insert(call.peer);  // what it sends itself is no pair's
    } else {
      ++calls[call.group];
    }
  }
  if (peers.empty()) return {};
  struct Cutting {
    std::size_t size, calls;
    const trace::RankTrace::Membership* group;
  };
  std::vector<Cutting> groups;
  for (const trace::RankTrace::Membership& group : trace.groups)
    if (const auto used = calls.find(group.group); used != calls.end())
      groups.push_back({group.ranks.size(), used->second, &group});
  std::stable_sort(groups.begin(), groups.end(), [](const Cutting& a, const Cutting& b) {
    return std::pair(a.size, a.calls) > std::pair(b.size, b.calls);
  });
  groups.resize(std::min(groups.size(), kMaxGroups));
  Cuts out;
  for (const trace::Rank peer : peers) {
    const auto cutting = std::find_if(groups.begin(), groups.end(), [&](const Cutting& one) {
      return one.group->ranks.contains(peer);
    });
    if (cutting != groups.end()) out[cutting->group->group].insert(peer);
  }
  return out;
}

Exchanges exchanges_of(const trace::Run& run, const trace::RankTrace& trace, trace::GroupId group,
                       const std::set<trace::Rank>& peers) {
  if (!holds_its_past(trace)) return {};  // what it lacks may be of any round
  std::vector<std::uint32_t> cuts;
  for (std::uint32_t c = 0; c < trace.calls.size(); ++c)
    if (trace.calls[c].group == group && !run.tables.is_message(trace.calls[c])) cuts.push_back(c);
  // Numbers that do not ascend one by one are not those of rounds.
  for (std::size_t i = 1; i < cuts.size(); ++i)
    if (trace.calls[cuts[i]].seq != trace.calls[cuts[i - 1]].seq + 1) return {};
  const bool whole = is_known_from_its_start(trace);
  if (cuts.size() < (whole ? 1U : 2U)) return {};
  Exchanges out;
  const auto first_number = static_cast<Round>(trace.calls[cuts[0]].seq);
  out.first = first_number + (whole ? 0 : 1);
  out.end = first_number + static_cast<Round>(cuts.size());
  out.ends.assign(cuts.begin() + (whole ? 0 : 1), cuts.end());
  Round round = first_number;
  auto next = cuts.begin();
  for (std::uint32_t c = 0; c < trace.calls.size(); ++c) {
    if (next != cuts.end() && *next == c) {
      ++round, ++next;
      continue;
    }
    const trace::Call& call = trace.calls[c];
    const trace::Op op = run.tables.op(call);
    if ((op != trace::Op::send && op != trace::Op::recv) || round < out.first ||
        !peers.contains(call.peer)) {
      continue;
    }
    std::vector<Posted>& rounds = out.sides[{call.peer, op == trace::Op::send}].rounds;
    if (rounds.empty() || rounds.back().round != round) rounds.push_back({round, 0, 0});
    ++rounds.back().count;
    rounds.back().last_call = c;
  }
  return out;
}

// What a rank posts in a round, as a proportion: how many sends or receives per peer with which it
// has any, by their common divisor, so that rounds of three and of four micro-batches are alike.
// Which peers, and how many, does not count, so that the stages of a pipeline are alike, too. A
// rank that posts nothing has the proportion of others that post nothing.
using Proportion = std::set<std::pair<bool, std::uint32_t>>;

Proportion proportion_in(const Exchanges& of, Round round) {
  std::uint32_t divisor = 0;
  for (const auto& [key, side] : of.sides) divisor = std::gcd(divisor, side.count_in(round));
  Proportion out;
  if (divisor == 0) return out;
  for (const auto& [key, side] : of.sides) out.emplace(key.second, side.count_in(round) / divisor);
  return out;
}

// Messages of a round that sender and receiver count differently.
struct Disagreement {
  std::uint32_t sender = 0, receiver = 0;  // rank indices
  std::uint32_t sent = 0, received = 0;
};

// By rank index: of 65,536 ranks, each is in the cutting group of its own pipeline.
using ByRank = std::map<std::uint32_t, Exchanges>;

// Looks through the rounds of one group's collectives.
class Search {
 public:
  Search(const trace::Run& run, const ByRank& exchanges) : run_(run), of_(exchanges) {}

  std::optional<UnevenExchange> find() const {
    const std::optional<Round> round = first_uneven_round();
    if (!round) return std::nullopt;
    std::vector<Disagreement> found;
    std::size_t agreeing = 0;
    each_channel(*round, [&](const Disagreement& d) {
      if (d.sent == d.received) {
        agreeing += d.sent > 0 ? 1U : 0U;
      } else {
        found.push_back(d);
      }
    });
    // In the first round that is known, messages may have crossed the collective on purpose. Then
    // most pairs do the same, and a program that ends has taken all of them.
    if (*round == first_round() && agreeing <= found.size() && !has_ended_with_fewer(found[0]))
      return std::nullopt;
    return judge(found, *round);
  }

 private:
  std::optional<std::uint32_t> index_of(trace::Rank rank) const {
    const trace::RankTrace* const found = run_.find(rank);
    if (found == nullptr) return std::nullopt;
    return static_cast<std::uint32_t>(found - run_.ranks.data());
  }

  const Exchanges& of_at(std::uint32_t rank) const {
    static const Exchanges kNone;
    const auto found = of_.find(rank);
    return found == of_.end() ? kNone : found->second;
  }

  Round first_round() const {
    Round out = UINT32_MAX;
    for (const auto& [rank, of] : of_)
      if (!of.sides.empty()) out = std::min(out, of.first);
    return out;
  }

  // The first round that two ranks know, and count differently. Visits what was posted, and not
  // every number: those of two ranks' rounds may be far from each other.
  std::optional<Round> first_uneven_round() const {
    std::optional<Round> out;
    for (const auto& [r, of] : of_) {
      for (const auto& [key, side] : of.sides) {
        const auto peer = index_of(key.first);
        if (!peer) continue;
        const Exchanges& theirs = of_at(*peer);
        const SideKey other{run_.ranks[r].rank, !key.second};
        for (const Posted& posted : side.rounds) {
          if (out && posted.round >= *out) break;
          if (of.knows(posted.round) && theirs.knows(posted.round) &&
              theirs.count(other, posted.round) != posted.count) {
            out = posted.round;
          }
        }
      }
    }
    return out;
  }

  // Calls `visit` with the sender, the receiver, and what each posted, for each channel of a round
  // that both know: none, where a channel is not used in it.
  template <class Visit>
  void each_channel(Round round, const Visit& visit) const {
    for (const auto& [r, of] : of_) {
      if (!of.knows(round)) continue;
      for (const auto& [key, side] : of.sides) {
        const auto peer = index_of(key.first);
        if (!peer || !of_at(*peer).knows(round)) continue;
        const SideKey other{run_.ranks[r].rank, !key.second};
        const std::uint32_t own = side.count_in(round);
        const std::uint32_t theirs = of_at(*peer).count(other, round);
        // A channel is visited by its sender, or by its receiver where nobody ever sent.
        if (key.second) {
          visit(Disagreement{r, *peer, own, theirs});
        } else if (!of_at(*peer).sides.contains(other)) {
          visit(Disagreement{*peer, r, theirs, own});
        }
      }
    }
  }

  std::optional<UnevenExchange> judge(const std::vector<Disagreement>& found, Round round) const {
    std::set<std::uint32_t> common{found[0].sender, found[0].receiver};
    for (const Disagreement& d : found) {
      std::erase_if(common, [&](std::uint32_t r) { return r != d.sender && r != d.receiver; });
    }
    if (common.empty()) return std::nullopt;
    using Reason = UnevenExchange::Reason;
    const std::uint32_t one = *common.begin(), other = *common.rbegin();
    if (one == other) return exchange(found[0], one, round, Reason::all_pairs);
    if (const auto odd = out_of_proportion(one, other, round))
      return exchange(found[0], *odd, round, Reason::proportion);
    if (const auto odd = without_an_answer(one, other, round))
      return exchange(found[0], *odd, round, Reason::answers);
    if (const auto odd = with_fewer_that_agree(one, other, round))
      return exchange(found[0], *odd, round, Reason::others);
    return std::nullopt;
  }

  // Whether the rank that posted fewer of these messages in the whole program ended cleanly.
  bool has_ended_with_fewer(const Disagreement& d) const {
    const auto posted = [&](std::uint32_t rank, std::uint32_t peer, trace::Op op) {
      const auto& calls = run_.ranks[rank].calls;
      return std::count_if(calls.begin(), calls.end(), [&](const trace::Call& call) {
        return call.peer == run_.ranks[peer].rank && run_.tables.op(call) == op;
      });
    };
    const auto sent = posted(d.sender, d.receiver, trace::Op::send);
    const auto received = posted(d.receiver, d.sender, trace::Op::recv);
    const std::uint32_t fewer = sent < received ? d.sender : d.receiver;
    return sent != received && run_.ranks[fewer].end == trace::End::clean;
  }

  // The one of the two whose proportion no other round of any rank has, where the other's is known.
  std::optional<std::uint32_t> out_of_proportion(std::uint32_t one, std::uint32_t other,
                                                 Round round) const {
    const auto is_known = [&](std::uint32_t rank) {
      const Proportion own = proportion_in(of_at(rank), round);
      for (const auto& [r, of] : of_) {
        for (Round k = of.first; k < of.end && !of.sides.empty(); ++k) {
          const bool is_disputed = k == round && (r == one || r == other);
          if (!is_disputed && proportion_in(of, k) == own) return true;
        }
      }
      return false;
    };
    const bool knows_one = is_known(one), knows_other = is_known(other);
    if (knows_one == knows_other) return std::nullopt;
    return knows_one ? other : one;
  }

  // The one of the two that posted more sends to the other than receives from it, or fewer, if the
  // other one posted as many of both, and so did every other pair of the round.
  std::optional<std::uint32_t> without_an_answer(std::uint32_t one, std::uint32_t other,
                                                 Round round) const {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> surplus;  // by pair, ascending
    each_channel(round, [&](const Disagreement& d) {
      if (d.sent == 0 && d.received == 0) return;
      const bool up = d.sender < d.receiver;
      const std::pair pair = up ? std::pair(d.sender, d.receiver) : std::pair(d.receiver, d.sender);
      if (pair == std::pair(std::min(one, other), std::max(one, other))) return;
      surplus[pair] += up ? std::int64_t{d.sent} : -std::int64_t{d.sent};
    });
    if (surplus.empty() || std::any_of(surplus.begin(), surplus.end(),
                                       [](const auto& pair) { return pair.second != 0; })) {
      return std::nullopt;
    }
    const auto is_answered = [&](std::uint32_t rank, std::uint32_t peer) {
      const trace::Rank to = run_.ranks[peer].rank;
      return of_at(rank).count({to, true}, round) == of_at(rank).count({to, false}, round);
    };
    const bool one_is = is_answered(one, other), other_is = is_answered(other, one);
    if (one_is == other_is) return std::nullopt;
    return one_is ? other : one;
  }

  // The one of the two that exchanges with fewer ranks that agree among each other.
  std::optional<std::uint32_t> with_fewer_that_agree(std::uint32_t one, std::uint32_t other,
                                                     Round round) const {
    std::map<std::uint32_t, std::vector<std::uint32_t>> neighbours;
    each_channel(round, [&](const Disagreement& d) {
      if (d.sent != d.received) return;
      neighbours[d.sender].push_back(d.receiver);
      neighbours[d.receiver].push_back(d.sender);
    });
    const auto reached_from = [&](std::uint32_t start) {
      std::set<std::uint32_t> seen{start};
      std::vector<std::uint32_t> left{start};
      while (!left.empty()) {
        const std::uint32_t r = left.back();
        left.pop_back();
        for (const std::uint32_t next : neighbours[r])
          if (seen.insert(next).second) left.push_back(next);
      }
      return seen;
    };
    const std::set<std::uint32_t> of_one = reached_from(one), of_other = reached_from(other);
    // A pair that agrees on its other messages, or over a third rank, is one party.
    if (of_one.contains(other) || of_one.size() == of_other.size()) return std::nullopt;
    return of_one.size() < of_other.size() ? one : other;
  }

  UnevenExchange exchange(const Disagreement& d, std::uint32_t odd, Round round,
                          UnevenExchange::Reason reason) const {
    UnevenExchange out;
    out.reason = reason;
    out.odd = odd;
    out.odd_sends = d.sender == odd;
    out.partner = out.odd_sends ? d.receiver : d.sender;
    out.posted = out.odd_sends ? d.sent : d.received;
    out.expected = out.odd_sends ? d.received : d.sent;
    const std::uint32_t shown = out.posted > out.expected ? out.odd : out.partner;
    const std::uint32_t peer = shown == out.odd ? out.partner : out.odd;
    const Side& side =
        of_at(shown).sides.at({run_.ranks[peer].rank, (shown == out.odd) == out.odd_sends});
    out.shown = {shown, side.in(round)->last_call};
    out.end = {odd, of_at(odd).ends[round - of_at(odd).first]};
    out.end_of_partner = {out.partner, of_at(out.partner).ends[round - of_at(out.partner).first]};
    out.kind = kind_of(odd, round);
    return out;
  }

  // Whether two rounds of the one are one round of the other, in all channels of `odd`: it issued a
  // collective too many, or left one out. Of a second round of the partner that did not end, any
  // part may have been posted.
  UnevenExchange::Kind kind_of(std::uint32_t odd, Round round) const {
    bool split = of_at(odd).knows(round + 1), joined = true;
    std::size_t more = 0;
    bool any = false;
    for (const auto& [key, side] : of_at(odd).sides) {
      const auto peer = index_of(key.first);
      if (!peer) continue;
      const SideKey other{run_.ranks[odd].rank, !key.second};
      const auto theirs = [&](Round r) { return of_at(*peer).count(other, r); };
      const std::uint32_t own = side.count_in(round);
      split = split && own + side.count_in(round + 1) == theirs(round);
      joined = joined && own >= theirs(round) &&
               (of_at(*peer).knows(round + 1) ? theirs(round) + theirs(round + 1) == own
                                              : theirs(round) > 0 || own == 0);
      more += own > theirs(round) ? 1U : 0U;
      any |= own > 0;
    }
    if (any && split) return UnevenExchange::Kind::extra_collective;
    return more > 1 && joined ? UnevenExchange::Kind::missing_collective
                              : UnevenExchange::Kind::messages;
  }

  const trace::Run& run_;
  const ByRank& of_;
};

}  // namespace

std::optional<UnevenExchange> find_uneven_exchange(const trace::Run& run) {
  std::map<trace::GroupId, ByRank> by_group;
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
    if (!run.ranks[r].occurs.messages) continue;
    for (const auto& [group, peers] : cuts_of(run, run.ranks[r]))
      by_group[group].emplace(r, exchanges_of(run, run.ranks[r], group, peers));
  }
  std::optional<UnevenExchange> out;
  for (const auto& [group, exchanges] : by_group) {
    const std::optional<UnevenExchange> found = Search(run, exchanges).find();
    if (!found) continue;
    if (out && out->odd != found->odd) return std::nullopt;
    if (!out) out = found;
  }
  return out;
}

}  // namespace lockstep::verify
