#include "verify/streams/programs.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::verify {

namespace {

// Ranks that are asked what is usual. A large job has thousands; 64 give a clear majority.
constexpr std::size_t kMostVoters = 64;

constexpr std::uint32_t kHistory = 4096;      // calls searched backwards: a step of a large model
constexpr std::uint32_t kCallsCompared = 64;  // calls compared before two positions
constexpr std::uint32_t kMostNew = 8;  // new calls in a row that interrupt a program's rounds
constexpr std::size_t kMostUsual = 8;  // different calls that may come at one position

// Compares the programs of two ranks, whose groups have different names: the first call in a group
// of the one decides which group of the other corresponds to it.
class ProgramComparison {
 public:
  ProgramComparison(const trace::RankTrace& a, const trace::RankTrace& b, Agreement& agreement)
      : a_(a), b_(b), agreement_(agreement) {}

  // The number of calls at the start of both programs that agree.
  std::size_t common_prefix() {
    const std::size_t both = std::min(a_.calls.size(), b_.calls.size());
    std::size_t i = 0;
    while (i < both && same(a_.calls[i], b_.calls[i])) ++i;
    return i;
  }

  // The number of calls directly before two places that agree; at most `most`.
  std::uint32_t common_before(std::uint32_t in_a, std::uint32_t in_b, std::uint32_t most) {
    const std::uint32_t both = std::min({in_a, in_b, most});
    std::uint32_t n = 0;
    while (n < both && same(a_.calls[in_a - 1 - n], b_.calls[in_b - 1 - n])) ++n;
    return n;
  }

 private:
  // The source location tells calls of equal form apart, where it was recorded, and so do the
  // parameters, but only within one group: another pipeline stage holds others.
  bool same(const trace::Call& x, const trace::Call& y) {
    const bool same_line = x.at == y.at || x.at.value == 0 || y.at.value == 0;
    const bool same_names =
        x.group != y.group || x.what == y.what || x.what.value == 0 || y.what.value == 0;
    return same_line && same_names && agreement_.agree(x.signature, y.signature) &&
           same_group(x.group, y.group);
  }

  bool same_group(trace::GroupId x, trace::GroupId y) {
    const auto [there, is_new] = of_b_.try_emplace(x.value, y.value);
    const auto [back, back_is_new] = of_a_.try_emplace(y.value, x.value);
    if (is_new && back_is_new) return members(a_, x) == members(b_, y);
    return there->second == y.value && back->second == x.value;
  }

  static std::size_t members(const trace::RankTrace& trace, trace::GroupId group) {
    for (const trace::RankTrace::Membership& m : trace.groups) {
      if (m.group == group) return m.ranks.size();
    }
    return 0;
  }

