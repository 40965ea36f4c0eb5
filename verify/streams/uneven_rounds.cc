#include "verify/streams/uneven_rounds.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <utility>

#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

// Members that are compared; of more, the first ones.
constexpr std::size_t kMaxMembers = 1024;

// The calls with which the rounds of a group's members end: the streams that these members have in
// a larger group.
using RoundEnds = std::vector<const Stream*>;

// Whether the streams' calls agree as far as all of them go.
bool do_ends_agree(const trace::Run& run, const RoundEnds& ends, std::size_t count,
                   Agreement& agreement) {
  const auto form = [&](const Stream& stream, std::size_t i) {
    return run.ranks[stream.rank_index].calls[stream.calls[i]].signature;
  };
  return std::all_of(ends.begin(), ends.end(), [&](const Stream* stream) {
    for (std::size_t i = 0; i < count; ++i)
      if (!agreement.agree(form(*stream, i), form(*ends[0], i))) return false;
    return true;
  });
}

std::size_t common_length(const RoundEnds& ends) {
  std::size_t out = SIZE_MAX;
  for (const Stream* const stream : ends) out = std::min(out, stream->calls.size());
  return out;
}

// The largest other group with calls of all these members that agree; empty: there is none.
RoundEnds find_round_ends(const trace::Run& run, const std::vector<GroupStreams>& groups,
                          std::size_t group, Agreement& agreement) {
  const GroupStreams& own = groups[group];
  RoundEnds best;
  std::size_t size = own.members.size();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const GroupStreams& other = groups[g];
    if (g == group || !other.comparable || other.members.size() <= size) continue;
    RoundEnds ends;
    for (const Stream& stream : own.streams) {
      if (ends.size() == kMaxMembers) break;
      const Stream* const found = stream_of(other, stream.rank_index);
      if (found == nullptr) break;
      ends.push_back(found);
    }
    if (ends.size() < std::min(own.streams.size(), kMaxMembers)) continue;
    const std::size_t length = common_length(ends);
    if (length == 0 || !do_ends_agree(run, ends, length, agreement)) continue;
    size = other.members.size();
    best = std::move(ends);
  }
  return best;
}

// How many calls of the group one member made in each round. The last round is the first one that
// not all members are known to have ended: there, a member may still make more.
struct RoundsOfMember {
  std::vector<std::size_t> calls;
  bool ended_last = false;

  std::size_t before(std::size_t round) const {
    return std::accumulate(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(round),
                           std::size_t{0});
  }
};

std::vector<RoundsOfMember> count_rounds(const std::vector<Stream>& streams,
                                         const RoundEnds& ends) {
  const std::size_t ended_by_all = common_length(ends);
  std::vector<RoundsOfMember> out(ends.size());
  for (std::size_t m = 0; m < ends.size(); ++m) {
    const std::vector<std::uint32_t>& calls = streams[m].calls;
    auto from = calls.begin();
    const auto add_round_until = [&](auto to) {
      out[m].calls.push_back(static_cast<std::size_t>(to - from));
      from = to;
    };
    out[m].ended_last = ends[m]->calls.size() > ended_by_all;
    for (std::size_t k = 0; k < ended_by_all + (out[m].ended_last ? 1 : 0); ++k)
      add_round_until(std::lower_bound(from, calls.end(), ends[m]->calls[k]));
    if (!out[m].ended_last) add_round_until(calls.end());
  }
  return out;
}

// The only uneven round, with the number of calls that is usual there and the members that made
// another one, all of them the same.
struct Uneven {
  std::size_t round = 0;
  std::size_t usual = 0;
  std::size_t made = 0;
  std::vector<std::size_t> deviants, others;
};

// The members by what they made in a round, of which `usual` is the usual number. In the last
// round, those that have not ended it and made fewer may still make the rest.
std::optional<Uneven> divide(const std::vector<RoundsOfMember>& members, std::size_t round,
                             std::size_t usual) {
  Uneven out{round, usual, usual, {}, {}};
  for (std::size_t m = 0; m < members.size(); ++m) {
    const std::size_t made = members[m].calls[round];
    const bool is_last = round + 1 == members[m].calls.size();
    if (made == usual) {
      out.others.push_back(m);
    } else if (is_last && made < usual && members[m].ended_last) {
      return std::nullopt;
    } else if (made > usual || !is_last) {
      if (!out.deviants.empty() && made != out.made) return std::nullopt;
      out.made = made;
      out.deviants.push_back(m);
    }
  }
  if (out.deviants.empty() || out.others.empty()) return std::nullopt;
  return out;
}

