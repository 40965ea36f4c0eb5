#include "verify/blocking/passed_by.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "trace/groups.h"
#include "trace/nccl_calls.h"
#include "verify/blocking/stalls.h"
#include "verify/blocking/unanswered.h"
#include "verify/blocking/witnesses.h"
#include "verify/matching/matching.h"
#include "verify/streams/batches.h"
#include "verify/streams/past.h"

namespace lockstep::verify {

namespace {

using State = Position::State;

// Whether in the rank's past a call like `waited` came after one like its current call. Then the
// rank has not skipped `waited`; it has not reached it yet. With a past of "a b | a b" and the
// current call a, a peer that waits in b waits for a call that is still to come.
bool comes_later(const Context& context, CallRef current, CallRef waited) {
  const std::vector<trace::Call>& calls = context.run.ranks[current.rank].calls;
  const auto like = [&](const trace::Call& a, const trace::Call& b) {
    return a.group == b.group && a.what == b.what &&
           context.agreement.agree(a.signature, b.signature);
  };
  const trace::Call& now = calls[current.call];
  const trace::Call& other = context.call(waited);
  // Backwards, so that `seen` holds for the calls after the latest one like the current call. The
  // current step is incomplete and says nothing about the order.
  bool seen = false;
  for (std::size_t c = current.call; c-- > 0;) {
    if (calls[c].step == now.step) continue;
    if (like(calls[c], now)) return seen;
    seen = seen || like(calls[c], other);
  }
  return false;
}

// Whether the rank issues the calls of `waited`'s group from another thread than its call `c`, as
// far as its last one of the group shows. How far one thread came says nothing about the other:
// asynchronous checkpoints have a group and a thread of their own.
bool is_other_threads(const Context& context, std::uint32_t rank, std::uint32_t c,
                      const trace::Call& waited) {
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  const auto last = std::find_if(calls.rbegin(), calls.rend(), [&](const trace::Call& call) {
    return call.group == waited.group;
  });
  return last != calls.rend() && last->thread != calls[c].thread;
}

// Whether the rank left out a call that it made in an earlier round. A round is what it issues
// between two calls like its newest one: a substitute for steps, where none were recorded.
//
//   c … b … c … c      the newest call is c; b came in the round before the last, so b was left out
//
// A step may hold several such rounds: "c … c … b" has b after every second c. So the round is
// compared with the one that ends in the same context, by the calls before it.
bool broke_its_round(const Context& context, std::uint32_t rank, const trace::Call& left_out) {
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  const std::uint32_t newest = newest_call(context, rank);
  if (newest == kNoCall || is_other_threads(context, rank, newest, left_out)) return false;
  const auto like = [&](std::uint32_t c, const trace::Call& other) {
    return is_same_of_program(context.agreement, calls[c], other);
  };
  // Whether the round that ends with call `last` has the call.
  const auto has = [&](std::uint32_t last) {
    for (std::uint32_t c = last; c-- > 0 && !like(c, calls[last]);)
      if (like(c, left_out)) return true;
    return false;
  };
  const std::vector<std::uint32_t> next =
      usual_calls(context.run, context.agreement, {rank, newest + 1});
  return !next.empty() && !has(newest) && has(next[0] - 1);
}

// Whether the rank made a whole round of calls since the place of the call in which others wait at
// `point`: a collective that it shares with one of them, which that one made after the call, and
// then the same collective once more. In whatever order the two make the calls of a round, the call
// is not still to come. Only where nothing but the issue of calls was recorded: otherwise
// completions show it better.
//
//   waits     reduce | barrier  reduce | reduce | reduce
//   the rank  reduce |          reduce | reduce | reduce
bool went_a_round_past(const Context& context, std::uint32_t rank, const WaitPoint& point) {
  if (!issued_alone(context)) return false;
  const CallRef waited = waiting_call(context, point.waiting[0]);
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  return std::any_of(context.groups.begin(), context.groups.end(), [&](const GroupStreams& group) {
    const Stream* const theirs = stream_of(group, waited.rank);
    const Stream* const own = stream_of(group, rank);
    if (theirs == nullptr || own == nullptr || !group.comparable) return false;
    const auto after = static_cast<std::size_t>(
        std::upper_bound(theirs->calls.begin(), theirs->calls.end(), waited.call) -
        theirs->calls.begin());
    if (after >= std::min(theirs->calls.size(), own->calls.size())) return false;
    if (is_other_threads(context, rank, own->calls[after], context.call(waited))) return false;
    const trace::Call& first = calls[own->calls[after]];
    bool any_between = false;  // equal calls in a row are no rounds
    for (std::size_t c = own->calls[after] + std::size_t{1}; c < calls.size(); ++c) {
      if (!is_same_of_program(context.agreement, calls[c], first))
        any_between = true;
      else if (any_between)
        return true;
    }
    return false;
  });
}

// Whether the rank and ranks that wait at `point` wait for each other: some of them never issued
// the call in which the rank itself waits. Then the ranks took two calls in different orders, and
// neither skipped one:
//
//   rank 0 (missing at `point`)  waits in a, issues b next
//   rank 1 (waits at `point`)    waits in b, issues a next
bool crosses(const Context& context, const WaitCause& wait, std::uint32_t rank,
             const WaitPoint& point) {
  return std::any_of(wait.points.begin(), wait.points.end(), [&](std::size_t p) {
    const WaitPoint& own = context.where.wait_points[p];
    return std::binary_search(own.waiting.begin(), own.waiting.end(), rank) &&
           std::any_of(point.waiting.begin(), point.waiting.end(), [&](std::uint32_t other) {
             return std::binary_search(own.missing.begin(), own.missing.end(), other);
           });
  });
}

// Whether the waiting rank had issued a collective like the rank's newest one, with the same number
// or a later one in the same group or a sister of it, before it came to the call in which it waits.
// Then the rank, which has come no further, may still come to that call, however its last rounds
// differ: a loss that is averaged in every second step and a barrier after every third make rounds
// with and without the barrier.
bool came_no_further(const Context& context, std::uint32_t rank, CallRef waited) {
  const std::uint32_t own = newest_call(context, rank);
  if (own == kNoCall) return false;
  const trace::Call& newest = context.call({rank, own});
  const trace::RankTrace::Membership* const group =
      trace::membership(context.run.ranks[rank], newest.group);
  if (group == nullptr || context.run.tables.is_message(newest)) {
    return false;
  }
  const trace::RankTrace& waiting = context.run.ranks[waited.rank];
  const auto end = waiting.calls.begin() + waited.call;
  return std::any_of(waiting.calls.begin(), end, [&](const trace::Call& call) {
    if (call.seq < newest.seq || call.what != newest.what || context.run.tables.is_message(call) ||
        !context.agreement.agree(call.signature, newest.signature)) {
      return false;
    }
    const trace::RankTrace::Membership* const theirs = trace::membership(waiting, call.group);
    return theirs != nullptr &&
           (call.group == newest.group || are_sisters(context.run.tables, *theirs, *group));
  });
}

// Whether a rank went past the call in which others wait at `point`. It did if it is in a later
// step, or in the same step with a batch that lacks a modality which theirs held. A rank that waits
// at an earlier call of the same group is late and did not go past. Over NCCL, a host issues calls
// without waiting, so there a round without the call shows it too, except for hosts that wait for
// each other in two calls.
bool passed_by(const Context& context, const WaitCause& wait, std::uint32_t rank,
               const WaitPoint& point) {
  const CallRef waited = waiting_call(context, point.waiting[0]);
  const std::int32_t step = context.call(waited).step;
  const Position& position = context.where.positions[rank];
  const bool queued = context.semantics == CallSemantics::nccl;
  const auto round_lacks_it = [&] {
    return queued && !crosses(context, wait, rank, point) &&
           !came_no_further(context, rank, waited) &&
           broke_its_round(context, rank, context.call(waited));
  };
  // Without steps, only the rounds are left to judge by.
  if (step == trace::kNone || position.step == trace::kNone) return round_lacks_it();
  const bool lacks =
      do_batches_explain(context.run, context.modalities, context.agreement, rank, waited,
                         context.modalities.batch_of(waited.rank, waited.call));
  if (const std::uint32_t own = newest_call(context, rank); own != kNoCall) {
    if (is_other_threads(context, rank, own, context.call(waited))) return false;
    const trace::Call& call = context.call({rank, own});
    // Within a step only a collective of another group shows that the rank went past. A message may
    // come before the call, and so does a collective of the same group in which the rank waits.
    const bool message = context.run.tables.is_message(call);
    const bool other_group = call.group != context.call(waited).group;
    // A call without a step of its own (a barrier between two steps) counts as in the rank's step.
    const std::int32_t own_step = call.step == trace::kNone ? position.step : call.step;
    if (own_step != step) return own_step > step && (message || other_group || queued);
    if (message || !other_group) return false;
    if (lacks) return !comes_later(context, {rank, own}, waited);
    return round_lacks_it();
  }
  // The rank waits nowhere: it finished, died, or hangs outside of any call.
  return position.step > step || (position.state == State::finished && lacks);
}

// Whether the rank's last collective of the group came before those that all members' recordings
// hold, and not just before. It has still to make those in between, so it went past none:
//
//   rank 0   150 151 152
//   rank 1               … 167 168 169      the streams are compared from 167 on
bool stopped_before_start(const Context& context, const GroupStreams& group, const Stream& own) {
  if (!own.calls.empty() || own.earlier.empty()) return false;
  const std::vector<trace::Call>& calls = context.run.ranks[own.rank_index].calls;
  return calls[own.earlier.back()].seq + std::uint64_t{1} < group.first_seq;
}

// Whether some member completed the call, and so every member issued it, if only after its dump was
// written. A call with a root may end on the ranks that only give, or only take, before the others
// come.
bool was_issued_by_all(const Context& context, const WaitPoint& point) {
  return !trace::nccl_has_root(
             context.run.tables.op(context.call(waiting_call(context, point.waiting[0])))) &&
         !completed_by(context, point).empty();
}

}  // namespace

std::vector<Deviation> passed_by_deviations(const Context& context, const WaitCause& wait) {
  std::vector<Deviation> out;
  for (const std::size_t p : wait.points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group == WaitPoint::kPointToPoint || was_issued_by_all(context, point)) continue;
    // A replay that takes devices to be slower than they were does not let ranks come to calls that
    // they did issue.
    std::vector<std::uint32_t> deviants = point.missing;
    const GroupStreams& group = context.groups[point.group];
    std::erase_if(deviants, [&](std::uint32_t r) {
      const Stream* const own = stream_of(group, r);
      return own != nullptr &&
             (own->calls.size() > point.instance || stopped_before_start(context, group, *own));
    });
    // Where one of them went on for a round, the others do not come to the call either.
    if (std::none_of(deviants.begin(), deviants.end(),
                     [&](std::uint32_t r) { return went_a_round_past(context, r, point); })) {
      // A victim has just not got that far.
      std::erase_if(deviants, [&](std::uint32_t r) {
        return !std::binary_search(wait.roots.begin(), wait.roots.end(), r) ||
               !passed_by(context, wait, r, point);
      });
    }
    if (deviants.empty()) continue;
    Deviation d = missing_at(context, point, std::move(deviants));
    decide_fault(context, d);
    out.push_back(std::move(d));
  }
  std::stable_sort(out.begin(), out.end(), [](const Deviation& a, const Deviation& b) {
    return std::pair(a.step, a.seq) < std::pair(b.step, b.seq);
  });
  return out;
}

Cause explain_passed_by(const Context& context, const std::vector<Deviation>& deviations) {
  Cause cause = explain_deviation(context, deviations[0]);
  for (std::size_t d = 1; d < deviations.size(); ++d) {
    Cause other = explain_deviation(context, deviations[d]);
    if (is_same_in_sister_group(context, cause, other)) {
      merge_sister(context, cause, std::move(other));
    }
  }
  return cause;
}

}  // namespace lockstep::verify
