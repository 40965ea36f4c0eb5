#include "verify/blocking/gone.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trace/evidence/failure_messages.h"
#include "verify/blocking/endings.h"
#include "verify/blocking/finished.h"
#include "verify/blocking/messages.h"
#include "verify/blocking/program_divergence.h"
#include "verify/blocking/stalls.h"
#include "verify/blocking/stopped.h"
#include "verify/blocking/unanswered.h"
#include "verify/blocking/unrecorded.h"
#include "verify/blocking/wait_evidence.h"
#include "verify/blocking/witnesses.h"
#include "verify/matching/matching.h"
#include "verify/streams/past.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

using State = Position::State;

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

// Whether the roots made the calls that a waiting rank made before this one, and no other: nothing
// shows that they went on without it. They may wait for a file or a key of the store, or load data.
bool stopped_right_before(const Context& context, const WaitCause& wait, const WaitPoint& point) {
  const CallRef call = waiting_call(context, point.waiting[0]);
  return std::all_of(wait.roots.begin(), wait.roots.end(), [&](std::uint32_t r) {
    return context.run.ranks[r].calls.size() == call.call &&
           common_start(context.run, context.agreement, r, call.rank) == call.call;
  });
}

// The stack that shows that the rank is creating a process group; null: none does.
const trace::RankNote* creates_group(const Context& context, std::uint32_t rank) {
  const State state = context.where.positions[rank].state;
  if (state == State::killed || state == State::raised || state == State::finished) return nullptr;
  const trace::RankNote* const stack = stack_of(context, rank);
  return stack != nullptr && stack->creates_group ? stack : nullptr;
}

// Ranks that wait for one another in the creation of a process group, while all others wait for
// them: not all call it, or not in the same order. Nothing shows which ranks are at fault.
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
  f.ranks = context.ranks(wait.all_ranks());
  cause.deviants = wait.roots;
  locate_cause(context, point, cause);
  set_fingerprint(f, "");
  return cause;
}

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
  if (is_new_to_most(context, wait, point) && !stopped_right_before(context, wait, point)) {
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

}  // namespace lockstep::verify
