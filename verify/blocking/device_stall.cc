// Finds a device that hangs in Flight Recorder dumps: its rank issued a call and did not complete
// it, while peers completed it and wait in a later one.
#include "verify/blocking/device_stall.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/context.h"

namespace lockstep::verify {

namespace {

// How far a member got in a group's collectives.
struct Standing {
  std::uint64_t completed = 0;           // as a count: all below are done
  std::optional<std::uint64_t> pending;  // number of its oldest call without completion
  std::uint32_t pending_call = kNoCall;
  bool known = false;  // the source records which calls completed
};

// The completed counts of the ranks' own counters, by group, then by rank index.
class Counters {
 public:
  struct Completed {
    std::uint32_t rank_index;
    std::uint64_t count;
  };

  explicit Counters(const trace::Run& run) : by_group_(run.tables.groups.size()) {
    for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
      for (const trace::RankTrace::Progress& progress : run.ranks[r].progress) {
        if (progress.completed) by_group_[progress.group.value].push_back({r, *progress.completed});
      }
    }
  }

  std::span<const Completed> of(trace::GroupId group, std::uint32_t rank_index) const {
    const std::vector<Completed>& all = by_group_[group.value];
    const auto less = [](const Completed& c, std::uint32_t r) { return c.rank_index < r; };
    const auto first = std::lower_bound(all.begin(), all.end(), rank_index, less);
    const auto last = std::lower_bound(first, all.end(), rank_index + 1, less);
    return {first, last};
  }

 private:
  std::vector<std::vector<Completed>> by_group_;
};

// How far the member of this stream got, by its calls (including those before the common start) and
// its counters.
Standing standing_of(const Context& context, const Counters& counters, trace::GroupId group,
                     const Stream& stream) {
  const trace::RankTrace& trace = context.run.ranks[stream.rank_index];
  Standing out;
  // A call whose record was lost is known by its number alone: whether the device is in it, or in a
  // later one, nothing tells.
  bool lost = false;
  const auto look_at = [&](std::uint32_t c) {
    const trace::Call& call = trace.calls[c];
    const bool over = is_over(call, context.semantics);
    lost |=
        !over && !out.pending && trace.damaged_count > 0 && call.signature == trace::SignatureId{};
    out.known |= call.has(trace::kStarted) || over;
    if (over) {
      out.completed = std::max<std::uint64_t>(out.completed, call.seq + std::uint64_t{1});
    } else if (!out.pending) {
      out.pending = call.seq;
      out.pending_call = c;
    }
  };
  for (const std::uint32_t c : stream.earlier) look_at(c);
  for (const std::uint32_t c : stream.calls) look_at(c);
  if (lost) return {};
  bool counted = false;
  for (const Counters::Completed& counter : counters.of(group, stream.rank_index)) {
    out.completed = std::max(out.completed, counter.count);
    out.known = counted = true;
  }
  // A host that ran far ahead has overwritten its oldest open calls: the call at which its device
  // stands is not among the entries, and nothing shows whether others completed it.
  if (counted && out.pending && *out.pending > out.completed) out.pending.reset();
  // The counter says more calls completed than the entries do. The oldest open entry limits it: a
  // stall is about that call.
  if (out.pending && *out.pending < out.completed) {
    out.completed = *out.pending;
  }
  // A dump of active calls has no completed entries: all calls before the oldest open one
  // completed.
  if (out.pending) out.completed = std::max(out.completed, *out.pending);
  return out;
}

// The members of one group that are behind the others.
struct Lag {
  std::vector<std::uint32_t> behind, ahead;  // rank indices
  std::uint64_t lag = 0;
  std::uint64_t first = 0;        // the oldest call that a laggard did not complete
  std::uint64_t ahead_waits = 0;  // where those ahead wait
  CallRef call{0, kNoCall};
};

// Which members of the group lag; nothing where none does, or none waits ahead. A member is behind
// if its oldest open call was completed by another member. O(calls of the group).
std::optional<Lag> lag_in(const Context& context, const Counters& counters,
                          const GroupStreams& group) {
  // Which call a member completed is known by its number alone.
  if (group.divergent_numbers) return std::nullopt;
  const std::vector<Stream>& streams = group.streams;
  std::vector<Standing> standings;
  std::uint64_t furthest = 0;
  for (const Stream& s : streams) {
    standings.push_back(standing_of(context, counters, group.group, s));
    // Members that wait for nothing count, too: a call that one of them saw completed holds up
    // nobody.
    if (standings.back().known) furthest = std::max(furthest, standings.back().completed);
  }
  Lag out;
  for (std::size_t s = 0; s < streams.size(); ++s) {
    const Standing& at = standings[s];
    if (!at.pending || !at.known) continue;
    if (*at.pending >= furthest) {
      out.ahead.push_back(streams[s].rank_index);
      out.ahead_waits = *at.pending;
      continue;
    }
    if (out.behind.empty() || *at.pending < out.first) {
      out.first = *at.pending;
      out.call = {streams[s].rank_index, at.pending_call};
    }
    out.behind.push_back(streams[s].rank_index);
    out.lag = std::max(out.lag, furthest - *at.pending);
  }
  if (out.behind.empty() || out.ahead.empty()) return std::nullopt;
  return out;
}

// Times of events, collected once per rank on demand.
class Times {
 public:
  explicit Times(const trace::Run& run) : run_(run), known_(run.ranks.size()) {}