  const trace::RankTrace& a_;
  const trace::RankTrace& b_;
  Agreement& agreement_;
  std::unordered_map<std::uint32_t, std::uint32_t> of_b_, of_a_;  // corresponding groups
};

// The sizes of the groups of which the rank is a member, ascending.
std::vector<std::size_t> group_sizes(const trace::RankTrace& trace) {
  std::vector<std::size_t> out;
  for (const trace::RankTrace::Membership& m : trace.groups) {
    if (std::find(m.ranks.begin(), m.ranks.end(), trace.rank) != m.ranks.end())
      out.push_back(m.ranks.size());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Calls `ask` with the first kMostVoters ranks that are in groups of the same sizes as `a` and `b`,
// without these two (rank indices).
template <class Ask>
void ask_others(const trace::Run& run, std::uint32_t a, std::uint32_t b, const Ask& ask) {
  const std::vector<std::size_t> kind = group_sizes(run.ranks[a]);
  std::size_t asked = 0;
  for (std::uint32_t r = 0; r < run.ranks.size() && asked < kMostVoters; ++r) {
    if (r == a || r == b || group_sizes(run.ranks[r]) != kind) continue;
    ++asked;
    ask(r);
  }
}

bool is_known_from_its_start(const trace::RankTrace& trace) {
  return trace.dropped == 0 &&
         std::all_of(trace.first_seq.begin(), trace.first_seq.end(),
                     [](const auto& group_and_seq) { return group_and_seq.second == 0; });
}

}  // namespace

bool is_same_of_program(Agreement& agreement, const trace::Call& a, const trace::Call& b) {
  const bool same_location = a.at == b.at || a.at.value == 0 || b.at.value == 0;
  return a.group == b.group && a.what == b.what && a.peer == b.peer && same_location &&
         agreement.agree(a.signature, b.signature);
}

namespace {

// The earlier positions whose calls are predicted at `place`: see usual_calls(). `at` gives the
// call at a position. With `size`, the number of calls, later positions count as well.
template <class At>
std::vector<std::uint32_t> predicted(Agreement& agreement, const At& at, std::uint32_t place,
                                     std::uint32_t size = 0) {
  std::uint32_t longest = 0;
  std::vector<std::uint32_t> usual;
  const auto same = [&](std::uint32_t i, std::uint32_t j) {
    return is_same_of_program(agreement, at(i), at(j));
  };
  const auto look_at = [&](std::uint32_t then) {
    // The number of equal calls before `place` and before the other position.
    const std::uint32_t most = std::min({kCallsCompared, place, then});
    std::uint32_t length = 0;
    while (length < most && same(place - 1 - length, then - 1 - length)) ++length;
    if (length == 0 || length < longest) return;
    if (length > longest) usual.clear();
    longest = length;
    const bool known =
        std::any_of(usual.begin(), usual.end(), [&](std::uint32_t u) { return same(then, u); });
    if (!known && usual.size() < kMostUsual) usual.push_back(then);
  };
  for (std::uint32_t back = 1; back < place && back <= kHistory; ++back) {
    if (longest == kCallsCompared) return usual;  // nothing else can match more
    look_at(place - back);
  }
  for (std::uint32_t then = place + 1; then < size && then - place <= kHistory; ++then) {
    if (longest == kCallsCompared) break;
    look_at(then);
  }
  return usual;
}

template <class At>
Usual is_predicted(Agreement& agreement, const At& at, std::uint32_t place,
                   std::uint32_t size = 0) {
  const std::vector<std::uint32_t> usual = predicted(agreement, at, place, size);
  if (usual.empty()) return Usual::unknown;
  return std::any_of(
             usual.begin(), usual.end(),
             [&](std::uint32_t u) { return is_same_of_program(agreement, at(u), at(place)); })
             ? Usual::yes
             : Usual::no;
}

// Whether the call before `index` usually precedes the calls from there on, by what the rank does
// later. In a first round, which has no past, it shows a call left out:
//
//   a c | a b c | a b c      what comes before c is b, but for the first time
Usual usually_precedes(Agreement& agreement, const std::vector<trace::Call>& calls,
                       std::uint32_t index) {
  if (index == 0) return Usual::unknown;
  const auto mirrored = [&](std::uint32_t i) -> const trace::Call& {
    return calls[calls.size() - 1 - i];
  };
  const auto size = static_cast<std::uint32_t>(calls.size());
  return is_predicted(agreement, mirrored, size - index);
}

// Whether the call at `index` is usual there by what the rank did before and, over NCCL, where
// hosts go on, by what it does later. In a first round, which has no past, calls of the round
// itself may look like one; what comes later shows it:
//
//   a a c | a a b c | a a b c      after a comes a, by the first two calls; after a a comes b
Usual is_usual_anywhere(Agreement& agreement, const std::vector<trace::Call>& calls,
                        std::uint32_t index) {
  return is_predicted(
      agreement, [&](std::uint32_t i) -> const trace::Call& { return calls[i]; }, index,
      static_cast<std::uint32_t>(calls.size()));
}

// Whether the call is the first of its step. Calls without a step lie within the one before.
bool begins_step(const std::vector<trace::Call>& calls, std::uint32_t index) {
  const std::int32_t step = calls[index].step;
  if (step == trace::kNone) return false;
  constexpr std::uint32_t kMostBetween = 64;  // calls without a step, between two with one
  std::uint32_t before = index;
  while (before > 0 && index - before < kMostBetween && calls[before - 1].step == trace::kNone)
    --before;
  return before == 0 || step > calls[before - 1].step;
}

// Whether the run of equal calls that ends before `index`, or goes on there, is as long as an
// earlier one. A run ends with its step. Layers issue the same call several times, and what comes
// before them varies:
//
//   a a a b | c a a a b | a a b      runs of three, and one of two
//
// One earlier run tells nothing where it is over: it may have been cut by what comes only once, as
// when DDP arranges its buckets after the first step.
Usual is_run_usual(Agreement& agreement, const std::vector<trace::Call>& calls,
                   std::uint32_t index) {
  if (index == 0 || index >= calls.size()) return Usual::unknown;
  const trace::Call& repeated = calls[index - 1];
  const auto same = [&](std::uint32_t i) {
    return is_same_of_program(agreement, calls[i], repeated);
  };
  std::uint32_t first = index - 1;
  while (first > 0 && same(first - 1) && !begins_step(calls, first)) --first;
  std::uint32_t end = index;
  while (end < calls.size() && same(end) && !begins_step(calls, end)) ++end;
  const std::uint32_t length = end - first;
  const bool may_go_on = end == calls.size();
  std::uint32_t run = 0;
  std::uint32_t runs = 0;
  for (std::uint32_t i = first > kHistory ? first - kHistory : 0; i < first; ++i) {
    if (same(i) && (run == 0 || !begins_step(calls, i))) {
      ++run;
      continue;
    }
    if (run == length || (may_go_on && run > length)) return Usual::yes;
    runs += run > 0 ? 1U : 0U;
    run = same(i) ? 1 : 0;
  }
  if (begins_step(calls, first) && run > 0) {
    if (run == length || (may_go_on && run > length)) return Usual::yes;
    ++runs;
  }
  return runs > 1 ? Usual::no : Usual::unknown;
}

}  // namespace

std::vector<std::uint32_t> usual_calls(const trace::Run& run, Agreement& agreement, CallRef place) {
  const std::vector<trace::Call>& calls = run.ranks[place.rank].calls;
  return predicted(
      agreement, [&](std::uint32_t i) -> const trace::Call& { return calls[i]; }, place.call);
}

std::optional<std::uint32_t> usual_call(const trace::Run& run, Agreement& agreement,
                                        CallRef place) {
  const std::vector<std::uint32_t> usual = usual_calls(run, agreement, place);
  return usual.size() == 1 ? std::optional(usual[0]) : std::nullopt;
}

Usual is_usual(const trace::Run& run, Agreement& agreement, CallRef call) {
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  return is_predicted(
      agreement, [&](std::uint32_t i) -> const trace::Call& { return calls[i]; }, call.call);
}

Usual is_run_usual(const trace::Run& run, Agreement& agreement, CallRef call) {
  return is_run_usual(agreement, run.ranks[call.rank].calls, call.call);
}

namespace {

// Whether no call like this one is among the kHistory calls before it.
bool is_new(Agreement& agreement, const std::vector<trace::Call>& calls, std::uint32_t index) {
  const std::uint32_t first = index > kHistory ? index - kHistory : 0;
  return std::none_of(calls.begin() + first, calls.begin() + index, [&](const trace::Call& c) {
    return is_same_of_program(agreement, c, calls[index]);
  });
}

// How many calls before this one are like those before an earlier call like it, and how many calls
// ago that one came: of several the one where most are, the latest one. The beginning of a step
// counts as a call: one that begins a step is not like one within a step.
struct PastContext {
  std::uint32_t length = 0;
  std::uint32_t back = 0;
};

// Nothing where no call like this one came before.
std::optional<PastContext> context_of(const trace::Run& run, Agreement& agreement, CallRef call) {
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  const auto alike = [&](std::uint32_t i, std::uint32_t j) {
    return is_same_of_program(agreement, calls[i], calls[j]);
  };
  const auto in_step_alike = [&](std::uint32_t i, std::uint32_t j) {
    return begins_step(calls, i) == begins_step(calls, j);
  };
  // A first checkpoint between two rounds is no part of them: what comes next follows from the
  // calls before it.
  std::uint32_t skipped = 0;
  while (skipped < kMostNew && skipped < call.call &&
         is_new(agreement, calls, call.call - 1 - skipped))
    ++skipped;
  if (skipped == kMostNew || skipped == call.call) skipped = 0;
  std::optional<PastContext> longest;
  for (std::uint32_t back = 1; back <= call.call && back <= kHistory; ++back) {
    const std::uint32_t then = call.call - back;
    if (!alike(call.call, then)) continue;
    std::uint32_t length = 0;
    for (std::uint32_t n = 1; n <= then && n + skipped <= call.call && n <= kCallsCompared; ++n) {
      const std::uint32_t now = n == 1 ? call.call : call.call - skipped - n + 1;
      if (!in_step_alike(now, then - n + 1)) break;
      if (n > 1 && begins_step(calls, then - n + 1)) ++length;
      if (!alike(call.call - skipped - n, then - n)) break;
      ++length;
    }
    if (!longest || length > longest->length) longest = PastContext{length, back};
    if (length >= kCallsCompared) break;
  }
  return longest;
}

// Whether the first call like the one at `a` comes before the first one like that of the other
// rank's call.
bool comes_first(const trace::Run& run, Agreement& agreement, CallRef a, CallRef b) {
  const std::vector<trace::Call>& calls = run.ranks[a.rank].calls;
  for (std::uint32_t i = 0; i < a.call; ++i) {
    if (is_same_of_program(agreement, calls[i], run.ranks[b.rank].calls[b.call])) return false;
    if (is_same_of_program(agreement, calls[i], calls[a.call])) return true;
  }
  return false;
}

// Whether the call is like the one before it in its step.
bool repeats(const trace::Run& run, Agreement& agreement, CallRef call) {
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  return call.call > 0 && !begins_step(calls, call.call) &&
         is_same_of_program(agreement, calls[call.call - 1], calls[call.call]);
}

}  // namespace

bool is_within_round(const trace::Run& run, Agreement& agreement, CallRef call) {
  // Of a call that is made after every second round, the past expects another one, too.
  const auto context = context_of(run, agreement, call);
  if (!context || is_usual(run, agreement, call) != Usual::yes ||
      !usual_call(run, agreement, call)) {
    return false;
  }
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  const std::uint32_t period = context->back;
  std::uint32_t first = call.call - period;  // of the calls that repeat after a period
  while (first > 0 && call.call - first < kHistory &&
         is_same_of_program(agreement, calls[first - 1], calls[first - 1 + period]) &&
         begins_step(calls, first - 1) == begins_step(calls, first - 1 + period)) {
    --first;
  }
  return (call.call - first) % period != 0;
}

Expected expected_of(const trace::Run& run, Agreement& agreement, CallRef first, CallRef second) {
  const auto of_first = context_of(run, agreement, first);
  const auto of_second = context_of(run, agreement, second);
  // A new part of the program (a checkpoint) begins after a round. Whoever comes to it within one
  // left out the rest of that round; otherwise the other one missed the new part.
  if (of_first && !of_second && is_within_round(run, agreement, first)) return Expected::first;
  if (of_second && !of_first && is_within_round(run, agreement, second)) return Expected::second;
  if (!of_first || !of_second) return Expected::unknown;
  const Usual run_of_first = is_run_usual(run, agreement, first);
  const Usual run_of_second = is_run_usual(run, agreement, second);
  if (run_of_first == Usual::yes && run_of_second == Usual::no) return Expected::first;
  if (run_of_second == Usual::yes && run_of_first == Usual::no) return Expected::second;
  // In a run of equal calls that is the first one, each has the others as context.
  if (repeats(run, agreement, first) || repeats(run, agreement, second)) return Expected::unknown;
  if (of_first->length != of_second->length)
    return of_first->length > of_second->length ? Expected::first : Expected::second;
  const bool new_round = of_first->length == 0 &&
                         begins_step(run.ranks[first.rank].calls, first.call) &&
                         begins_step(run.ranks[second.rank].calls, second.call);
  if (!new_round) return Expected::unknown;
  if (comes_first(run, agreement, first, second)) return Expected::first;
  return comes_first(run, agreement, second, first) ? Expected::second : Expected::unknown;
}

std::optional<std::uint32_t> common_start(const trace::Run& run, Agreement& agreement,
                                          std::uint32_t a, std::uint32_t b) {
  const trace::RankTrace& one = run.ranks[a];
  const trace::RankTrace& other = run.ranks[b];
  if (!is_known_from_its_start(one) || !is_known_from_its_start(other)) return std::nullopt;
  return static_cast<std::uint32_t>(ProgramComparison(one, other, agreement).common_prefix());
}

namespace {

// How many of the others do as `a` where it parts from `b`, and how many as `b`.
std::pair<std::size_t, std::size_t> votes(const trace::Run& run, Agreement& agreement,
                                          std::uint32_t a, std::uint32_t b, std::uint32_t parted) {
  std::size_t with_a = 0, with_b = 0;
  ask_others(run, a, b, [&](std::uint32_t r) {
    // Whoever agrees with one of them beyond the difference differs from the other one there, or
    // soon after: parameters do not compare between groups, so calls of equal form look alike.
    const std::uint32_t as_a = common_start(run, agreement, a, r).value_or(0);
    const std::uint32_t as_b = common_start(run, agreement, b, r).value_or(0);
    if (as_a > parted && as_a > as_b) ++with_a;
    if (as_b > parted && as_b > as_a) ++with_b;
  });
  return {with_a, with_b};
}

}  // namespace

bool did_the_same_before(const trace::Run& run, Agreement& agreement, CallRef a, CallRef b) {
  const std::uint32_t compared = std::min({kCallsCompared, a.call, b.call});
  ProgramComparison programs(run.ranks[a.rank], run.ranks[b.rank], agreement);
  return compared > 0 && programs.common_before(a.call, b.call, compared) == compared;
}

std::optional<Parting> find_parting(const trace::Run& run, Agreement& agreement, std::uint32_t a,
                                    std::uint32_t b) {
  const std::vector<trace::Call>& of_a = run.ranks[a].calls;
  const std::vector<trace::Call>& of_b = run.ranks[b].calls;
  const auto parted = common_start(run, agreement, a, b);
  // A rank without a group like theirs runs another program.
  if (group_sizes(run.ranks[a]) != group_sizes(run.ranks[b])) return std::nullopt;
  // If one of them just ends, it is late, which is no other path.
  if (!parted || *parted >= of_a.size() || *parted >= of_b.size()) return std::nullopt;
  const auto [with_a, with_b] = votes(run, agreement, a, b, *parted);
  if (with_a != with_b) {
    return with_a > with_b ? Parting{a, b, *parted} : Parting{b, a, *parted};
  }
  // From strong evidence to weak: what the rank did at this point in its other rounds, in its past,
  // how often in a row, and what came before such calls otherwise.
  const std::pair<Usual, Usual> judgements[] = {
      {is_usual_anywhere(agreement, of_a, *parted), is_usual_anywhere(agreement, of_b, *parted)},
      {is_usual(run, agreement, {a, *parted}), is_usual(run, agreement, {b, *parted})},
      {is_run_usual(agreement, of_a, *parted), is_run_usual(agreement, of_b, *parted)},
      {usually_precedes(agreement, of_a, *parted), usually_precedes(agreement, of_b, *parted)}};
  for (const auto& [one, other] : judgements) {
    if (one == other || one == Usual::unknown || other == Usual::unknown) continue;
    return one == Usual::yes ? Parting{a, b, *parted} : Parting{b, a, *parted};
  }
  return std::nullopt;
}

std::optional<Parting> most_broke_with_the_past(const trace::Run& run, Agreement& agreement,
                                                std::uint32_t a, std::uint32_t b) {
  const auto parted = common_start(run, agreement, a, b);
  if (!parted || *parted >= run.ranks[a].calls.size() || *parted >= run.ranks[b].calls.size() ||
      group_sizes(run.ranks[a]) != group_sizes(run.ranks[b])) {
    return std::nullopt;
  }
  const Expected expected = expected_of(run, agreement, {a, *parted}, {b, *parted});
  if (expected == Expected::unknown) return std::nullopt;
  const auto [with_a, with_b] = votes(run, agreement, a, b, *parted);
  if (expected == Expected::first) {
    return with_b >= with_a ? std::optional(Parting{a, b, *parted}) : std::nullopt;
  }
  return with_a >= with_b ? std::optional(Parting{b, a, *parted}) : std::nullopt;
}

std::optional<bool> others_go_on(const trace::Run& run, Agreement& agreement, std::uint32_t longer,
                                 std::uint32_t shorter) {
  const std::size_t end = run.ranks[shorter].calls.size();
  const auto common = common_start(run, agreement, longer, shorter);
  if (common != end || run.ranks[longer].calls.size() <= end ||
      group_sizes(run.ranks[longer]) != group_sizes(run.ranks[shorter])) {
    return std::nullopt;
  }
  std::size_t go_on = 0, ended = 0;
  ask_others(run, longer, shorter, [&](std::uint32_t r) {
    const std::uint32_t start = common_start(run, agreement, longer, r).value_or(0);
    if (start > end) {
      ++go_on;
    } else if (start == end && run.ranks[r].calls.size() == end &&
               run.ranks[r].end == trace::End::clean) {
      ++ended;  // any other end may have come too early
    }
  });
  return go_on == ended ? std::nullopt : std::optional(go_on > ended);
}

std::vector<std::uint32_t> ranks_that_part_alike(const trace::Run& run, Agreement& agreement,
                                                 const Parting& parting) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
    const std::uint32_t as_deviant = common_start(run, agreement, parting.deviant, r).value_or(0);
    const std::uint32_t as_usual = common_start(run, agreement, parting.usual, r).value_or(0);
    const bool alike = as_deviant > parting.index && as_deviant > as_usual;
    if (r == parting.deviant || alike) out.push_back(r);
  }
  return out;
}

bool calls_in(const trace::Run& run, std::uint32_t rank, std::uint32_t index,
              trace::GroupId group) {
  const std::vector<trace::Call>& calls = run.ranks[rank].calls;
  return index < calls.size() && calls[index].group == group;
}

}  // namespace lockstep::verify
