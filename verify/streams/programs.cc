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
constexpr std::size_t kMostUsual = 8;         // different calls that may come at one position

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

// Whether the run of equal calls that ends before `index`, or goes on there, is as long as an
// earlier one. Layers issue the same call several times, and what comes before them varies:
//
//   a a a b | c a a a b | a a b      runs of three, and one of two
Usual is_run_usual(Agreement& agreement, const std::vector<trace::Call>& calls,
                   std::uint32_t index) {
  if (index == 0 || index >= calls.size()) return Usual::unknown;
  const trace::Call& repeated = calls[index - 1];
  const auto same = [&](std::uint32_t i) {
    return is_same_of_program(agreement, calls[i], repeated);
  };
  std::uint32_t first = index - 1;
  while (first > 0 && same(first - 1)) --first;
  std::uint32_t end = index;
  while (end < calls.size() && same(end)) ++end;
  const std::uint32_t length = end - first;
  const bool may_go_on = end == calls.size();
  std::uint32_t run = 0;
  bool any = false;
  for (std::uint32_t i = first > kHistory ? first - kHistory : 0; i < first; ++i) {
    if (same(i)) {
      ++run;
      continue;
    }
    if (run == length || (may_go_on && run > length)) return Usual::yes;
    any = any || run > 0;
    run = 0;
  }
  return any ? Usual::no : Usual::unknown;
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

std::optional<std::uint32_t> common_start(const trace::Run& run, Agreement& agreement,
                                          std::uint32_t a, std::uint32_t b) {
  const trace::RankTrace& one = run.ranks[a];
  const trace::RankTrace& other = run.ranks[b];
  if (!is_known_from_its_start(one) || !is_known_from_its_start(other)) return std::nullopt;
  return static_cast<std::uint32_t>(ProgramComparison(one, other, agreement).common_prefix());
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
  std::size_t with_a = 0, with_b = 0;
  ask_others(run, a, b, [&](std::uint32_t r) {
    // Whoever agrees with one of them beyond the difference differs from the other one there, or
    // soon after: parameters do not compare between groups, so calls of equal form look alike.
    const std::uint32_t as_a = common_start(run, agreement, a, r).value_or(0);
    const std::uint32_t as_b = common_start(run, agreement, b, r).value_or(0);
    if (as_a > *parted && as_a > as_b) ++with_a;
    if (as_b > *parted && as_b > as_a) ++with_b;
  });
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
