#include "verify/blocking/unanswered.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "verify/blocking/messages.h"
#include "verify/matching/matching.h"
#include "verify/streams/batches.h"
#include "verify/streams/loops.h"
#include "verify/streams/past.h"
#include "verify/streams/programs.h"
#include "verify/streams/rounds.h"

namespace lockstep::verify {

namespace {

// Whether the rank made this call once more in its step than in each earlier one, of which there
// are at least two: it runs a part of the step again, as for an evaluation.
bool is_one_more_in_its_step(const Context& context, CallRef waiting) {
  const std::vector<trace::Call>& calls = context.run.ranks[waiting.rank].calls;
  const trace::Call& call = calls[waiting.call];
  if (call.step == trace::kNone) return false;
  std::map<std::int32_t, std::size_t> times;
  for (std::uint32_t c = 0; c <= waiting.call; ++c) {
    if (calls[c].step != trace::kNone && is_same_of_program(context.agreement, calls[c], call))
      ++times[calls[c].step];
  }
  const std::size_t now = times[call.step];
  times.erase(call.step);
  // Not where steps differ: one may have more micro-batches.
  return times.size() >= 2 && std::all_of(times.begin(), times.end(), [&](const auto& entry) {
           return entry.second + 1 == now;
         });
}

// Judges by the waiting rank's past. If the call is usual at this point, the others left it out. If
// another call is usual there and this one is new, it is one too many. Where the past does not show
// what is usual: if the rank made the call before, the others left it out; otherwise nothing is
// known.
Fault fault_at(const Context& context, CallRef waiting, bool others_finished) {
  if (!knows_its_past(context, waiting.rank) ||
      is_at_end_of_varying_loop(context.run, context.agreement, waiting)) {
    return Fault::unknown;
  }
  if (is_one_more_in_its_step(context, waiting)) return Fault::extra;
  const Usual usual = is_usual(context.run, context.agreement, waiting);
  const trace::RankTrace& trace = context.run.ranks[waiting.rank];
  const bool made_before = std::any_of(
      trace.calls.begin(), trace.calls.begin() + waiting.call, [&](const trace::Call& c) {
        return is_same_of_program(context.agreement, c, trace.calls[waiting.call]);
      });
  // A call like the one just before it may be the same call, made twice.
  const bool repeats =
      waiting.call > 0 && is_same_of_program(context.agreement, trace.calls[waiting.call - 1],
                                             trace.calls[waiting.call]);
  // It was, if there were never this many in a row. In the first such row nothing shows how long it
  // should be.
  const Usual run =
      repeats ? is_run_usual(context.run, context.agreement, waiting) : Usual::unknown;
  if (usual == Usual::no && run == Usual::no) return Fault::extra;
  if (usual == Usual::yes)
    return repeats && run == Usual::unknown ? Fault::unknown : Fault::missing;
  if (usual == Usual::no) {
    // A rank whose program finished did not begin a new part of it.
    const bool new_part =
        !others_finished && (!goes_on_as_usual(context, waiting) ||
                             may_begin_new_part(context.run, context.agreement, waiting));
    return made_before || new_part ? Fault::unknown : Fault::extra;
  }
  if (repeats) return Fault::unknown;
  return made_before ? Fault::missing : Fault::unknown;
}

// Among the ranks that wait in a call, the one whose program diverges last from that of `other`,
// and where; nothing if even that one diverged before the group's previous call. The nearest ranks
// are asked first: neighbours are mostly in one stage of a pipeline.
struct Nearest {
  std::uint32_t rank = 0, diverged = 0;
};
std::optional<Nearest> nearest_program(const Context& context, std::vector<std::uint32_t> waiting,
                                       std::uint32_t other, CallRef call) {
  constexpr std::size_t kMaxAsked = 8;  // each costs a comparison of two programs
  const auto distance = [&](std::uint32_t r) { return r < other ? other - r : r - other; };
  const std::size_t asked = std::min(waiting.size(), kMaxAsked);
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
    const auto diverged = common_start(context.run, context.agreement, waiting[i], other);
    if (diverged && (!best || *diverged > best->diverged)) best = Nearest{waiting[i], *diverged};
  }
  if (!best || calls_before(best->rank, best->diverged) != calls_before(call.rank, call.call))
    return std::nullopt;
  return best;
}

}  // namespace

