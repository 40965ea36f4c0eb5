#include "verify/blocking/program_divergence.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/blocking/stopped.h"
#include "verify/blocking/unanswered.h"
#include "verify/blocking/witnesses.h"
#include "verify/matching/matching.h"
#include "verify/streams/past.h"

namespace lockstep::verify {

namespace {

// How many wait points are examined. The sister groups of a large job all diverge in the same way.
constexpr std::size_t kMaxPoints = 8;

bool has(const std::vector<std::uint32_t>& ascending, std::uint32_t rank) {
  return std::binary_search(ascending.begin(), ascending.end(), rank);
}

// The index of a call in its group's stream, and of the group; nothing where the group's streams do
// not hold it.
struct InGroup {
  std::size_t group = 0;
  std::uint64_t seq = 0;
};
std::optional<InGroup> find_in_group(const Context& context, CallRef ref) {
  const trace::GroupId id = context.call(ref).group;
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    const GroupStreams& group = context.groups[g];
    if (group.group != id) continue;
    const Stream* const stream = stream_of(group, ref.rank);
    if (stream == nullptr) return std::nullopt;
    const auto call = std::lower_bound(stream->calls.begin(), stream->calls.end(), ref.call);
    if (call == stream->calls.end() || *call != ref.call) return std::nullopt;
    return InGroup{g, group.first_seq + static_cast<std::uint64_t>(call - stream->calls.begin())};
  }
  return std::nullopt;
}

// Whether both ranks made the same calls in the group, and all completed. Then neither left one out
// there; the difference lies in the calls of other groups in between. Calls that did not complete
// prove nothing: equal ones may belong to different instances.
bool completed_alike(const Context& context, const GroupStreams& group, std::uint32_t a,
                     std::uint32_t b) {
  const auto calls_of = [&](std::uint32_t rank) -> const std::vector<std::uint32_t>& {
    return stream_of(group, rank)->calls;
  };
  return std::equal(calls_of(a).begin(), calls_of(a).end(), calls_of(b).begin(), calls_of(b).end(),
                    [&](std::uint32_t i, std::uint32_t j) {
                      const trace::Call& one = context.call({a, i});
                      const trace::Call& other = context.call({b, j});
                      return one.has(trace::kCompleted) && other.has(trace::kCompleted) &&
                             is_like(context, one, other);
                    });
}

// The divergence of two programs, as a deviation of one of them:
//
//   usual     b c       b c      b c
//   deviant   x b c     x        c
//             extra     extra    left out      x: a call that it never made before
//
// Nothing where the two calls were swapped, where the deviant's trace ends too early to see, where
// only one of the ranks is in the call's group, and where both issued it. `goes_on`: the deviant is
// not blocked in its call, so the usual one would have come before.
std::optional<Deviation> deviation_at(const Context& context, const ProgramDivergence& divergence,
                                      bool goes_on = false) {
  const std::vector<trace::Call>& usual = context.run.ranks[divergence.usual].calls;
  const std::vector<trace::Call>& deviant = context.run.ranks[divergence.deviant].calls;
  const std::size_t at = divergence.index;
  if (at >= usual.size() || at >= deviant.size()) return std::nullopt;
  const bool follows = at + 1 < deviant.size() && is_like(context, deviant[at + 1], usual[at]);
  const bool swapped = at + 1 < usual.size() && is_like(context, usual[at + 1], deviant[at]);
  const bool known = std::any_of(
      deviant.begin(), deviant.begin() + divergence.index,
      [&](const trace::Call& c) { return is_same_of_program(context.agreement, c, deviant[at]); });
  const bool ends = at + 1 == deviant.size();
  // Without a past, a call in which the deviant waits may just come in another order.
  const bool unusual =
      is_usual(context.run, context.agreement, {divergence.deviant, divergence.index}) == Usual::no;
  const bool left_out = goes_on && known && !follows && !swapped;
  if (!left_out && ((follows && swapped) || (ends && (known || !unusual)))) return std::nullopt;
  Deviation d;
  d.kind = !left_out && (follows || ends) ? Deviation::Kind::extra : Deviation::Kind::missing;
  d.expected = {divergence.usual, divergence.index};
  d.got = {divergence.deviant, divergence.index};
  const CallRef shown = d.kind == Deviation::Kind::extra ? d.got : d.expected;
  const auto in_group = find_in_group(context, shown);
  if (!in_group || stream_of(context.groups[in_group->group], divergence.usual) == nullptr ||
      stream_of(context.groups[in_group->group], divergence.deviant) == nullptr ||
      completed_alike(context, context.groups[in_group->group], divergence.usual,
                      divergence.deviant)) {
    return std::nullopt;
  }
  d.group = in_group->group;
  d.seq = in_group->seq;
  d.step = context.call(shown).step;
  d.deviants = {divergence.deviant};
  d.reference = {divergence.usual};
  return d;
}

// Whether the deviant's call is a message that came through: its peer made the other side. So the
// two ranks have other parts in the program, as a rank that collects what others send has.
bool was_answered(const Context& context, const ProgramDivergence& divergence) {
  const trace::Call& call = context.call({divergence.deviant, divergence.index});
  return trace::is_point_to_point(context.run.tables.op(call)) && call.has(trace::kCompleted);
}

// Whether the two ranks made a call of the point's group together after their programs diverged.
// Stages of a pipeline do: their programs differ from the first message on.
bool met_since(const Context& context, const WaitPoint& point, const ProgramDivergence& divergence,
               const std::array<std::uint32_t, 2>& ranks) {
  return point.instance > 0 && std::all_of(ranks.begin(), ranks.end(), [&](std::uint32_t rank) {
           const Stream* const stream = stream_of(context.groups[point.group], rank);
           return stream != nullptr && stream->calls.size() >= point.instance &&
                  stream->calls[point.instance - 1] >= divergence.index;
         });
}

// The wait points of collectives that lack ranks, by sequence number; at most kMaxPoints.
std::vector<const WaitPoint*> collective_points(const Context& context, const WaitCause& wait) {
  std::vector<const WaitPoint*> out;
  for (const std::size_t p : wait.points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group != WaitPoint::kPointToPoint && !point.missing.empty()) out.push_back(&point);
  }
  std::stable_sort(out.begin(), out.end(), [&](const WaitPoint* a, const WaitPoint* b) {
    return context.seq_of(*a) < context.seq_of(*b);
  });
  out.resize(std::min(out.size(), kMaxPoints));
  return out;
}

