#include "verify/streams/programs.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/groups.h"
#include "verify/streams/loops.h"
#include "verify/streams/past.h"
#include "verify/streams/rounds.h"

namespace lockstep::verify {

namespace {

// How many ranks vote on what is usual. A large job has thousands; 64 give a clear majority.
constexpr std::size_t kMaxRanksAsked = 64;

constexpr std::uint32_t kCallsBefore = 64;  // calls compared before two positions

// Compares the programs of two ranks. Their groups have different names, so the first call in a
// group of one rank decides which group of the other rank corresponds to it: if rank 0 begins with
// a call in ep0 and rank 2 with one in ep1, these two correspond from there on.
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

  // The number of agreeing calls directly before index `in_a` and index `in_b`; at most `most`.
  std::uint32_t common_before(std::uint32_t in_a, std::uint32_t in_b, std::uint32_t most) {
    const std::uint32_t both = std::min({in_a, in_b, most});
    std::uint32_t n = 0;
    while (n < both && same(a_.calls[in_a - 1 - n], b_.calls[in_b - 1 - n])) ++n;
    return n;
  }

 private:
  // Calls of equal form from different source locations are different calls. So are calls with
  // different parameters, but only within one group: another pipeline stage has other parameters.
  bool same(const trace::Call& x, const trace::Call& y) {
    const bool same_line = x.at == y.at || x.at.value == 0 || y.at.value == 0;
    const bool same_names =
        x.group != y.group || x.what == y.what || x.what.value == 0 || y.what.value == 0;
    return same_line && same_names && agree_across_groups(agreement_, a_, x, b_, y) &&
           same_group(x.group, y.group);
  }

  bool same_group(trace::GroupId x, trace::GroupId y) {
    const auto [there, is_new] = of_b_.try_emplace(x.value, y.value);
    const auto [back, back_is_new] = of_a_.try_emplace(y.value, x.value);
    if (is_new && back_is_new) return members(a_, x) == members(b_, y);
    return there->second == y.value && back->second == x.value;
  }

  static std::size_t members(const trace::RankTrace& trace, trace::GroupId group) {
    const trace::RankTrace::Membership* const own = trace::membership(trace, group);
    return own == nullptr ? 0 : own->ranks.size();
  }

  const trace::RankTrace& a_;
  const trace::RankTrace& b_;
  Agreement& agreement_;
  std::unordered_map<std::uint32_t, std::uint32_t> of_b_, of_a_;  // corresponding groups
};

// The sizes of the groups that the rank belongs to, ascending. A trace may list only the groups
// that its rank has called in, so the lists of two `witnesses` (rank indices) are used as well.
std::vector<std::size_t> group_sizes(const trace::Run& run, std::uint32_t rank,
                                     std::array<std::uint32_t, 2> witnesses) {
  const trace::Rank self = run.ranks[rank].rank;
  std::map<std::uint32_t, std::size_t> sizes;
  for (const std::uint32_t r : {rank, witnesses[0], witnesses[1]}) {
    for (const trace::RankTrace::Membership& m : run.ranks[r].groups) {
      if (m.ranks.contains(self)) sizes.emplace(m.group.value, m.ranks.size());
    }
  }
  std::vector<std::size_t> out;
  out.reserve(sizes.size());
  for (const auto& [group, size] : sizes) out.push_back(size);
  std::sort(out.begin(), out.end());
  return out;
}

// Calls `ask` with the first kMaxRanksAsked other ranks that are in groups of the same sizes as
// `a` and `b` (rank indices): ranks with the same roles in the mesh.
template <class Ask>
void ask_others(const trace::Run& run, std::uint32_t a, std::uint32_t b, const Ask& ask) {
  const std::vector<std::size_t> kind = group_sizes(run, a, {a, b});
  std::size_t asked = 0;
  for (std::uint32_t r = 0; r < run.ranks.size() && asked < kMaxRanksAsked; ++r) {
    if (r == a || r == b || group_sizes(run, r, {a, b}) != kind) continue;
    ++asked;
    ask(r);
  }
}

}  // namespace

std::string_view role_of(const trace::Tables& tables, const trace::RankTrace::Membership& group) {
  constexpr std::string_view kDigits = "0123456789";
  const std::string_view description = trace::description_of(tables, group);
  const std::string_view name = description.empty() ? tables.str(group.group) : description;
  const std::size_t length = name.find_last_not_of(kDigits) + 1;
  const bool has_role = !description.empty() || length < name.size();
  return has_role ? name.substr(0, length) : std::string_view();
}

