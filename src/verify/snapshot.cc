#include "verify/snapshot.h"

#include <algorithm>
#include <map>
#include <set>
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

Standing standing_of(const Context& context, const GroupStreams& group, const Stream& stream) {
  const RankTrace& trace = context.run.ranks[stream.rank_index];
  Standing out;
  for (const std::uint32_t c : stream.calls) {
    const Call& call = trace.calls[c];
    out.known |= call.has(kStarted) || call.has(kCompleted) || call.has(kWaitEnded);
    if (call.has(kCompleted) || call.has(kWaitEnded)) {
      out.completed = std::max<std::uint64_t>(out.completed, call.seq + std::uint64_t{1});
    } else if (!out.pending) {
      out.pending = call.seq;
      out.pending_call = c;
    }
  }
  for (const RankTrace::Progress& progress : trace.progress) {
    if (progress.group != group.group || !progress.completed) continue;
    out.completed = std::max(out.completed, *progress.completed);
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

// The group's standings before the streams were brought to one start.
std::vector<Stream> whole_streams(const Context& context, const GroupStreams& group) {
  std::vector<Stream> out;
  for (const Stream& s : group.streams) {
    Stream whole;
    whole.rank_index = s.rank_index;
    const std::vector<Call>& calls = context.run.ranks[s.rank_index].calls;
    for (std::uint32_t c = 0; c < calls.size(); ++c) {
      if (calls[c].group == group.group &&
          !is_point_to_point(context.run.tables.signatures[calls[c].signature].op)) {
        whole.calls.push_back(c);
      }
    }
    out.push_back(std::move(whole));
  }
  return out;
}

struct Lag {
  std::vector<std::uint32_t> behind, ahead;  // rank indices
  std::uint64_t lag = 0;
  std::uint64_t first = 0;        // the oldest call that a laggard did not complete
  std::uint64_t ahead_waits = 0;  // where those ahead wait
  CallRef call{0, kNoCall};
};

std::optional<Lag> lag_in(const Context& context, const GroupStreams& group) {
  const std::vector<Stream> streams = whole_streams(context, group);
  std::vector<Standing> standings;
  std::uint64_t furthest = 0;
  for (const Stream& s : streams) {
    standings.push_back(standing_of(context, group, s));
    if (standings.back().pending && standings.back().known)
      furthest = std::max(furthest, standings.back().completed);
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

}  // namespace

bool is_snapshot(const Run& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(),
                     [](const RankTrace& t) { return t.snapshot; });
}

std::optional<Cause> find_device_stall(const Context& context) {
  std::set<std::uint32_t> stalled;
  std::optional<Lag> best;
  std::size_t best_group = 0;
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    const GroupStreams& group = context.groups[g];
    std::optional<Lag> lag = lag_in(context, group);
    if (!lag) continue;
    stalled.insert(lag->behind.begin(), lag->behind.end());
    const auto size = [&](std::size_t i) { return context.groups[i].streams.size(); };
    if (!best || std::pair(size(g), lag->lag) > std::pair(size(best_group), best->lag)) {
      best = std::move(lag);
      best_group = g;
    }
  }
  if (!best) return std::nullopt;
  Cause cause;
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
  return cause;
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
  for (const Stream& s : group.streams) {
    if (s.rank_index == rank) return &s;
  }
  return nullptr;
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
  if (wait.circle) return "";
  const WaitPoint* const point = collective_point(context, wait);
  if (point == nullptr || point->waiting.size() > point->missing.size()) return "";
  const CallRef waited = waiting_call(context, point->waiting[0]);
  const Call& call = context.call(waited);
  for (const std::uint32_t r : point->missing) {
    const std::vector<Call>& calls = context.run.ranks[r].calls;
    const bool known = std::any_of(calls.begin(), calls.end(), [&](const Call& c) {
      return c.group == call.group && c.signature == call.signature && c.at == call.at;
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
