#include "verify/blocking/blocking.h"

#include <algorithm>
#include <optional>

#include <fmt/core.h>

#include "base/text.h"
#include "verify/blocking/cycles.h"
#include "verify/blocking/endings.h"
#include "verify/blocking/messages.h"
#include "verify/blocking/program_divergence.h"
#include "verify/blocking/stopped.h"
#include "verify/blocking/unanswered.h"
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

// Whether in the rank's past a call like `waited` came after one like its current call. Then the
// rank has not skipped `waited`; it has not reached it yet. With a past of "a b | a b" and the
// current call a, a peer that waits in b waits for a call that is still to come.
bool comes_later(const Context& context, CallRef current, CallRef waited) {
  const std::vector<trace::Call>& calls = context.run.ranks[current.rank].calls;
  const auto like = [&](const trace::Call& a, const trace::Call& b) {
    return a.group == b.group && a.what == b.what &&
           context.agreement.agree(a.signature, b.signature);
  };
  const trace::Call& now = calls[current.call];
  const trace::Call& other = context.call(waited);
  // Backwards, so that `seen` holds for the calls after the latest one like the current call. The
  // current step is incomplete and says nothing about the order.
  bool seen = false;
  for (std::size_t c = current.call; c-- > 0;) {
    if (calls[c].step == now.step) continue;
    if (like(calls[c], now)) return seen;
    seen = seen || like(calls[c], other);
  }
  return false;
}

// Whether the rank left out a call that it made in an earlier round. A round is what it issues
// between two calls like its newest one: a substitute for steps, where none were recorded.
//
//   c … b … c … c      the newest call is c; b came in the round before the last, so b was left out
//
// A step may hold several such rounds: "c … c … b" has b after every second c. So the round is
// compared with the one that ends in the same context, by the calls before it.
bool broke_its_round(const Context& context, std::uint32_t rank, const trace::Call& left_out) {
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  const std::uint32_t newest = newest_call(context, rank);
  if (newest == kNoCall) return false;
  const auto like = [&](std::uint32_t c, const trace::Call& other) {
    return is_same_of_program(context.agreement, calls[c], other);
  };
  // Whether the round that ends with call `last` has the call.
  const auto has = [&](std::uint32_t last) {
    for (std::uint32_t c = last; c-- > 0 && !like(c, calls[last]);)
      if (like(c, left_out)) return true;
    return false;
  };
  const std::vector<std::uint32_t> next =
      usual_calls(context.run, context.agreement, {rank, newest + 1});
  return !next.empty() && !has(newest) && has(next[0] - 1);
}

// Whether the rank and ranks that wait at `point` wait for each other: some of them never issued
// the call in which the rank itself waits. Then the ranks took two calls in different orders, and
// neither skipped one:
//
//   rank 0 (missing at `point`)  waits in a, issues b next
//   rank 1 (waits at `point`)    waits in b, issues a next
bool crosses(const Context& context, const WaitCause& wait, std::uint32_t rank,
             const WaitPoint& point) {
  return std::any_of(wait.points.begin(), wait.points.end(), [&](std::size_t p) {
    const WaitPoint& own = context.where.wait_points[p];
    return std::binary_search(own.waiting.begin(), own.waiting.end(), rank) &&
           std::any_of(point.waiting.begin(), point.waiting.end(), [&](std::uint32_t other) {
             return std::binary_search(own.missing.begin(), own.missing.end(), other);
           });
  });
}

