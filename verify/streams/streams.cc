#include "verify/streams/streams.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "base/threads.h"

namespace lockstep::verify {

namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  // Combined as boost::hash_combine does, then two rounds of splitmix64's finaliser: each input bit
  // affects each output bit.
  hash ^= value + 0x9E3779B97F4A7C15ULL + (hash << 6U) + (hash >> 2U);
  hash = (hash ^ (hash >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  return hash ^ (hash >> 27U);
}

std::uint64_t with_call(std::uint64_t hash, const trace::Call& call) {
  hash = mix(hash, (std::uint64_t{call.signature.value} << 32U) | call.what.value);
  return mix(hash, static_cast<std::uint32_t>(call.step));
}

// By group: the members that most ranks declare. On a tie the smaller list wins (the map is sorted
// and max_element returns the first), so that the order of files does not matter.
std::vector<trace::RankList> members_by_group(const trace::Run& run) {
  std::vector<std::map<trace::RankList, std::size_t>> votes(run.tables.groups.size());
  for (const trace::RankTrace& trace : run.ranks) {
    for (const auto& membership : trace.groups) ++votes[membership.group.value][membership.ranks];
  }
  std::vector<trace::RankList> out(votes.size());
  for (std::size_t g = 0; g < votes.size(); ++g) {
    if (votes[g].empty()) continue;
    out[g] = std::max_element(votes[g].begin(), votes[g].end(), [](const auto& a, const auto& b) {
               return a.second < b.second;
             })->first;
  }
  return out;
}

// A rank's collectives by group, its groups in the order of their first calls.
std::vector<std::pair<trace::GroupId, Stream>> streams_of(const trace::Run& run, std::uint32_t r) {
  std::vector<std::pair<trace::GroupId, Stream>> out;
  std::unordered_map<trace::GroupId, std::size_t> places;  // in `out`
  const std::vector<trace::Call>& calls = run.ranks[r].calls;
  for (std::uint32_t c = 0; c < calls.size(); ++c) {
    const trace::Call& call = calls[c];
    if (run.tables.is_message(call)) continue;
    const auto [place, is_new] = places.try_emplace(call.group, out.size());
    if (is_new) out.emplace_back(call.group, Stream{}).second.rank_index = r;
    Stream& stream = out[place->second].second;
    stream.calls.push_back(c);
    stream.hash = with_call(stream.hash, call);
  }
  return out;
}

// Every rank's collectives by group; the streams of a group by rank.
std::vector<std::vector<Stream>> collect_streams(const trace::Run& run) {
  std::vector<std::vector<std::pair<trace::GroupId, Stream>>> by_rank(run.ranks.size());
  for_each_index(by_rank.size(), run.event_count(), [&](std::size_t r) {
    by_rank[r] = streams_of(run, static_cast<std::uint32_t>(r));
  });
  std::vector<std::vector<Stream>> by_group(run.tables.groups.size());
  for (auto& streams : by_rank) {
    for (auto& [group, stream] : streams) by_group[group.value].push_back(std::move(stream));
  }
  return by_group;
}

// Compares hashes first, which is almost always enough, then the calls to exclude collisions.
bool same_calls(const trace::Run& run, const Stream& a, const Stream& b) {
  if (a.hash != b.hash || a.calls.size() != b.calls.size()) return false;
  const auto& x = run.ranks[a.rank_index].calls;
  const auto& y = run.ranks[b.rank_index].calls;
  return std::equal(
      a.calls.begin(), a.calls.end(), b.calls.begin(), [&](std::uint32_t i, std::uint32_t j) {
        return x[i].signature == y[j].signature && x[i].what == y[j].what && x[i].step == y[j].step;
      });
}

// Puts equal streams into classes, by their first streams. O(calls) expected.
void classify(const trace::Run& run, GroupStreams& group) {
  std::vector<Stream>& streams = group.streams;
  std::unordered_map<std::uint64_t, std::uint32_t> first_by_hash;
  std::size_t calls = 0;
  for (std::uint32_t s = 0; s < streams.size(); ++s) {
    first_by_hash.try_emplace(streams[s].hash, s);
    calls += streams[s].calls.size();
  }
  // Nearly always the streams of a hash are equal; whether they are takes the time.
  std::vector<std::uint8_t> is_as_first(streams.size());
  for_each_index(streams.size(), calls, [&](std::size_t s) {
    const Stream& first = streams[first_by_hash.at(streams[s].hash)];
    is_as_first[s] = &first == &streams[s] || same_calls(run, first, streams[s]) ? 1 : 0;
  });
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> classes_by_hash;
  for (std::uint32_t s = 0; s < streams.size(); ++s) {
    std::vector<std::uint32_t>& candidates = classes_by_hash[streams[s].hash];
    const auto same = std::find_if(candidates.begin(), candidates.end(), [&](std::uint32_t c) {
      if (c == candidates.front()) return is_as_first[s] != 0;
      return same_calls(run, streams[group.classes[c].streams[0]], streams[s]);
    });
    if (same != candidates.end()) {
      group.classes[*same].streams.push_back(s);
    } else {
      candidates.push_back(static_cast<std::uint32_t>(group.classes.size()));
      group.classes.push_back({{s}});
    }
  }
}

// Moves the calls before `first` to Stream::earlier, and computes the hash of the rest.
void cut_before(const trace::Run& run, Stream& stream,
                std::vector<std::uint32_t>::const_iterator first) {
  if (first == stream.calls.cbegin()) return;
  stream.earlier.assign(stream.calls.cbegin(), first);
  stream.calls.erase(stream.calls.cbegin(), first);
  stream.hash = 0;
  const std::vector<trace::Call>& calls = run.ranks[stream.rank_index].calls;
  for (const std::uint32_t c : stream.calls) stream.hash = with_call(stream.hash, calls[c]);
}

// Makes all streams start at the same call. A bounded recorder keeps only the newest events, so
// streams may start at different calls:
//
//   rank 0  seq 100 101 102 …        both start at 101: by the source's own sequence numbers, or
//   rank 1      seq 101 102 …        by the first step that every rank has from its beginning
void line_up(const trace::Run& run, GroupStreams& group) {
  const auto trace_of = [&](const Stream& s) -> const trace::RankTrace& {
    return run.ranks[s.rank_index];
  };
  const bool cut = std::any_of(group.streams.begin(), group.streams.end(),
                               [&](const Stream& s) { return trace_of(s).dropped > 0; });
  if (!cut) return;
  const bool numbered =
      std::all_of(group.streams.begin(), group.streams.end(), [&](const Stream& s) {
        return s.calls.empty() || trace_of(s).dropped == 0 ||
               trace_of(s).first_seq.contains(group.group);
      });
  const auto call = [&](const Stream& s, std::size_t i) -> const trace::Call& {
    return trace_of(s).calls[s.calls[i]];
  };
  if (numbered) {
    // The latest first call: every other stream has it as well.
    std::uint64_t start = 0;
    for (const Stream& s : group.streams) {
      if (!s.calls.empty()) start = std::max<std::uint64_t>(start, call(s, 0).seq);
    }
    for (Stream& s : group.streams) {
      const auto first = std::find_if(s.calls.begin(), s.calls.end(), [&](std::uint32_t c) {
        return trace_of(s).calls[c].seq >= start;
      });
      cut_before(run, s, first);
    }
    group.first_seq = start;
    return;
  }
  std::int32_t start = 0;
  for (const Stream& s : group.streams) {
    if (s.calls.empty()) continue;
    const std::int32_t step = call(s, 0).step;
    if (step == trace::kNone) {
      group.comparable = false;
      return;
    }
    // The first recorded step of a cut stream may have lost its first calls: begin with the next.
    start = std::max(start, trace_of(s).dropped > 0 ? step + 1 : step);
  }
  for (Stream& s : group.streams) {
    const auto first = std::find_if(s.calls.begin(), s.calls.end(), [&](std::uint32_t c) {
      return trace_of(s).calls[c].step >= start;
    });
    cut_before(run, s, first);
  }
}

// Members without a call in the group get an empty stream; members without a trace are absent.
void add_silent_members(const trace::Run& run, GroupStreams& group) {
  const std::size_t speaking = group.streams.size();  // by rank
  std::vector<std::uint32_t> silent;
  for (const trace::Rank member : group.members) {
    const trace::RankTrace* trace = run.find(member);
    if (trace == nullptr) {
      group.absent.push_back(member);
      continue;
    }
    const auto index = static_cast<std::uint32_t>(trace - run.ranks.data());
    const auto end = group.streams.begin() + static_cast<std::ptrdiff_t>(speaking);
    const auto known =
        std::lower_bound(group.streams.begin(), end, index,
                         [](const Stream& s, std::uint32_t r) { return s.rank_index < r; });
    if (known == end || known->rank_index != index) silent.push_back(index);
  }
  std::sort(group.absent.begin(), group.absent.end());
  if (silent.empty()) return;
  for (const std::uint32_t index : silent) group.streams.emplace_back().rank_index = index;
  std::sort(group.streams.begin(), group.streams.end(),
            [](const Stream& a, const Stream& b) { return a.rank_index < b.rank_index; });
}

// Whether the rank has messages in the group.
bool has_messages(const trace::Run& run, const trace::RankTrace& trace, trace::GroupId group) {
  return trace.occurs.messages &&
         std::any_of(trace.calls.begin(), trace.calls.end(), [&](const trace::Call& c) {
           return c.group == group && run.tables.is_message(c);
         });
}

// The number that the source gave to the stream's call at index `i`.
std::uint64_t number_of(const trace::Run& run, const Stream& s, std::size_t i) {
  return run.ranks[s.rank_index].calls[s.calls[i]].seq;
}

// Whether the recorded numbers of `streams` can be compared and are worth it: some number was
// skipped. Not comparable:
//   - numbers that a reader counted from the middle of a run: they are those of one rank alone
//   - groups with messages: PyTorch spends a number of the group on each batch of messages, which
//     not every member has
bool compare_numbers(const trace::Run& run, trace::GroupId group,
                     const std::vector<const Stream*>& streams) {
  std::size_t from_start = 0, recorded = 0;
  bool skipped = false;
  for (const Stream* s : streams) {
    const trace::RankTrace& trace = run.ranks[s->rank_index];
    const bool numbered = trace.first_seq.contains(group);
    recorded += numbered ? 1 : 0;
    from_start += !numbered && trace.dropped == 0 ? 1 : 0;
    const std::uint64_t first = number_of(run, *streams[0], 0);
    skipped |= number_of(run, *s, s->calls.size() - 1) - first + 1 != s->calls.size();
  }
  const bool alike = recorded == streams.size() || from_start == streams.size();
  return skipped && alike && std::none_of(streams.begin(), streams.end(), [&](const Stream* s) {
           return has_messages(run, run.ranks[s->rank_index], group);
         });
}

// Where the members' recorded numbers diverge; nothing if they agree or cannot be compared. The
// number that most members have is taken for the right one. O(calls of the group), and O(members)
// if no number was skipped.
std::optional<DivergentNumbers> divergent_numbers(const trace::Run& run,
                                                  const GroupStreams& group) {
  std::vector<const Stream*> streams;
  std::size_t longest = 0;
  for (const Stream& s : group.streams) {
    if (!s.calls.empty()) streams.push_back(&s);
    longest = std::max(longest, s.calls.size());
  }
  if (!group.comparable || !compare_numbers(run, group.group, streams)) return std::nullopt;
  for (std::size_t i = 0; i < longest; ++i) {
    std::map<std::uint64_t, std::vector<const Stream*>> by_number;
    for (const Stream* s : streams) {
      if (i < s->calls.size()) by_number[number_of(run, *s, i)].push_back(s);
    }
    if (by_number.size() < 2) continue;
    const auto most = std::max_element(
        by_number.begin(), by_number.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    DivergentNumbers out;
    out.others_seq = most->first;
    for (const auto& [number, party] : by_number) {
      for (const Stream* s : party)
        (number == most->first ? out.others : out.deviants).push_back(s->rank_index);
    }
    std::sort(out.deviants.begin(), out.deviants.end());
    out.call = stream_of(group, out.deviants.front())->calls[i];
    return out;
  }
  return std::nullopt;
}

}  // namespace

const Stream* stream_of(const GroupStreams& group, std::uint32_t rank) {
  const auto found =
      std::lower_bound(group.streams.begin(), group.streams.end(), rank,
                       [](const Stream& s, std::uint32_t r) { return s.rank_index < r; });
  return found != group.streams.end() && found->rank_index == rank ? &*found : nullptr;
}

bool knows_world_size(const trace::Run& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(), [](const trace::RankTrace& trace) {
    return trace.world_size != trace::kNone;
  });
}

bool knows_all_ranks(const trace::Run& run) {
  return knows_world_size(run) && std::ssize(run.ranks) >= run.world_size;
}

std::vector<GroupStreams> group_streams(const trace::Run& run) {
  std::vector<std::vector<Stream>> collected = collect_streams(run);
  const std::vector<trace::RankList> members = members_by_group(run);
  std::vector<GroupStreams> out;
  for (std::uint32_t g = 0; g < collected.size(); ++g) {
    GroupStreams group;
    group.group = trace::GroupId(g);
    group.name = printable(run.tables.str(group.group));
    group.members = members[g];
    group.streams = std::move(collected[g]);
    if (group.members.empty()) {
      if (group.streams.empty()) continue;
      // Nobody declared the group. The members of "world" are known as far as the size of the job
      // is; of any other group, only the ranks that called in it.
      if (group.name == "world") {
        group.declared = knows_world_size(run);
        for (std::int32_t r = 0; r < run.world_size; ++r) group.members.emplace_back(r);
      } else {
        group.declared = false;
        for (const Stream& s : group.streams) group.members.push_back(run.ranks[s.rank_index].rank);
      }
    }
    add_silent_members(run, group);
    line_up(run, group);
    group.divergent_numbers = divergent_numbers(run, group);
    classify(run, group);
    out.push_back(std::move(group));
  }
  std::sort(out.begin(), out.end(),
            [](const GroupStreams& a, const GroupStreams& b) { return a.name < b.name; });
  return out;
}

}  // namespace lockstep::verify
