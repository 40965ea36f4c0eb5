#include "verify/blocking/habit.h"

#include <algorithm>
#include <utility>

namespace lockstep {

namespace {

constexpr std::uint32_t kHistory = 4096;  // calls looked back
constexpr std::uint32_t kLongest = 64;    // calls by which two places are compared
constexpr std::size_t kMostUsual = 8;     // different calls that may come at one place
constexpr std::uint32_t kLate = 64;       // calls that a host goes on after one that it left out

// Of the calls of a rank's current round, which goes back to the last call like its newest: whether
// its past has all of them there, and the first that it has not.
std::pair<Usual, Break> usual_of_late(const Context& context, std::uint32_t rank) {
  const std::uint32_t newest = newest_call(context, rank);
  if (newest == kNoCall || !knows_its_past(context, rank)) return {Usual::unknown, {}};
  const std::vector<Call>& calls = context.run.ranks[rank].calls;
  std::uint32_t first = newest;
  while (first > 0 && newest - first < kLate &&
         !is_same_of_program(context, calls[first - 1], calls[newest])) {
    --first;
  }
  Usual out = Usual::yes;
  for (std::uint32_t c = first; c <= newest; ++c) {
    const Usual usual = is_usual(context, {rank, c});
    if (usual == Usual::no) {
      // The first call of its kind may as well open a part of the program that is new.
      const bool made_before = std::any_of(
          calls.begin(), calls.begin() + c,
          [&](const Call& earlier) { return is_same_of_program(context, earlier, calls[c]); });
      if (!made_before) return {Usual::unknown, {}};
      return {usual, {rank, c, usual_calls(context, {rank, c})[0]}};
    }
    if (c == newest) out = usual;
  }
  return {out, {}};
}

}  // namespace

bool knows_its_past(const Context& context, std::uint32_t rank) {
  const RankTrace& trace = context.run.ranks[rank];
  if (trace.dropped > 0) return false;
  return !trace.snapshot || std::any_of(trace.calls.begin(), trace.calls.end(), [&](const Call& c) {
    return is_over(c, context.semantics);
  });
}

bool is_same_of_program(const Context& context, const Call& a, const Call& b) {
  const bool same_place = a.at == b.at || a.at.value == 0 || b.at.value == 0;
  return a.group == b.group && a.what == b.what && a.peer == b.peer && same_place &&
         context.agreement.agree(a.signature, b.signature);
}

std::vector<std::uint32_t> usual_calls(const Context& context, CallRef place) {
  const std::vector<Call>& calls = context.run.ranks[place.rank].calls;
  std::uint32_t longest = 0;
  std::vector<std::uint32_t> usual;
  for (std::uint32_t back = 1; back < place.call && back <= kHistory; ++back) {
    // The calls before `place` against those before the place so many calls earlier.
    std::uint32_t length = 0;
    while (length < kLongest && back + length < place.call &&
           is_same_of_program(context, calls[place.call - 1 - length],
                              calls[place.call - 1 - length - back])) {
      ++length;
    }
    if (length == 0 || length < longest) continue;
    if (length > longest) usual.clear();
    longest = length;
    const std::uint32_t then = place.call - back;
    const bool known = std::any_of(usual.begin(), usual.end(), [&](std::uint32_t u) {
      return is_same_of_program(context, calls[then], calls[u]);
    });
    if (!known && usual.size() < kMostUsual) usual.push_back(then);
    if (length == kLongest) break;
  }
  return usual;
}

std::optional<std::uint32_t> usual_call(const Context& context, CallRef place) {
  const std::vector<std::uint32_t> usual = usual_calls(context, place);
  return usual.size() == 1 ? std::optional(usual[0]) : std::nullopt;
}

std::uint32_t newest_call(const Context& context, std::uint32_t rank) {
  const std::uint32_t waits = context.where.positions[rank].waiting_in();
  const auto issued = static_cast<std::uint32_t>(context.run.ranks[rank].calls.size());
  if (context.semantics == CallSemantics::nccl && waits != kNoCall) return issued - 1;
  return waits;
}

Usual is_usual(const Context& context, CallRef call) {
  const std::vector<std::uint32_t> usual = usual_calls(context, call);
  if (usual.empty()) return Usual::unknown;
  const std::vector<Call>& calls = context.run.ranks[call.rank].calls;
  const bool known = std::any_of(usual.begin(), usual.end(), [&](std::uint32_t u) {
    return is_same_of_program(context, calls[u], calls[call.call]);
  });
  return known ? Usual::yes : Usual::no;
}

std::vector<Break> breaks_with_the_past(const Context& context,
                                        const std::vector<std::uint32_t>& ranks) {
  constexpr std::size_t kMostRanks = 64;
  if (ranks.size() > kMostRanks) return {};
  std::vector<Break> out;
  for (const std::uint32_t r : ranks) {
    const auto [usual, where] = usual_of_late(context, r);
    if (usual == Usual::unknown) return {};
    if (usual == Usual::no) out.push_back(where);
  }
  if (out.size() == ranks.size()) return {};
  return out;
}

}  // namespace lockstep