// The calls that one stream of a group has and another lacks.
struct Shift {
  std::size_t first = 0;  // index of the first difference, in both streams
  std::size_t count = 0;
  bool operator==(const Shift&) const = default;
};

// By source locations: the calls of `longer` to leave out so that all of `shorter` agrees. Nothing
// where the two agree anyway, where up to kMaxShift calls do not suffice, and where parameters
// were recorded, which tell calls apart better (find_deviations).
std::optional<Shift> shift_between(const Context& context, const Stream& longer,
                                   const Stream& shorter) {
  const std::vector<trace::Call>& a = context.run.ranks[longer.rank_index].calls;
  const std::vector<trace::Call>& b = context.run.ranks[shorter.rank_index].calls;
  const auto same = [&](std::size_t i, std::size_t j) {
    const trace::Call& x = a[longer.calls[i]];
    const trace::Call& y = b[shorter.calls[j]];
    return x.signature == y.signature && x.at == y.at;
  };
  std::size_t first = 0;
  const std::size_t end = std::min(longer.calls.size(), shorter.calls.size());
  for (std::size_t i = 0; i < end; ++i) {
    const trace::Call& x = a[longer.calls[i]];
    const trace::Call& y = b[shorter.calls[i]];
    // Calls that differ in form are a deviation, which is reported as one.
    if (x.what.value != 0 || y.what.value != 0 ||
        !context.agreement.agree(x.signature, y.signature)) {
      return std::nullopt;
    }
  }
  while (first < end && same(first, first)) ++first;
  if (first == end) return std::nullopt;
  for (std::size_t count = 1; count <= kMaxShift; ++count) {
    std::size_t j = first;
    while (j < shorter.calls.size() && j + count < longer.calls.size() && same(j + count, j)) ++j;
    if (j == shorter.calls.size()) return Shift{first, count};
  }
  return std::nullopt;
}

