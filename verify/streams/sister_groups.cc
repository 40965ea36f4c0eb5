#include "verify/streams/sister_groups.h"

#include <algorithm>
#include <cstdint>

#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

// Sister groups that vote. A large mesh has thousands; 64 give a clear majority.
constexpr std::size_t kMaxSisters = 64;

// Whether every member of the other group issued what the cursor's class did, up to and including
// its next call. Only the newest kSuffix calls are compared, which bounds the cost.
bool does_alike(const Alignment& at, std::size_t cursor, const GroupStreams& other) {
  const std::size_t next = at.cursors()[cursor].next;
  // By sequence number: bounded buffers keep the newest calls, so that streams begin anywhere.
  const std::uint64_t seq = at.group().first_seq + next;
  if (!other.comparable || seq < other.first_seq || other.classes.empty() ||
      !other.absent.empty()) {
    return false;
  }
  const auto there = static_cast<std::size_t>(seq - other.first_seq);
  const Stream& mine = at.stream(cursor);
  const CallRef own_call = at.next_call(cursor);
  return std::all_of(other.classes.begin(), other.classes.end(), [&](const StreamClass& cls) {
    const Stream& theirs = other.streams[cls.streams[0]];
    if (theirs.calls.size() <= there) return false;
    // Another stage of a pipeline has groups of this size, too, and calls of its own between.
    const CallRef their_call{theirs.rank_index, theirs.calls[there]};
    const bool both_begin = own_call.call == 0 && their_call.call == 0;
    if (!both_begin && !did_the_same_before(at.run(), at.agreement(), own_call, their_call))
      return false;
    const std::size_t compared = std::min({next, there, Sequence::kSuffix});
    for (std::size_t back = 0; back <= compared; ++back) {
      const trace::RankTrace& here = at.run().ranks[mine.rank_index];
      const trace::RankTrace& sister = at.run().ranks[theirs.rank_index];
      const trace::Call& a = here.calls[mine.calls[next - back]];
      const trace::Call& b = sister.calls[theirs.calls[there - back]];
      // Parameters are not compared: other pipeline stages have others. The source location
      // distinguishes calls instead, if it was recorded.
      const bool same_location = a.at == b.at || a.at.value == 0 || b.at.value == 0;
      if (!same_location || !agree_across_groups(at.agreement(), here, a, sister, b)) return false;
    }
    return true;
  });
}

}  // namespace

std::optional<std::size_t> vote_of_sister_groups(const Alignment& at,
                                                 const std::vector<Party>& parties,
                                                 const std::vector<std::size_t>& among) {
  std::vector<std::size_t> votes(parties.size());
  std::size_t asked = 0, silent = 0;
  for (std::size_t g = 0; g < at.groups().size() && asked < kMaxSisters; ++g) {
    // A group of the same ranks, such as that of another modality, makes calls of its own.
    if (at.groups()[g].members.size() != at.group().members.size() ||
        at.groups()[g].members == at.group().members)
      continue;
    ++asked;
    // A member without a trace may have done otherwise, as the two here do.
    if (!at.groups()[g].absent.empty()) ++silent;
    for (const std::size_t p : among) {
      if (does_alike(at, parties[p][0], at.groups()[g])) ++votes[p];
    }
  }
  const auto first = std::max_element(votes.begin(), votes.end());
  const std::size_t most = *first;
  *first = 0;
  const std::size_t next = *std::max_element(votes.begin(), votes.end());
  if (most <= next + silent) return std::nullopt;
  return static_cast<std::size_t>(first - votes.begin());
}

}  // namespace lockstep::verify
