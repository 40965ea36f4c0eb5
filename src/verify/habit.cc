#include "verify/habit.h"

#include <algorithm>

namespace lockstep {

namespace {

constexpr std::uint32_t kHistory = 4096;  // calls looked back
constexpr std::uint32_t kLongest = 64;    // calls by which two places are compared

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

std::optional<std::uint32_t> usual_call(const Context& context, CallRef place) {
  const std::vector<Call>& calls = context.run.ranks[place.rank].calls;
  std::uint32_t longest = 0;
  std::optional<std::uint32_t> usual;
  bool divided = false;
  for (std::uint32_t back = 1; back < place.call && back <= kHistory; ++back) {
    // The calls before `place` against those before the place so many calls earlier.
    std::uint32_t length = 0;
    while (length < kLongest && back + length < place.call &&
           is_same_of_program(context, calls[place.call - 1 - length],
                              calls[place.call - 1 - length - back])) {
      ++length;
    }
    if (length == 0 || length < longest) continue;
    const std::uint32_t then = place.call - back;
    if (length > longest) {
      longest = length;
      usual = then;
      divided = false;
      if (length == kLongest) break;
    } else if (!is_same_of_program(context, calls[then], calls[*usual])) {
      divided = true;
    }
  }
  return divided ? std::nullopt : usual;
}

std::uint32_t newest_call(const Context& context, std::uint32_t rank) {
  const std::uint32_t waits = context.where.positions[rank].waiting_in();
  const auto issued = static_cast<std::uint32_t>(context.run.ranks[rank].calls.size());
  if (context.semantics == CallSemantics::nccl && waits != kNoCall) return issued - 1;
  return waits;
}

Usual is_usual(const Context& context, CallRef call) {
  const std::optional<std::uint32_t> usual = usual_call(context, call);
  if (!usual) return Usual::unknown;
  const std::vector<Call>& calls = context.run.ranks[call.rank].calls;
  return is_same_of_program(context, calls[*usual], calls[call.call]) ? Usual::yes : Usual::no;
}

}  // namespace lockstep