// The shift as calls that those who wait at the point made too many.
Deviation shifted_at(const Context& context, const WaitPoint& point, const Shift& shift,
                     const Stream& longer, const Stream& shorter) {
  Deviation d;
  d.kind = Deviation::Kind::extra;
  d.group = point.group;
  d.seq = context.groups[point.group].first_seq + shift.first;
  d.deviants = point.waiting;
  d.reference = point.missing;
  d.expected = {shorter.rank_index, shorter.calls[shift.first]};
  d.got = {longer.rank_index, longer.calls[shift.first]};
  d.step = context.call(d.got).step;
  d.count = static_cast<std::uint32_t>(shift.count);
  return d;
}

// Whether the deviant rank, had it left out what the usual one does there, had left out messages,
// too, and yet nobody waits in a message, and most of a group wait with it in its call. So it left
// nothing out: its rounds are just fewer than those of ranks elsewhere, and all of its peers have
// come to their ends with it.
//
//   rank 0 (usual)     reduce(tp0) send(4) | reduce(tp0) send(4) | waits in reduce(tp0)
//   rank 1 (deviant)   reduce(tp0) send(5) | reduce(tp0) send(5) | waits in log(world)
//   rank 4             recv(0)             | recv(0)             | waits in log(world)
//   rank 5             recv(1)             | recv(1)             | waits in log(world)
bool would_have_left_messages(const Context& context, const ProgramDivergence& divergence) {
  constexpr std::uint32_t kMaxRound = 4096;  // calls: a step of a large model has a few thousand
  const std::vector<trace::Call>& usual = context.run.ranks[divergence.usual].calls;
  const std::vector<trace::Call>& deviant = context.run.ranks[divergence.deviant].calls;
  const std::uint32_t at = divergence.index;
  if (at + 1 != deviant.size() || at >= usual.size()) return false;
  const std::size_t its_point = context.where.point_of[divergence.deviant];
  if (its_point == SIZE_MAX) return false;
  const WaitPoint& point = context.where.wait_points[its_point];
  if (point.group == WaitPoint::kPointToPoint ||
      2 * point.waiting.size() <= context.groups[point.group].streams.size()) {
    return false;
  }
  const auto waits_in_message = [](const WaitPoint& p) {
    return p.group == WaitPoint::kPointToPoint;
  };
  if (std::any_of(context.where.wait_points.begin(), context.where.wait_points.end(),
                  waits_in_message)) {
    return false;
  }
  bool has_message = false;
  for (std::uint32_t c = at; c-- > 0 && at - c <= kMaxRound;) {
    // It may have left out what comes before its own call alone.
    if (is_same_of_program(context.agreement, usual[c], deviant[at])) return false;
    has_message = has_message || context.run.tables.is_message(usual[c]);
    if (is_same_of_program(context.agreement, usual[c], usual[at])) return has_message;
  }
  return false;
}

}  // namespace

std::optional<ProgramDivergence> divergence_in_cycle(const Context& context,
                                                     const std::vector<std::size_t>& points) {
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group == WaitPoint::kPointToPoint || point.missing.empty() || point.any_source)
      continue;
    const std::uint32_t waiting = point.waiting[0];
    const std::uint32_t missing = point.missing[0];
    auto found = find_program_divergence(context.run, context.agreement, waiting, missing);
    if (found && !met_since(context, point, *found, {waiting, missing}) &&
        !was_answered(context, *found) && !would_have_left_messages(context, *found)) {
      return found;
    }
  }
  return std::nullopt;
}

bool Vote::contradicts(const Context& context, const std::vector<trace::Rank>& blamed) const {
  const std::vector<trace::Rank> own = context.ranks(deviants);
  const auto deviates = [&](trace::Rank r) {
    return std::binary_search(own.begin(), own.end(), r);
  };
  const auto count = std::count_if(blamed.begin(), blamed.end(), deviates);
  const auto all = static_cast<std::ptrdiff_t>(blamed.size());
  return all > 0 && (count < all || blamed.size() < own.size());
}

