#include "verify/streams/exchanges.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_map>
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
  // one that follows, too: it has not ended, and more of its messages may come.
  Round first = 0, end = 0;
  std::vector<std::uint32_t> ends;  // the call with which each of these ends

  bool knows(Round round) const { return round >= first && round < end; }
  bool is_in(Round round) const { return !sides.empty() && round == end; }
  bool tells_of(Round round) const { return knows(round) || is_in(round); }
  std::uint32_t end_of(Round round) const { return knows(round) ? ends[round - first] : kNoCall; }
  std::uint32_t count(const SideKey& key, Round round) const {
    const auto found = sides.find(key);
    return found == sides.end() ? 0 : found->second.count_in(round);
  }
};

// How many collectives all ranks together issue in a group.
using Collectives = std::unordered_map<trace::GroupId, std::size_t>;

Collectives collectives_of(const trace::Run& run) {
  Collectives out;
  for (const trace::RankTrace& trace : run.ranks)
    for (const trace::Call& call : trace.calls)
      if (!run.tables.is_message(call)) ++out[call.group];
  return out;
}

// The groups whose collectives cut a rank's messages into rounds, with the peers of these messages:
// for each peer the largest group of both in which ranks issue collectives; of several, the one
// with most calls. Where there is none, all messages are one round. Only a rank's largest groups
// are asked: it has few, unless its trace is hostile.
using Cuts = std::map<trace::GroupId, std::set<trace::Rank>>;

