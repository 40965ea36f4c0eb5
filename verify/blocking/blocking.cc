#include "verify/blocking/blocking.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/core.h>

#include "base/text.h"
#include "trace/evidence/exceptions.h"
#include "trace/evidence/failure_messages.h"
#include "verify/blocking/cycles.h"
#include "verify/blocking/endings.h"
#include "verify/blocking/finished.h"
#include "verify/blocking/message_counts.h"
#include "verify/blocking/messages.h"
#include "verify/blocking/passed_by.h"
#include "verify/blocking/program_divergence.h"
#include "verify/blocking/stalls.h"
#include "verify/blocking/stopped.h"
#include "verify/blocking/unanswered.h"
#include "verify/blocking/unrecorded.h"
#include "verify/blocking/wait_evidence.h"
#include "verify/blocking/witnesses.h"
#include "verify/context.h"
#include "verify/matching/matching.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

using State = Position::State;

// Roots and victims, ascending.
std::vector<std::uint32_t> all_ranks(const WaitCause& wait) {
  std::vector<std::uint32_t> out = wait.roots;
  out.insert(out.end(), wait.victims.begin(), wait.victims.end());
  std::sort(out.begin(), out.end());
  return out;
}

// A stack of the rank's process among the job's evidence; null: none.
const trace::RankNote* stack_of(const Context& context, std::uint32_t rank) {
  const trace::Rank number = context.run.ranks[rank].rank;
  for (const trace::RankNote& note : context.run.notes)
    if (note.rank == number && note.kind == trace::RankNote::Kind::stack) return &note;
  return nullptr;
}

bool was_interrupted(const Context& context, std::uint32_t rank) {
  return context.run.ranks[rank].end == trace::End::interrupted;
}

// Whether ranks that waited there gave up when their timeout was over. Then who did not come had
// stopped long before its process was ended.
bool gave_up(const Context& context, const WaitPoint& point) {
  return std::any_of(point.waiting.begin(), point.waiting.end(), [&](std::uint32_t r) {
    const auto& marks = context.run.ranks[r].exceptions;
    return context.where.positions[r].state == State::raised && !marks.empty() &&
           trace::mentions_timeout(marks.back().what);
  });
}

// Whether a rank that waited there says that the connection to its peer was closed: the process
// that did not come is gone. Not where somebody gave up before, whose end closes connections, too.
bool lost_connection(const Context& context, const WaitPoint& point) {
  return std::any_of(point.waiting.begin(), point.waiting.end(), [&](std::uint32_t r) {
    const auto& marks = context.run.ranks[r].exceptions;
    if (context.where.positions[r].state != State::raised || marks.empty()) return false;
    return trace::says_peer_closed(marks.back().what);
  });
}

// Whether the process of a rank whose trace just ends is known to be gone.
bool is_gone(const Context& context, const WaitCause& wait, const WaitPoint& point) {
  const std::uint32_t root = wait.roots[0];
  return wait.roots.size() == 1 && context.where.positions[root].state == State::cut &&
         stack_of(context, root) == nullptr && !gave_up(context, point) &&
         lost_connection(context, point);
}

// How ranks of no further calls stopped, for whom others wait at the point; for the headline.
std::string stop_words(const Context& context, const std::vector<std::uint32_t>& ranks,
                       const WaitPoint& point) {
  const bool one = ranks.size() == 1;
  switch (context.where.positions[ranks[0]].state) {
    case State::finished:
      return "finished";
    case State::running:
      return one ? "is still running" : "are still running";
    case State::cut:
      // The recorder took it when nothing had happened for some time.
      if (stack_of(context, ranks[0]) != nullptr || gave_up(context, point)) return "stopped";
      return one ? "stopped without an end mark (its process died, or its trace was cut off)"
                 : "stopped without an end mark (their processes died, or their traces were cut "
                   "off)";
    case State::killed:
      // Its user ended a job in which it stood already.
      if (was_interrupted(context, ranks[0])) return "stopped";
      return one ? "was killed" : "were killed";
    case State::raised:
      return "raised an exception";
    case State::hung:
      return context.presumed ? "may have stopped" : "stopped";
  }
  return "";
}