namespace {

// Where the two ranks diverge by the votes of the others, if one of them waits there. Stages of a
// pipeline diverge at their first messages, where nobody waits.
std::optional<ProgramDivergence> vote_between(const Context& context, std::uint32_t a,
                                              std::uint32_t b) {
  const auto found = divergence_by_votes(context.run, context.agreement, a, b);
  const auto waits_there = [&](std::uint32_t r) {
    return context.where.positions[r].waiting_in() == found->index;
  };
  return found && (waits_there(a) || waits_there(b)) && !would_have_left_messages(context, *found)
             ? found
             : std::nullopt;
}

// All ranks that deviate as the deviant one does: they diverge from the usual one at the same call,
// or did not issue the call in which that one waits.
std::vector<std::uint32_t> deviants_of(const Context& context,
                                       const std::vector<std::size_t>& points,
                                       const ProgramDivergence& divergence) {
  constexpr std::size_t kMaxAsked = 16;  // each costs a vote
  std::vector<std::uint32_t> candidates =
      ranks_that_diverge_alike(context.run, context.agreement, divergence);
  std::vector<std::uint32_t> in_order{divergence.usual};
  for (const std::size_t p : points) {
    const WaitPoint& usual = context.where.wait_points[p];
    const std::vector<std::uint32_t>& lack = usual.missing.empty() ? usual.behind : usual.missing;
    if (has(usual.waiting, divergence.usual) && has(lack, divergence.deviant) &&
        lack.size() < usual.waiting.size()) {
      candidates = united(candidates, lack);
      in_order = united(in_order, usual.waiting);
    }
  }
  if (candidates.size() > kMaxAsked) return {divergence.deviant};
  const auto deviates_from = [&](std::uint32_t r, std::uint32_t usual) {
    const auto own = vote_between(context, usual, r);
    return own && own->deviant == r;
  };
  std::erase_if(candidates, [&](std::uint32_t r) {
    if (r == divergence.deviant || deviates_from(r, divergence.usual)) return false;
    // Ranks of other groups may have done something else before. So compare with the nearest ranks
    // that wait, which are mostly in the same groups.
    const auto next = std::lower_bound(in_order.begin(), in_order.end(), r);
    return (next == in_order.end() || !deviates_from(r, *next)) &&
           (next == in_order.begin() || !deviates_from(r, *std::prev(next)));
  });
  return candidates;
}

}  // namespace

std::optional<Vote> vote_in_cycle(const Context& context, const std::vector<std::size_t>& points) {
  for (std::size_t i = 0; i < std::min(points.size(), kMaxPoints); ++i) {
    const WaitPoint& point = context.where.wait_points[points[i]];
    if (point.group == WaitPoint::kPointToPoint || point.any_source) continue;
    const std::vector<std::uint32_t> lacked = lacked_by(point);
    if (lacked.empty()) continue;
    if (const auto found = vote_between(context, point.waiting[0], lacked[0]))
      return Vote{*found, deviants_of(context, points, *found)};
  }
  return std::nullopt;
}

std::optional<ProgramDivergence> most_broke_in_cycle(const Context& context,
                                                     const std::vector<std::size_t>& points) {
  for (std::size_t i = 0; i < std::min(points.size(), kMaxPoints); ++i) {
    const WaitPoint& point = context.where.wait_points[points[i]];
    if (point.group == WaitPoint::kPointToPoint || point.any_source) continue;
    // Also those whose devices have not come to the call: their hosts went past another one.
    const std::vector<std::uint32_t> lacked = lacked_by(point);
    if (lacked.empty()) continue;
    auto found =
        most_broke_with_the_past(context.run, context.agreement, point.waiting[0], lacked[0]);
    if (found) return found;
  }
  return std::nullopt;
}

std::optional<Cause> explain_program_divergence(const Context& context,
                                                const ProgramDivergence& divergence) {
  return explain_program_divergence(
      context, divergence, ranks_that_diverge_alike(context.run, context.agreement, divergence));
}

std::optional<Cause> explain_program_divergence(const Context& context,
                                                const ProgramDivergence& divergence,
                                                const std::vector<std::uint32_t>& alike) {
  std::optional<Deviation> d = deviation_at(context, divergence);
  if (!d) return std::nullopt;
  d->deviants.clear();
  d->reference.clear();
  const GroupStreams& group = context.groups[d->group];
  const std::uint64_t index = d->seq - group.first_seq;
  const bool extra = d->kind == Deviation::Kind::extra;
  // Where one of the two has no call of that number at all, whoever has one issued it.
  const Stream& without = *stream_of(group, extra ? divergence.usual : divergence.deviant);
  const bool lacked = without.calls.size() <= index;
  for (const Stream& s : group.streams) {
    const bool deviates = std::binary_search(alike.begin(), alike.end(), s.rank_index);
    const bool issued = lacked && index < s.calls.size();
    // Then it is not an extra call of theirs alone.
    if (extra && issued && !deviates) return std::nullopt;
    (deviates && (extra || !issued) ? d->deviants : d->reference).push_back(s.rank_index);
  }
  return explain_deviation(context, *d);
}

