#include "verify/blocking/unanswered.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <fmt/core.h>

#include "base/text.h"
#include "verify/blocking/stopped.h"
#include "verify/blocking/witnesses.h"
#include "verify/context.h"
#include "verify/matching/matching.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

trace::Op op_of(const Context& context, CallRef call) {
  return context.run.tables.signatures[context.call(call).signature].op;
}

// Whether calls of two ranks may be the same one: by group, form and line of the program.
bool is_like(const Context& context, const trace::Call& a, const trace::Call& b) {
  const bool same_line = a.at == b.at || a.at.value == 0 || b.at.value == 0;
  return a.group == b.group && same_line && context.agreement.agree(a.signature, b.signature);
}

// Where a call lacks ranks: they left it out, those who wait issued one too many, or neither can be
// told.
enum class Fault : std::uint8_t { missing, extra, unknown };

// Whether the call's batch has further calls.
bool shares_a_batch(const trace::RankTrace& trace, std::uint32_t call) {
  const auto same = [&](std::uint32_t other) {
    return other < trace.calls.size() &&
           trace.calls[other].coalesced == trace.calls[call].coalesced;
  };
  return trace.calls[call].coalesced != trace::kNone && (same(call - 1) || same(call + 1));
}

// Whether without this call, which the past does not predict, the rank did what its past predicts.
// A call of a new kind may also open a new part of the program (a checkpoint), then other calls
// follow. False where the rank blocks in it: what would have come is unknown.
bool goes_on_as_usual(const Context& context, CallRef added) {
  const std::vector<trace::Call>& calls = context.run.ranks[added.rank].calls;
  if (added.call + 1 == calls.size()) return false;
  const std::vector<std::uint32_t> usual = usual_calls(context.run, context.agreement, added);
  return std::any_of(usual.begin(), usual.end(), [&](std::uint32_t u) {
    return is_same_of_program(context.agreement, calls[u], calls[added.call + 1]);
  });
}

// Judges by the waiting rank's past. If the call is usual at this point, the others left it out. If
// another call is usual there and this one is new, it is one too many. Where the past does not tell
// what is usual, a call that the rank made before was left out by the others; about a new one
// nothing is known.
Fault fault_at(const Context& context, CallRef waiting, bool others_finished) {
  if (!knows_its_past(context, waiting.rank)) return Fault::unknown;
  const Usual usual = is_usual(context.run, context.agreement, waiting);
  const trace::RankTrace& trace = context.run.ranks[waiting.rank];
  const bool made_before = std::any_of(
      trace.calls.begin(), trace.calls.begin() + waiting.call, [&](const trace::Call& c) {
        return is_same_of_program(context.agreement, c, trace.calls[waiting.call]);
      });
  // A call like the one just before it may be that one, made twice.
  const bool repeats =
      waiting.call > 0 && is_same_of_program(context.agreement, trace.calls[waiting.call - 1],
                                             trace.calls[waiting.call]);
  // It was, where so many never came in a row. In the first row of such calls nothing tells how
  // long it is to be.
  const Usual run =
      repeats ? is_run_usual(context.run, context.agreement, waiting) : Usual::unknown;
  if (usual == Usual::no && run == Usual::no) return Fault::extra;
  if (usual == Usual::yes)
    return repeats && run == Usual::unknown ? Fault::unknown : Fault::missing;
  if (usual == Usual::no) {
    // Whose program finished had no new part to come to.
    const bool new_part = !others_finished && !goes_on_as_usual(context, waiting);
    return made_before || new_part ? Fault::unknown : Fault::extra;
  }
  if (repeats) return Fault::unknown;
  return made_before ? Fault::missing : Fault::unknown;
}