// Whether a rank went past the call in which others wait at `point`. It did if it is in a later
// step, or in the same step with a batch that lacks a modality which theirs held. A rank that waits
// at an earlier call of the same group is late and did not go past. Over NCCL, a host issues calls
// without waiting, so there a round without the call shows it too, except for hosts that wait for
// each other in two calls.
bool passed_by(const Context& context, const WaitCause& wait, std::uint32_t rank,
               const WaitPoint& point) {
  const CallRef waited = waiting_call(context, point.waiting[0]);
  const std::int32_t step = context.call(waited).step;
  const Position& position = context.where.positions[rank];
  const bool queued = context.semantics == CallSemantics::nccl;
  const auto round_lacks_it = [&] {
    return queued && !crosses(context, wait, rank, point) &&
           broke_its_round(context, rank, context.call(waited));
  };
  // Without steps, only the rounds are left to judge by.
  if (step == trace::kNone || position.step == trace::kNone) return round_lacks_it();
  const bool lacks =
      !context.modalities
           .lacking(rank, waited.rank, context.modalities.batch_of(waited.rank, waited.call))
           .empty();
  if (const std::uint32_t own = newest_call(context, rank); own != kNoCall) {
    const trace::Call& call = context.call({rank, own});
    // Within a step only a collective of another group shows that the rank went past. A message may
    // come before the call, and so does a collective of the same group in which the rank waits.
    const bool message = context.run.tables.is_message(call);
    const bool other_group = call.group != context.call(waited).group;
    // A call without a step of its own (a barrier between two steps) counts as in the rank's step.
    const std::int32_t own_step = call.step == trace::kNone ? position.step : call.step;
    if (own_step != step) return own_step > step && (message || other_group || queued);
    if (message || !other_group) return false;
    if (lacks) return !comes_later(context, {rank, own}, waited);
    return round_lacks_it();
  }
  // The rank waits nowhere: it finished, died, or hangs outside of any call.
  return position.step > step || (position.state == State::finished && lacks);
}

// The deviations where some of the missing ranks went past a call, the earliest first. Comparing
// streams does not show them, because the stream in that group just ends: a rank that skips its
// last all_reduce of a group looks like one that has not reached it.
std::vector<Deviation> passed_by_deviations(const Context& context, const WaitCause& wait) {
  std::vector<Deviation> out;
  for (const std::size_t p : wait.points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group == WaitPoint::kPointToPoint) continue;
    std::vector<std::uint32_t> deviants;
    for (const std::uint32_t r : point.missing) {
      // A victim has just not got that far.
      const bool root = std::binary_search(wait.roots.begin(), wait.roots.end(), r);
      if (root && passed_by(context, wait, r, point)) deviants.push_back(r);
    }
    if (deviants.empty()) continue;
    Deviation d = missing_at(context, point, std::move(deviants));
    decide_fault(context, d);
    out.push_back(std::move(d));
  }
  std::stable_sort(out.begin(), out.end(), [](const Deviation& a, const Deviation& b) {
    return std::pair(a.step, a.seq) < std::pair(b.step, b.seq);
  });
  return out;
}

// Explains the first deviation, with those that are the same in sister groups.
Cause explain_passed_by(const Context& context, const std::vector<Deviation>& deviations) {
  Cause cause = explain_deviation(context, deviations[0]);
  for (std::size_t d = 1; d < deviations.size(); ++d) {
    Cause other = explain_deviation(context, deviations[d]);
    if (is_same_in_sister_group(context, cause, other)) {
      merge_sister(context, cause, std::move(other));
    }
  }
  return cause;
}

// Whether ranks that finished, and lack the call at `point`, did so within a round of calls: the
// call is the next one of a rank that did as they until then.
bool ended_within_round(const Context& context, const WaitPoint& point) {
  const CallRef call = waiting_call(context, point.waiting[0]);
  const auto stopped_before = [&](std::uint32_t r) {
    return context.run.ranks[r].calls.size() == call.call &&
           common_start(context.run, context.agreement, r, call.rank) == call.call;
  };
  return std::any_of(point.missing.begin(), point.missing.end(), stopped_before) &&
         is_within_round(context.run, context.agreement, call) &&
         !do_rounds_vary(context.run, context.agreement, call);
}

// Whether a rank that did the same up to this call finished there: it came to a step more.
bool ended_alike(const Context& context, CallRef call) {
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    if (r != call.rank && context.where.positions[r].state == State::finished &&
        context.run.ranks[r].calls.size() == call.call &&
        common_start(context.run, context.agreement, r, call.rank) == call.call) {
      return true;
    }
  }
  return false;
}