bool is_known_from_its_start(const trace::RankTrace& trace) {
  return trace.dropped == 0 &&
         std::all_of(trace.first_seq.begin(), trace.first_seq.end(),
                     [](const auto& group_and_seq) { return group_and_seq.second == 0; });
}

bool holds_its_past(const trace::RankTrace& trace) {
  if (!trace.snapshot) return true;
  bool any_of_batches = false;
  for (const trace::Call& call : trace.calls) {
    if (!call.has(trace::kCompleted)) continue;
    if (call.coalesced == trace::kNone) return true;
    any_of_batches = true;
  }
  return any_of_batches &&
         (trace.dropped == 0 ||
          std::any_of(trace.events.begin(), trace.events.end(), [](const trace::Event& event) {
            return event.kind == trace::EventKind::complete && event.time != trace::kNoTime;
          }));
}

std::optional<std::uint32_t> common_start(const trace::Run& run, Agreement& agreement,
                                          std::uint32_t a, std::uint32_t b) {
  const trace::RankTrace& one = run.ranks[a];
  const trace::RankTrace& other = run.ranks[b];
  if (!is_known_from_its_start(one) || !is_known_from_its_start(other)) return std::nullopt;
  return static_cast<std::uint32_t>(ProgramComparison(one, other, agreement).common_prefix());
}