// Of the ranks that wait in a call, the one whose program parts last from that of `other`, with the
// place where it does; nothing where even that one parted before the group's call before. The
// nearest ranks are asked first: neighbours are mostly in one stage of a pipeline.
struct Nearest {
  std::uint32_t rank = 0, parted = 0;
};
std::optional<Nearest> nearest_program(const Context& context, std::vector<std::uint32_t> waiting,
                                       std::uint32_t other, CallRef call) {
  constexpr std::size_t kMostAsked = 8;  // each costs a comparison of two programs
  const auto distance = [&](std::uint32_t r) { return r < other ? other - r : r - other; };
  const std::size_t asked = std::min(waiting.size(), kMostAsked);
  std::partial_sort(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(asked),
                    waiting.end(),
                    [&](std::uint32_t a, std::uint32_t b) { return distance(a) < distance(b); });
  const auto calls_before = [&](std::uint32_t rank, std::uint32_t end) {
    const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
    return std::count_if(calls.begin(), calls.begin() + end,
                         [&](const trace::Call& c) { return c.group == context.call(call).group; });
  };
  std::optional<Nearest> best;
  for (std::size_t i = 0; i < asked; ++i) {
    const auto parted = common_start(context.run, context.agreement, waiting[i], other);
    if (parted && (!best || *parted > best->parted)) best = Nearest{waiting[i], *parted};
  }
  if (!best || calls_before(best->rank, best->parted) != calls_before(call.rank, call.call))
    return std::nullopt;
  return best;
}

// Of ranks that wait in a call and those that lack it, the more numerous side: whether it deviates
// all the same. It broke with its past where the programs of two ranks part, or most ranks beside
// the group do as the fewer.
bool most_deviate(const Context& context, CallRef call, const std::vector<std::uint32_t>& waiting,
                  const std::vector<std::uint32_t>& missing) {
  const auto nearest = nearest_program(context, waiting, missing[0], call);
  if (!nearest) return false;
  auto parting =
      most_broke_with_the_past(context.run, context.agreement, nearest->rank, missing[0]);
  if (!parting) parting = find_parting(context.run, context.agreement, nearest->rank, missing[0]);
  return parting &&
         parting->deviant == (waiting.size() > missing.size() ? nearest->rank : missing[0]);
}

// Judges by numbers, then by the programs of other ranks, then by the past. If most of the group
// went on without the few that wait, the few issued one too many, unless those broke with their
// past and the few did not. On a tie the ranks of other
// groups tell what is usual, and if they do not, the past of those who wait. But if the batches of
// those who went on lacked the call's modality, that is why the call is missing, whatever the
// numbers.
Fault fault_of(const Context& context, const Deviation& missing) {
  const std::size_t gone = missing.deviants.size();
  const std::size_t waiting = missing.reference.size();
  const bool lacks =
      !context.modalities.lacking(missing.deviants[0], missing.reference[0], missing.batch())
           .empty();
  if (lacks) return Fault::missing;
  if (gone != waiting) {
    const bool most_wait = waiting > gone;
    const bool deviate =
        most_deviate(context, missing.expected, missing.reference, missing.deviants);
    return most_wait == deviate ? Fault::extra : Fault::missing;
  }
  if (const auto parting =
          find_parting(context.run, context.agreement, missing.reference[0], missing.deviants[0])) {
    const trace::GroupId group = context.groups[missing.group].group;
    const bool waits = parting->deviant == missing.reference[0];
    const bool usual_calls_it = calls_in(context.run, parting->usual, parting->index, group);
    const bool deviant_calls_it = calls_in(context.run, parting->deviant, parting->index, group);
    if (waits && deviant_calls_it && !usual_calls_it) return Fault::extra;
    if (!waits && usual_calls_it && !deviant_calls_it) return Fault::missing;
    // Both are calls of the group: what follows tells which side has one more.
    if (usual_calls_it && deviant_calls_it) {
      const std::vector<trace::Call>& usual = context.run.ranks[parting->usual].calls;
      const std::vector<trace::Call>& deviant = context.run.ranks[parting->deviant].calls;
      const std::size_t next = parting->index + std::size_t{1};
      const auto is_next = [&](const std::vector<trace::Call>& there, const trace::Call& call) {
        return next < there.size() && is_like(context, there[next], call);
      };
      const bool one_more = is_next(deviant, usual[parting->index]);
      const bool one_less = is_next(usual, deviant[parting->index]);
      if (waits && one_more && !one_less) return Fault::extra;
      if (!waits && one_less && !one_more) return Fault::missing;
    }
  }
  const bool others_finished =
      context.where.positions[missing.deviants[0]].state == Position::State::finished;
  return fault_at(context, missing.expected, others_finished);
}