std::optional<Uneven> find_uneven(const std::vector<RoundsOfMember>& members,
                                  std::size_t first_round) {
  constexpr std::size_t kMinRounds = 2;  // rounds that show what is usual
  const std::size_t last = members[0].calls.size() - 1;
  std::optional<std::size_t> uneven;
  std::set<std::size_t> of_others;
  std::size_t others = 0;
  for (std::size_t k = first_round; k < last; ++k) {
    const std::size_t of_first = members[0].calls[k];
    const bool is_even = std::all_of(members.begin(), members.end(), [&](const RoundsOfMember& m) {
      return m.calls[k] == of_first;
    });
    if (is_even && of_first > 0) {  // not every round has such calls
      ++others;
      of_others.insert(of_first);
    } else if (!is_even) {
      if (uneven) return std::nullopt;
      uneven = k;
    }
  }
  if (others < kMinRounds || of_others.size() != 1) return std::nullopt;
  std::optional<Uneven> out = divide(members, uneven.value_or(last), *of_others.begin());
  if (!out || !uneven) return out;
  // A deviant makes up for it in the last round: it made its calls late, or early.
  const std::size_t made = members[out->deviants[0]].calls[last];
  const std::size_t usual = members[out->others[0]].calls[last];
  if (out->made < out->usual ? made > usual : made < usual) return std::nullopt;
  return out;
}

std::optional<UnevenRound> find_uneven_round(const trace::Run& run,
                                             const std::vector<GroupStreams>& groups,
                                             std::size_t group, Agreement& agreement) {
  const GroupStreams& own = groups[group];
  if (!own.comparable || own.streams.size() < 2) return std::nullopt;
  const RoundEnds ends = find_round_ends(run, groups, group, agreement);
  if (ends.empty()) return std::nullopt;
  const std::vector<RoundsOfMember> members = count_rounds(own.streams, ends);
  // Where recordings begin in mid-run, the first round may lack calls.
  const bool whole = std::all_of(own.streams.begin(), own.streams.end(), [&](const Stream& s) {
    return is_known_from_its_start(run.ranks[s.rank_index]);
  });
  const std::optional<Uneven> uneven = find_uneven(members, whole ? 0 : 1);
  if (!uneven) return std::nullopt;
  const std::size_t usual = uneven->others[0], deviant = uneven->deviants[0];
  std::size_t at = members[usual].before(uneven->round);
  if (at != members[deviant].before(uneven->round)) return std::nullopt;
  UnevenRound out;
  out.usual = uneven->usual;
  out.made = uneven->made;
  const bool ended = uneven->round < ends[deviant]->calls.size();
  const Stream& with_end = *ends[ended ? deviant : usual];
  if (uneven->round >= with_end.calls.size()) return std::nullopt;
  out.end = {with_end.rank_index, with_end.calls[uneven->round]};
  Deviation& d = out.deviation;
  for (const std::size_t m : uneven->deviants) d.deviants.push_back(own.streams[m].rank_index);
  for (const std::size_t m : uneven->others) d.reference.push_back(own.streams[m].rank_index);
  const bool missing = out.made < out.usual;
  d.kind = missing ? EditKind::missing : EditKind::extra;
  d.count = static_cast<std::uint32_t>(missing ? out.usual - out.made : out.made - out.usual);
  // The first of the calls that only one side made, as far as their forms tell.
  const Stream& theirs = own.streams[usual];
  const Stream& mine = own.streams[deviant];
  const auto form = [&](const Stream& s, std::size_t i) {
    return run.ranks[s.rank_index].calls[s.calls[i]].signature;
  };
  const std::size_t end = at + std::min(out.made, out.usual);
  while (at < end && agreement.agree(form(theirs, at), form(mine, at))) ++at;
  const auto call_at = [&](const Stream& s) {
    return CallRef{s.rank_index, at < s.calls.size() ? s.calls[at] : kNoCall};
  };
  // In a round that has not ended, a call of another form may be new to the program (a checkpoint).
  if (!ended && at < mine.calls.size() && !agreement.agree(form(mine, at), form(mine, at - 1)))
    return std::nullopt;
  d.group = group;
  d.seq = own.first_seq + at;
  d.expected = call_at(theirs);
  d.got = call_at(mine);
  const CallRef shown = missing ? d.expected : d.got;
  d.step = run.ranks[shown.rank].calls[shown.call].step;
  return out;
}

}  // namespace

std::vector<UnevenRound> find_uneven_rounds(const trace::Run& run,
                                            const std::vector<GroupStreams>& groups,
                                            const ReplayResult& where, Agreement& agreement) {
  constexpr std::size_t kMaxGroups = 64;  // in a hang all wait; each group costs its calls
  std::set<std::size_t> waited_in;
  for (const WaitPoint& point : where.wait_points)
    if (point.group != WaitPoint::kPointToPoint && waited_in.size() < kMaxGroups)
      waited_in.insert(point.group);
  std::vector<UnevenRound> out;
  for (const std::size_t g : waited_in)
    if (auto uneven = find_uneven_round(run, groups, g, agreement)) out.push_back(*uneven);
  return out;
}

}  // namespace lockstep::verify