// Whether a few ranks wait in the first call that the group ever saw, while most of it never made
// one, and nobody waits for the roots in any other call: these went on without it, and the rest of
// the group waits for the few.
bool is_new_to_most(const Context& context, const WaitCause& wait, const WaitPoint& point) {
  if (point.group == WaitPoint::kPointToPoint || point.mismatched || point.unknown_member ||
      point.waiting.size() + point.behind.size() >= point.missing.size()) {
    return false;
  }
  const GroupStreams& group = context.groups[point.group];
  const bool is_first =
      point.instance == 0 && group.first_seq == 0 &&
      std::all_of(group.streams.begin(), group.streams.end(),
                  [](const Stream& s) { return s.calls.size() + s.earlier.size() <= 1; });
  return is_first && std::none_of(wait.points.begin(), wait.points.end(), [&](std::size_t p) {
           const WaitPoint& other = context.where.wait_points[p];
           const std::vector<std::uint32_t> lacked = lacked_by(other);
           return &other != &point &&
                  std::find_first_of(lacked.begin(), lacked.end(), wait.roots.begin(),
                                     wait.roots.end()) != lacked.end();
         });
}

// Whether ranks that finished, other than `early`, did so in the same step, so that those who wait
// went further; false: they finished in a later one, so that `early` ended too early. Nothing where
// as many did the one as the other, or steps are not known.
std::optional<bool> others_finished_alike(const Context& context,
                                          const std::vector<std::uint32_t>& early) {
  std::int32_t last = trace::kNone;
  for (const std::uint32_t r : early) last = std::max(last, context.where.positions[r].step);
  if (last == trace::kNone) return std::nullopt;
  std::size_t alike = 0;
  std::size_t later = 0;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    const Position& position = context.where.positions[r];
    if (position.state != State::finished || std::binary_search(early.begin(), early.end(), r))
      continue;
    alike += position.step == last ? 1U : 0U;
    later += position.step > last ? 1U : 0U;
  }
  return alike == later ? std::nullopt : std::optional(alike > later);
}

// Whether the waiting ranks are a minority, so that they deviate rather than those that finished.
// The call's group decides, where those count that issued the call, too, and wait before it. On a
// tie the programs of other groups' ranks do, or those of the two themselves, and where these show
// nothing, and for point-to-point calls, the steps in which other ranks finished, or without steps,
// for these, the number of all ranks that finished. Nothing on a tie there.
//
// `goes_on`: the call is of a later step than the last one of those that finished. `within_round`:
// see ended_within_round().
std::optional<bool> fewer_wait_than_finished(const Context& context, const WaitCause& wait,
                                             const WaitPoint& point, bool goes_on,
                                             bool within_round) {
  const auto finished = [&](std::uint32_t r) {
    return context.where.positions[r].state == State::finished;
  };
  const bool message = point.group == WaitPoint::kPointToPoint;
  if (!message) {
    const auto done = std::count_if(point.missing.begin(), point.missing.end(), finished);
    const std::vector<Stream>& streams = context.groups[point.group].streams;
    const auto issued = std::count_if(streams.begin(), streams.end(), [&](const Stream& stream) {
      return stream.calls.size() > point.instance;
    });
    // Programs end with a round, so that a majority that ends within one left out its rest.
    if (issued < done) return goes_on || (!within_round && !is_missing_by_most(context, point));
    if (issued != done) return false;
    // Ranks of other groups may have finished because they made the call in question.
    const auto go_on =
        others_go_on(context.run, context.agreement, point.waiting[0], point.missing[0]);
    if (go_on) return !*go_on;
    if (const auto divergence = find_program_divergence(context.run, context.agreement,
                                                        point.waiting[0], point.missing[0]))
      return divergence->deviant == point.waiting[0];
  }
  const auto alike = goes_on ? others_finished_alike(context, wait.roots) : std::optional<bool>();
  if (alike || !message) return alike;
  std::size_t done = 0;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) done += finished(r) ? 1U : 0U;
  if (2 * done == context.run.ranks.size()) return std::nullopt;
  return 2 * done > context.run.ranks.size();
}

// Ranks that finished while others wait in a call for them.
struct FinishedEarly {
  std::int32_t last_step = trace::kNone;  // of those that finished
  bool steps_known = false;               // theirs, and that of the call
  bool further_step = false;              // the call is of a step that those that finished lack
  std::optional<bool> fewer_wait;         // than finished; empty: a tie
  bool waiting_deviate = false;           // the waiting ranks deviate, not those that finished
  std::optional<bool> one_message_more;   // the call is a message more than other pairs have
  bool singled_out = true;                // programs and pasts single out a side
};