// Turns a missing call into an extra one: the waiting ranks deviate from those who went on.
void turn_into_extra(Deviation& missing) {
  missing.kind = Deviation::Kind::extra;
  std::swap(missing.deviants, missing.reference);
  std::swap(missing.got, missing.expected);
}

// Whether the rank posted any message in the group.
bool posted_messages(const Context& context, std::uint32_t rank, trace::GroupId group) {
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  return std::any_of(calls.begin(), calls.end(), [&](const trace::Call& c) {
    return c.group == group &&
           trace::is_point_to_point(context.run.tables.signatures[c.signature].op);
  });
}

// Judges a message: the first one of its kind is one too many where the rank's past predicts
// another call.
Fault message_fault(const Context& context, const WaitPoint& point) {
  const CallRef waiting = waiting_call(context, point.waiting[0]);
  const trace::RankTrace& trace = context.run.ranks[waiting.rank];
  if (!knows_its_past(context, waiting.rank)) return Fault::unknown;
  const trace::Call& message = trace.calls[waiting.call];
  const bool made_before = std::any_of(
      trace.calls.begin(), trace.calls.begin() + waiting.call, [&](const trace::Call& c) {
        return c.group == message.group && c.peer == message.peer &&
               context.run.tables.signatures[c.signature].op ==
                   context.run.tables.signatures[message.signature].op;
      });
  // The pipelines beside are the best witnesses: they tell which of the two sides is unusual.
  const std::vector<std::uint32_t> odd = part_from_sisters(context, {&point});
  if (!odd.empty() && odd == point.missing) return Fault::missing;
  if (made_before) return Fault::missing;
  if (waiting.call == 0) return Fault::unknown;
  if (is_usual(context.run, context.agreement, waiting) == Usual::no) return Fault::extra;
  // In a program's first round every message is the first of its kind, which says nothing. Sister
  // groups that make such messages, or a peer that takes part in the exchange, speak against a
  // fault of this rank.
  if (is_made_in_sister_groups(context, waiting)) return Fault::missing;
  const bool in_exchange = std::any_of(
      point.missing.begin(), point.missing.end(),
      [&](std::uint32_t peer) { return posted_messages(context, peer, message.group); });
  return in_exchange ? Fault::unknown : Fault::extra;
}

constexpr const char* kEitherWay =
    "The traces do not show which: either it is missing on the one side, or it is one too many on "
    "the other.";

Cause message_cause(const Context& context, const WaitPoint& message, Fault fault) {
  Cause cause;
  cause.finding = make_finding(RuleId::p2p_unmatched);
  Finding& f = cause.finding;
  f.message = describe_awaited(context, message) +
              (fault == Fault::extra ? ", which never took part in such a message"
                                     : ", which never posted its side and continued");
  cause.deviants = fault == Fault::extra ? message.waiting : message.missing;
  if (fault == Fault::unknown) {
    f.why = kEitherWay;
  } else {
    f.culprits = context.ranks(cause.deviants);
  }
  locate_cause(context, message, cause);
  return cause;
}

// A message that `rank` left out. It may have posted those of later rounds, which take its place.
Cause left_out_message(const Context& context, const WaitPoint& message, std::uint32_t rank) {
  Cause cause = message_cause(context, message, Fault::missing);
  if (!std::binary_search(message.behind.begin(), message.behind.end(), rank)) return cause;
  cause.finding.message =
      fmt::format("{}; {} left out its side and posted those of later rounds",
                  describe_awaited(context, message), context.describe_ranks({rank}));
  cause.deviants = {rank};
  cause.finding.culprits = context.ranks(cause.deviants);
  return cause;
}

// Whether others wait at `point` in the call that the rank's past predicts (`usual`), or, for a
// message, in its other side.
bool is_call_at(const Context& context, const WaitPoint& point, std::uint32_t rank,
                const trace::Call& usual) {
  const CallRef waiting = waiting_call(context, point.waiting[0]);
  const trace::Call& call = context.call(waiting);
  const auto lacks = [&](const std::vector<std::uint32_t>& ranks) {
    return std::binary_search(ranks.begin(), ranks.end(), rank);
  };
  if (point.mismatched || call.group != usual.group) return false;
  // Messages have no names: the one of the rank's next round takes the place of the one left out.
  if (!lacks(point.missing) && (point.group != WaitPoint::kPointToPoint || !lacks(point.behind))) {
    return false;
  }
  if (point.group != WaitPoint::kPointToPoint)
    return call.what == usual.what && context.agreement.agree(call.signature, usual.signature);
  const trace::Signature& mine = context.run.tables.signatures[usual.signature];
  const trace::Signature& theirs = context.run.tables.signatures[call.signature];
  return usual.peer == context.run.ranks[waiting.rank].rank && mine.op != theirs.op &&
         trace::is_point_to_point(mine.op);
}

}  // namespace