// Whether the rank's process may still be there to be looked at.
bool may_be_alive(const Context& context, std::uint32_t rank) {
  const State state = context.where.positions[rank].state;
  return state == State::hung || state == State::running ||
         (state == State::cut && context.run.ranks[rank].snapshot);
}

// The stack that shows that the rank is creating a process group; null: none does.
const trace::RankNote* creates_group(const Context& context, std::uint32_t rank) {
  const State state = context.where.positions[rank].state;
  if (state == State::killed || state == State::raised || state == State::finished) return nullptr;
  const trace::RankNote* const stack = stack_of(context, rank);
  return stack != nullptr && stack->creates_group ? stack : nullptr;
}

// Ranks that wait for one another in the creation of a process group, while all others wait for
// them: not all call it, or not in the same order. Which ranks are at fault, nothing shows.
Cause explain_group_creation(const Context& context, const WaitCause& wait) {
  const WaitPoint& point = first_point(context, wait);
  Cause cause;
  cause.finding = make_finding(RuleId::group_divergence);
  Finding& f = cause.finding;
  const bool one = wait.roots.size() == 1;
  f.message = fmt::format(
      "{} {} in the creation of a process group, which not all ranks enter, or not in this order; "
      "{}",
      context.describe_ranks(wait.roots), one ? "waits" : "wait", describe_wait(context, point));
  f.why =
      "All ranks must create the same groups in the same order, also those that are not members.";
  f.ranks = context.ranks(all_ranks(wait));
  cause.deviants = wait.roots;
  locate_cause(context, point, cause);
  set_fingerprint(f, "");
  return cause;
}

}  // namespace

std::optional<Cause> explain_stay_in_creation(const Context& context) {
  std::vector<std::uint32_t> creating;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    if (context.where.positions[r].state == State::finished) continue;
    // A rank elsewhere may still enter it, or say better why the others wait.
    if (context.where.point_of[r] != SIZE_MAX || creates_group(context, r) == nullptr)
      return std::nullopt;
    creating.push_back(r);
  }
  if (creating.empty() ||
      context.run.ranks.size() != static_cast<std::size_t>(context.run.world_size))
    return std::nullopt;
  Cause cause;
  cause.finding = make_finding(RuleId::group_divergence);
  Finding& f = cause.finding;
  const bool one = creating.size() == 1;
  f.message = fmt::format(
      "{} {} in the creation of a process group, and no rank is elsewhere: not all of its members "
      "create it, or they create groups in another order",
      context.describe_ranks(creating), one ? "stays" : "stay");
  f.why =
      "All ranks must create the same groups in the same order, also those that are not members; "
      "with use_local_synchronization, the members of each group.";
  f.certainty = Certainty::observed;
  f.ranks = context.ranks(creating);
  constexpr std::size_t kShown = 4;
  for (const std::uint32_t r : creating) {
    if (f.evidence.size() >= kShown) break;
    f.evidence.push_back(context.evidence({r, kNoCall}, creates_group(context, r)->text));
  }
  cause.deviants = creating;
  set_fingerprint(f, "creation");
  return cause;
}

