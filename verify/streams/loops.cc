#include "verify/streams/loops.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "verify/streams/past.h"

namespace lockstep::verify {

namespace {

constexpr std::uint32_t kLoopHistory = 4096;  // calls searched backwards: a step of a large model
constexpr std::uint32_t kLongestRound = 512;  // calls in a round of a loop: of a token, in a model

}  // namespace

std::uint32_t loop_before(const trace::Run& run, Agreement& agreement, CallRef call) {
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  const std::uint32_t index = call.call;
  if (index >= calls.size()) return 0;
  const auto same = [&](std::uint32_t i, std::uint32_t j) {
    return is_same_of_program(agreement, calls[i], calls[j]);
  };
  const auto repeats_every = [&](std::uint32_t period) {
    for (std::uint32_t k = 1; k <= period; ++k)
      if (!same(index - k, index - k - period)) return false;
    return true;
  };
  for (std::uint32_t period = 1; 2 * period <= index && period <= kLongestRound; ++period) {
    if (!repeats_every(period)) continue;
    if (same(index, index - period)) return period;
    for (std::uint32_t k = 1; k < period; ++k)
      if (same(index, index - k)) return 0;  // the program is within a round
    return period;
  }
  return 0;
}

namespace {

// A run of a loop: its whole rounds, whether it ends with one, and the index of its first call.
// `in_place`: it came after the same calls as the newest one. Other parts of a program may have the
// same loop.
struct LoopRun {
  std::uint32_t rounds = 0;
  bool is_whole = false;
  std::uint32_t first = 0;
  bool in_place = true;
};

// The runs of a loop before `index`, the newest first: the one that ends there, and earlier ones.
std::vector<LoopRun> runs_of_loop(Agreement& agreement, const std::vector<trace::Call>& calls,
                                  std::uint32_t index, std::uint32_t period) {
  constexpr std::uint32_t kBefore = 2;  // calls compared before two runs
  const auto same = [&](std::uint32_t i, std::uint32_t j) {
    return is_same_of_program(agreement, calls[i], calls[j]);
  };
  const auto ends_round = [&](std::uint32_t end) {
    for (std::uint32_t k = 1; k <= period; ++k)
      if (!same(end - k, index - k)) return false;
    return true;
  };
  // The calls of the run that ends before `end`.
  const auto length_of = [&](std::uint32_t end) {
    std::uint32_t length = period;
    while (length < end && same(end - length - 1, end - length - 1 + period)) ++length;
    return length;
  };
  const auto begin_alike = [&](std::uint32_t a, std::uint32_t b) {
    for (std::uint32_t k = 1; k <= std::min({kBefore, a, b}); ++k)
      if (!same(a - k, b - k)) return false;
    return true;
  };
  std::vector<LoopRun> out;
  std::uint32_t end = index;
  while (end >= period && index - end <= kLoopHistory) {
    if (!ends_round(end)) {
      --end;
      continue;
    }
    const std::uint32_t length = length_of(end);
    end -= length;
    out.push_back({length / period, length % period == 0, end,
                   out.empty() || begin_alike(end, out[0].first)});
  }
  return out;
}

// Whether runs have lengths of their own: they differ, and none came twice.
bool do_runs_vary(std::vector<std::uint32_t> runs) {
  std::sort(runs.begin(), runs.end());
  return runs.size() > 1 && std::adjacent_find(runs.begin(), runs.end()) == runs.end();
}

}  // namespace

bool is_at_end_of_varying_loop(const trace::Run& run, Agreement& agreement, CallRef call) {
  const std::uint32_t period = loop_before(run, agreement, call);
  if (period == 0) return false;
  const std::vector<LoopRun> found =
      runs_of_loop(agreement, run.ranks[call.rank].calls, call.call, period);
  std::vector<std::uint32_t> runs;
  std::uint32_t longest = 0;  // of those in other places
  for (std::size_t r = 1; r < found.size(); ++r) {
    if (found[r].in_place)
      runs.push_back(found[r].rounds);
    else
      longest = std::max(longest, found[r].rounds);
  }
  if (!found[0].is_whole) return false;
  const std::uint32_t now = found[0].rounds;
  // The first run in its place: where it is longer than those in other places, they do not tell
  // where it ends. A model gathers its layers once per step, and once per token of a text.
  if (runs.empty()) return longest > 0 && now > longest;
  // After a single shorter run, neither an end here nor a further round was seen before.
  return runs.size() == 1 ? now > runs[0] : do_runs_vary(runs);
}

bool is_first_run_of_varying_loop(const trace::Run& run, Agreement& agreement, CallRef call) {
  const std::uint32_t period = loop_before(run, agreement, call);
  if (period == 0) return false;
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  const std::vector<LoopRun> before = runs_of_loop(agreement, calls, call.call, period);
  const bool is_first = std::none_of(before.begin() + 1, before.end(),
                                     [](const LoopRun& earlier) { return earlier.in_place; });
  if (!is_first || !before[0].is_whole) return false;
  std::uint32_t end = call.call;
  while (end < calls.size() && is_same_of_program(agreement, calls[end], calls[end - period]))
    ++end;
  if (end == calls.size()) return false;
  const std::uint32_t now = (end - before[0].first) / period;
  // From there on, the runs that end before the last call.
  const auto size = static_cast<std::uint32_t>(calls.size());
  bool any = false;
  for (std::uint32_t i = end + period; i < size && i - end < kLoopHistory; ++i) {
    if (is_same_of_program(agreement, calls[i], calls[i - period])) continue;
    bool ends_round = true;
    for (std::uint32_t k = 1; k <= period && ends_round; ++k)
      ends_round = is_same_of_program(agreement, calls[i - k], calls[call.call - k]);
    if (!ends_round) continue;
    any = true;
    if (runs_of_loop(agreement, calls, i, period)[0].rounds == now) return false;
  }
  return any;
}

bool comes_after_whole_rounds(const trace::Run& run, Agreement& agreement, CallRef call) {
  const std::uint32_t period = loop_before(run, agreement, call);
  return period > 0 && !goes_on_with_loop(run, agreement, call) &&
         runs_of_loop(agreement, run.ranks[call.rank].calls, call.call, period)[0].is_whole;
}

bool goes_on_with_loop(const trace::Run& run, Agreement& agreement, CallRef call) {
  const std::uint32_t period = loop_before(run, agreement, call);
  const std::vector<trace::Call>& calls = run.ranks[call.rank].calls;
  return period > 0 && is_same_of_program(agreement, calls[call.call], calls[call.call - period]);
}

}  // namespace lockstep::verify
