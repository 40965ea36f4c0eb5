#include "verify/streams/uneven_rounds.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

// Members that are compared; of more, the first ones.
constexpr std::size_t kMostMembers = 1024;

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
  std::size_t size = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const GroupStreams& other = groups[g];
    if (g == group || !other.comparable || other.members.size() <= size) continue;
    RoundEnds ends;
    for (const Stream& stream : own.streams) {
      if (ends.size() == kMostMembers) break;
      const Stream* const found = stream_of(other, stream.rank_index);
      if (found == nullptr) break;
      ends.push_back(found);
    }
    if (ends.size() < std::min(own.streams.size(), kMostMembers)) continue;
    const std::size_t length = common_length(ends);
    if (length == 0 || !do_ends_agree(run, ends, length, agreement)) continue;
    size = other.members.size();
    best = std::move(ends);
  }
  return best;
}

// How many calls of the group each member made before the larger group's calls: by member, then by
// the number of the larger group's call. One entry more holds all of its calls.
using CallsBefore = std::vector<std::vector<std::size_t>>;

CallsBefore count_before(const std::vector<Stream>& streams, const RoundEnds& ends) {
  const std::size_t rounds = common_length(ends);
  CallsBefore out(ends.size());
  for (std::size_t m = 0; m < ends.size(); ++m) {
    const std::vector<std::uint32_t>& calls = streams[m].calls;
    for (std::size_t k = 0; k < rounds; ++k) {
      const auto before = std::lower_bound(calls.begin(), calls.end(), ends[m]->calls[k]);
      out[m].push_back(static_cast<std::size_t>(before - calls.begin()));
    }
    out[m].push_back(calls.size());
  }
  return out;
}

// The number of calls that a member made in a round. Where recordings begin in mid-run, calls
// before the first of the larger group are of a round that is not known.
std::size_t in_round(const CallsBefore& counts, std::size_t member, std::size_t round) {
  return counts[member][round] - (round == 0 ? 0 : counts[member][round - 1]);
}

// The only uneven round, and the number of calls that is usual there.
struct Uneven {
  std::size_t round = 0;
  std::size_t usual = 0;
};

std::optional<Uneven> find_uneven(const CallsBefore& counts, std::size_t first_round) {
  const std::size_t rounds = counts[0].size() - 1;
  std::optional<std::size_t> uneven;
  std::set<std::size_t> of_others;
  std::size_t others = 0;
  for (std::size_t k = first_round; k < rounds; ++k) {
    const std::size_t of_first = in_round(counts, 0, k);
    bool is_even = true;
    for (std::size_t m = 1; m < counts.size(); ++m)
      is_even = is_even && in_round(counts, m, k) == of_first;
    if (is_even && of_first == 0) continue;  // not every round has such calls
    if (is_even) {
      ++others;
      of_others.insert(of_first);
    } else if (uneven) {
      return std::nullopt;
    } else {
      uneven = k;
    }
  }
  constexpr std::size_t kFewest = 2;  // rounds that show what is usual
  if (!uneven || others < kFewest || of_others.size() != 1) return std::nullopt;
  return Uneven{*uneven, *of_others.begin()};
}

// Whether all members made equally many calls before the round, so that those of one number belong
// together: recordings that begin in mid-run may be shifted.
bool are_level_before(const CallsBefore& counts, std::size_t round) {
  return round == 0 || std::all_of(counts.begin(), counts.end(), [&](const auto& of_member) {
           return of_member[round - 1] == counts[0][round - 1];
         });
}

// Whether a member makes up for it after the last call of the larger group: it made the calls late.
bool is_made_up_for(const CallsBefore& counts, std::size_t deviant, std::size_t usual) {
  const std::size_t last = counts[0].size() - 1;
  return in_round(counts, deviant, last) != in_round(counts, usual, last);
}

}  // namespace

std::optional<UnevenRound> find_uneven_round(const trace::Run& run,
                                             const std::vector<GroupStreams>& groups,
                                             std::size_t group, Agreement& agreement) {
  const GroupStreams& own = groups[group];
  if (!own.comparable || own.streams.size() < 2) return std::nullopt;
  const RoundEnds ends = find_round_ends(run, groups, group, agreement);
  if (ends.empty()) return std::nullopt;
  const CallsBefore counts = count_before(own.streams, ends);
  const bool whole = std::all_of(own.streams.begin(), own.streams.end(), [&](const Stream& s) {
    return is_known_from_its_start(run.ranks[s.rank_index]);
  });
  const std::optional<Uneven> uneven = find_uneven(counts, whole ? 0 : 1);
  if (!uneven || !are_level_before(counts, uneven->round)) return std::nullopt;
  UnevenRound out;
  out.usual = uneven->usual;
  Deviation& d = out.deviation;
  std::size_t usual = SIZE_MAX, deviant = SIZE_MAX;  // the first member of each kind
  for (std::size_t m = 0; m < counts.size(); ++m) {
    const std::size_t made = in_round(counts, m, uneven->round);
    std::size_t& first = made == out.usual ? usual : deviant;
    if (first == SIZE_MAX) first = m;
    if (made != out.usual && made != in_round(counts, deviant, uneven->round)) return std::nullopt;
    (made == out.usual ? d.reference : d.deviants).push_back(own.streams[m].rank_index);
  }
  if (usual == SIZE_MAX || deviant == SIZE_MAX || is_made_up_for(counts, deviant, usual))
    return std::nullopt;
  out.made = in_round(counts, deviant, uneven->round);
  out.end = {ends[deviant]->rank_index, ends[deviant]->calls[uneven->round]};
  const bool missing = out.made < out.usual;
  d.kind = missing ? EditKind::missing : EditKind::extra;
  d.count = static_cast<std::uint32_t>(missing ? out.usual - out.made : out.made - out.usual);
  // The first of the calls that only one side made, as far as their forms tell.
  const Stream& theirs = own.streams[usual];
  const Stream& mine = own.streams[deviant];
  const auto form = [&](const Stream& s, std::size_t i) {
    return run.ranks[s.rank_index].calls[s.calls[i]].signature;
  };
  std::size_t at = uneven->round == 0 ? 0 : counts[usual][uneven->round - 1];
  const std::size_t end = at + std::min(out.made, out.usual);
  while (at < end && agreement.agree(form(theirs, at), form(mine, at))) ++at;
  const auto call_at = [&](const Stream& s) {
    return CallRef{s.rank_index, at < s.calls.size() ? s.calls[at] : kNoCall};
  };
  d.group = group;
  d.seq = own.first_seq + at;
  d.expected = call_at(theirs);
  d.got = call_at(mine);
  const CallRef shown = missing ? d.expected : d.got;
  d.step = run.ranks[shown.rank].calls[shown.call].step;
  return out;
}

}  // namespace lockstep::verify
