#include "verify/blocking/snapshot.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "verify/wait_words.h"

namespace lockstep {

bool is_snapshot(const Run& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(),
                     [](const RankTrace& t) { return t.snapshot; });
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