namespace {

// Whether a rank made `calls[end]` once more than it used to in a row: just before there are as
// many like it as were in a row before another call came. A loop with one call a step makes it ever
// again: of "a b b a a | a", as DistributedDataParallel begins, nothing tells. O(end).
bool is_once_more(const Context& context, const std::vector<trace::Call>& calls, std::size_t end) {
  const auto like = [&](std::size_t i) {
    return is_same_of_program(context.agreement, calls[i], calls[end]);
  };
  std::size_t begin = end;
  while (begin > 0 && like(begin - 1)) --begin;
  std::size_t length = 0;
  bool was_as_long = begin == 0;
  for (std::size_t i = 0; i < begin; ++i) {
    was_as_long = was_as_long || (length > 0 && !like(i) && length == end - begin);
    length = like(i) ? length + 1 : 0;
  }
  return begin < end && was_as_long;
}

}  // namespace

std::optional<Cause> explain_other_path(const Context& context, const WaitPoint& point,
                                        const std::vector<std::uint32_t>& idle) {
  if (point.group == WaitPoint::kPointToPoint || point.instance == 0) return std::nullopt;
  const std::uint32_t waiting = point.waiting[0];
  const GroupStreams& group = context.groups[point.group];
  const Stream* const ours = stream_of(group, waiting);
  const Stream* const theirs = stream_of(group, idle[0]);
  if (ours == nullptr || theirs == nullptr || ours->calls.size() <= point.instance ||
      theirs->calls.size() < point.instance) {
    return std::nullopt;
  }
  // Calls of equal form from other lines may have paired before this one.
  const std::optional<Shift> shift = shift_between(context, *ours, *theirs);
  const std::size_t parted = shift ? shift->first : point.instance;
  const auto common = common_start(context.run, context.agreement, waiting, idle[0]);
  // Ranks of different pipeline stages differ from their first call on.
  if (!common || (parted > 0 &&
                  (*common <= ours->calls[parted - 1] || *common <= theirs->calls[parted - 1]))) {
    return std::nullopt;
  }
  if (*common == context.run.ranks[idle[0]].calls.size()) {
    // They just stopped there. A call that the past does not predict is one too many if it is new
    // or repeats the one before it once more than usual; another one may belong to a round that
    // differs.
    const std::vector<trace::Call>& calls = context.run.ranks[waiting].calls;
    const auto same = [&](const trace::Call& c) {
      return is_same_of_program(context.agreement, c, calls[*common]);
    };
    const bool unusual =
        point.waiting.size() <= idle.size() && knows_its_past(context, waiting) &&
        is_usual_anywhere(context.run, context.agreement, {waiting, *common}) == Usual::no &&
        (is_once_more(context, calls, *common) ||
         (std::none_of(calls.begin(), calls.begin() + *common, same) &&
          goes_on_as_usual(context, {waiting, *common})));
    if (!unusual || ours->calls[point.instance] != *common) return std::nullopt;
    Deviation extra = missing_at(context, point, idle);
    turn_around(extra);
    return explain_deviation(context, extra);
  }
  const auto most = most_broke_with_the_past(context.run, context.agreement, waiting, idle[0]);
  const auto divergence =
      most ? most : find_program_divergence(context.run, context.agreement, waiting, idle[0]);
  // One of a pair made a call more: too many, or the other one left it out. Several that make the
  // same call are taken to be right: others skipped a branch.
  if (!divergence && shift && point.waiting.size() == 1 && idle.size() == 1) {
    Deviation either = shifted_at(context, point, *shift, *ours, *theirs);
    either.singled_out = false;
    return explain_deviation(context, either);
  }
  if (!divergence) return std::nullopt;
  std::optional<Deviation> d = deviation_at(context, *divergence, most.has_value());
  if (!d) return std::nullopt;
  const bool waits = divergence->deviant == waiting;
  d->deviants = waits ? point.waiting : idle;
  d->reference = waits ? idle : point.waiting;
  return explain_deviation(context, *d);
}