std::optional<std::uint32_t> left_out_by_its_past(const Context& context, std::uint32_t rank,
                                                  const trace::Call& call) {
  constexpr std::uint32_t kLate = 256;  // calls that a host may have issued since
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  const auto like = [&](std::uint32_t c) {
    return is_same_of_program(context.agreement, calls[c], call);
  };
  // Whoever leaves a call out goes on with what comes after it.
  const auto came_after_it = [&](std::uint32_t c) {
    for (std::uint32_t i = 1; i < c; ++i)
      if (like(i - 1) && is_same_of_program(context.agreement, calls[i], calls[c])) return true;
    return false;
  };
  // A rank that waits may come to the call afterwards.
  const bool may_come = context.where.positions[rank].waiting_in() != kNoCall;
  const auto size = static_cast<std::uint32_t>(calls.size());
  const std::uint32_t end = may_come ? size - 1 : size;
  for (std::uint32_t c = end; c > 0 && end - c < kLate && !like(c - 1); --c) {
    const std::vector<std::uint32_t> usual = usual_calls(context.run, context.agreement, {rank, c});
    if (usual.size() == 1 && like(usual[0]) && (c == size || (!like(c) && came_after_it(c))))
      return c;
  }
  return std::nullopt;
}

namespace {

// The same where the ranks run different programs, as the stages of a pipeline do: each side is
// judged by its own past.
bool most_left_it_out(const Context& context, CallRef call,
                      const std::vector<std::uint32_t>& missing) {
  constexpr std::size_t kMaxAsked = 8;  // each costs the search of a past, several times
  if (is_usual(context.run, context.agreement, call) != Usual::yes) return false;
  return std::all_of(
      missing.begin(),
      missing.begin() + static_cast<std::ptrdiff_t>(std::min(missing.size(), kMaxAsked)),
      [&](std::uint32_t r) {
        return knows_its_past(context, r) && left_out_by_its_past(context, r, context.call(call));
      });
}

// Some ranks wait in a call, others never issued it. Whether the larger of the two sides deviates:
// it broke with its past where the programs of two ranks diverge, or most ranks outside the group
// do what the smaller side does.
bool most_deviate(const Context& context, CallRef call, const std::vector<std::uint32_t>& waiting,
                  const std::vector<std::uint32_t>& missing) {
  const auto nearest = nearest_program(context, waiting, missing[0], call);
  // Stages of a pipeline diverge earlier, and each does there what it always does.
  if (!nearest ||
      !is_like(context, context.call({nearest->rank, nearest->diverged}), context.call(call))) {
    return waiting.size() < missing.size() && most_left_it_out(context, call, missing);
  }
  const auto divergence =
      find_program_divergence(context.run, context.agreement, nearest->rank, missing[0]);
  return divergence &&
         divergence->deviant == (waiting.size() > missing.size() ? nearest->rank : missing[0]);
}

// Judges by numbers, then by the programs of other ranks, then by the past. If most of the group
// went on without the few that wait, the few issued one too many, unless those broke with their
// past and the few did not. On a tie the ranks of other
// groups show what is usual, and if they do not, the past of those who wait. But if the batches of
// those who went on lacked the call's modality, that is why the call is missing, whatever the
// numbers.
Fault fault_of(const Context& context, const Deviation& missing) {
  const std::size_t gone = missing.deviants.size();
  const std::size_t waiting = missing.reference.size();
  if (do_batches_explain(context.run, context.modalities, context.agreement, missing.deviants[0],
                         missing.expected, missing.batch())) {
    return Fault::missing;
  }
  if (gone != waiting) {
    const bool most_wait = waiting > gone;
    const bool deviate =
        most_deviate(context, missing.expected, missing.reference, missing.deviants);
    return most_wait == deviate ? Fault::extra : Fault::missing;
  }
  const auto divergence = find_program_divergence(context.run, context.agreement,
                                                  missing.reference[0], missing.deviants[0]);
  if (divergence) {
    const trace::GroupId group = context.groups[missing.group].group;
    const bool waits = divergence->deviant == missing.reference[0];
    const bool usual_calls_it = calls_in(context.run, divergence->usual, divergence->index, group);
    const bool deviant_calls_it =
        calls_in(context.run, divergence->deviant, divergence->index, group);
    if (waits && deviant_calls_it && !usual_calls_it) return Fault::extra;
    if (!waits && usual_calls_it && !deviant_calls_it) return Fault::missing;
    // Both are calls of the group: what follows shows which side has an extra one.
    if (usual_calls_it && deviant_calls_it) {
      const std::vector<trace::Call>& usual = context.run.ranks[divergence->usual].calls;
      const std::vector<trace::Call>& deviant = context.run.ranks[divergence->deviant].calls;
      const std::size_t next = divergence->index + std::size_t{1};
      const auto is_next = [&](const std::vector<trace::Call>& there, const trace::Call& call) {
        return next < there.size() && is_like(context, there[next], call);
      };
      const bool one_more = is_next(deviant, usual[divergence->index]);
      const bool one_less = is_next(usual, deviant[divergence->index]);
      if (waits && one_more && !one_less) return Fault::extra;
      if (!waits && one_less && !one_more) return Fault::missing;
    }
  }
  const bool others_finished =
      context.where.positions[missing.deviants[0]].state == Position::State::finished;
  return fault_at(context, missing.expected, others_finished);
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

namespace {

// Whether ranks that run different programs wait in the call: they come to it independently of each
// other, so that it belongs to the job, whatever their pasts say.
bool is_made_independently(const Context& context, const Deviation& missing) {
  constexpr std::size_t kMaxAsked = 8;  // each costs a comparison of two programs
  const std::uint32_t first = missing.reference[0];
  const std::size_t asked = std::min(missing.reference.size(), kMaxAsked);
  return std::any_of(missing.reference.begin(),
                     missing.reference.begin() + static_cast<std::ptrdiff_t>(asked),
                     [&](std::uint32_t r) {
                       const auto common = common_start(context.run, context.agreement, first, r);
                       return common && *common < missing.expected.call;
                     });
}

}  // namespace

void decide_fault(const Context& context, Deviation& missing) {
  Fault fault = fault_of(context, missing);
  const std::size_t waiting = missing.reference.size();
  const std::size_t gone = missing.deviants.size();
  if (fault == Fault::extra && waiting >= gone && is_made_independently(context, missing))
    fault = waiting > gone ? Fault::missing : Fault::unknown;
  missing.singled_out = fault != Fault::unknown;
  if (fault == Fault::extra) turn_around(missing);
}

namespace {

// Explains the only message of a cycle whose other side nobody posted.
Cause explain_lacking_message(const Context& context, const WaitPoint& message) {
  const CallRef waiting = waiting_call(context, message.waiting[0]);
  if (const WaitPoint* const earlier = awaited_since_earlier_step(context, message))
    return left_out_message(context, *earlier, waiting.rank);
  const WaitPoint* const crossed = crossed_message(context, message);
  if (crossed == nullptr) return explain_message(context, message);
  // Two messages in two orders: the waiting rank's sisters show which is right, else its other
  // rounds.
  const std::vector<std::uint32_t> odd = ranks_unlike_sisters(context, {&message});
  const Usual usual = odd == message.missing ? Usual::yes
                      : odd == std::vector{waiting.rank}
                          ? Usual::no
                          : is_usual_anywhere(context.run, context.agreement, waiting);
  if (usual == Usual::yes) return explain_message(context, message);
  if (usual == Usual::no) return left_out_message(context, *crossed, waiting.rank);
  return explain_message_of_either(context, message);
}

}  // namespace

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
  if (lacking->group == WaitPoint::kPointToPoint) return explain_lacking_message(context, *lacking);
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
      turn_around(d);
      return explain_deviation(context, d);
    }
    // The rank waits in the very call that came instead: it may have issued the usual one next.
    if (broke.kind != EditKind::missing || blocks_in_it ||
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

}  // namespace lockstep::verify
