#include "verify/streams/step_counts.h"

#include <cstddef>
#include <map>

#include "verify/streams/programs.h"

namespace lockstep::verify {

Usual keeps_count(const trace::Run& run, Agreement& agreement, std::uint32_t rank, CallRef like,
                  std::int32_t step) {
  const trace::RankTrace& trace = run.ranks[rank];
  const trace::Call& wanted = run.ranks[like.rank].calls[like.call];
  std::map<std::int32_t, std::size_t> by_step;
  std::int32_t first = trace::kNone, last = trace::kNone;
  for (const trace::Call& call : trace.calls) {
    if (call.step != trace::kNone) {
      if (first == trace::kNone) first = call.step;
      last = call.step;
    }
    const bool is_like = is_same_of_program(agreement, call, wanted);
    if (is_like && call.step == trace::kNone) return Usual::unknown;
    // A step without such calls counts, too: a barrier may come in every second one.
    if (call.step != trace::kNone) by_step[call.step] += is_like ? 1 : 0;
  }
  const std::size_t made = by_step[step];
  by_step.erase(step);
  const bool ended = trace.end == trace::End::clean;
  if (!ended && last != step) by_step.erase(last);
  if (!is_known_from_its_start(trace)) {
    if (first == step) return Usual::unknown;
    by_step.erase(first);
  }
  if (by_step.size() < 2) return Usual::unknown;
  const std::size_t usual = by_step.begin()->second;
  for (const auto& [other, calls] : by_step)
    if (calls != usual) return Usual::unknown;
  if (made < usual && last == step && !ended) return Usual::unknown;
  return made == usual ? Usual::yes : Usual::no;
}

Expected expected_by_counts(const trace::Run& run, Agreement& agreement, CallRef first,
                            CallRef second) {
  // Whether `own` is expected, and what the other rank did instead is not.
  const auto is_expected = [&](CallRef own, CallRef other) {
    const auto counts = [&](CallRef like, Usual of_own, Usual of_other) {
      const std::int32_t step = run.ranks[like.rank].calls[like.call].step;
      return step != trace::kNone && keeps_count(run, agreement, own.rank, like, step) == of_own &&
             keeps_count(run, agreement, other.rank, like, step) == of_other;
    };
    return counts(own, Usual::yes, Usual::no) || counts(other, Usual::yes, Usual::no);
  };
  const bool is_first = is_expected(first, second);
  if (is_first == is_expected(second, first)) return Expected::unknown;
  return is_first ? Expected::first : Expected::second;
}

}  // namespace lockstep::verify
