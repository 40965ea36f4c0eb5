#include "verify/blocking/blocking.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/blocking/cycles.h"
#include "verify/blocking/endings.h"
#include "verify/blocking/finished.h"
#include "verify/blocking/gone.h"
#include "verify/blocking/message_counts.h"
#include "verify/blocking/passed_by.h"
#include "verify/blocking/stalls.h"
#include "verify/blocking/stopped.h"
#include "verify/blocking/unrecorded.h"
#include "verify/blocking/wait_evidence.h"
#include "verify/blocking/witnesses.h"
#include "verify/context.h"
#include "verify/matching/matching.h"

namespace lockstep::verify {

namespace {

using State = Position::State;

// Whether the finding is about collectives.
bool is_about_groups(const Cause& cause) {
  const RuleId id = cause.finding.rule;
  return id == RuleId::missing_collective || id == RuleId::extra_collective ||
         id == RuleId::cross_group_deadlock;
}

// Whether somebody waits for one of the ranks, or one of them waits.
bool concerns(const Context& context, const WaitCause& wait,
              const std::vector<std::uint32_t>& ranks) {
  return std::any_of(wait.points.begin(), wait.points.end(), [&](std::size_t p) {
    const WaitPoint& point = context.where.wait_points[p];
    const std::vector<std::uint32_t> involved = united(lacked_by(point), point.waiting);
    return std::find_first_of(involved.begin(), involved.end(), ranks.begin(), ranks.end()) !=
           involved.end();
  });
}

// Whether ranks that seem to have stopped, or to have finished too early, left out or added calls
// before. Calls that look alike then pair with later ones, until there are none left.
bool shows_earlier(const Context& context, const WaitCause& wait, const OddProgram& odd,
                   const Cause& cause) {
  const RuleId rule = cause.finding.rule;
  if (rule != RuleId::unequal_iterations && rule != RuleId::host_stall) return false;
  const bool edited = odd.kind == OddProgram::Kind::missing || odd.kind == OddProgram::Kind::extra;
  if (!odd.is_certain || !edited || is_snapshot(context.run)) return false;
  return std::all_of(wait.roots.begin(), wait.roots.end(), [&](std::uint32_t r) {
    const State state = context.where.positions[r].state;
    return state == State::finished || state == State::hung ||
           (state == State::cut && context.run.ranks[r].snapshot);
  });
}

// Whether a dump's ranks that seem to have stopped did all that their program does, and only those
// who made calls too many before wait for them, in the last of their calls. Others may wait for
// these.
bool wait_alone(const Context& context, const WaitCause& wait, const OddProgram& odd,
                const Cause& cause) {
  if (cause.finding.rule != RuleId::host_stall ||
      !(is_snapshot(context.run) || issued_alone(context)) || !odd.is_certain ||
      odd.kind != OddProgram::Kind::extra) {
    return false;
  }
  const trace::SignatureId added = context.call({odd.deviants[0], odd.index}).signature;
  return std::all_of(wait.points.begin(), wait.points.end(), [&](std::size_t p) {
    const WaitPoint& point = context.where.wait_points[p];
    if (std::find_first_of(point.missing.begin(), point.missing.end(), wait.roots.begin(),
                           wait.roots.end()) == point.missing.end()) {
      return true;
    }
    // Without their calls too many they would not have come to this one.
    const auto lacks_no_more = [&](std::uint32_t r) {
      const Stream* const own = stream_of(context.groups[point.group], r);
      return own != nullptr && point.instance < own->calls.size() + odd.count;
    };
    const trace::Call& waiting = context.call(waiting_call(context, point.waiting[0]));
    return point.group != WaitPoint::kPointToPoint &&
           context.agreement.agree(waiting.signature, added) &&
           std::includes(odd.deviants.begin(), odd.deviants.end(), point.waiting.begin(),
                         point.waiting.end()) &&
           std::all_of(point.missing.begin(), point.missing.end(), lacks_no_more);
  });
}

// Replaces an explanation that names other ranks than those of the job's odd program, where numbers
// show these, or that names none or some of them.
void explain_by_odd_program(const Context& context, const WaitCause& wait, Cause& cause) {
  const OddProgram* const odd = context.odd_program;
  if (odd == nullptr) return;
  const std::vector<trace::Rank> deviants = context.ranks(odd->deviants);
  const std::vector<trace::Rank>& named = cause.finding.culprits;
  const bool some = std::includes(deviants.begin(), deviants.end(), named.begin(), named.end());
  const bool message = trace::is_point_to_point(context.op({odd->deviants[0], odd->index})) ||
                       (odd->kind == OddProgram::Kind::missing &&
                        trace::is_point_to_point(context.op({odd->usual, odd->index})));
  // The right ranks by the right call, or by another one that only follows from a message.
  const bool right =
      named == deviants && !(message && odd->by_numbers &&
                             context.semantics == CallSemantics::nccl && is_about_groups(cause));
  const bool alone = wait_alone(context, wait, *odd, cause);
  if (right && !shows_earlier(context, wait, *odd, cause)) return;
  if (!odd->by_numbers && !some && !alone) return;
  // An explanation that names all ranks that diverge from them knows why most ranks are wrong.
  if (!message && !alone && named == context.ranks(odd->others)) return;
  // Ranks that stopped outside of any call did not do so because of another one's calls.
  const bool stopped = !wait.cycle && wait.stalled == SIZE_MAX &&
                       context.where.positions[wait.roots[0]].state != State::finished &&
                       records_completion(context.run, context.semantics);
  if (stopped && !alone &&
      std::find_first_of(wait.roots.begin(), wait.roots.end(), odd->deviants.begin(),
                         odd->deviants.end()) == wait.roots.end()) {
    return;
  }
  // In a ring, other messages stand still, too.
  const bool stalled = message && wait.stalled != SIZE_MAX && named.empty();
  if (!stalled && !concerns(context, wait, odd->deviants)) return;
  // Calls in another order need no other words.
  if (odd->kind == OddProgram::Kind::swapped) {
    if (stopped) return;
    cause.deviants = odd->deviants;
    cause.finding.culprits = deviants;
    return;
  }
  std::optional<Cause> better = explain_odd_program(context, *odd);
  if (!better) return;
  cause = std::move(*better);
  cause.finding.consequences.push_back(wait_consequence(context, wait));
}

// Whether what the rule tells may follow from calls that pair with the wrong ones: then the ranks
// wait elsewhere, for others than the one at fault.
bool may_follow_from_calls(const Context& context, RuleId rule) {
  return rule == RuleId::p2p_unmatched || rule == RuleId::p2p_cycle || rule == RuleId::deadlock ||
         rule == RuleId::cross_group_deadlock || rule == RuleId::missing_collective ||
         rule == RuleId::extra_collective || rule == RuleId::unequal_iterations ||
         (rule == RuleId::host_stall &&
          (is_snapshot(context.run) || !records_completion(context.run, context.semantics)));
}

// Replaces an explanation that names others than the rank whose messages of a round do not fit
// those of its peer: what pairs with them afterwards makes their victims wait.
void explain_by_exchange(const Context& context, const WaitCause& wait, Cause& cause) {
  const UnevenExchange* const uneven = context.uneven_exchange;
  if (uneven == nullptr) return;
  // The right rank, but the last of the calls that follow from its fault. What the programs of all
  // ranks of its kind tell is more exact.
  const OddProgram* const odd = context.odd_program;
  const bool is_odd = odd != nullptr && odd->is_certain && odd->by_numbers &&
                      odd->deviants == std::vector{uneven->odd};
  const bool later = !is_odd && uneven->kind != UnevenExchange::Kind::messages &&
                     cause.seq > context.call(uneven->end).seq;
  const bool right = cause.finding.culprits == context.ranks({uneven->odd}) && !later;
  if (!may_follow_from_calls(context, cause.finding.rule) || right ||
      !concerns(context, wait, united<std::uint32_t>({uneven->odd}, {uneven->partner}))) {
    return;
  }
  cause = explain_uneven_exchange(context, *uneven);
  cause.finding.consequences.push_back(wait_consequence(context, wait));
}

// Replaces an explanation that names others than the ranks that made another number of calls in a
// round, where it is about such a group: calls that look alike pair with later ones, until a rank
// waits in the last of them.
void explain_by_round(const Context& context, const WaitCause& wait, Cause& cause) {
  if (!may_follow_from_calls(context, cause.finding.rule)) return;
  const auto waits_in_its_group = [&](const UnevenRound& round) {
    return std::any_of(wait.points.begin(), wait.points.end(), [&](std::size_t p) {
      return context.where.wait_points[p].group == round.deviation.group;
    });
  };
  const auto uneven =
      std::find_if(context.uneven_rounds.begin(), context.uneven_rounds.end(), waits_in_its_group);
  if (uneven == context.uneven_rounds.end()) return;
  const Deviation& d = uneven->deviation;
  // What the programs of all ranks of a kind tell is more exact.
  const OddProgram* const odd = context.odd_program;
  if (odd != nullptr && odd->is_certain && odd->by_numbers && odd->deviants != d.deviants) return;
  // Those of sister groups may be named with them. Or it is the right ranks by the last of the
  // calls that follow from their fault.
  const std::vector<trace::Rank> deviants = context.ranks(d.deviants);
  const std::vector<trace::Rank>& named = cause.finding.culprits;
  const bool later = named == deviants && cause.group == d.group && cause.seq > d.seq;
  if (!later && std::includes(named.begin(), named.end(), deviants.begin(), deviants.end())) return;
  cause = explain_deviation(context, d);
  const auto number = [](std::size_t n) { return n == 0 ? "none" : std::to_string(n); };
  cause.finding.why = fmt::format(
      "In the round that ends with {}, {} made {} of these calls, and {} made {}, as is usual.",
      context.describe_numbered(uneven->end, context.call(uneven->end).seq),
      context.describe_ranks(d.deviants), number(uneven->made), context.describe_ranks(d.reference),
      number(uneven->usual));
  cause.finding.consequences.push_back(wait_consequence(context, wait));
}

// A cycle over NCCL in which a rank raised an exception of its own and never issued a call that
// others wait in: it is the root, since its host issues nothing more, whatever its device still
// waits for. (Where calls block, the exception is that of the call in which the rank waits.)
WaitCause from_raised(const Context& context, const WaitCause& wait) {
  if (!wait.cycle || context.semantics != CallSemantics::nccl) return wait;
  std::vector<std::uint32_t> raised = sort_exceptions(context).causes;
  std::erase_if(raised, [&](std::uint32_t r) {
    const bool missing = std::any_of(wait.points.begin(), wait.points.end(), [&](std::size_t p) {
      const std::vector<std::uint32_t>& lack = context.where.wait_points[p].missing;
      return std::binary_search(lack.begin(), lack.end(), r);
    });
    return !missing || !std::binary_search(wait.roots.begin(), wait.roots.end(), r);
  });
  if (raised.empty()) return wait;
  WaitCause out = wait;
  out.cycle = false;
  unite(out.victims, out.roots);
  std::erase_if(out.victims, [&](std::uint32_t r) {
    return std::binary_search(raised.begin(), raised.end(), r);
  });
  out.roots = std::move(raised);
  return out;
}

}  // namespace

Cause explain_wait(const Context& context, const WaitCause& found) {
  const WaitCause wait = from_raised(context, found);
  // All members issued the call, and it does not complete.
  if (wait.stalled != SIZE_MAX) {
    Cause cause = explain_stall(context, context.where.wait_points[wait.stalled]);
    explain_by_odd_program(context, wait, cause);
    explain_by_exchange(context, wait, cause);
    explain_by_round(context, wait, cause);
    if (!wait.victims.empty() && cause.finding.consequences.empty()) {
      cause.finding.consequences.push_back(wait_consequence(context, wait));
    }
    cause.finding.ranks = context.ranks(wait.all_ranks());
    return cause;
  }
  Cause cause;
  Finding& f = cause.finding;
  // A skipped call explains more than the cycle or stall that it leads to, so it comes first.
  if (const auto deviations = passed_by_deviations(context, wait); !deviations.empty()) {
    cause = explain_passed_by(context, deviations);
    f.consequences.push_back(wait_consequence(context, wait));
  } else if (wait.cycle) {
    cause = explain_cycle(context, wait);
  } else {
    cause = context.where.positions[wait.roots[0]].state == State::finished
                ? explain_finished(context, wait)
                : explain_gone(context, wait);
    add_wait_evidence(context, wait, f);
  }
  explain_by_odd_program(context, wait, cause);
  explain_by_exchange(context, wait, cause);
  explain_by_round(context, wait, cause);
  // No call shows that ranks do not go on in the creation of a group. Nor do dumps that hold no
  // messages show what keeps a rank from coming.
  const bool unseen = may_wait_unseen(context, wait) &&
                      (f.rule == RuleId::host_stall || f.rule == RuleId::p2p_unmatched);
  const bool proven = wait.stuck && f.rule != RuleId::group_divergence && !unseen;
  f.certainty = proven ? Certainty::proven : Certainty::observed;
  f.ranks = context.ranks(wait.all_ranks());
  if (f.fingerprint.empty()) {
    const WaitPoint& point = first_point(context, wait);
    set_fingerprint(
        f, trace::describe(context.run.tables,
                           context.call(waiting_call(context, point.waiting[0])).signature));
  }
  return cause;
}

Finding wait_consequence(const Context& context, const WaitCause& wait) {
  Finding f = make_finding(RuleId::deadlock);
  f.certainty = wait.stuck ? Certainty::proven : Certainty::observed;
  f.ranks = context.ranks(wait.all_ranks());
  std::string parts;
  std::size_t shown = 0;
  if (wait.stalled != SIZE_MAX) {
    parts = fmt::format("{}, which every member issued",
                        describe_wait(context, context.where.wait_points[wait.stalled]));
    ++shown;
  }
  // The nearest waits: those farther away follow from them.
  for (const std::size_t p : by_distance(context, wait.roots, wait.points)) {
    if (++shown > 4) break;
    const WaitPoint& point = context.where.wait_points[p];
    parts += (parts.empty() ? "" : "; ") + describe_awaited(context, point);
  }
  if (wait.points.size() > 4) parts += fmt::format("; and {} more calls", wait.points.size() - 4);
  // How the roots ended. Those of a cycle or a stall wait themselves, which was said above.
  if (!wait.cycle && wait.stalled == SIZE_MAX) {
    constexpr std::size_t kStatesShown = 4;
    parts += fmt::format("; {}", describe_states(context, wait.roots, kStatesShown));
  }
  f.message = parts;
  f.fix.clear();
  set_fingerprint(f, "");
  return f;
}

}  // namespace lockstep::verify