namespace {

// Whether rank `r` made the call of `a` at `index`, and the kSameBefore calls before it, among its
// newest calls. Shows what `r` does at this point if its program took another path long before.
bool did_locally(const trace::Run& run, Agreement& agreement, std::uint32_t a, std::uint32_t index,
                 std::uint32_t r) {
  constexpr std::uint32_t kSameBefore = 8, kNewest = 64;
  const auto end = static_cast<std::uint32_t>(run.ranks[r].calls.size());
  if (index < kSameBefore) return false;
  for (std::uint32_t i = end; i > kSameBefore && end - i < kNewest; --i) {
    // A new comparison each time: which groups correspond follows from the calls compared.
    ProgramComparison programs(run.ranks[a], run.ranks[r], agreement);
    if (programs.common_before(index + 1, i, kSameBefore + 1) == kSameBefore + 1) return true;
  }
  return false;
}

struct Votes {
  std::size_t a = 0, b = 0;  // ranks that do as `a` where it diverges from `b`, or as `b`
  std::size_t locally_a = 0, locally_b = 0;  // the same, of ranks that took another path before
};

Votes votes(const trace::Run& run, Agreement& agreement, std::uint32_t a, std::uint32_t b,
            std::uint32_t diverged) {
  Votes out;
  // A run of equal calls may be as long as a generated text. Other ranks' texts were longer and
  // shorter, so what they do after as many calls says nothing.
  const auto continues_run = [&](std::uint32_t r) {
    const std::vector<trace::Call>& calls = run.ranks[r].calls;
    return diverged > 0 && is_same_of_program(agreement, calls[diverged - 1], calls[diverged]);
  };
  const bool a_run_ends = continues_run(a) || continues_run(b);
  // How often ranks that go on with a loop, where the other one leaves it, come to do so: texts
  // that are generated token by token have different lengths on each of them.
  const std::uint32_t period = std::max(loop_before(run, agreement, {a, diverged}),
                                        loop_before(run, agreement, {b, diverged}));
  std::set<std::size_t> ends;
  const auto note_end = [&](std::uint32_t r) {
    const std::vector<trace::Call>& calls = run.ranks[r].calls;
    std::size_t end = diverged;
    while (end < calls.size() && is_same_of_program(agreement, calls[end], calls[end - period]))
      ++end;
    if (period > 0 && end < calls.size()) ends.insert(end);
  };
  ask_others(run, a, b, [&](std::uint32_t r) {
    // `r` votes for the one that it agrees with longer, and beyond the difference. It may agree
    // with both for some calls more: parameters are not compared between groups, so that calls of
    // equal form look alike.
    const std::uint32_t as_a = common_start(run, agreement, a, r).value_or(0);
    const std::uint32_t as_b = common_start(run, agreement, b, r).value_or(0);
    if (as_a > diverged && as_a > as_b) ++out.a;
    if (as_b > diverged && as_b > as_a) ++out.b;
    if (std::max(as_a, as_b) > diverged && as_a != as_b) note_end(r);
    if (a_run_ends || as_a >= diverged || as_b >= diverged) return;
    // Its open calls show how its last round ends, and not that it made several before.
    if (!holds_its_past(run.ranks[r])) return;
    const bool did_a = did_locally(run, agreement, a, diverged, r);
    const bool did_b = did_locally(run, agreement, b, diverged, r);
    if (did_a != did_b) ++(did_a ? out.locally_a : out.locally_b);
  });
  constexpr std::size_t kTwoLengths = 2;  // that of the one that leaves, and that of the other one
  if (ends.size() > kTwoLengths) out.a = out.b = 0;
  return out;
}

// How many ranks could not be asked because they left no trace, or one that is cut off: of a large
// job, their share of those that are asked.
std::size_t silent_ranks(const trace::Run& run) {
  const auto all = std::max(static_cast<std::size_t>(run.world_size), run.ranks.size());
  const auto cut = std::count_if(run.ranks.begin(), run.ranks.end(),
                                 [](const trace::RankTrace& t) { return t.open_ended; });
  const std::size_t silent = all - run.ranks.size() + static_cast<std::size_t>(cut);
  return all <= kMaxRanksAsked ? silent : (silent * kMaxRanksAsked + all - 1) / all;
}

std::optional<ProgramDivergence> by_votes(const trace::Run& run, Agreement& agreement,
                                          std::uint32_t a, std::uint32_t b,
                                          std::uint32_t diverged) {
  const Votes cast = votes(run, agreement, a, b, diverged);
  // Ranks without traces could have turned a narrow vote.
  const std::size_t silent = silent_ranks(run);
  const auto winner = [&](std::size_t of_a, std::size_t of_b) -> std::optional<ProgramDivergence> {
    if (of_a > of_b + silent) return ProgramDivergence{a, b, diverged};
    if (of_b > of_a + silent) return ProgramDivergence{b, a, diverged};
    return std::nullopt;
  };
  return cast.a != cast.b ? winner(cast.a, cast.b) : winner(cast.locally_a, cast.locally_b);
}

// Whether the rank has no group in which it could make the call of another one: it is not in that
// group, nor in one of the same size and for the same purpose, as the tensor-parallel groups of a
// mesh are.
bool cannot_make(const trace::Run& run, const trace::RankTrace& rank, const trace::RankTrace& other,
                 std::uint32_t call) {
  const auto* const group = trace::membership(other, other.calls[call].group);
  if (group == nullptr || group->ranks.contains(rank.rank)) return false;
  const std::string_view role = role_of(run.tables, *group);
  return std::none_of(rank.groups.begin(), rank.groups.end(), [&](const auto& own) {
    if (own.ranks.size() != group->ranks.size() || !own.ranks.contains(rank.rank)) return false;
    const std::string_view own_role = role_of(run.tables, own);
    return role.empty() || own_role.empty() || role == own_role;
  });
}

// Whom a rank sends to and receives from: how far each peer is in the order of the group. Stages of
// a pipeline differ in it, except for those between the first and the last; the same stages of two
// pipelines, and the ranks of a ring, do not.
std::set<std::pair<trace::Op, std::size_t>> peers_of(const trace::Run& run,
                                                     const trace::RankTrace& trace) {
  std::set<std::pair<trace::Op, std::size_t>> out;
  for (const trace::Call& call : trace.calls) {
    if (!run.tables.is_message(call)) continue;
    const auto* const group = trace::membership(trace, call.group);
    if (group == nullptr) continue;
    const auto self = group->ranks.index_of(trace.rank);
    const auto peer = group->ranks.index_of(call.peer);
    const std::size_t size = group->ranks.size();
    if (self && peer) out.emplace(run.tables.op(call), (*peer + size - *self) % size);
  }
  return out;
}

// Whether two programs that agree up to call `index` diverge because the ranks have different
// roles, so that neither does anything unusual there: at a message, as stages of a pipeline do,
// which have other peers, or where one is in a group of a kind that the other has none of, as
// trainers and rollout workers are.
bool have_other_roles(const trace::Run& run, std::uint32_t a, std::uint32_t b,
                      std::uint32_t index) {
  const trace::RankTrace& one = run.ranks[a];
  const trace::RankTrace& other = run.ranks[b];
  const bool at_message =
      run.tables.is_message(one.calls[index]) || run.tables.is_message(other.calls[index]);
  return (at_message && peers_of(run, one) != peers_of(run, other)) ||
         cannot_make(run, one, other, index) || cannot_make(run, other, one, index);
}

// Where the programs diverge, if both are known from their start, neither ends there, and both
// ranks are in groups of the same sizes and have the same role there.
std::optional<std::uint32_t> diverged_at(const trace::Run& run, Agreement& agreement,
                                         std::uint32_t a, std::uint32_t b) {
  const auto diverged = common_start(run, agreement, a, b);
  // A program that ends there is late, and took no other path. Ranks in groups of different sizes
  // run different programs.
  if (!diverged || *diverged >= run.ranks[a].calls.size() ||
      *diverged >= run.ranks[b].calls.size() ||
      group_sizes(run, a, {a, b}) != group_sizes(run, b, {a, b}) ||
      have_other_roles(run, a, b, *diverged) || mixes_threads(run.ranks[a], *diverged) ||
      mixes_threads(run.ranks[b], *diverged)) {
    return std::nullopt;
  }
  return diverged;
}

// See most_broke_with_the_past(), of ranks whose programs diverge at that call.
std::optional<ProgramDivergence> most_broke_at(const trace::Run& run, Agreement& agreement,
                                               std::uint32_t a, std::uint32_t b,
                                               std::uint32_t diverged) {
  const Expected expected = expected_of(run, agreement, {a, diverged}, {b, diverged});
  if (expected == Expected::unknown) return std::nullopt;
  const Votes cast = votes(run, agreement, a, b, diverged);
  // A single rank against so many is the deviant one, unless it goes on with a round that was made
  // before, and they break it off.
  constexpr std::size_t kFarTooMany = 16;
  const bool is_first = expected == Expected::first;
  const auto breaks_a_round = [&] {
    const CallRef of_few{is_first ? a : b, diverged}, of_most{is_first ? b : a, diverged};
    return is_usual(run, agreement, of_few) == Usual::yes &&
           is_usual(run, agreement, of_most) == Usual::no;
  };
  const auto may_be_most = [&](std::size_t most, std::size_t few) {
    return most >= few && (few > 0 || most < kFarTooMany || breaks_a_round());
  };
  // Local votes come from ranks that took another path before, so they broke with no past here:
  // they may not outvote the others.
  if (expected == Expected::first) {
    const bool most = may_be_most(cast.b, cast.a) && cast.locally_b <= cast.locally_a;
    return most ? std::optional(ProgramDivergence{a, b, diverged}) : std::nullopt;
  }
  const bool most = may_be_most(cast.a, cast.b) && cast.locally_a <= cast.locally_b;
  return most ? std::optional(ProgramDivergence{b, a, diverged}) : std::nullopt;
}

}  // namespace