namespace {

// How many members of the group may wait there, too, unseen: without a trace, or with a file that
// is cut off.
std::size_t unseen_at(const Context& context, const WaitPoint& point) {
  const GroupStreams& group = context.groups[point.group];
  const auto is_unseen = [&](const Stream& s) {
    return context.run.ranks[s.rank_index].open_ended &&
           !std::binary_search(point.waiting.begin(), point.waiting.end(), s.rank_index);
  };
  return group.absent.size() + static_cast<std::size_t>(std::count_if(
                                   group.streams.begin(), group.streams.end(), is_unseen));
}

std::optional<Cause> find_shift_at(const Context& context, const WaitPoint& point) {
  const std::uint32_t waiting = point.waiting[0];
  const std::size_t unseen = unseen_at(context, point);
  bool few_wait = point.waiting.size() + unseen < point.missing.size();
  if (few_wait) {
    const auto most =
        most_broke_with_the_past(context.run, context.agreement, waiting, point.missing[0]);
    if (most && most->deviant == point.missing[0]) {
      // Other sources record more, by which explain_wait() finds all the ranks that did so.
      if (!is_snapshot(context.run)) return std::nullopt;
      return explain_program_divergence(context, *most);
    }
  }
  const GroupStreams& group = context.groups[point.group];
  const Stream* const longer = stream_of(group, waiting);
  const Stream* shorter = nullptr;
  // All missing ranks must give the same result.
  std::optional<Shift> found;
  for (const std::uint32_t r : point.missing) {
    shorter = stream_of(group, r);
    if (longer == nullptr || shorter == nullptr) return std::nullopt;
    const auto shift = shift_between(context, *longer, *shorter);
    if (!shift || (found && *found != *shift)) return std::nullopt;
    found = shift;
  }
  if (!found) return std::nullopt;
  // Most of a group may have left a call out. In dumps its past was asked above, and that of a few
  // is enough.
  if (point.waiting.size() <= point.missing.size() + unseen) {
    const auto vote =
        divergence_by_votes(context.run, context.agreement, waiting, point.missing[0]);
    if (!vote && !(few_wait && is_snapshot(context.run))) return std::nullopt;
    if (vote) few_wait = vote->deviant == waiting;
  }
  Deviation d = shifted_at(context, point, *found, *longer, *shorter);
  if (!few_wait) turn_around(d);
  Cause cause = explain_deviation(context, d);
  cause.finding.why += " Operations and sizes agree; the source locations show it.";
  return cause;
}

}  // namespace

std::optional<Cause> find_shift_before(const Context& context, const WaitCause& wait) {
  for (const WaitPoint* const point : collective_points(context, wait))
    if (auto cause = find_shift_at(context, *point)) return cause;
  return std::nullopt;
}

std::string may_be_ahead(const Context& context, const WaitCause& wait) {
  if (wait.cycle || context.hung) return "";
  const std::vector<const WaitPoint*> points = collective_points(context, wait);
  if (points.empty()) return "";
  const WaitPoint* const point = points[0];
  if (point->waiting.size() > point->missing.size() + unseen_at(context, *point)) return "";
  // Most of the job waits for them: these are not just ahead.
  if (2 * wait.victims.size() > static_cast<std::size_t>(context.run.world_size)) return "";
  const CallRef waited = waiting_call(context, point->waiting[0]);
  const trace::Call& call = context.call(waited);
  for (const std::uint32_t r : point->missing) {
    const std::vector<trace::Call>& calls = context.run.ranks[r].calls;
    const bool known = std::any_of(calls.begin(), calls.end(), [&](const trace::Call& c) {
      return c.group == call.group && c.at == call.at &&
             context.agreement.agree(c.signature, call.signature);
    });
    if (known || context.where.positions[r].waiting_in() != kNoCall) return "";
  }
  return fmt::format(
      "{} issued {} ({}), which {} never called before either: the dumps do not show whether they "
      "are late or the others just ahead; take them again a minute later",
      context.describe_ranks(point->waiting), context.describe_call(waited),
      context.describe_location(waited, context.seq_of(*point)),
      context.describe_ranks(point->missing));
}

}  // namespace lockstep::verify