  // The rank's newest event; kNoTime: no event has a time.
  trace::Nanos newest(std::uint32_t rank) { return of(rank).newest; }

  // When the rank saw its call completed; kNoTime: not recorded.
  trace::Nanos completion(CallRef call) { return of(call.rank).completions[call.call]; }

 private:
  struct OfRank {
    trace::Nanos newest = trace::kNoTime;
    std::vector<trace::Nanos> completions;  // by call
  };

  const OfRank& of(std::uint32_t rank) {
    std::optional<OfRank>& known = known_[rank];
    if (known) return *known;
    const trace::RankTrace& trace = run_.ranks[rank];
    known.emplace().completions.resize(trace.calls.size(), trace::kNoTime);
    for (const trace::Event& event : trace.events) {
      known->newest = std::max(known->newest, event.time);
      if (event.kind != trace::EventKind::complete) continue;
      trace::Nanos& completion = known->completions[event.index];
      completion = std::max(completion, event.time);
    }
    return *known;
  }

  const trace::Run& run_;
  std::vector<std::optional<OfRank>> known_;  // by rank index
};
static_assert(trace::kNoTime < 0, "a recorded time is later than none");

// When the last of these ranks saw the group's call `seq` completed; kNoTime: not recorded. Ranks
// and streams are both ascending, and sequence numbers grow within a stream, so one pass suffices.
trace::Nanos completion_time(const Context& context, Times& times,
                             const std::vector<std::uint32_t>& ranks, const GroupStreams& group,
                             std::uint64_t seq) {
  trace::Nanos out = trace::kNoTime;
  auto stream = group.streams.begin();
  for (const std::uint32_t r : ranks) {
    while (stream->rank_index != r) ++stream;
    const std::vector<trace::Call>& calls = context.run.ranks[r].calls;
    for (const auto* part : {&stream->earlier, &stream->calls}) {
      for (auto c = std::lower_bound(
               part->begin(), part->end(), seq,
               [&](std::uint32_t call, std::uint64_t number) { return calls[call].seq < number; });
           c != part->end() && calls[*c].seq == seq; ++c) {
        out = std::max(out, times.completion({r, *c}));
      }
    }
  }
  return out;
}

// One second: an upper bound for the difference of the hosts' clocks, and for the delay after which
// a watchdog sees a completion.
constexpr trace::Nanos kClockSkew = 1'000'000'000;

// Fewer lagging ranks than this are taken for a stall at once.
constexpr std::size_t kManyRanks = 4;

// Whether the lagging ranks may only have been looked at before the others (blocking.h has the
// rule). The times decide between a quarter and a half of the group: a rank whose newest event is
// older than the others' completion was dumped too early to show it.
bool may_be_skew(const Context& context, Times& times, const GroupStreams& group, const Lag& lag) {
  if (context.hung || lag.behind.size() < kManyRanks) return false;
  const std::size_t all = lag.behind.size() + lag.ahead.size();
  if (2 * lag.behind.size() > all) return true;
  if (4 * lag.behind.size() <= all) return false;
  const trace::Nanos completed = completion_time(context, times, lag.ahead, group, lag.first);
  if (completed == trace::kNoTime) return false;
  return std::all_of(lag.behind.begin(), lag.behind.end(),
                     [&](std::uint32_t r) { return times.newest(r) < completed + kClockSkew; });
}

}  // namespace