bool is_missing_by_most(const Context& context, const WaitPoint& point) {
  return point.waiting.size() < point.missing.size() &&
         most_deviate(context, waiting_call(context, point.waiting[0]), point.waiting,
                      point.missing);
}

Deviation missing_at(const Context& context, const WaitPoint& point,
                     std::vector<std::uint32_t> deviants) {
  Deviation d;
  d.kind = Deviation::Kind::missing;
  d.group = point.group;
  d.seq = context.seq_of(point);
  d.expected = waiting_call(context, point.waiting[0]);
  const BatchNumber batch = context.modalities.batch_of(d.expected.rank, d.expected.call);
  d.step = batch.step;
  d.micro_batch = batch.micro;
  d.reference = point.waiting;
  d.got = {deviants[0], newest_call(context, deviants[0])};
  d.deviants = std::move(deviants);
  return d;
}

void decide_fault(const Context& context, Deviation& missing) {
  const Fault fault = fault_of(context, missing);
  missing.singled_out = fault != Fault::unknown;
  if (fault == Fault::extra) turn_into_extra(missing);
}

bool is_new_kind_of_message(const Context& context, const WaitPoint& message) {
  return message_fault(context, message) == Fault::extra;
}

Cause explain_message(const Context& context, const WaitPoint& message) {
  const CallRef call = waiting_call(context, message.waiting[0]);
  const bool in_exchange = shares_a_batch(context.run.ranks[call.rank], call.call);
  return message_cause(context, message,
                       in_exchange ? Fault::missing : message_fault(context, message));
}

std::optional<Cause> explain_lost_message(const Context& context,
                                          const std::vector<std::size_t>& points) {
  // Looks for: rank a waits for a message of peer b, b waits in a collective, and the collective
  // lacks nobody but a.
  for (const std::size_t p : points) {
    const WaitPoint& message = context.where.wait_points[p];
    if (message.group != WaitPoint::kPointToPoint || message.missing.size() != 1) continue;
    const std::uint32_t peer = message.missing[0];
    if (context.where.point_of[peer] == SIZE_MAX) continue;
    const WaitPoint& collective = context.where.wait_points[context.where.point_of[peer]];
    if (collective.group == WaitPoint::kPointToPoint || collective.mismatched) continue;
    if (collective.missing != message.waiting) continue;
    const bool most =
        2 * collective.waiting.size() > context.groups[collective.group].streams.size();
    // In a dump, which has only a rank's last calls, the majority in the collective decides. For
    // whole programs the comparison of streams is better evidence.
    const bool by_majority = most && is_snapshot(context.run);
    if (!by_majority && !is_new_kind_of_message(context, message)) continue;
    return explain_message(context, message);
  }
  return std::nullopt;
}

std::optional<Cause> explain_left_out_call(const Context& context,
                                           const std::vector<std::size_t>& points,
                                           const std::vector<Break>& breaks) {
  const WaitPoint* lacking = nullptr;
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.missing.empty()) continue;
    if (lacking != nullptr) return std::nullopt;
    lacking = &point;
  }
  if (lacking == nullptr || lacking->unknown_member || lacking->any_source) return std::nullopt;
  // The missing rank's host may block and just not have reached the call. If some other rank broke
  // with its past, that rank is the reason.
  const bool elsewhere =
      !breaks.empty() && std::none_of(breaks.begin(), breaks.end(), [&](const Break& b) {
        return std::binary_search(lacking->missing.begin(), lacking->missing.end(), b.rank);
      });
  if (elsewhere) return std::nullopt;
  if (lacking->group == WaitPoint::kPointToPoint) return explain_message(context, *lacking);
  Deviation d = missing_at(context, *lacking, lacking->missing);
  decide_fault(context, d);
  Cause cause = explain_deviation(context, d);
  if (!d.singled_out) {
    cause.finding.why = kEitherWay;
  } else if (cause.finding.rule == RuleId::missing_collective) {
    cause.finding.why =
        "The other calls of the cycle were issued by all their members; they are queued after this "
        "one.";
  }
  return cause;
}

