#include "verify/snapshot.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "verify/wait_words.h"

namespace lockstep {

namespace {

// How far one member got in a group's collectives.
struct Standing {
  std::uint64_t completed = 0;           // as a count: all below are done
  std::optional<std::uint64_t> pending;  // number of its oldest call without completion
  std::uint32_t pending_call = kNoCall;
  bool known = false;  // the source tells completed calls from others
};

// What the ranks' own counters say was completed: by group id, then by rank index, both ascending.
class Counters {
 public:
  struct Completed {
    std::uint32_t rank_index;
    std::uint64_t count;
  };

  explicit Counters(const Run& run) : by_group_(run.tables.groups.size()) {
    for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
      for (const RankTrace::Progress& progress : run.ranks[r].progress) {
        if (progress.completed) by_group_[progress.group.value].push_back({r, *progress.completed});
      }
    }
  }

  std::span<const Completed> of(GroupId group, std::uint32_t rank_index) const {
    const std::vector<Completed>& all = by_group_[group.value];
    const auto less = [](const Completed& c, std::uint32_t r) { return c.rank_index < r; };
    const auto first = std::lower_bound(all.begin(), all.end(), rank_index, less);
    const auto last = std::lower_bound(first, all.end(), rank_index + 1, less);
    return {first, last};
  }

