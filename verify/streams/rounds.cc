#include "verify/streams/rounds.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "verify/streams/loops.h"
#include "verify/streams/past.h"

namespace lockstep::verify {

namespace {

constexpr std::uint32_t kMaxNewCalls = 8;  // calls of a checkpoint between two rounds

// Whether no call like this one is among the kCallsSearched calls before it.
bool is_new(Agreement& agreement, const std::vector<trace::Call>& calls, std::uint32_t index) {
  const std::uint32_t first = index > kCallsSearched ? index - kCallsSearched : 0;
  return std::none_of(calls.begin() + first, calls.begin() + index, [&](const trace::Call& c) {
    return is_same_of_program(agreement, c, calls[index]);
  });
}

// The earlier call like this one with the longest equal sequence before both; of equally long ones
// the latest. `length`: calls in that sequence; `back`: how many calls ago the earlier call came.
// The beginning of a step counts as a call: a call that begins a step is not like one within a
// step.
struct PastContext {
  std::uint32_t length = 0;
  std::uint32_t back = 0;
  std::uint32_t skipped = 0;  // calls between that sequence and the call
  bool cut = false;           // the recording begins within such a sequence, which may be longer
};

// Nothing if no call like this one came before.
std::optional<PastContext> context_of(const trace::Run& run, Agreement& agreement, CallRef call) {
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  const auto alike = [&](std::uint32_t i, std::uint32_t j) {
    return is_same_of_program(agreement, calls[i], calls[j]);
  };
  const auto in_step_alike = [&](std::uint32_t i, std::uint32_t j) {
    return begins_step(calls, i) == begins_step(calls, j);
  };
  // Skips a first checkpoint between two rounds: it belongs to neither, and the calls before it
  // predict what comes next.
  std::uint32_t skipped = 0;
  while (skipped < kMaxNewCalls && skipped < call.call &&
         is_new(agreement, calls, call.call - 1 - skipped))
    ++skipped;
  if (skipped == kMaxNewCalls || skipped == call.call) skipped = 0;
  std::optional<PastContext> longest;
  bool cut = false;
  // A call among the skipped ones is of no earlier round.
  for (std::uint32_t back = skipped + 1; back <= call.call && back <= kCallsSearched; ++back) {
    const std::uint32_t then = call.call - back;
    if (!alike(call.call, then)) continue;
    std::uint32_t length = 0, n = 1;
    for (; n <= then && n + skipped <= call.call && n <= kCallsCompared; ++n) {
      const std::uint32_t now = n == 1 ? call.call : call.call - skipped - n + 1;
      if (!in_step_alike(now, then - n + 1)) break;
      if (n > 1 && begins_step(calls, then - n + 1)) ++length;
      if (!alike(call.call - skipped - n, then - n)) break;
      ++length;
    }
    cut |= n > then && n <= kCallsCompared;
    if (!longest || length > longest->length) longest = PastContext{length, back, skipped};
    if (length >= kCallsCompared) break;
  }
  if (longest) longest->cut = cut && run.ranks[call.rank].dropped > 0;
  return longest;
}

// Whether the rank of `a` made a call like its own `a` before it made one like the other rank's
// `b`, in the last step before that holds both: the first step may have an order of its own,
// because DDP arranges its buckets after it. If no step holds both, in all that came before.
bool comes_first(const trace::Run& run, Agreement& agreement, CallRef a, CallRef b) {
  const std::vector<trace::Call>& calls = run.ranks[a.rank].calls;
  const trace::Call& other = run.ranks[b.rank].calls[b.call];
  // The other rank has peers of its own.
  const bool is_message = run.tables.is_message(other);
  const auto is_other = [&](std::uint32_t i) {
    return is_message ? agreement.agree(calls[i].signature, other.signature)
                      : is_same_of_program(agreement, calls[i], other);
  };
  std::optional<bool> first;  // of the calls from `i` on: whether one like `a` is the first
  bool any_a = false, any_b = false;
  for (std::uint32_t i = a.call; i-- > 0;) {
    if (is_other(i)) {
      any_b = true;
      first = false;
    } else if (is_same_of_program(agreement, calls[i], calls[a.call])) {
      any_a = true;
      first = true;
    }
    if (!begins_step(calls, i)) continue;
    if (any_a && any_b) break;
    any_a = any_b = false;
  }
  return first.value_or(false);
}

// Whether the call is like the one before it in its step, or before those that were skipped.
bool repeats(const trace::Run& run, Agreement& agreement, CallRef call, std::uint32_t skipped) {
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  return call.call > skipped && !begins_step(calls, call.call) &&
         is_same_of_program(agreement, calls[call.call - skipped - 1], calls[call.call]);
}

// How many calls like this one come directly before it in its step.
std::uint32_t calls_in_run_before(const trace::Run& run, Agreement& agreement, CallRef call) {
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  std::uint32_t i = call.call;
  while (i > 0 && !begins_step(calls, i) &&
         is_same_of_program(agreement, calls[i - 1], calls[call.call])) {
    --i;
  }
  return call.call - i;
}

// From `first` on, up to the call in question, each call equals the one a round later.
struct Repetition {
  std::uint32_t period = 0;  // calls in a round
  std::uint32_t first = 0;
  std::uint32_t calls = 0;  // from `first` on, without those that came once
};

// The repetition that predicts the call. Nothing if the past predicts no call here, or others too:
// for example, a call that is made after every second round.
std::optional<Repetition> repetition_before(const trace::Run& run, Agreement& agreement,
                                            CallRef call) {
  const auto context = context_of(run, agreement, call);
  if (!context || is_usual(run, agreement, call) != Usual::yes ||
      !usual_call(run, agreement, call)) {
    return std::nullopt;
  }
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  // A first checkpoint between two rounds belongs to neither.
  std::uint32_t once = 0;
  const auto came_once = [&](std::uint32_t index) {
    return once < kMaxNewCalls && is_new(agreement, calls, index) &&
           std::none_of(calls.begin() + index + 1, calls.begin() + call.call + 1,
                        [&](const trace::Call& c) {
                          return is_same_of_program(agreement, c, calls[index]);
                        });
  };
  Repetition out{context->back, call.call - context->back, 0};
  while (out.first > 0 && call.call - out.first < kCallsSearched) {
    const std::uint32_t earlier = out.first - 1;
    const std::uint32_t later = earlier + out.period;
    if (is_same_of_program(agreement, calls[earlier], calls[later]) &&
        begins_step(calls, earlier) == begins_step(calls, later)) {
      --out.first;
    } else if (out.period > 1 && came_once(later)) {
      --out.period;
      ++once;
    } else {
      break;
    }
  }
  out.calls = call.call - out.first - once;
  return out;
}

}  // namespace

bool is_within_round(const trace::Run& run, Agreement& agreement, CallRef call) {
  if (begins_step(run.ranks[call.rank].calls, call.call)) return false;
  const auto repetition = repetition_before(run, agreement, call);
  if (!repetition) return false;
  LOCKSTEP_CHECK(repetition->period > 0, "a round has calls");
  // A call or two may be alike at the end of a first round that has an order of its own.
  const std::uint32_t repeated = repetition->calls - repetition->period;
  return 2 * repeated >= repetition->period && repetition->calls % repetition->period != 0;
}

bool may_begin_new_part(const trace::Run& run, Agreement& agreement, CallRef call) {
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  if (call.call >= calls.size() || mixes_threads(run.ranks[call.rank], call.call)) return false;
  // The same call from another line is no other part: it may be made twice.
  const trace::Call& now = calls[call.call];
  const auto alike = [&](const trace::Call& c) {
    return c.group == now.group && c.what == now.what && c.peer == now.peer &&
           agreement.agree(c.signature, now.signature);
  };
  if (std::any_of(calls.begin(), calls.begin() + call.call, alike)) return false;
  const auto usual = usual_call(run, agreement, call);
  if (!usual) return false;
  // Nor is one that differs from the usual call in its size alone.
  if (calls[*usual].group == now.group && run.tables.op(calls[*usual]) == run.tables.op(now))
    return false;
  // What goes on within the round came in place of its first call.
  std::uint32_t next = call.call + 1;
  while (next < calls.size() && next - call.call < kMaxNewCalls && is_new(agreement, calls, next))
    ++next;
  if (next < calls.size() && !is_same_of_program(agreement, calls[next], calls[*usual]))
    return false;
  // A rank that goes on as before made a call too many, unless it makes the call again. Where it
  // blocks, only a barrier may be of a checkpoint: what carries data and is new is mostly a metric,
  // under "if rank == 0".
  const bool comes_again = std::any_of(calls.begin() + next, calls.end(), alike);
  if (!comes_again && (next < calls.size() || run.tables.op(now) != trace::Op::barrier))
    return false;
  const bool has_steps = calls[*usual].step != trace::kNone;
  if (has_steps && begins_step(calls, *usual)) return true;
  const std::uint32_t period = call.call - *usual;
  std::uint32_t first = *usual;
  while (first > 0 && call.call - first < kCallsSearched &&
         is_same_of_program(agreement, calls[first - 1], calls[first - 1 + period])) {
    --first;
  }
  return !has_steps && period > 1 && (call.call - first) % period == 0;
}

bool do_rounds_vary(const trace::Run& run, Agreement& agreement, CallRef call) {
  const auto repetition = repetition_before(run, agreement, call);
  if (!repetition || repetition->first == 0) return false;
  const auto [period, first, repeated] = *repetition;
  if (repeated >= 2 * period) return false;
  // A call that is made once (at initialisation or a checkpoint) does not belong to the rounds.
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  const auto form = [&](std::uint32_t i) -> const trace::Signature& {
    return run.tables.signatures[calls[i].signature];
  };
  const auto recurs = [&](std::uint32_t index) {
    for (std::uint32_t i = 0; i < call.call; ++i) {
      if (i != index && calls[i].group == calls[index].group && form(i).op == form(index).op &&
          form(i).dtypes == form(index).dtypes) {
        return true;
      }
    }
    return false;
  };
  return recurs(first - 1) && recurs(first - 1 + period);
}

namespace {

// Whether one of the two calls begins another round of a loop, and the other one is none of its
// calls and comes after whole rounds.
bool leave_after_whole_rounds(const trace::Run& run, Agreement& agreement, CallRef first,
                              CallRef second) {
  const bool goes_on = goes_on_with_loop(run, agreement, first);
  if (goes_on == goes_on_with_loop(run, agreement, second)) return false;
  return comes_after_whole_rounds(run, agreement, goes_on ? second : first);
}

}  // namespace

Expected expected_of(const trace::Run& run, Agreement& agreement, CallRef first, CallRef second) {
  if (goes_on_with_loop(run, agreement, first) != goes_on_with_loop(run, agreement, second) &&
      (is_at_end_of_varying_loop(run, agreement, first) ||
       is_at_end_of_varying_loop(run, agreement, second))) {
    return Expected::unknown;
  }
  const auto of_first = context_of(run, agreement, first);
  const auto of_second = context_of(run, agreement, second);
  // A loop that is left after whole rounds is not left within one. With a barrier that came only in
  // other places it is left for something new: barriers are of checkpoints, of evaluations, and of
  // the end.
  const auto came_elsewhere = [&](CallRef call, const std::optional<PastContext>& context) {
    return context && context->length == 0 &&
           run.tables.op(run.ranks[call.rank].calls[call.call]) == trace::Op::barrier;
  };
  const bool any_new = !of_first || !of_second || came_elsewhere(first, of_first) ||
                       came_elsewhere(second, of_second);
  if (any_new && leave_after_whole_rounds(run, agreement, first, second)) return Expected::unknown;
  // A new part of the program (a checkpoint) begins after a round. A rank that comes to it within a
  // round left out the rest of that round; otherwise the other rank missed the new part.
  if (of_first && !of_second && is_within_round(run, agreement, first)) return Expected::first;
  if (of_second && !of_first && is_within_round(run, agreement, second)) return Expected::second;
  if (!of_first || !of_second) return Expected::unknown;
  // Both calls were made before, so one earlier run is enough.
  const Usual run_of_first = is_run_usual(run, agreement, first, 1);
  const Usual run_of_second = is_run_usual(run, agreement, second, 1);
  if (run_of_first == Usual::yes && run_of_second == Usual::no) return Expected::first;
  if (run_of_second == Usual::yes && run_of_first == Usual::no) return Expected::second;
  // Within the first run of equal calls, each call has the others before it as context, which says
  // nothing about where the run should end. Nor does one that is shorter than what lies between.
  // Nor does one that is no longer than the run itself: that shows only how an earlier run ended.
  const auto only_goes_on = [&](CallRef call, const PastContext& own, const PastContext& other,
                                Usual run_length) {
    const bool weak =
        own.length >= other.length || other.length <= other.skipped ||
        (run_length == Usual::unknown && other.length <= calls_in_run_before(run, agreement, call));
    return weak && run_length != Usual::yes && repeats(run, agreement, call, own.skipped);
  };
  if (only_goes_on(first, *of_first, *of_second, run_of_first) ||
      only_goes_on(second, *of_second, *of_first, run_of_second)) {
    return Expected::unknown;
  }
  if (of_first->length != of_second->length) {
    const bool is_first = of_first->length > of_second->length;
    const auto [longer, call] =
        is_first ? std::pair(*of_first, first) : std::pair(*of_second, second);
    const std::uint32_t shorter = is_first ? of_second->length : of_first->length;
    // Where both came after a few of the same calls, rounds differ: layers are dropped at random.
    const bool most_of_past =
        longer.length >= kCallsCompared || 2 * longer.length > call.call - longer.back;
    if (shorter > 0 && longer.length < 2 * shorter + 2 && !most_of_past) return Expected::unknown;
    // The other rank's ring may have lost the place where it made its call after as many.
    const auto [other, context] =
        is_first ? std::pair(second, *of_second) : std::pair(first, *of_first);
    const bool begins_later =
        run.ranks[other.rank].dropped > 0 && other.call < longer.back + longer.length;
    if (begins_later || context.cut) return Expected::unknown;
    return is_first ? Expected::first : Expected::second;
  }
  const bool new_round = of_first->length == 0 &&
                         begins_step(run.ranks[first.rank].calls, first.call) &&
                         begins_step(run.ranks[second.rank].calls, second.call);
  if (!new_round) return Expected::unknown;
  if (comes_first(run, agreement, first, second)) return Expected::first;
  return comes_first(run, agreement, second, first) ? Expected::second : Expected::unknown;
}

}  // namespace lockstep::verify