namespace {

// The wait where some of its roots create a group. Those wait, too, for a rank that does not: the
// roots are such ranks, if the others lack one.
WaitCause without_creators(const Context& context, const WaitCause& all) {
  WaitCause wait = all;
  wait.roots.clear();
  for (const std::size_t p : all.points) unite(wait.roots, lacked_by(context.where.wait_points[p]));
  std::erase_if(wait.roots, [&](std::uint32_t r) {
    return context.where.point_of[r] != SIZE_MAX || creates_group(context, r) != nullptr;
  });
  return wait;
}

// Who is at fault where ranks seem to hang outside of any call.
enum class Blame : std::uint8_t { roots, nobody, either_side };

// That most of a group hangs is less likely than that the few are ahead, or finished: nothing shows
// how a dump's ranks ended, and issue lines alone do not show what a host was doing.
Blame blame_for(const Context& context, const WaitCause& wait, const WaitPoint& point) {
  const std::uint32_t root = wait.roots[0];
  const bool hung = context.where.positions[root].state == State::hung;
  if (!hung || !(is_snapshot(context.run) || issued_alone(context))) return Blame::roots;
  const bool collective = point.group != WaitPoint::kPointToPoint;
  // Nor is it likely where as many wait, in a call that their own past does not predict.
  const bool is_odd_call = collective && point.waiting.size() <= point.missing.size() &&
                           is_usual(context.run, context.agreement,
                                    waiting_call(context, point.waiting[0])) == Usual::no;
  if (is_odd_call) return Blame::either_side;
  const bool few_wait =
      point.waiting.size() < wait.roots.size() ||
      others_go_on(context.run, context.agreement, point.waiting[0], root) == false;
  // But who is ahead, or makes a call too many, does not wait in the next call of a round that the
  // others broke off.
  const bool broke_off = collective && ended_within_round(context, point);
  return few_wait && !broke_off ? Blame::nobody : Blame::roots;
}

// Says why nobody is named where most of a group seem to have stopped, and a few to wait for them.
void tell_of_few_ahead(const Context& context, const WaitCause& wait, const WaitPoint& point,
                       Finding& finding) {
  const std::string many = context.describe_ranks(wait.roots);
  const std::string few = context.describe_ranks(point.waiting);
  finding.why = fmt::format(
      "Most ranks seldom stop at once by themselves. They may wait in what was not recorded, "
      "such as a new communicator that {} did not join; or {} made a call more.",
      few, few);
  finding.fix = fmt::format(
      "look at the stack of one of {} for what it waits in, and whether {} left that out", many,
      few);
}

// Ranks stopped: what they did last, and the first call that they missed.
// `sure`: that it is a stop, and no wait that the source does not hold.
Cause cause_of_stop(const Context& context, const WaitCause& wait, std::size_t missed,
                    const MissedCall& first, bool sure) {
  const std::uint32_t root = wait.roots[0];
  const bool raised = context.where.positions[root].state == State::raised;
  const bool gone = is_gone(context, wait, context.where.wait_points[missed]);
  Cause cause;
  cause.finding = make_finding(raised ? rule_of_exception(context, root) : RuleId::host_stall);
  tell_stopped(context,
               {.ranks = context.ranks(wait.roots),
                .verb = gone   ? "died (the others lost their connection to it)"
                        : sure ? stop_words(context, wait.roots, context.where.wait_points[missed])
                               : (wait.roots.size() == 1 ? "stopped, or waits unseen,"
                                                         : "stopped, or wait unseen,"),
                .alive = may_be_alive(context, root),
                .point = missed,
                .missed = first,
                .waiting = wait.victims.size()},
               cause.finding);
  cause.finding.message =
      raised ? fmt::format("{} {}; {}", context.describe_ranks(wait.roots),
                           describe_state(context, root, wait.roots.size()),
                           describe_wait(context, context.where.wait_points[missed]))
             : cause.finding.headline;
  if (raised) advise_about_exception(context, root, cause.finding);
  if (gone ||
      (context.where.positions[root].state == State::killed && !was_interrupted(context, root)))
    cause.finding.fix =
        "its process is gone: look at the end of its log, and at the logs of the scheduler and of "
        "the "
        "kernel (memory, time limit, preemption); the ranks that wait are victims";
  constexpr std::size_t kShown = 4;
  for (const std::uint32_t r : wait.roots) {
    if (cause.finding.evidence.size() >= kShown) break;
    cause.finding.evidence.push_back(context.evidence({r, kNoCall}, last_seen(context, r)));
  }
  return cause;
}

// Explains ranks that died, raised or hang outside of any call while others wait for them.
Cause explain_gone(const Context& context, const WaitCause& all) {
  const bool creates = std::any_of(all.roots.begin(), all.roots.end(), [&](std::uint32_t r) {
    return creates_group(context, r) != nullptr;
  });
  const WaitCause wait = creates ? without_creators(context, all) : all;
  if (wait.roots.empty()) return explain_group_creation(context, all);
  const bool may_be_unseen = may_wait_unseen(context, wait);
  const UnseenMessages unseen = may_be_unseen ? unseen_messages(context, wait) : UnseenMessages{};
  if (unseen.told == UnseenMessages::Told::left_out)
    return explain_unseen_message(context, wait, unseen);
  const WaitPoint& point = first_point(context, wait);
  // Without completions, nothing shows that the peer hangs. If the waiting rank never sent or
  // received such a message before, the message itself may be the fault, and if the peer went on to
  // what follows its side, it left that out.
  if (point.group == WaitPoint::kPointToPoint && !point.missing.empty() &&
      !records_completion(context.run, context.semantics)) {
    if (is_new_kind_of_message(context, point)) return explain_message(context, point);
    if (issued_alone(context) && point.missing == wait.roots &&
        went_past_message(context, point, wait.roots[0])) {
      return left_out_message(context, point, wait.roots[0]);
    }
  }
  if (is_new_to_most(context, wait, point)) {
    Deviation extra = missing_at(context, point, point.missing);
    turn_around(extra);
    return explain_deviation(context, extra);
  }
  if (context.where.positions[wait.roots[0]].state == State::hung) {
    if (auto other = explain_other_path(context, point, wait.roots)) return std::move(*other);
  }
  const std::size_t missed = first_missed(context, points_of_roots(context, wait));
  const WaitPoint& place = context.where.wait_points[missed];
  const MissedCall first = missed_call(context, wait.roots, place);
  const std::string why_not = why_unseen(context, wait, unseen.told);
  Cause cause = cause_of_stop(context, wait, missed, first, why_not.empty());
  const Blame blame = blame_for(context, wait, point);
  if (blame == Blame::either_side) cause.finding.why = kEitherWay;
  if (blame == Blame::nobody) tell_of_few_ahead(context, wait, point, cause.finding);
  if (!why_not.empty()) cause.finding.why = why_not;
  if (blame == Blame::roots && why_not.empty()) cause.finding.culprits = context.ranks(wait.roots);
  cause.deviants = wait.roots;
  mention_unseen(context, wait, cause.finding);
  locate_cause(context, place, first.call, first.seq, cause);
  set_fingerprint(cause.finding,
                  trace::describe(context.run.tables, context.call(first.call).signature));
  // Ranks that hung before the same call of sister groups are one cause. Two exceptions of the
  // user's program may differ.
  const bool alike = cause.finding.rule != RuleId::rank_exception;
  if (alike && place.group != WaitPoint::kPointToPoint) {
    cause.call = context.call(first.call).signature;
  }
  return cause;
}

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
  // Of a ring, other messages stand still, too.
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
    cause.finding.ranks = context.ranks(all_ranks(wait));
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
  // That ranks do not go on in the creation of a group, no call shows; nor, in dumps that hold no
  // messages, what keeps a rank from coming.
  const bool unseen = may_wait_unseen(context, wait) &&
                      (f.rule == RuleId::host_stall || f.rule == RuleId::p2p_unmatched);
  const bool proven = wait.stuck && f.rule != RuleId::group_divergence && !unseen;
  f.certainty = proven ? Certainty::proven : Certainty::observed;
  f.ranks = context.ranks(all_ranks(wait));
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
  f.ranks = context.ranks(all_ranks(wait));
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