 private:
  std::vector<std::vector<Completed>> by_group_;
};

// Of all calls of the stream, also of those in front of the common start.
Standing standing_of(const Context& context, const Counters& counters, GroupId group,
                     const Stream& stream) {
  const RankTrace& trace = context.run.ranks[stream.rank_index];
  Standing out;
  const auto look_at = [&](std::uint32_t c) {
    const Call& call = trace.calls[c];
    out.known |= call.has(kStarted) || call.has(kCompleted) || call.has(kWaitEnded);
    if (call.has(kCompleted) || call.has(kWaitEnded)) {
      out.completed = std::max<std::uint64_t>(out.completed, call.seq + std::uint64_t{1});
    } else if (!out.pending) {
      out.pending = call.seq;
      out.pending_call = c;
    }
  };
  for (const std::uint32_t c : stream.earlier) look_at(c);
  for (const std::uint32_t c : stream.calls) look_at(c);
  for (const Counters::Completed& counted : counters.of(group, stream.rank_index)) {
    out.completed = std::max(out.completed, counted.count);
    out.known = true;
  }
  // An entry may lag behind the counter: what the counter says is done is done.
  if (out.pending && *out.pending < out.completed) {
    out.completed = *out.pending;
  }
  // Where completed entries were left out of the dump, the oldest pending one follows them.
  if (out.pending) out.completed = std::max(out.completed, *out.pending);
  return out;
}

struct Lag {
  std::vector<std::uint32_t> behind, ahead;  // rank indices
  std::uint64_t lag = 0;
  std::uint64_t first = 0;        // the oldest call that a laggard did not complete
  std::uint64_t ahead_waits = 0;  // where those ahead wait
  CallRef call{0, kNoCall};
};

// O(calls of the group).
std::optional<Lag> lag_in(const Context& context, const Counters& counters,
                          const GroupStreams& group) {
  const std::vector<Stream>& streams = group.streams;
  std::vector<Standing> standings;
  std::uint64_t furthest = 0;
  for (const Stream& s : streams) {
    standings.push_back(standing_of(context, counters, group.group, s));
    // Also of members that wait for nothing: a call that one of them saw completed holds up nobody,
    // and who does not see it yet was looked at a little earlier.
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

// Whether nobody is missing where a wait-for graph, which knows no devices, shows a wait: of every
// message that its roots hold up, both sides were posted.
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

// Where the wait-for graph, which knows no devices, shows nobody that is missing.
std::optional<Cause> find_device_circle(const Context& context) {
  const std::vector<WaitCause> waits = wait_causes(context.where);
  const bool somebody_missing = std::any_of(waits.begin(), waits.end(), [&](const WaitCause& wait) {
    return !all_posted(context, wait);
  });
  if (somebody_missing) return std::nullopt;
  return DeviceOrder(context).find_circle();
}

// When things were recorded, found out once for each rank that somebody asks about.
class Times {
 public:
  explicit Times(const Run& run) : run_(run), known_(run.ranks.size()) {}

  // The rank's newest event; kNoTime: no event has a time.
  Nanos newest(std::uint32_t rank) { return of(rank).newest; }

  // When the rank saw its call completed; kNoTime: not recorded.
  Nanos completion(CallRef call) { return of(call.rank).completions[call.call]; }

 private:
  struct OfRank {
    Nanos newest = kNoTime;
    std::vector<Nanos> completions;  // by call
  };

  const OfRank& of(std::uint32_t rank) {
    std::optional<OfRank>& known = known_[rank];
    if (known) return *known;
    const RankTrace& trace = run_.ranks[rank];
    known.emplace().completions.resize(trace.calls.size(), kNoTime);
    for (const Event& event : trace.events) {
      known->newest = std::max(known->newest, event.time);
      if (event.kind != EventKind::complete) continue;
      Nanos& completion = known->completions[event.index];
      completion = std::max(completion, event.time);
    }
    return *known;
  }

  const Run& run_;
  std::vector<std::optional<OfRank>> known_;  // by rank index
};
static_assert(kNoTime < 0, "a recorded time is later than none");

// When the last of those ranks saw the group's call `seq` completed; kNoTime: not recorded. The
// ranks ascend, as the streams do, and a stream's numbers grow.
Nanos completion_time(const Context& context, Times& times, const std::vector<std::uint32_t>& ranks,
                      const GroupStreams& group, std::uint64_t seq) {
  Nanos out = kNoTime;
  auto stream = group.streams.begin();
  for (const std::uint32_t r : ranks) {
    while (stream->rank_index != r) ++stream;
    const std::vector<Call>& calls = context.run.ranks[r].calls;
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

// Clocks of hosts differ by so much at most, and a watchdog sees a completion so much later at
// most.
constexpr Nanos kClockSkew = 1'000'000'000;

// Fewer ranks than that do stall at once.
constexpr std::size_t kManyRanks = 4;

// Whether the laggards may only have been looked at before the others.
bool may_be_skew(const Context& context, Times& times, const GroupStreams& group, const Lag& lag) {
  if (lag.behind.size() < kManyRanks) return false;
  const std::size_t all = lag.behind.size() + lag.ahead.size();
  if (2 * lag.behind.size() > all) return true;
  if (4 * lag.behind.size() <= all) return false;
  const Nanos completed = completion_time(context, times, lag.ahead, group, lag.first);
  if (completed == kNoTime) return false;
  return std::all_of(lag.behind.begin(), lag.behind.end(),
                     [&](std::uint32_t r) { return times.newest(r) < completed + kClockSkew; });
}

}  // namespace

bool is_snapshot(const Run& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(),
                     [](const RankTrace& t) { return t.snapshot; });
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
      out.undecided = context.rank_words(lag->behind) + " had not completed " +
                      context.call_words(lag->call) + " (" +
                      context.place_words(lag->call, lag->first) + ") when " +
                      context.rank_words(lag->ahead) +
                      " had: the dumps do not tell whether so many stall or were only looked at "
                      "earlier; take them again a minute later";
      continue;
    }
    stalled.insert(lag->behind.begin(), lag->behind.end());
    const auto size = [&](std::size_t i) { return context.groups[i].streams.size(); };
    if (!best || std::pair(size(g), lag->lag) > std::pair(size(best_group), best->lag)) {
      best = std::move(lag);
      best_group = g;
    }
  }
  if (!best) {
    if (out.undecided.empty()) out.cause = find_device_circle(context);
    return out;
  }
  out.undecided.clear();
  Cause& cause = out.cause.emplace();
  cause.finding = make_finding(RuleId::device_stall);
  Finding& f = cause.finding;
  cause.deviants.assign(stalled.begin(), stalled.end());
  cause.group = best_group;
  cause.seq = best->first;
  const bool one = stalled.size() == 1;
  f.message = context.rank_words(cause.deviants) + (one ? " has" : " have") + " not completed " +
              context.call_words(best->call) + " (" + context.place_words(best->call, best->first) +
              "), which " + context.rank_words(best->ahead) + " completed; those wait in call " +
              std::to_string(best->ahead_waits) + " of the group";
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

namespace {

// The wait point of a group's collective in which the victims of a wait stand first.
const WaitPoint* collective_point(const Context& context, const WaitCause& wait) {
  const WaitPoint* best = nullptr;
  for (const std::size_t p : wait.points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group == WaitPoint::kPointToPoint || point.missing.empty()) continue;
    if (best == nullptr || context.seq_of(point) < context.seq_of(*best)) best = &point;
  }
  return best;
}

const Stream* stream_of(const GroupStreams& group, std::uint32_t rank) {
  const auto found =
      std::lower_bound(group.streams.begin(), group.streams.end(), rank,
                       [](const Stream& s, std::uint32_t r) { return s.rank_index < r; });
  return found != group.streams.end() && found->rank_index == rank ? &*found : nullptr;
}

// How many of `few`'s calls, from its first difference on, must go for all the rest of `many` to
// agree; nothing: no small number does.
std::optional<std::pair<std::size_t, std::size_t>> extra_calls(const Context& context,
                                                               const Stream& few,
                                                               const Stream& many) {
  const std::vector<Call>& a = context.run.ranks[few.rank_index].calls;
  const std::vector<Call>& b = context.run.ranks[many.rank_index].calls;
  const auto same = [&](std::size_t i, std::size_t j) {
    const Call& x = a[few.calls[i]];
    const Call& y = b[many.calls[j]];
    return x.signature == y.signature && x.at == y.at && x.what == y.what;
  };
  std::size_t first = 0;
  const std::size_t shorter = std::min(few.calls.size(), many.calls.size());
  // Calls that do not agree are a deviation, and said to be one.
  for (std::size_t i = 0; i < shorter; ++i) {
    if (!context.agreement.agree(a[few.calls[i]].signature, b[many.calls[i]].signature)) {
      return std::nullopt;
    }
  }
  while (first < shorter && same(first, first)) ++first;
  if (first == shorter) return std::nullopt;
  for (std::size_t extra = 1; extra <= kMostExtra; ++extra) {
    std::size_t j = first;
    while (j < many.calls.size() && j + extra < few.calls.size() && same(j + extra, j)) ++j;
    if (j == many.calls.size()) return std::pair(first, extra);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Cause> find_extra_before(const Context& context, const WaitCause& wait) {
  const WaitPoint* const point = collective_point(context, wait);
  if (point == nullptr || point->waiting.size() >= point->missing.size()) return std::nullopt;
  const GroupStreams& group = context.groups[point->group];
  const Stream* const few = stream_of(group, point->waiting[0]);
  std::optional<std::pair<std::size_t, std::size_t>> found;
  for (const std::uint32_t r : point->missing) {
    const Stream* const many = stream_of(group, r);
    if (few == nullptr || many == nullptr) return std::nullopt;
    const auto extra = extra_calls(context, *few, *many);
    if (!extra || (found && *found != *extra)) return std::nullopt;
    found = extra;
  }
  if (!found) return std::nullopt;
  const CallRef call{few->rank_index, few->calls[found->first]};
  const std::uint64_t seq = group.first_seq + found->first;
  Cause cause;
  cause.finding = make_finding(RuleId::extra_collective);
  Finding& f = cause.finding;
  f.message = context.rank_words(point->waiting) + " issued " + context.call_words(call) + " (" +
              context.place_words(call, seq) + ") and the others did not";
  if (found->second > 1)
    f.message += ", with " + plural(found->second - 1, "more call") + " like it";
  f.message += "; from there on the calls pair one off, and " + context.rank_words(point->waiting) +
               (point->waiting.size() == 1 ? " waits" : " wait") +
               " in a call that nobody else makes";
  f.why =
      "Sizes and operations agree; the source places show it: without the extra call, every "
      "later one agrees.";
  cause.deviants = point->waiting;
  cause.group = point->group;
  cause.seq = seq;
  f.group = group.name;
  f.seq = seq;
  f.culprits = context.ranks(point->waiting);
  std::vector<std::uint32_t> all = point->waiting;
  all.insert(all.end(), point->missing.begin(), point->missing.end());
  std::sort(all.begin(), all.end());
  f.ranks = context.ranks(all);
  f.evidence.push_back(context.evidence(call, "the extra call"));
  set_fingerprint(f, describe(context.run.tables, context.call(call).signature));
  return cause;
}

std::string may_be_ahead(const Context& context, const WaitCause& wait) {
  if (all_posted(context, wait)) {
    return context.rank_words(wait.roots) +
           ": both sides of the messages that are under way were " +
           "posted; the dumps do not tell whether they are late or the transport hangs";
  }
  if (wait.circle) return "";
  const WaitPoint* const point = collective_point(context, wait);
  if (point == nullptr || point->waiting.size() > point->missing.size()) return "";
  const CallRef waited = waiting_call(context, point->waiting[0]);
  const Call& call = context.call(waited);
  for (const std::uint32_t r : point->missing) {
    const std::vector<Call>& calls = context.run.ranks[r].calls;
    const bool known = std::any_of(calls.begin(), calls.end(), [&](const Call& c) {
      return c.group == call.group && c.at == call.at &&
             context.agreement.agree(c.signature, call.signature);
    });
    if (known || context.where.positions[r].waiting_in() != kNoCall) return "";
  }
  return context.rank_words(point->waiting) + " issued " + context.call_words(waited) + " (" +
         context.place_words(waited, context.seq_of(*point)) + "), which " +
         context.rank_words(point->missing) +
         " never called before either: the dumps do not tell whether they are late or the others "
         "just ahead; take them again a minute later";
}

}  // namespace lockstep