std::optional<Cause> explain_broken_habit(const Context& context,
                                          const std::vector<std::size_t>& points,
                                          const std::vector<Break>& breaks) {
  if (breaks.size() != 1) return std::nullopt;
  const Break& broke = breaks[0];
  const std::vector<trace::Call>& calls = context.run.ranks[broke.rank].calls;
  const bool blocks_in_it = newest_call(context, broke.rank) == broke.call;
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (broke.kind == EditKind::extra && point.group != WaitPoint::kPointToPoint &&
        point.waiting == std::vector{broke.rank} && !point.missing.empty() &&
        waiting_call(context, broke.rank).call == broke.call) {
      Deviation d = missing_at(context, point, point.missing);
      turn_into_extra(d);
      return explain_deviation(context, d);
    }
    // The rank waits in the very call that came instead: it may have issued the usual one next.
    // That is a common error with two collectives, or two messages. A message that comes after the
    // collective that ends the round would be a strange program; one too few is a wrong count of
    // micro-batches.
    const bool is_alike = trace::is_point_to_point(op_of(context, {broke.rank, broke.call})) ==
                          (point.group == WaitPoint::kPointToPoint);
    const bool may_be_swapped = blocks_in_it && is_alike;
    if (broke.kind != EditKind::missing || may_be_swapped ||
        !is_call_at(context, point, broke.rank, calls[broke.usual])) {
      continue;
    }
    Cause cause;
    if (point.group == WaitPoint::kPointToPoint) {
      cause = left_out_message(context, point, broke.rank);
    } else {
      Deviation d = missing_at(context, point, {broke.rank});
      d.got.call = broke.call;
      cause = explain_deviation(context, d);
    }
    cause.finding.evidence.push_back(context.evidence(
        {broke.rank, broke.call}, fmt::format("in earlier rounds, {} came here",
                                              context.describe_call({broke.rank, broke.usual}))));
    return cause;
  }
  return std::nullopt;
}

std::optional<Cause> explain_message_of_sisters(const Context& context,
                                                const std::vector<std::size_t>& points,
                                                std::uint32_t odd) {
  const std::uint32_t waits = context.where.positions[odd].waiting_in();
  // In a message, it may just be the one that comes out of order.
  if (waits == kNoCall || trace::is_point_to_point(op_of(context, {odd, waits})))
    return std::nullopt;
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group != WaitPoint::kPointToPoint || point.mismatched) continue;
    const std::vector<std::uint32_t> lacked = lacked_by(point);
    if (!std::binary_search(lacked.begin(), lacked.end(), odd)) continue;
    const CallRef waiting = waiting_call(context, point.waiting[0]);
    const trace::Op other_side =
        op_of(context, waiting) == trace::Op::send ? trace::Op::recv : trace::Op::send;
    if (leaves_out_message(context, odd, context.call(waiting).group, waiting.rank, other_side))
      return left_out_message(context, point, odd);
  }
  return std::nullopt;
}

