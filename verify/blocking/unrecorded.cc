#include "verify/blocking/unrecorded.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/blocking/stopped.h"
#include "verify/blocking/witnesses.h"
#include "verify/streams/past.h"

namespace lockstep::verify {

namespace {

// How many messages came before calls like this one in the rank's earlier rounds, if always as
// many. Rounds are known by the statement of the program and by the call before it in the group, or
// by the statement alone where none is alike in both.
struct Habit {
  std::uint32_t usual = 0;
  std::size_t rounds = 0;
};
std::optional<Habit> habit_before(const Context& context, CallRef ref) {
  const trace::RankTrace& trace = context.run.ranks[ref.rank];
  const trace::Call& call = trace.calls[ref.call];
  const auto before = [&](std::uint32_t c) {
    while (c-- > 0)
      if (trace.calls[c].group == call.group) return c;
    return kNoCall;
  };
  const auto same = [&](std::uint32_t a, std::uint32_t b) {
    return a != kNoCall && b != kNoCall &&
           is_same_of_program(context.agreement, trace.calls[a], trace.calls[b]);
  };
  const std::uint32_t previous = before(ref.call);
  std::vector<std::uint32_t> alike, alike_in_both;
  std::uint32_t last = kNoCall;  // the group's call before `c`
  for (std::uint32_t c = 0; c < ref.call; ++c) {
    if (trace.calls[c].group != call.group) continue;
    if (same(c, ref.call)) {
      alike.push_back(trace.unrecorded[c]);
      if (same(last, previous)) alike_in_both.push_back(trace.unrecorded[c]);
    }
    last = c;
  }
  const std::vector<std::uint32_t>& counts = alike_in_both.empty() ? alike : alike_in_both;
  if (counts.empty()) return std::nullopt;
  const bool even = std::all_of(counts.begin(), counts.end(),
                                [&](std::uint32_t count) { return count == counts.front(); });
  if (!even) return std::nullopt;
  return Habit{counts.front(), counts.size()};
}

}  // namespace

bool may_wait_unseen(const Context& context, const WaitCause& wait) {
  return context.semantics == CallSemantics::gloo && is_snapshot(context.run) && !wait.cycle &&
         wait.stalled == SIZE_MAX && !wait.roots.empty() &&
         context.where.positions[wait.roots[0]].state == Position::State::hung;
}

UnseenMessages unseen_messages(const Context& context, const WaitCause& wait) {
  UnseenMessages out;
  bool used = false;
  for (const trace::RankTrace& trace : context.run.ranks) {
    if (trace.unrecorded.size() != trace.calls.size()) return out;
    used |= std::any_of(trace.unrecorded.begin(), trace.unrecorded.end(),
                        [](std::uint32_t count) { return count > 0; });
  }
  if (!used) {
    out.told = UnseenMessages::Told::none_used;
    return out;
  }
  // One earlier round may be special, as that in which stages exchange shapes.
  constexpr std::size_t kRounds = 2;
  bool all_made = true;
  for (const std::uint32_t r : wait.victims) {
    const std::uint32_t call = context.where.positions[r].waiting_in();
    const std::optional<Habit> habit =
        call == kNoCall ? std::nullopt : habit_before(context, {r, call});
    const std::uint32_t made = call == kNoCall ? 0 : context.run.ranks[r].unrecorded[call];
    all_made = all_made && habit && made == habit->usual;
    if (!habit || habit->rounds < kRounds || made >= habit->usual) continue;
    if (out.ranks.empty()) {
      out.before = {r, call};
      out.made = made;
      out.usual = habit->usual;
    }
    out.ranks.push_back(r);
  }
  if (!out.ranks.empty())
    out.told = UnseenMessages::Told::left_out;
  else if (all_made)
    out.told = UnseenMessages::Told::all_made;
  return out;
}

std::string why_unseen(const Context& context, const WaitCause& wait, UnseenMessages::Told told) {
  if (!may_wait_unseen(context, wait)) return "";
  if (told == UnseenMessages::Told::unknown)
    return "The job issues messages, which the dumps do not hold, and their numbers do not show "
           "whether one was left out.";
  if (wait.roots.size() > 1)
    return "Several ranks that stop at once may wait in what the dumps do not hold: in messages, "
           "or in the creation of a group.";
  return "";
}

void mention_unseen(const Context& context, const WaitCause& wait, Finding& finding) {
  if (finding.rule != RuleId::host_stall || !may_wait_unseen(context, wait)) return;
  const bool one = wait.roots.size() == 1;
  finding.fix = fmt::format(
      "look at the {} of {}: where {} in a message (Gloo's dumps hold none), look at its other "
      "side, which may be at fault, and in the creation of a group, at who does not create it",
      one ? "stack" : "stacks", context.describe_ranks(wait.roots), one ? "it waits" : "they wait");
}

Cause explain_unseen_message(const Context& context, const WaitCause& wait,
                             const UnseenMessages& messages) {
  Cause cause;
  Finding& f = cause.finding = make_finding(RuleId::p2p_unmatched);
  const std::string culprits = context.describe_ranks(messages.ranks);
  const std::string stopped = context.describe_ranks(wait.roots);
  const bool one = wait.roots.size() == 1;
  const auto number = [](std::uint32_t n) {
    return n == 0 ? std::string("no message") : plural(n, "message");
  };
  f.message = fmt::format(
      "{} came to {} with {}, where it issued {} in its earlier rounds; {} did not come there, and "
      "may wait in what was left out",
      culprits, context.describe_numbered(messages.before, context.call(messages.before).seq),
      number(messages.made), messages.usual, stopped);
  f.why =
      "The dumps hold no messages, but count them: a group's collectives and messages are numbered "
      "together.";
  f.fix = fmt::format(
      "look at the {} of {}: {} of a message shows what {} left out; issue it there, as in earlier "
      "rounds",
      one ? "stack" : "stacks", stopped, one ? "the line" : "the lines", culprits);
  f.culprits = context.ranks(messages.ranks);
  f.evidence.push_back(context.evidence(
      messages.before,
      fmt::format("{} before it, {} in earlier rounds", number(messages.made), messages.usual)));
  const WaitPoint& point = context.where.wait_points[first_missed(context, wait.points)];
  if (point.group != WaitPoint::kPointToPoint) {
    f.group = printable(context.run.tables.str(context.groups[point.group].group));
    f.seq = context.seq_of(point);
    cause.group = point.group;
    cause.seq = *f.seq;
  }
  f.evidence.push_back(wait_evidence(context, point, describe_awaited(context, point)));
  cause.deviants = messages.ranks;
  set_fingerprint(f, "unrecorded");
  return cause;
}

}  // namespace lockstep::verify