Cuts cuts_of(const trace::Run& run, const trace::RankTrace& trace, const Collectives& calls) {
  constexpr std::size_t kMaxGroups = 16;
  std::set<trace::Rank> peers;
  for (const trace::Call& call : trace.calls)  // what a rank sends itself is no pair's
    if (run.tables.is_message(call) && call.peer != trace.rank) peers.insert(call.peer);
  if (peers.empty()) return {};
  struct Cutting {
    std::size_t size, calls;
    const trace::RankTrace::Membership* group;
  };
  std::vector<Cutting> groups;
  for (const trace::RankTrace::Membership& group : trace.groups) {
    const auto used = calls.find(group.group);
    groups.push_back({group.ranks.size(), used == calls.end() ? 0 : used->second, &group});
  }
  std::stable_sort(groups.begin(), groups.end(), [](const Cutting& a, const Cutting& b) {
    return std::tuple(a.calls > 0, a.size, a.calls) > std::tuple(b.calls > 0, b.size, b.calls);
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
  if (!whole && cuts.size() < 2) return {};
  Exchanges out;
  const auto first_number = cuts.empty() ? Round{0} : static_cast<Round>(trace.calls[cuts[0]].seq);
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

// The messages of a round from one rank to another, as both count them.
struct Channel {
  std::uint32_t sender = 0, receiver = 0;  // rank indices
  std::uint32_t sent = 0, received = 0;
};

// Whether two counts of the same messages agree, if those who counted them have ended the round.
// Nothing is known where one has not and may still post what it lacks.
enum class Comparison : std::uint8_t { agree, differ, unknown };

Comparison compare(std::uint32_t own, bool own_ended, std::uint32_t theirs, bool theirs_ended) {
  if (!own_ended && !theirs_ended) return Comparison::unknown;
  if (own == theirs) return Comparison::agree;
  const bool may_come = own < theirs ? !own_ended : !theirs_ended;
  return may_come ? Comparison::unknown : Comparison::differ;
}

// By rank index: of 65,536 ranks, each is in the cutting group of its own pipeline.
using ByRank = std::map<std::uint32_t, Exchanges>;

// Looks through the rounds of one group's collectives.
class Search {
 public:
  Search(const trace::Run& run, const ByRank& exchanges) : run_(run), of_(exchanges) {}

  std::optional<UnevenExchange> find() const {
    const std::optional<Round> round = first_uneven_round();
    if (!round) return in_newest_round();
    std::vector<Channel> uneven;
    std::size_t even = 0;
    std::map<std::pair<std::uint32_t, std::uint32_t>, bool> fits;  // by pair, ascending
    each_channel(*round, [&](const Channel& c, Comparison counts) {
      const bool used = c.sent + c.received > 0;
      if (!used) return;
      auto [pair, is_new] =
          fits.try_emplace({std::min(c.sender, c.receiver), std::max(c.sender, c.receiver)}, true);
      if (counts == Comparison::agree) {
        ++even;
      } else {
        pair->second = false;
        uneven.push_back(c);
      }
    });
    // In the first round that is known, messages may have crossed the collective on purpose. Then
    // all pairs do the same, in one direction at least, and a program that ends has taken all.
    const bool some_fit =
        std::any_of(fits.begin(), fits.end(), [](const auto& pair) { return pair.second; });
    if (*round == first_round() && even <= uneven.size() && !some_fit &&
        !has_ended_with_fewer(uneven[0])) {
      return std::nullopt;
    }
    return judge(uneven, *round);
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

  static Comparison compare_in(Round round, const Exchanges& of, std::uint32_t own,
                               const Exchanges& others, std::uint32_t theirs) {
    if (!of.tells_of(round) || !others.tells_of(round)) return Comparison::unknown;
    return compare(own, of.knows(round), theirs, others.knows(round));
  }

  // The first round that two ranks count differently, whatever they still post. Visits what was
  // posted, and not every number: those of two ranks' rounds may be far from each other.
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
          if (compare_in(posted.round, of, posted.count, theirs,
                         theirs.count(other, posted.round)) == Comparison::differ) {
            out = posted.round;
          }
        }
      }
    }
    return out;
  }

  // Calls `visit` for each channel with what its two sides exchange, and a function that gives its
  // messages of a round.
  template <class Visit>
  void each_channel_of_all(const Visit& visit) const {
    for (const auto& [r, of] : of_) {
      for (const auto& [key, side] : of.sides) {
        const auto peer = index_of(key.first);
        if (!peer) continue;
        const Exchanges& others = of_at(*peer);
        const SideKey other{run_.ranks[r].rank, !key.second};
        // A channel is visited by its sender, or by its receiver where nobody ever sent.
        if (!key.second && others.sides.contains(other)) continue;
        visit(of, others, [&, rank = r, sends = key.second, &own = side](Round round) {
          const std::uint32_t mine = own.count_in(round), theirs = others.count(other, round);
          return sends ? Channel{rank, *peer, mine, theirs} : Channel{*peer, rank, theirs, mine};
        });
      }
    }
  }

  // Calls `visit` for each channel of a round of which both sides tell something, with how the two
  // compare: agree, or differ. A channel that is not used in the round has no messages.
  template <class Visit>
  void each_channel(Round round, const Visit& visit) const {
    each_channel_of_all([&](const Exchanges& of, const Exchanges& others, auto channel_in) {
      const Channel c = channel_in(round);
      const bool visitor_sends = &of == &of_at(c.sender);
      const Comparison counts = compare_in(round, of, visitor_sends ? c.sent : c.received, others,
                                           visitor_sends ? c.received : c.sent);
      if (counts != Comparison::unknown) visit(c, counts);
    });
  }

  std::optional<UnevenExchange> judge(const std::vector<Channel>& found, Round round) const {
    std::set<std::uint32_t> common{found[0].sender, found[0].receiver};
    for (const Channel& d : found) {
      std::erase_if(common, [&](std::uint32_t r) { return r != d.sender && r != d.receiver; });
    }
    if (common.empty()) return std::nullopt;
    using Reason = UnevenExchange::Reason;
    const std::uint32_t one = *common.begin(), other = *common.rbegin();
    const auto told = [&](std::uint32_t odd, Reason reason) -> std::optional<UnevenExchange> {
      UnevenExchange out = exchange(found[0], odd, round, reason);
      if (may_be_by_the_end(round, odd, out.partner)) return std::nullopt;
      return out;
    };
    if (one == other) return told(one, Reason::all_pairs);
    if (const auto odd = out_of_proportion(one, other, round))
      return told(*odd, Reason::proportion);
    if (const auto odd = without_an_answer(one, other, round)) return told(*odd, Reason::answers);
    if (const auto odd = with_fewer_that_agree(one, other, round))
      return told(*odd, Reason::others);
    return std::nullopt;
  }

  // A rank that posted more than its peers in the newest round of both, in several channels, where
  // all that these exchange with others fits. A peer that had merely stopped would lack messages of
  // its other peers, too.
  std::optional<UnevenExchange> in_newest_round() const {
    std::vector<Channel> uneven, even;
    std::set<Round> rounds;  // of the uneven ones
    each_channel_of_all([&](const Exchanges& of, const Exchanges& others, auto channel_in) {
      const Round newest = std::min(of.end, others.end);
      if (!of.tells_of(newest) || !others.tells_of(newest)) return;
      const Channel c = channel_in(newest);
      if (c.sent == c.received) {
        if (c.sent > 0) even.push_back(c);
      } else {
        uneven.push_back(c);
        rounds.insert(newest);
      }
    });
    if (uneven.size() < 2 || rounds.size() > 1) return std::nullopt;
    const Round round = *rounds.begin();
    const auto with_more = [](const Channel& c) {
      return c.sent > c.received ? c.sender : c.receiver;
    };
    const std::uint32_t odd = with_more(uneven[0]);
    std::set<std::uint32_t> fit_others;
    for (const Channel& c : even)
      if (c.sender != odd && c.receiver != odd) fit_others.insert({c.sender, c.receiver});
    const bool all_fit = std::all_of(uneven.begin(), uneven.end(), [&](const Channel& c) {
      return with_more(c) == odd && fit_others.contains(c.sender == odd ? c.receiver : c.sender);
    });
    if (!all_fit || !of_at(odd).is_in(round)) return std::nullopt;
    return exchange(uneven[0], odd, round, UnevenExchange::Reason::newest);
  }

  // Whether the collective that ends the round may be what is wrong, and not the messages, where
  // one of the two has not come to it: of two ranks, the other one may have issued it too early;
  // and `odd` may have left it out together with others, or come to messages of the next round
  // where only one rank says that the round is over.
  bool may_be_by_the_end(Round round, std::uint32_t odd, std::uint32_t partner) const {
    const bool odd_is_in = of_at(odd).is_in(round);
    if (!odd_is_in && !of_at(partner).is_in(round)) return false;
    std::size_t in_it = 0, ended = 0;
    for (const auto& [r, of] : of_)
      if (!of.sides.empty()) ++(of.is_in(round) ? in_it : ended);
    return in_it + ended < 3 || (odd_is_in && (in_it > 1 || ended < 2));
  }

  // Whether the rank that posted fewer of these messages in the whole program ended cleanly.
  bool has_ended_with_fewer(const Channel& d) const {
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
    each_channel(round, [&](const Channel& d, Comparison) {
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
    each_channel(round, [&](const Channel& d, Comparison counts) {
      // What the two do not use does not make them agree.
      const bool of_both =
          (d.sender == one && d.receiver == other) || (d.sender == other && d.receiver == one);
      if (counts != Comparison::agree || (of_both && d.sent == 0)) return;
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

  UnevenExchange exchange(const Channel& d, std::uint32_t odd, Round round,
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
    out.end = {odd, of_at(odd).end_of(round)};
    out.end_of_partner = {out.partner, of_at(out.partner).end_of(round)};
    if (out.end.call != kNoCall && out.end_of_partner.call != kNoCall)
      out.kind = kind_of(odd, round);
    return out;
  }

  // Whether two rounds of the one are one round of the other, in all channels of `odd`: it issued a
  // collective too many, or left one out. If the partner was in a second round, any part of it
  // may have been posted; one like the first would make twice as many.
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
               (of_at(*peer).knows(round + 1)
                    ? theirs(round) + theirs(round + 1) == own
                    : own == 0 || (theirs(round) > 0 && own >= 2 * theirs(round)));
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
  const Collectives collectives = collectives_of(run);
  std::map<trace::GroupId, ByRank> by_group;
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
    if (!run.ranks[r].occurs.messages) continue;
    for (const auto& [group, peers] : cuts_of(run, run.ranks[r], collectives))
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