namespace {

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

// Whether both ranks made the same calls in the group, and each completed. Then neither left one
// out there: it only came at another time, and the difference lies in the calls in between. Of
// calls that did not complete, equal ones may be different ones.
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

// Where the two ranks' programs part, as a deviation of one of them:
//
//   usual     b c       b c      b c
//   deviant   x b c     x        c
//             extra     extra    left out      x: a call that it never made before
//
// Nothing where the two calls changed places, where the deviant's trace ends too early to tell,
// where the call belongs to a group of only one of them, and where both issued it. `goes_on`: the
// deviant is not blocked in its call, so that the usual one would have come before.
std::optional<Deviation> deviation_at(const Context& context, const Parting& parting,
                                      bool goes_on = false) {
  const std::vector<trace::Call>& usual = context.run.ranks[parting.usual].calls;
  const std::vector<trace::Call>& deviant = context.run.ranks[parting.deviant].calls;
  const std::size_t at = parting.index;
  if (at >= usual.size() || at >= deviant.size()) return std::nullopt;
  const bool follows = at + 1 < deviant.size() && is_like(context, deviant[at + 1], usual[at]);
  const bool swapped = at + 1 < usual.size() && is_like(context, usual[at + 1], deviant[at]);
  const bool known = std::any_of(
      deviant.begin(), deviant.begin() + parting.index,
      [&](const trace::Call& c) { return is_same_of_program(context.agreement, c, deviant[at]); });
  const bool ends = at + 1 == deviant.size();
  // Without a past, a call in which the deviant waits may just come in another order.
  const bool unusual =
      is_usual(context.run, context.agreement, {parting.deviant, parting.index}) == Usual::no;
  const bool left_out = goes_on && known && !follows && !swapped;
  if (!left_out && ((follows && swapped) || (ends && (known || !unusual)))) return std::nullopt;
  Deviation d;
  d.kind = !left_out && (follows || ends) ? Deviation::Kind::extra : Deviation::Kind::missing;
  d.expected = {parting.usual, parting.index};
  d.got = {parting.deviant, parting.index};
  const CallRef shown = d.kind == Deviation::Kind::extra ? d.got : d.expected;
  const auto in_group = find_in_group(context, shown);
  if (!in_group || stream_of(context.groups[in_group->group], parting.usual) == nullptr ||
      stream_of(context.groups[in_group->group], parting.deviant) == nullptr ||
      completed_alike(context, context.groups[in_group->group], parting.usual, parting.deviant)) {
    return std::nullopt;
  }
  d.group = in_group->group;
  d.seq = in_group->seq;
  d.step = context.call(shown).step;
  d.deviants = {parting.deviant};
  d.reference = {parting.usual};
  return d;
}

}  // namespace

namespace {

// Whether the two ranks made a call of the point's group together after their programs parted, as
// the stages of a pipeline do, which differ from their first message on.
bool met_since(const Context& context, const WaitPoint& point, const Parting& parting,
               const std::array<std::uint32_t, 2>& ranks) {
  return point.instance > 0 && std::all_of(ranks.begin(), ranks.end(), [&](std::uint32_t rank) {
           const Stream* const stream = stream_of(context.groups[point.group], rank);
           return stream != nullptr && stream->calls.size() >= point.instance &&
                  stream->calls[point.instance - 1] >= parting.index;
         });
}

}  // namespace

std::optional<Parting> parting_in_cycle(const Context& context,
                                        const std::vector<std::size_t>& points) {
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group == WaitPoint::kPointToPoint || point.missing.empty() || point.any_source)
      continue;
    const std::uint32_t waiting = point.waiting[0];
    const std::uint32_t missing = point.missing[0];
    auto found = find_parting(context.run, context.agreement, waiting, missing);
    if (found && !met_since(context, point, *found, {waiting, missing})) return found;
  }
  return std::nullopt;
}