FinishedEarly judge_finished(const Context& context, const WaitCause& wait, const WaitPoint& point,
                             std::int32_t step) {
  FinishedEarly out;
  const bool message = point.group == WaitPoint::kPointToPoint;
  bool one_too_many = false;
  // Where as many finished as wait, programs and pasts decide.
  if (!message && point.waiting.size() == point.missing.size() &&
      std::includes(wait.roots.begin(), wait.roots.end(), point.missing.begin(),
                    point.missing.end())) {
    Deviation missing = missing_at(context, point, point.missing);
    decide_fault(context, missing);
    one_too_many = missing.kind == Deviation::Kind::extra;
    out.singled_out = missing.singled_out;
  }
  for (const std::uint32_t r : wait.roots)
    out.last_step = std::max(out.last_step, context.where.positions[r].step);
  if (is_new_to_most(context, wait, point)) one_too_many = true;
  out.steps_known = step != trace::kNone && out.last_step != trace::kNone;
  const bool later_step = out.steps_known && step > out.last_step;
  const bool within_round = !later_step && !message && ended_within_round(context, point);
  out.fewer_wait = fewer_wait_than_finished(context, wait, point, later_step, within_round);
  out.waiting_deviate = one_too_many || out.fewer_wait.value_or(false);
  out.further_step = !one_too_many && (out.steps_known ? later_step : !within_round);
  out.one_message_more = message && !out.steps_known ? is_one_message_more(context, point) : false;
  return out;
}

Finding describe_finished(const Context& context, const WaitCause& wait, const WaitPoint& point,
                          const FinishedEarly& early) {
  const CallRef call = waiting_call(context, point.waiting[0]);
  const bool message = point.group == WaitPoint::kPointToPoint;
  const bool went_further = message &&
                            (early.one_message_more == true || ended_alike(context, call)) &&
                            early.fewer_wait == true;
  const std::string waiting = context.describe_ranks(point.waiting);
  const std::string finished = context.describe_ranks(wait.roots);
  const std::string what = context.describe_call(call);
  const std::string location = context.describe_location(call, seq_at(context, point));
  Finding f;
  if (message && !(early.steps_known && early.further_step) && !went_further) {
    f = make_finding(RuleId::p2p_unmatched);
    f.message = fmt::format("{}, which finished without the other side of it",
                            describe_wait(context, point));
  } else if (early.further_step) {
    f = make_finding(RuleId::unequal_iterations);
    f.message = early.waiting_deviate
                    ? fmt::format("{} went on to {} ({}) after {} had finished", waiting, what,
                                  location, finished)
                    : fmt::format("{} finished{}; {}", finished,
                                  early.last_step == trace::kNone
                                      ? ""
                                      : fmt::format(" after step {}", early.last_step),
                                  describe_wait(context, point));
  } else if (early.waiting_deviate) {
    f = make_finding(RuleId::extra_collective);
    f.message = fmt::format("{} issued {} ({}), which {} finished without", waiting, what, location,
                            finished);
  } else {
    f = make_finding(RuleId::missing_collective);
    f.message =
        fmt::format("{} finished without {}; {}", finished, what, describe_wait(context, point));
  }
  return f;
}

// Explains ranks that finished while others wait. Either the numbers of iterations differ, or some
// ranks left out (or added) calls at the end. The rule depends on the step of the waiting call:
//
//   finished after step 9, others wait in step 10    unequal_iterations
//   finished after step 9, others wait in step 9     missing_collective, or extra_collective if
//                                                    only a few ranks wait
Cause explain_finished(const Context& context, const WaitCause& wait) {
  const WaitPoint& point = first_point(context, wait);
  const std::int32_t step = context.call(waiting_call(context, point.waiting[0])).step;
  const FinishedEarly early = judge_finished(context, wait, point, step);
  Cause cause;
  cause.finding = describe_finished(context, wait, point, early);
  const bool blame_waiting = early.waiting_deviate && cause.finding.rule != RuleId::p2p_unmatched;
  cause.deviants = blame_waiting ? point.waiting : wait.roots;
  // Within a step, nothing shows whether the one ended too early or the other made an extra call.
  const bool tied = (early.one_message_more != false || !early.singled_out) && !early.fewer_wait &&
                    !(early.steps_known && early.further_step);
  if (tied) {
    cause.finding.why =
        "Equally many ranks finished and wait, in one step as far as is known: either the ones "
        "left the call out, or the others issued one too many.";
  } else {
    cause.finding.culprits = context.ranks(cause.deviants);
  }
  locate_cause(context, point, cause);
  return cause;
}