bool did_the_same_before(const trace::Run& run, Agreement& agreement, CallRef a, CallRef b) {
  const std::uint32_t compared = std::min({kCallsBefore, a.call, b.call});
  ProgramComparison programs(run.ranks[a.rank], run.ranks[b.rank], agreement);
  return compared > 0 && programs.common_before(a.call, b.call, compared) == compared;
}

std::optional<ProgramDivergence> divergence_by_votes(const trace::Run& run, Agreement& agreement,
                                                     std::uint32_t a, std::uint32_t b) {
  const auto diverged = diverged_at(run, agreement, a, b);
  return diverged ? by_votes(run, agreement, a, b, *diverged) : std::nullopt;
}

std::optional<ProgramDivergence> find_program_divergence(const trace::Run& run,
                                                         Agreement& agreement, std::uint32_t a,
                                                         std::uint32_t b) {
  const auto diverged = diverged_at(run, agreement, a, b);
  if (!diverged) return std::nullopt;
  if (const auto most = most_broke_at(run, agreement, a, b, *diverged)) return most;
  if (const auto voted = by_votes(run, agreement, a, b, *diverged)) return voted;
  const auto unusual = is_second_unusual(run, agreement, {a, *diverged}, {b, *diverged});
  if (!unusual) return std::nullopt;
  return *unusual ? ProgramDivergence{a, b, *diverged} : ProgramDivergence{b, a, *diverged};
}