std::optional<Parting> most_broke_in_cycle(const Context& context,
                                           const std::vector<std::size_t>& points) {
  // The sister groups of a large job all part in the same way.
  constexpr std::size_t kMostPoints = 8;
  for (std::size_t i = 0; i < std::min(points.size(), kMostPoints); ++i) {
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

std::optional<Cause> explain_parting(const Context& context, const Parting& parting) {
  std::optional<Deviation> d = deviation_at(context, parting);
  if (!d) return std::nullopt;
  const std::vector<std::uint32_t> alike =
      ranks_that_part_alike(context.run, context.agreement, parting);
  d->deviants.clear();
  d->reference.clear();
  for (const Stream& s : context.groups[d->group].streams) {
    const bool deviates = std::binary_search(alike.begin(), alike.end(), s.rank_index);
    (deviates ? d->deviants : d->reference).push_back(s.rank_index);
  }
  return explain_deviation(context, *d);
}

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
  const auto common = common_start(context.run, context.agreement, waiting, idle[0]);
  // Ranks of different pipeline stages differ from their first call on.
  if (!common || *common <= ours->calls[point.instance - 1] ||
      *common <= theirs->calls[point.instance - 1]) {
    return std::nullopt;
  }
  if (*common == context.run.ranks[idle[0]].calls.size()) {
    // They just stopped there. A call that the past does not predict is one too many if it is new
    // or repeats the one before it; another one may belong to a round that differs.
    const std::vector<trace::Call>& calls = context.run.ranks[waiting].calls;
    const auto same = [&](const trace::Call& c) {
      return is_same_of_program(context.agreement, c, calls[*common]);
    };
    const bool unusual =
        point.waiting.size() <= idle.size() && knows_its_past(context, waiting) &&
        is_usual(context.run, context.agreement, {waiting, *common}) == Usual::no &&
        (same(calls[*common - 1]) || (std::none_of(calls.begin(), calls.begin() + *common, same) &&
                                      goes_on_as_usual(context, {waiting, *common})));
    if (!unusual || ours->calls[point.instance] != *common) return std::nullopt;
    Deviation extra = missing_at(context, point, idle);
    turn_into_extra(extra);
    return explain_deviation(context, extra);
  }
  const auto most = most_broke_with_the_past(context.run, context.agreement, waiting, idle[0]);
  const auto parting = most ? most : find_parting(context.run, context.agreement, waiting, idle[0]);
  if (!parting) return std::nullopt;
  std::optional<Deviation> d = deviation_at(context, *parting, most.has_value());
  if (!d) return std::nullopt;
  const bool waits = parting->deviant == waiting;
  d->deviants = waits ? point.waiting : idle;
  d->reference = waits ? idle : point.waiting;
  return explain_deviation(context, *d);
}

bool is_snapshot(const trace::Run& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(),
                     [](const trace::RankTrace& t) { return t.snapshot; });
}

namespace {

// The earliest wait point of a collective that lacks ranks, by sequence number.
const WaitPoint* collective_point(const Context& context, const WaitCause& wait) {
  const WaitPoint* best = nullptr;
  for (const std::size_t p : wait.points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group == WaitPoint::kPointToPoint || point.missing.empty()) continue;
    if (best == nullptr || context.seq_of(point) < context.seq_of(*best)) best = &point;
  }
  return best;
}

// The index of the first difference, and the number of `few`'s calls to leave out there so that all
// the rest of `many` agrees. Nothing where up to kMostExtra do not suffice.
std::optional<std::pair<std::size_t, std::size_t>> extra_calls(const Context& context,
                                                               const Stream& few,
                                                               const Stream& many) {
  const std::vector<trace::Call>& a = context.run.ranks[few.rank_index].calls;
  const std::vector<trace::Call>& b = context.run.ranks[many.rank_index].calls;
  const auto same = [&](std::size_t i, std::size_t j) {
    const trace::Call& x = a[few.calls[i]];
    const trace::Call& y = b[many.calls[j]];
    return x.signature == y.signature && x.at == y.at && x.what == y.what;
  };
  std::size_t first = 0;
  const std::size_t shorter = std::min(few.calls.size(), many.calls.size());
  // Calls that differ in form are a deviation, which is reported as one.
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
  if (const auto most = most_broke_with_the_past(context.run, context.agreement, point->waiting[0],
                                                 point->missing[0]);
      most && most->deviant == point->missing[0]) {
    return explain_parting(context, *most);
  }
  const GroupStreams& group = context.groups[point->group];
  const Stream* const few = stream_of(group, point->waiting[0]);
  // All missing ranks must give the same result.
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
  const std::string who = context.describe_ranks(point->waiting);
  f.message = fmt::format("{} issued {} ({}) and the others did not", who,
                          context.describe_call(call), context.describe_location(call, seq));
  if (found->second > 1)
    f.message += fmt::format(", with {} like it", plural(found->second - 1, "more call"));
  f.message += fmt::format(
      "; from there on the calls pair one off, and {} {} in a call that no other rank makes", who,
      point->waiting.size() == 1 ? "waits" : "wait");
  f.why =
      "Sizes and operations agree; the source locations show it: without the extra call, every "
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
  set_fingerprint(f, trace::describe(context.run.tables, context.call(call).signature));
  return cause;
}

std::string may_be_ahead(const Context& context, const WaitCause& wait) {
  if (wait.cycle) return "";
  const WaitPoint* const point = collective_point(context, wait);
  if (point == nullptr || point->waiting.size() > point->missing.size()) return "";
  // Most of the job waits for them: these are not just ahead.
  if (2 * wait.victims.size() > context.run.ranks.size()) return "";
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