// A stack of the rank's process among the job's evidence; null: none.
const trace::RankNote* stack_of(const Context& context, std::uint32_t rank) {
  const trace::Rank number = context.run.ranks[rank].rank;
  for (const trace::RankNote& note : context.run.notes)
    if (note.rank == number && note.kind == trace::RankNote::Kind::stack) return &note;
  return nullptr;
}

// How a rank of no further calls stopped, for the headline.
std::string stop_words(const Context& context, const std::vector<std::uint32_t>& ranks) {
  const bool one = ranks.size() == 1;
  switch (context.where.positions[ranks[0]].state) {
    case State::finished:
      return "finished";
    case State::running:
      return one ? "is still running" : "are still running";
    case State::cut:
      // The recorder took it when nothing had happened for some time.
      if (stack_of(context, ranks[0]) != nullptr) return "stopped";
      return one ? "stopped without an end mark (its process died, or its trace was cut off)"
                 : "stopped without an end mark (their processes died, or their traces were cut "
                   "off)";
    case State::killed:
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

// Explains ranks that died, raised or hang outside of any call while others wait for them.
Cause explain_gone(const Context& context, const WaitCause& all) {
  WaitCause wait = all;
  if (std::any_of(all.roots.begin(), all.roots.end(),
                  [&](std::uint32_t r) { return creates_group(context, r) != nullptr; })) {
    // Those that create a group wait, too: for a rank that does not, if the others lack one.
    wait.roots.clear();
    for (const std::size_t p : all.points)
      unite(wait.roots, lacked_by(context.where.wait_points[p]));
    std::erase_if(wait.roots, [&](std::uint32_t r) {
      return context.where.point_of[r] != SIZE_MAX || creates_group(context, r) != nullptr;
    });
    if (wait.roots.empty()) return explain_group_creation(context, all);
  }
  const WaitPoint& point = first_point(context, wait);
  const std::uint32_t root = wait.roots[0];
  // Without completions, nothing shows that the peer hangs. If the waiting rank never sent or
  // received such a message before, the message itself may be the fault.
  if (point.group == WaitPoint::kPointToPoint && !point.missing.empty() &&
      !records_completion(context.run, context.semantics) &&
      is_new_kind_of_message(context, point)) {
    return explain_message(context, point);
  }
  if (is_new_to_most(context, wait, point)) {
    Deviation extra = missing_at(context, point, point.missing);
    turn_into_extra(extra);
    return explain_deviation(context, extra);
  }
  const bool hung = context.where.positions[root].state == State::hung;
  if (hung) {
    if (auto other = explain_other_path(context, point, wait.roots)) return std::move(*other);
  }
  const std::size_t missed = first_missed(context, points_of_roots(context, wait));
  const WaitPoint& place = context.where.wait_points[missed];
  const MissedCall first = missed_call(context, wait.roots, place);
  Cause cause;
  const bool raised = context.where.positions[root].state == State::raised;
  cause.finding = make_finding(raised ? rule_of_exception(context, root) : RuleId::host_stall);
  tell_stopped(context,
               {.ranks = context.ranks(wait.roots),
                .verb = stop_words(context, wait.roots),
                .alive = may_be_alive(context, root),
                .point = missed,
                .missed = first,
                .waiting = wait.victims.size()},
               cause.finding);
  cause.finding.message = raised ? fmt::format("{} {}; {}", context.describe_ranks(wait.roots),
                                               describe_state(context, root, wait.roots.size()),
                                               describe_wait(context, place))
                                 : cause.finding.headline;
  for (const std::uint32_t r : wait.roots) {
    cause.finding.evidence.push_back(context.evidence({r, kNoCall}, last_seen(context, r)));
    if (cause.finding.evidence.size() >= 4) break;
  }
  // That most of a group hangs is less likely than that the few are ahead, or finished: nothing
  // shows how a dump's ranks ended, and issue lines alone do not show what a host was doing. But
  // who is ahead, or makes a call too many, does not wait in the next call of a round that the
  // others broke off.
  const bool shows_little = is_snapshot(context.run) || issued_alone(context);
  const bool few_wait =
      hung && shows_little &&
      (point.waiting.size() < wait.roots.size() ||
       others_go_on(context.run, context.agreement, point.waiting[0], root) == false);
  const bool collective = point.group != WaitPoint::kPointToPoint;
  const bool broke_off = few_wait && collective && ended_within_round(context, point);
  // Nor is it likely where as many wait, in a call that their own past does not predict.
  const bool is_odd_call =
      hung && shows_little && collective && point.waiting.size() <= point.missing.size() &&
      is_usual(context.run, context.agreement, waiting_call(context, point.waiting[0])) ==
          Usual::no;
  if (is_odd_call) {
    cause.finding.why = kEitherWay;
  } else if (!few_wait || broke_off) {
    cause.finding.culprits = context.ranks(wait.roots);
  }
  cause.deviants = wait.roots;
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
// who made a call too many before wait for another one.
bool wait_alone(const Context& context, const WaitCause& wait, const OddProgram& odd,
                const Cause& cause) {
  return cause.finding.rule == RuleId::host_stall && is_snapshot(context.run) && odd.is_certain &&
         odd.kind == OddProgram::Kind::extra &&
         std::includes(odd.deviants.begin(), odd.deviants.end(), wait.victims.begin(),
                       wait.victims.end());
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
  if (!message && named == context.ranks(odd->others)) return;
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

// Replaces an explanation that names others than the rank whose messages of a round do not fit
// those of its peer: what pairs with them afterwards makes their victims wait.
void explain_by_exchange(const Context& context, const WaitCause& wait, Cause& cause) {
  const UnevenExchange* const uneven = context.uneven_exchange;
  if (uneven == nullptr) return;
  const RuleId rule = cause.finding.rule;
  const bool may_follow =
      rule == RuleId::p2p_unmatched || rule == RuleId::p2p_cycle || rule == RuleId::deadlock ||
      rule == RuleId::cross_group_deadlock || rule == RuleId::missing_collective ||
      rule == RuleId::extra_collective || rule == RuleId::unequal_iterations ||
      (rule == RuleId::host_stall &&
       (is_snapshot(context.run) || !records_completion(context.run, context.semantics)));
  // The right rank, but the last of the calls that follow from its fault. What the programs of all
  // ranks of its kind tell is more exact.
  const OddProgram* const odd = context.odd_program;
  const bool is_odd = odd != nullptr && odd->is_certain && odd->by_numbers &&
                      odd->deviants == std::vector{uneven->odd};
  const bool later = !is_odd && uneven->kind != UnevenExchange::Kind::messages &&
                     cause.seq > context.call(uneven->end).seq;
  const bool right = cause.finding.culprits == context.ranks({uneven->odd}) && !later;
  if (!may_follow || right ||
      !concerns(context, wait, united<std::uint32_t>({uneven->odd}, {uneven->partner}))) {
    return;
  }
  cause = explain_uneven_exchange(context, *uneven);
  cause.finding.consequences.push_back(wait_consequence(context, wait));
}

}  // namespace

Cause explain_wait(const Context& context, const WaitCause& wait) {
  // All members issued the call, and it does not complete.
  if (wait.stalled != SIZE_MAX) {
    Cause cause = explain_stall(context, context.where.wait_points[wait.stalled]);
    explain_by_odd_program(context, wait, cause);
    explain_by_exchange(context, wait, cause);
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
  // That ranks do not go on in the creation of a group, no call shows.
  const bool proven = wait.stuck && f.rule != RuleId::group_divergence;
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