bool part_at_end_of_varying_loop(const trace::Run& run, Agreement& agreement, CallRef first,
                                 CallRef second) {
  if (goes_on_with_loop(run, agreement, first) == goes_on_with_loop(run, agreement, second))
    return false;
  return is_at_end_of_varying_loop(run, agreement, first) ||
         is_at_end_of_varying_loop(run, agreement, second) ||
         (is_first_run_of_varying_loop(run, agreement, first) &&
          is_first_run_of_varying_loop(run, agreement, second));
}

std::optional<bool> is_second_unusual(const trace::Run& run, Agreement& agreement, CallRef first,
                                      CallRef second) {
  if (part_at_end_of_varying_loop(run, agreement, first, second)) return std::nullopt;
  // From strong evidence to weak: what the rank did at this point in all its other rounds, in its
  // earlier rounds, how often in a row, and what preceded such calls otherwise.
  constexpr std::pair kNothing(Usual::unknown, Usual::unknown);
  // Other rounds go on with the next one where the first checkpoint was to come.
  const bool new_part =
      may_begin_new_part(run, agreement, first) || may_begin_new_part(run, agreement, second);
  const auto by_earlier_rounds = [&] {
    return new_part || are_both_usual(run, agreement, first, second)
               ? kNothing
               : std::pair(is_usual(run, agreement, first), is_usual(run, agreement, second));
  };
  const std::pair<Usual, Usual> judgements[] = {
      new_part ? kNothing
               : std::pair(is_usual_anywhere(run, agreement, first),
                           is_usual_anywhere(run, agreement, second)),
      by_earlier_rounds(),
      {is_run_usual(run, agreement, first), is_run_usual(run, agreement, second)},
      {usually_precedes(run, agreement, first), usually_precedes(run, agreement, second)}};
  for (const auto& [one, other] : judgements) {
    if (one == other || one == Usual::unknown || other == Usual::unknown) continue;
    return one == Usual::yes;
  }
  // The other rank may have no other round: it blocks in its first one.
  const bool second_lacks = later_rounds_make(run, agreement, second, first);
  if (later_rounds_make(run, agreement, first, second) == second_lacks) return std::nullopt;
  return second_lacks;
}

std::optional<ProgramDivergence> most_broke_with_the_past(const trace::Run& run,
                                                          Agreement& agreement, std::uint32_t a,
                                                          std::uint32_t b) {
  const auto diverged = diverged_at(run, agreement, a, b);
  return diverged ? most_broke_at(run, agreement, a, b, *diverged) : std::nullopt;
}

std::optional<bool> others_go_on(const trace::Run& run, Agreement& agreement, std::uint32_t longer,
                                 std::uint32_t shorter) {
  const std::size_t end = run.ranks[shorter].calls.size();
  const auto common = common_start(run, agreement, longer, shorter);
  if (common != end || run.ranks[longer].calls.size() <= end ||
      group_sizes(run, longer, {longer, shorter}) != group_sizes(run, shorter, {longer, shorter})) {
    return std::nullopt;
  }
  std::size_t go_on = 0, ended = 0;
  ask_others(run, longer, shorter, [&](std::uint32_t r) {
    const std::uint32_t start = common_start(run, agreement, longer, r).value_or(0);
    if (start > end) {
      ++go_on;
    } else if (start == end && run.ranks[r].calls.size() == end &&
               (run.ranks[r].end == trace::End::clean || run.ranks[r].snapshot)) {
      ++ended;  // a killed or hung rank may have ended too early, and does not count
    }
  });
  return go_on == ended ? std::nullopt : std::optional(go_on > ended);
}

std::vector<std::uint32_t> ranks_that_diverge_alike(const trace::Run& run, Agreement& agreement,
                                                    const ProgramDivergence& divergence) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
    const std::uint32_t as_deviant =
        common_start(run, agreement, divergence.deviant, r).value_or(0);
    const std::uint32_t as_usual = common_start(run, agreement, divergence.usual, r).value_or(0);
    const bool alike = as_deviant > divergence.index && as_deviant > as_usual;
    if (r == divergence.deviant || alike) out.push_back(r);
  }
  return out;
}

bool calls_in(const trace::Run& run, std::uint32_t rank, std::uint32_t index,
              trace::GroupId group) {
  const std::vector<trace::Call>& calls = run.ranks[rank].calls;
  return index < calls.size() && calls[index].group == group;
}

}  // namespace lockstep::verify
