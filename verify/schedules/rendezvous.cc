#include "verify/schedules/rendezvous.h"

#include <algorithm>

#include <fmt/core.h>

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

Cause explain_synchronous_wait(const Context& strict, const ReplayResult& lenient,
                               const WaitCause& wait) {
  const std::vector<std::size_t> points = points_to_report(strict, wait);
  bool all_messages = true;
  bool any_send = false;
  std::string cycle;
  Cause cause;
  Finding finding;
  std::vector<std::uint32_t> waiting;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const WaitPoint& point = strict.where.wait_points[points[i]];
    const CallRef call = waiting_call(strict, point.waiting[0]);
    all_messages = all_messages && point.group == WaitPoint::kPointToPoint;
    any_send = any_send || strict.op(call) == trace::Op::send;
    waiting.insert(waiting.end(), point.waiting.begin(), point.waiting.end());
    if (i >= kShown) continue;
    const std::string words = describe_awaited(strict, point);
    cycle += (cycle.empty() ? "" : "; ") + words;
    finding.evidence.push_back(strict.evidence(call, words));
  }
  if (points.size() > kShown) cycle += fmt::format("; and {} more", points.size() - kShown);
  const bool sends_matter = any_send && !stuck_too(lenient, wait);
  const RuleId id = !wait.cycle && any_send ? RuleId::p2p_unmatched
                    : all_messages          ? RuleId::p2p_cycle
                                            : RuleId::deadlock;
  const std::vector<Evidence> evidence = std::move(finding.evidence);
  cause.finding = make_finding(id);
  Finding& f = cause.finding;
  f.evidence = evidence;
  f.certainty = Certainty::possible;
  f.message = fmt::format(
      "where {}, {}",
      sends_matter ? "sends are not buffered" : "collectives wait for all their members", cycle);
  if (!wait.cycle) f.message += fmt::format(", which {}", describe_state(strict, wait.roots[0]));
  f.why = sends_matter ? "MPI may buffer a standard send or let it wait for its receive. This run "
                         "buffered them; with longer messages, or another MPI, it hangs."
                       : "MPI may let a collective return before all its members came, or after. "
                         "This run did the former; another MPI, or another size, hangs.";
  if (id == RuleId::deadlock)
    f.fix =
        "issue the calls on all ranks in an order in which each can "
        "complete before the next";
  std::sort(waiting.begin(), waiting.end());
  if (!wait.cycle) waiting.insert(waiting.end(), wait.roots.begin(), wait.roots.end());
  std::sort(waiting.begin(), waiting.end());
  cause.deviants = waiting;
  f.ranks = strict.ranks(waiting);
  const WaitPoint& first = strict.where.wait_points[points[0]];
  locate_cause(strict, first, cause);
  set_fingerprint(f,
                  trace::describe(strict.run.tables,
                                  strict.call(waiting_call(strict, first.waiting[0])).signature));
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
