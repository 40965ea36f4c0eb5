#include "verify/schedules/rendezvous.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/blocking/wait_graph.h"
#include "verify/context.h"

namespace lockstep::verify {

namespace {

constexpr std::size_t kShown = 6;  // waiting calls in a message

bool stuck_too(const ReplayResult& lenient, const WaitCause& wait) {
  const auto stuck = [&](std::uint32_t r) { return lenient.stuck[r]; };
  return std::any_of(wait.roots.begin(), wait.roots.end(), stuck) ||
         std::any_of(wait.victims.begin(), wait.victims.end(), stuck);
}

// The wait points of a cycle's ranks; without a cycle, those that lack a root. In order.
std::vector<std::size_t> points_to_report(const Context& strict, const WaitCause& wait) {
  std::vector<std::size_t> out;
  for (const std::size_t p : wait.points) {
    const WaitPoint& point = strict.where.wait_points[p];
    const auto& ranks = wait.cycle ? point.waiting : point.missing;
    const bool proven_there = std::any_of(ranks.begin(), ranks.end(), [&](std::uint32_t r) {
      return std::binary_search(wait.roots.begin(), wait.roots.end(), r);
    });
    if (proven_there) out.push_back(p);
  }
  return out;
}

// "rank 1 waits in …; rank 2 waits in …": the calls of these wait points.
std::string describe_points(const Context& strict, const std::vector<std::size_t>& points) {
  std::string out;
  for (std::size_t i = 0; i < points.size() && i < kShown; ++i)
    out += fmt::format("{}{}", i == 0 ? "" : "; ",
                       describe_awaited(strict, strict.where.wait_points[points[i]]));
  if (points.size() > kShown) out += fmt::format("; and {} more", points.size() - kShown);
  return out;
}

// What hangs where sends and collectives wait for their other side. `strict`: the replay in which
// they do; `lenient`: the one of the run, in which they were buffered.
Cause explain_synchronous_wait(const Context& strict, const ReplayResult& lenient,
                               const WaitCause& wait) {
  const std::vector<std::size_t> points = points_to_report(strict, wait);
  const auto call_at = [&](std::size_t p) {
    return waiting_call(strict, strict.where.wait_points[p].waiting[0]);
  };
  const bool all_messages = std::all_of(points.begin(), points.end(), [&](std::size_t p) {
    return strict.where.wait_points[p].group == WaitPoint::kPointToPoint;
  });
  const bool any_send = std::any_of(points.begin(), points.end(), [&](std::size_t p) {
    return strict.op(call_at(p)) == trace::Op::send;
  });
  const RuleId id = !wait.cycle && any_send ? RuleId::p2p_unmatched
                    : all_messages          ? RuleId::p2p_cycle
                                            : RuleId::deadlock;
  const bool sends_matter = any_send && !stuck_too(lenient, wait);
  Cause cause;
  cause.finding = make_finding(id);
  Finding& f = cause.finding;
  f.certainty = Certainty::possible;
  f.message = fmt::format(
      "where {}, {}{}",
      sends_matter ? "sends are not buffered" : "collectives wait for all their members",
      describe_points(strict, points),
      wait.cycle ? "" : fmt::format(", which {}", describe_state(strict, wait.roots[0])));
  f.why = sends_matter ? "MPI may buffer a standard send or let it wait for its receive. This run "
                         "buffered them; with longer messages, or another MPI, it hangs."
                       : "MPI may let a collective return before all its members came, or after. "
                         "This run did the former; another MPI, or another size, hangs.";
  if (id == RuleId::deadlock)
    f.fix = "issue the calls on all ranks in an order in which each can complete before the next";
  for (std::size_t i = 0; i < points.size(); ++i) {
    const WaitPoint& point = strict.where.wait_points[points[i]];
    cause.deviants.insert(cause.deviants.end(), point.waiting.begin(), point.waiting.end());
    if (i < kShown)
      f.evidence.push_back(wait_evidence(strict, point, describe_awaited(strict, point)));
  }
  if (!wait.cycle)
    cause.deviants.insert(cause.deviants.end(), wait.roots.begin(), wait.roots.end());
  std::sort(cause.deviants.begin(), cause.deviants.end());
  f.ranks = strict.ranks(cause.deviants);
  locate_cause(strict, strict.where.wait_points[points[0]], cause);
  set_fingerprint(f, trace::describe(strict.run.tables, strict.call(call_at(points[0])).signature));
  return cause;
}

}  // namespace

std::vector<Cause> check_rendezvous(const Context& context, const WildcardChoices* choices) {
  std::vector<Cause> out;
  const auto replay_program = [&](bool buffered) {
    return replay(context.run, context.groups, context.agreement,
                  {false, context.semantics, false, buffered, choices});
  };
  const ReplayResult where = replay_program(false);
  const bool waits = std::any_of(where.positions.begin(), where.positions.end(),
                                 [](const Position& p) { return p.waiting_in() != kNoCall; });
  if (!waits) return out;
  const Context strict{context.run,  context.groups,   where, context.modalities, context.agreement,
                       context.live, context.semantics};
  const ReplayResult lenient = replay_program(true);
  for (const WaitCause& wait : wait_causes(where)) {
    if (wait.stuck && !points_to_report(strict, wait).empty()) {
      out.push_back(explain_synchronous_wait(strict, lenient, wait));
    }
  }
  return out;
}

}  // namespace lockstep::verify