bool may_be_dumped_earlier(const Context& context, std::size_t group,
                           const std::vector<std::uint32_t>& behind,
                           const std::vector<std::uint32_t>& ahead, std::uint64_t seq) {
  Lag lag;
  lag.behind = behind;
  lag.ahead = ahead;
  lag.first = seq;
  Times times(context.run);
  return may_be_skew(context, times, context.groups[group], lag);
}

DeviceStall find_device_stall(const Context& context) {
  DeviceStall out;
  std::set<std::uint32_t> stalled;
  std::optional<Lag> best;
  std::size_t best_group = 0;
  const Counters counters(context.run);
  Times times(context.run);
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    const GroupStreams& group = context.groups[g];
    std::optional<Lag> lag = lag_in(context, counters, group);
    if (!lag) continue;
    if (may_be_skew(context, times, group, *lag)) {
      out.undecided = fmt::format(
          "{} had not completed {} ({}) when {} had: the dumps do not show whether that many stall "
          "or were only dumped earlier; take them again a minute later",
          context.describe_ranks(lag->behind), context.describe_call(lag->call),
          context.describe_location(lag->call, lag->first), context.describe_ranks(lag->ahead));
      continue;
    }
    stalled.insert(lag->behind.begin(), lag->behind.end());
    // The group that shows it best: the largest one, then the largest lag.
    const auto size = [&](std::size_t i) { return context.groups[i].streams.size(); };
    if (!best || std::pair(size(g), lag->lag) > std::pair(size(best_group), best->lag)) {
      best = std::move(lag);
      best_group = g;
    }
  }
  if (!best) return out;
  out.undecided.clear();  // one certain stall explains the doubtful lags of other groups
  Cause& cause = out.cause.emplace();
  cause.finding = make_finding(RuleId::device_stall);
  Finding& f = cause.finding;
  cause.deviants.assign(stalled.begin(), stalled.end());
  cause.group = best_group;
  cause.seq = best->first;
  const bool one = stalled.size() == 1;
  f.message = fmt::format(
      "{} {} not completed {} ({}), which {} completed; those wait in call {} of the group",
      context.describe_ranks(cause.deviants), one ? "has" : "have",
      context.describe_call(best->call), context.describe_location(best->call, best->first),
      context.describe_ranks(best->ahead), best->ahead_waits);
  f.why =
      "The calls were issued, so the host is not what holds them up: the device or its "
      "transport is.";
  f.group = context.groups[best_group].name;
  f.seq = best->first;
  f.culprits = context.ranks(cause.deviants);
  std::vector<std::uint32_t> all = cause.deviants;
  all.insert(all.end(), best->ahead.begin(), best->ahead.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  f.ranks = context.ranks(all);
  f.evidence.push_back(context.evidence(best->call, "issued, not completed"));
  set_fingerprint(f, "");
  return out;
}

}  // namespace lockstep::verify
