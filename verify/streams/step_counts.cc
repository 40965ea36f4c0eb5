#include "verify/streams/step_counts.h"

#include <cstddef>
#include <map>
#include <optional>
#include <set>

#include "verify/streams/past.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

// How many calls like `like` a rank made in each of its steps.
struct StepCounts {
  std::map<std::int32_t, std::size_t> calls;  // by step; those that are known as a whole
  std::size_t in_step = 0;                    // of the step that is asked for
  bool is_whole = true;                       // that step was recorded; else it may lack calls
  bool came = true;                           // to that step
};

// Nothing where such calls lack a step.
std::optional<StepCounts> counts_of(const trace::Run& run, Agreement& agreement, std::uint32_t rank,
                                    CallRef like, std::int32_t step) {
  const trace::RankTrace& trace = run.ranks[rank];
  const trace::Call& wanted = run.ranks[like.rank].calls[like.call];
  StepCounts out;
  std::int32_t first = trace::kNone, last = trace::kNone;
  for (const trace::Call& call : trace.calls) {
    const bool is_like = is_same_of_program(agreement, call, wanted);
    if (call.step == trace::kNone) {
      if (is_like) return std::nullopt;
      continue;
    }
    if (first == trace::kNone) first = call.step;
    last = call.step;
    // A step without such calls counts, too: a barrier may come in every second one.
    out.calls[call.step] += is_like ? 1 : 0;
  }
  if (const auto found = out.calls.find(step); found != out.calls.end()) {
    out.in_step = found->second;
    out.calls.erase(found);
  }
  const auto may_lack = [&](std::int32_t partial) {
    out.calls.erase(partial);
    if (partial == step) out.is_whole = false;
  };
  // Nor does a step to which it did not come show how many calls it makes in it.
  if (last < step) out.is_whole = out.came = false;
  if (trace.end != trace::End::clean) may_lack(last);
  if (!is_known_from_its_start(trace)) may_lack(first);
  return out;
}

}  // namespace

bool do_counts_tell(const trace::Run& run, Agreement& agreement, std::uint32_t usual,
                    std::uint32_t deviant, CallRef like) {
  constexpr std::size_t kMinSteps = 2;  // that show what is usual
  const std::int32_t step = run.ranks[like.rank].calls[like.call].step;
  if (step == trace::kNone) return false;
  const auto own = counts_of(run, agreement, usual, like, step);
  const auto other = counts_of(run, agreement, deviant, like, step);
  if (!own || !other || own->in_step == other->in_step) return false;
  std::optional<std::size_t> in_others;
  std::set<std::int32_t> steps;
  for (const StepCounts* const counts : {&*own, &*other}) {
    for (const auto& [number, calls] : counts->calls) {
      if (in_others.value_or(calls) != calls) return false;
      in_others = calls;
      steps.insert(number);
    }
  }
  if (steps.size() < kMinSteps || other->in_step == *in_others) return false;
  // What comes in some steps only, as an evaluation does, is not too many for its first time.
  if (*in_others == 0 && !own->came) return false;
  // A rank that has not come to the end of the step may make the rest of them yet.
  const bool may_be_usual =
      own->in_step == *in_others || (!own->is_whole && own->in_step < *in_others);
  return may_be_usual && (other->is_whole || other->in_step > *in_others);
}

Expected expected_by_counts(const trace::Run& run, Agreement& agreement, CallRef first,
                            CallRef second) {
  const auto tell = [&](std::uint32_t usual, std::uint32_t deviant) {
    return do_counts_tell(run, agreement, usual, deviant, first) ||
           do_counts_tell(run, agreement, usual, deviant, second);
  };
  const bool is_first = tell(first.rank, second.rank);
  if (is_first == tell(second.rank, first.rank)) return Expected::unknown;
  return is_first ? Expected::first : Expected::second;
}

}  // namespace lockstep::verify
