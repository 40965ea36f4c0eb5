#include "verify/streams/past.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "verify/streams/loops.h"

namespace lockstep::verify {

namespace {

constexpr std::size_t kMaxUsualCalls = 8;  // different calls that may come at one position

}  // namespace

bool begins_step(const std::vector<trace::Call>& calls, std::uint32_t index) {
  const std::int32_t step = calls[index].step;
  if (step == trace::kNone) return false;
  constexpr std::uint32_t kMaxCallsBetween = 64;  // calls without a step, between two with one
  std::uint32_t before = index;
  while (before > 0 && index - before < kMaxCallsBetween && calls[before - 1].step == trace::kNone)
    --before;
  return before == 0 || step > calls[before - 1].step;
}

bool is_same_of_program(Agreement& agreement, const trace::Call& a, const trace::Call& b) {
  const bool same_location = a.at == b.at || a.at.value == 0 || b.at.value == 0;
  return a.group == b.group && a.what == b.what && a.peer == b.peer && same_location &&
         agreement.agree(a.signature, b.signature);
}

namespace {

// The positions whose calls are predicted at another one: see usual_calls().
struct Prediction {
  std::vector<std::uint32_t> usual;
  bool doubtful = false;     // see is_first_round_doubtful()
  std::uint32_t length = 0;  // of the equal sequences before them
};

// By the calls before `index`. `at` gives the call at a position. With `size`, the number of calls,
// later positions count as well.
template <class At>
Prediction predict(Agreement& agreement, const At& at, std::uint32_t index,
                   std::uint32_t size = 0) {
  std::uint32_t longest = 0;
  std::vector<std::uint32_t> usual;
  bool any_earlier = false, any_apart = false;
  if (index == 0) return {};
  const auto same = [&](std::uint32_t i, std::uint32_t j) {
    return is_same_of_program(agreement, at(i), at(j));
  };
  // Calls of one run have each other before them, which says nothing about where the run ends.
  std::uint32_t run = index, end_of_run = index;
  while (run > 0 && index - run < kCallsSearched && same(run - 1, index - 1)) --run;
  while (end_of_run < size && end_of_run - index < kCallsSearched && same(end_of_run, index - 1))
    ++end_of_run;
  // Whether the calls from `index` on repeat those before it up to the later position. `length`
  // calls before the two are known to be equal.
  const auto goes_on_to = [&](std::uint32_t then, std::uint32_t length) {
    const std::uint32_t period = then - index;
    if (period > index) return false;
    while (length < period && same(index - 1 - length, then - 1 - length)) ++length;
    return length >= period;
  };
  const auto look_at = [&](std::uint32_t then) {
    if (then > run && then <= end_of_run) return;
    // The number of equal calls before `index` and before the other position.
    const std::uint32_t most = std::min({kCallsCompared, index, then});
    std::uint32_t length = 0;
    while (length < most && same(index - 1 - length, then - 1 - length)) ++length;
    if (length == 0 || length < longest) return;
    if (length > longest) {
      usual.clear();
      any_earlier = any_apart = false;
    }
    longest = length;
    any_earlier |= then < index;
    any_apart |= then > index && !goes_on_to(then, length);
    const bool known =
        std::any_of(usual.begin(), usual.end(), [&](std::uint32_t u) { return same(then, u); });
    if (!known && usual.size() < kMaxUsualCalls) usual.push_back(then);
  };
  for (std::uint32_t back = 1; back < index && back <= kCallsSearched; ++back) {
    if (longest == kCallsCompared) return {usual, false, longest};  // nothing can match more
    look_at(index - back);
  }
  for (std::uint32_t then = index + 1; then < size && then - index <= kCallsSearched; ++then) {
    if (longest == kCallsCompared) break;
    look_at(then);
  }
  const bool doubtful = !usual.empty() && !any_earlier && (!any_apart || usual.size() > 1);
  return {std::move(usual), doubtful, longest};
}

// By the rank's calls before this one; `anywhere`: and by those after it.
Prediction predict_at(const trace::Run& run, Agreement& agreement, CallRef call,
                      bool anywhere = false) {
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  const auto at = [&](std::uint32_t i) -> const trace::Call& { return calls[i]; };
  const auto size = static_cast<std::uint32_t>(calls.size());
  return predict(agreement, at, call.call, anywhere ? size : 0);
}

// Whether the call at `index` is like one of those that are usual there.
template <class At>
Usual is_among(const std::vector<std::uint32_t>& usual, Agreement& agreement, const At& at,
               std::uint32_t index) {
  if (usual.empty()) return Usual::unknown;
  return std::any_of(
             usual.begin(), usual.end(),
             [&](std::uint32_t u) { return is_same_of_program(agreement, at(u), at(index)); })
             ? Usual::yes
             : Usual::no;
}

// Whether the call at `index` is one that is predicted there. Where different calls came after the
// one before it, and nothing more tells which of them when, yet another one may come, too: after
// "a c | a b", the second a of "a a" is no surprise.
template <class At>
Usual is_predicted(const Prediction& predicted, Agreement& agreement, const At& at,
                   std::uint32_t index) {
  const Usual usual = is_among(predicted.usual, agreement, at, index);
  const bool anything_comes = predicted.length == 1 && predicted.usual.size() > 1;
  return usual == Usual::no && anything_comes ? Usual::unknown : usual;
}

// Whether nothing but barriers is among the `length` calls before this one. Frameworks make
// barriers around all that they do: what came after one says nothing.
bool follows_barriers_alone(const trace::Run& run, CallRef call, std::uint32_t length) {
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  std::uint32_t first = call.call;
  while (first > 0 && run.tables.op(calls[first - 1]) == trace::Op::barrier) --first;
  return first < call.call && length <= call.call - first;
}

// Whether the call before this one is of another group, operation or type, or of an earlier step.
bool begins_its_kind(const trace::Tables& tables, const std::vector<trace::Call>& calls,
                     std::uint32_t index) {
  if (index == 0 || begins_step(calls, index)) return true;
  const trace::Signature& before = tables.signatures[calls[index - 1].signature];
  const trace::Signature& own = tables.signatures[calls[index].signature];
  return calls[index - 1].group != calls[index].group || before.op != own.op ||
         before.dtypes != own.dtypes;
}

}  // namespace

bool mixes_threads(const trace::RankTrace& trace, std::uint32_t call) {
  const std::vector<trace::Call>& calls = trace.calls;
  if (!trace.occurs.threads || calls.empty()) return false;
  // A call that is yet to come is taken for one of the last one's thread.
  const std::uint16_t thread = calls[std::min<std::size_t>(call, calls.size() - 1)].thread;
  const std::uint32_t first = call > kCallsCompared ? call - kCallsCompared : 0;
  return std::any_of(calls.begin() + first, calls.begin() + call,
                     [&](const trace::Call& c) { return c.thread != thread; });
}

std::vector<std::uint32_t> usual_calls(const trace::Run& run, Agreement& agreement, CallRef call) {
  if (mixes_threads(run.ranks[call.rank], call.call)) return {};
  return predict_at(run, agreement, call).usual;
}

std::optional<std::uint32_t> usual_call(const trace::Run& run, Agreement& agreement, CallRef call) {
  const std::vector<std::uint32_t> usual = usual_calls(run, agreement, call);
  return usual.size() == 1 ? std::optional(usual[0]) : std::nullopt;
}

namespace {

// What the past predicts, `usual`, or that it does not tell whether a loop ends here.
Usual unless_loop_varies(const trace::Run& run, Agreement& agreement, CallRef call, Usual usual) {
  if (usual == Usual::unknown || !is_at_end_of_varying_loop(run, agreement, call)) return usual;
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  const trace::Call& next = calls[call.call - loop_before(run, agreement, call)];
  const std::vector<std::uint32_t> predicted = usual_calls(run, agreement, call);
  // If both calls leave the loop, the past tells which one is usual.
  const bool both_leave =
      usual == Usual::no && std::none_of(predicted.begin(), predicted.end(), [&](std::uint32_t u) {
        return is_same_of_program(agreement, calls[u], next);
      });
  return both_leave ? usual : Usual::unknown;
}

Usual is_usual_at(const trace::Run& run, Agreement& agreement, CallRef call, bool anywhere) {
  if (mixes_threads(run.ranks[call.rank], call.call)) return Usual::unknown;
  const Prediction predicted = predict_at(run, agreement, call, anywhere);
  if (follows_barriers_alone(run, call, predicted.length)) return Usual::unknown;
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  const auto at = [&](std::uint32_t i) -> const trace::Call& { return calls[i]; };
  return unless_loop_varies(run, agreement, call,
                            is_predicted(predicted, agreement, at, call.call));
}

}  // namespace

Usual is_usual(const trace::Run& run, Agreement& agreement, CallRef call) {
  return is_usual_at(run, agreement, call, false);
}

Usual is_usual_anywhere(const trace::Run& run, Agreement& agreement, CallRef call) {
  return is_usual_at(run, agreement, call, true);
}

Usual is_run_usual(const trace::Run& run, Agreement& agreement, CallRef call,
                   std::uint32_t needed) {
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  const std::uint32_t index = call.call;
  if (index == 0 || index >= calls.size()) return Usual::unknown;
  const trace::Call& repeated = calls[index - 1];
  // Layers make equal calls in a row. Barriers are set up, begin and end by whoever wants one.
  if (run.tables.op(repeated) == trace::Op::barrier) return Usual::unknown;
  const auto same = [&](std::uint32_t i) {
    return is_same_of_program(agreement, calls[i], repeated);
  };
  std::uint32_t first = index - 1;
  while (first > 0 && same(first - 1) && !begins_step(calls, first)) --first;
  std::uint32_t end = index;
  while (end < calls.size() && same(end) && !begins_step(calls, end)) ++end;
  const std::uint32_t length = end - first;
  const bool may_go_on = end == calls.size();
  std::uint32_t runs = 0, alike = 0, longest = 0;
  bool any_in_like_place = false;
  // Whether it is of another operation, and made nowhere else. DDP arranges its buckets once.
  const auto comes_once = [&](std::uint32_t i) {
    const std::uint32_t begin = index > kCallsSearched ? index - kCallsSearched : 0;
    if (run.tables.op(calls[i]) == run.tables.op(repeated)) return false;
    for (std::uint32_t k = begin; k < index; ++k)
      if (k != i && is_same_of_program(agreement, calls[k], calls[i])) return false;
    return true;
  };
  // A run of `earlier` calls that ends before call `stop`. Where that comes once, it may have cut
  // the run.
  const auto count = [&](std::uint32_t earlier, std::uint32_t stop) {
    if (earlier == 0 || comes_once(stop)) return;
    ++runs;
    longest = std::max(longest, earlier);
    if (earlier == length || (may_go_on && earlier > length)) ++alike;
    const std::uint32_t then = stop - earlier;
    const bool after_same = then > 0 && first > 0 && !begins_step(calls, first) &&
                            !begins_step(calls, then) &&
                            is_same_of_program(agreement, calls[then - 1], calls[first - 1]);
    any_in_like_place |= after_same || (begins_its_kind(run.tables, calls, then) &&
                                        begins_its_kind(run.tables, calls, first));
  };
  std::uint32_t earlier = 0;  // length of an earlier run
  for (std::uint32_t i = first > kCallsSearched ? first - kCallsSearched : 0; i < first; ++i) {
    if (same(i) && (earlier == 0 || !begins_step(calls, i))) {
      ++earlier;
      continue;
    }
    count(earlier, i);
    earlier = same(i) ? 1 : 0;
  }
  if (begins_step(calls, first)) count(earlier, first);
  // A single one that follows calls of its kind may be of a round with an order of its own: DDP
  // arranges its buckets after the first step. That a call came alone once shows nothing.
  if (alike == 0) {
    const bool one_shows_it = needed <= runs && any_in_like_place && longest > 1;
    return runs > 1 || one_shows_it ? Usual::no : Usual::unknown;
  }
  // If runs differ in length (tokens of a text), a single one of the same length is a coincidence.
  return alike > 1 || alike == runs ? Usual::yes : Usual::unknown;
}

Usual usually_precedes(const trace::Run& run, Agreement& agreement, CallRef call) {
  if (call.call == 0) return Usual::unknown;
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  const auto mirrored = [&](std::uint32_t i) -> const trace::Call& {
    return calls[calls.size() - 1 - i];
  };
  const auto size = static_cast<std::uint32_t>(calls.size());
  const std::uint32_t index = size - call.call;
  return is_predicted(predict(agreement, mirrored, index), agreement, mirrored, index);
}

bool is_first_round_doubtful(const trace::Run& run, Agreement& agreement, CallRef call) {
  return predict_at(run, agreement, call, true).doubtful;
}

bool are_both_usual(const trace::Run& run, Agreement& agreement, CallRef one, CallRef other) {
  const auto makes_both = [&](CallRef here, CallRef there) {
    const std::vector<trace::Call>& calls = run.ranks[here.rank].calls;
    if (mixes_threads(run.ranks[here.rank], here.call)) return false;
    const std::vector<std::uint32_t> usual = predict_at(run, agreement, here, true).usual;
    const auto has = [&](const trace::Call& call) {
      return std::any_of(usual.begin(), usual.end(), [&](std::uint32_t u) {
        return is_same_of_program(agreement, calls[u], call);
      });
    };
    return has(calls[here.call]) && has(run.ranks[there.rank].calls[there.call]);
  };
  return makes_both(one, other) && makes_both(other, one);
}

bool later_rounds_make(const trace::Run& run, Agreement& agreement, CallRef call, CallRef other) {
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  if (mixes_threads(run.ranks[call.rank], call.call) || call.call == 0) return false;
  // How long a row of equal calls is shows nothing where it ends.
  const trace::Call& before = calls[call.call - 1];
  const trace::Call& own = calls[call.call];
  const trace::Call& others = run.ranks[other.rank].calls[other.call];
  if (is_same_of_program(agreement, before, others) || is_same_of_program(agreement, before, own) ||
      is_same_of_program(agreement, own, others)) {
    return false;
  }
  const std::vector<std::uint32_t> usual = predict_at(run, agreement, call, true).usual;
  return usual.size() == 1 && usual[0] > call.call &&
         is_same_of_program(agreement, calls[usual[0]], others);
}

}  // namespace lockstep::verify
