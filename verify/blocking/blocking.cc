#include "verify/blocking/blocking.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>

#include "base/text.h"
#include "verify/blocking/endings.h"
#include "verify/blocking/overtaking.h"
#include "verify/blocking/unanswered.h"
#include "verify/blocking/witnesses.h"
#include "verify/context.h"
#include "verify/matching/matching.h"

namespace lockstep::verify {

namespace {

using State = Position::State;

// The points at which a root is missing (of a circle: those in which its ranks wait), else all.
std::vector<std::size_t> points_of_roots(const Context& context, const WaitCause& wait) {
  std::vector<std::size_t> out;
  for (const std::size_t p : wait.points) {
    const WaitPoint& point = context.where.wait_points[p];
    const auto& ranks = wait.circle ? point.waiting : point.missing;
    const bool concerned = std::any_of(ranks.begin(), ranks.end(), [&](std::uint32_t r) {
      return std::binary_search(wait.roots.begin(), wait.roots.end(), r);
    });
    if (concerned) out.push_back(p);
  }
  return out.empty() ? wait.points : out;
}

// The earliest of them: by step, then by place. Without steps, places in different groups say
// nothing about each other: then the one in which most ranks wait.
const WaitPoint& first_point(const Context& context, const WaitCause& wait) {
  const auto key = [&](std::size_t p) {
    const WaitPoint& point = context.where.wait_points[p];
    const std::int32_t step = context.call(waiting_call(context, point.waiting[0])).step;
    const std::size_t few = step == trace::kNone ? SIZE_MAX - point.waiting.size() : 0;
    return std::make_tuple(step == trace::kNone ? INT32_MAX : step, few, seq_at(context, point), p);
  };
  const std::vector<std::size_t> points = points_of_roots(context, wait);
  return context.where.wait_points[*std::min_element(
      points.begin(), points.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); })];
}

std::vector<std::uint32_t> all_ranks(const WaitCause& wait) {
  std::vector<std::uint32_t> out = wait.roots;
  out.insert(out.end(), wait.victims.begin(), wait.victims.end());
  std::sort(out.begin(), out.end());
  return out;
}

void add_wait_evidence(const Context& context, const WaitCause& wait, Finding& finding) {
  for (const std::size_t p : wait.points) {
    const WaitPoint& point = context.where.wait_points[p];
    const CallRef call = waiting_call(context, point.waiting[0]);
    finding.evidence.push_back(context.evidence(call, waiting_for_words(context, point)));
    if (finding.evidence.size() >= 8) return;
  }
}

// Whether the rank's own past says that a call like `waited` comes after one like its current call:
// then it has not passed it, it has not come to it.
bool comes_later(const Context& context, CallRef current, CallRef waited) {
  const std::vector<trace::Call>& calls = context.run.ranks[current.rank].calls;
  const auto like = [&](const trace::Call& a, const trace::Call& b) {
    return a.group == b.group && a.what == b.what &&
           context.agreement.agree(a.signature, b.signature);
  };
  const trace::Call& now = calls[current.call];
  const trace::Call& other = context.call(waited);
  bool seen = false;  // one like `waited`, in the past
  for (std::size_t c = current.call; c-- > 0;) {
    if (calls[c].step == now.step) continue;
    if (like(calls[c], now)) return seen;  // … after the last one like the current call
    seen = seen || like(calls[c], other);
  }
  return false;
}

// Whether the rank left out a call of a kind that it made in the round before, a round being what
// it issues from one call like its newest to the next. For traces without steps.
bool broke_its_round(const Context& context, std::uint32_t rank, const trace::Call& left_out) {
  const trace::RankTrace& trace = context.run.ranks[rank];
  const std::uint32_t newest = newest_call(context, rank);
  if (newest == kNoCall) return false;
  const auto like = [&](const trace::Call& a, const trace::Call& b) {
    return is_same_of_program(context, a, b);
  };
  bool in_last_round = false;
  for (std::uint32_t c = newest; c-- > 0;) {
    const trace::Call& call = trace.calls[c];
    if (like(call, trace.calls[newest])) {
      if (in_last_round) return false;
      in_last_round = true;
    } else if (like(call, left_out)) {
      return in_last_round;
    }
  }
  return false;
}

// Whether some of those who wait at `point`, at which the rank is missing, never issued the call in
// which the rank waits itself: two orders of two calls, and each is where the other has yet to
// come.
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

// Whether a rank went past a call in which others wait: it is in a later step, or in the same step
// with a batch that lacked a modality which theirs held. A rank that waits at an earlier call of
// the same group is late, not past it. Over NCCL, where the host's order is that of its calls and
// not of its waits, a round without the call tells it too; but not of hosts that stand in two calls
// each of which lacks the others.
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
  if (step == trace::kNone || position.step == trace::kNone) return round_lacks_it();
  const bool lacks = !context.modalities.lacking(rank, waited.rank, step).empty();
  if (const std::uint32_t own = newest_call(context, rank); own != kNoCall) {
    const trace::Call& call = context.call({rank, own});
    // Within a step only another group's collective tells: a message may come before the call, and
    // of one group's collectives an earlier one does.
    const bool message = trace::is_point_to_point(context.run.tables.signatures[call.signature].op);
    const bool other_group = call.group != context.call(waited).group;
    // A call without a step of its own (a barrier between two steps) is in the rank's.
    const std::int32_t own_step = call.step == trace::kNone ? position.step : call.step;
    if (own_step != step) return own_step > step && (message || other_group || queued);
    if (message || !other_group) return false;
    if (lacks) return !comes_later(context, {rank, own}, waited);
    return round_lacks_it();
  }
  return position.step > step || (position.state == State::finished && lacks);
}

// Where some of the missing ranks went past the call: a deviation that no comparison of streams
// shows, since their stream in that group just ends.
std::optional<Deviation> passed_by_deviation(const Context& context, const WaitCause& wait) {
  std::optional<Deviation> best;
  for (const std::size_t p : wait.points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group == WaitPoint::kPointToPoint) continue;
    std::vector<std::uint32_t> deviants;
    for (const std::uint32_t r : point.missing) {
      // A victim has just not come that far.
      const bool root = std::binary_search(wait.roots.begin(), wait.roots.end(), r);
      if (root && passed_by(context, wait, r, point)) deviants.push_back(r);
    }
    if (deviants.empty()) continue;
    Deviation d = missing_at(context, point, std::move(deviants));
    if (is_one_too_many(context, d)) turn_into_extra(d);
    if (!best || std::pair(d.step, d.seq) < std::pair(best->step, best->seq)) best = std::move(d);
  }
  return best;
}

// The majority of the call's group decides who deviates; where it is tied, and of a message's
// partners, that of all ranks.
bool fewer_wait_than_finished(const Context& context, const WaitPoint& point) {
  const auto finished = [&](std::uint32_t r) {
    return context.where.positions[r].state == State::finished;
  };
  if (point.group != WaitPoint::kPointToPoint) {
    const auto done = std::count_if(point.missing.begin(), point.missing.end(), finished);
    const auto waiting = static_cast<std::ptrdiff_t>(point.waiting.size());
    if (waiting != done) return waiting < done;
  }
  std::size_t done = 0;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) done += finished(r) ? 1U : 0U;
  return 2 * done > context.run.ranks.size();
}

// Ranks that finished while others wait: who ran a different number of iterations, or left out the
// last calls?
Cause explain_finished(const Context& context, const WaitCause& wait) {
  const WaitPoint& point = first_point(context, wait);
  const CallRef call = waiting_call(context, point.waiting[0]);
  const std::int32_t step = context.call(call).step;
  const bool one_too_many = point.group != WaitPoint::kPointToPoint &&
                            point.waiting.size() == point.missing.size() &&
                            is_one_too_many(context, missing_at(context, point, point.missing));
  const bool few_go_on = one_too_many || fewer_wait_than_finished(context, point);
  std::int32_t last_step = trace::kNone;
  for (const std::uint32_t r : wait.roots) {
    last_step = std::max(last_step, context.where.positions[r].step);
  }
  const bool steps_known = step != trace::kNone && last_step != trace::kNone;
  const bool further_step = !one_too_many && (!steps_known || step > last_step);
  Cause cause;
  if (point.group == WaitPoint::kPointToPoint && !(steps_known && further_step)) {
    cause.finding = make_finding(RuleId::p2p_unmatched);
    cause.finding.message =
        waiting_words(context, point) + ", which finished without the other side of it";
  } else if (further_step) {
    cause.finding = make_finding(RuleId::unequal_iterations);
    cause.finding.message =
        few_go_on
            ? context.rank_words(point.waiting) + " went on to " + context.call_words(call) + " (" +
                  context.place_words(call, seq_at(context, point)) + ") after " +
                  context.rank_words(wait.roots) + " had finished"
            : context.rank_words(wait.roots) + " finished" +
                  (last_step == trace::kNone ? "" : " after step " + std::to_string(last_step)) +
                  "; " + waiting_words(context, point);
  } else {
    cause.finding = make_finding(few_go_on ? RuleId::extra_collective : RuleId::missing_collective);
    cause.finding.message =
        few_go_on ? context.rank_words(point.waiting) + " issued " + context.call_words(call) +
                        " (" + context.place_words(call, seq_at(context, point)) + "), which " +
                        context.rank_words(wait.roots) + " finished without"
                  : context.rank_words(wait.roots) + " finished without " +
                        context.call_words(call) + "; " + waiting_words(context, point);
  }
  const bool blame_waiting = few_go_on && cause.finding.rule != RuleId::p2p_unmatched;
  cause.deviants = blame_waiting ? point.waiting : wait.roots;
  cause.finding.culprits = context.ranks(cause.deviants);
  place_at(context, point, cause);
  return cause;
}

Cause explain_gone(const Context& context, const WaitCause& wait) {
  const WaitPoint& point = first_point(context, wait);
  const std::uint32_t root = wait.roots[0];
  // Without completions nothing shows that the peer stands still: a message of a new kind may as
  // well be one too many.
  if (point.group == WaitPoint::kPointToPoint && !point.missing.empty() &&
      !records_completion(context.run, context.semantics) &&
      is_new_kind_of_message(context, point)) {
    return explain_message(context, point);
  }
  Cause cause;
  const bool raised = context.where.positions[root].state == State::raised;
  cause.finding = make_finding(raised ? rule_of_exception(context, root) : RuleId::host_stall);
  cause.finding.message = context.rank_words(wait.roots) + " " + state_words(context, root) + "; " +
                          waiting_words(context, point);
  for (const std::uint32_t r : wait.roots) {
    cause.finding.evidence.push_back(context.evidence({r, kNoCall}, last_seen(context, r)));
    if (cause.finding.evidence.size() >= 4) break;
  }
  cause.finding.culprits = context.ranks(wait.roots);
  cause.deviants = wait.roots;
  place_at(context, point, cause);
  return cause;
}

bool all_point_to_point(const Context& context, const std::vector<std::size_t>& points) {
  return std::all_of(points.begin(), points.end(), [&](std::size_t p) {
    return context.where.wait_points[p].group == WaitPoint::kPointToPoint;
  });
}

// The ranks that a call still lacks: they never issued it, or their devices have not come to it.
std::vector<std::uint32_t> not_there(const WaitPoint& point) {
  std::vector<std::uint32_t> out;
  std::set_union(point.missing.begin(), point.missing.end(), point.behind.begin(),
                 point.behind.end(), std::back_inserter(out));
  return out;
}

// The few of the ranks in both groups of a circle that entered them in the other order; nobody
// where as many did the one as the other.
std::vector<std::uint32_t> in_the_other_order(const WaitPoint& a, const WaitPoint& b) {
  const auto missed = [](const WaitPoint& there, const WaitPoint& here) {
    const std::vector<std::uint32_t> lacks = not_there(here);
    std::vector<std::uint32_t> out;
    std::set_intersection(there.waiting.begin(), there.waiting.end(), lacks.begin(), lacks.end(),
                          std::back_inserter(out));
    return out;
  };
  std::vector<std::uint32_t> in_a = missed(a, b);
  std::vector<std::uint32_t> in_b = missed(b, a);
  if (in_a.size() == in_b.size()) return {};
  return in_a.size() < in_b.size() ? in_a : in_b;
}

// The ranks of a cycle that came to a call before most of its group did, and are missing in one in
// which most of another group wait: whether they left that one out or took it later, it is they who
// did as few did.
std::vector<std::uint32_t> ahead_of_most(const Context& context,
                                         const std::vector<std::size_t>& points) {
  const auto few = [&](const std::vector<std::uint32_t>& ranks, const WaitPoint& point) {
    return 2 * ranks.size() < context.groups[point.group].streams.size();
  };
  std::vector<std::uint32_t> early;
  std::vector<std::uint32_t> missed;
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group == WaitPoint::kPointToPoint || point.unknown_member) return {};
    if (few(point.waiting, point))
      early.insert(early.end(), point.waiting.begin(), point.waiting.end());
    if (const std::vector<std::uint32_t> lacks = not_there(point); few(lacks, point))
      missed.insert(missed.end(), lacks.begin(), lacks.end());
  }
  std::sort(early.begin(), early.end());
  std::sort(missed.begin(), missed.end());
  missed.erase(std::unique(missed.begin(), missed.end()), missed.end());
  std::vector<std::uint32_t> out;
  std::set_intersection(early.begin(), early.end(), missed.begin(), missed.end(),
                        std::back_inserter(out));
  return out;
}

// Whether the rank's past puts `second` where it issued `first`: it took the two in another order.
// Nothing: its past does not say.
std::optional<bool> broke_its_order(const Context& context, std::uint32_t rank, std::uint32_t first,
                                    std::uint32_t second) {
  const std::optional<std::uint32_t> usual = usual_call(context, {rank, first});
  if (!usual) return std::nullopt;
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  if (is_same_of_program(context, calls[*usual], calls[first])) return false;
  if (is_same_of_program(context, calls[*usual], calls[second])) return true;
  return std::nullopt;
}

// Of a cycle of queues: the ranks that issued two of its calls in another order than the last time;
// nobody where all did, or none.
std::vector<std::uint32_t> out_of_their_order(const Context& context,
                                              const std::vector<std::size_t>& points) {
  std::vector<std::uint32_t> broke;
  std::size_t judged = 0;
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group == WaitPoint::kPointToPoint) continue;
    for (const Stream& s : context.groups[point.group].streams) {
      const bool behind =
          std::binary_search(point.behind.begin(), point.behind.end(), s.rank_index);
      if (!behind || point.meeting >= s.calls.size()) continue;
      const std::uint32_t first = context.where.positions[s.rank_index].waiting_in();
      const auto out = broke_its_order(context, s.rank_index, first, s.calls[point.meeting]);
      if (!out) continue;
      ++judged;
      if (*out) broke.push_back(s.rank_index);
    }
  }
  if (broke.size() == judged) return {};
  std::sort(broke.begin(), broke.end());
  broke.erase(std::unique(broke.begin(), broke.end()), broke.end());
  return broke;
}

Cause cycle_cause(const Context& context, const WaitCause& wait,
                  const std::vector<std::size_t>& points, const std::vector<Break>& breaks,
                  const std::optional<Overtaking>& overtaking) {
  if (std::optional<Cause> lost = explain_lost_message(context, points)) return std::move(*lost);
  std::set<trace::GroupId> groups;
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    groups.insert(context.call(waiting_call(context, point.waiting[0])).group);
  }
  const bool p2p = all_point_to_point(context, points);
  // MPI programs that only receive from each other mostly forgot to send (or to start the send).
  const bool unmatched =
      p2p && context.semantics == CallSemantics::mpi &&
      std::all_of(points.begin(), points.end(), [&](std::size_t p) {
        const CallRef call = waiting_call(context, context.where.wait_points[p].waiting[0]);
        return context.run.tables.signatures[context.call(call).signature].op == trace::Op::recv;
      });
  const RuleId id = unmatched           ? RuleId::p2p_unmatched
                    : p2p               ? RuleId::p2p_cycle
                    : groups.size() > 1 ? RuleId::cross_group_deadlock
                                        : RuleId::deadlock;
  Cause cause;
  cause.finding = make_finding(id);
  std::string parts;
  for (std::size_t i = 0; i < points.size() && i < 4; ++i) {
    const WaitPoint& point = context.where.wait_points[points[i]];
    parts += (parts.empty() ? "" : "; ") + waiting_for_words(context, point);
  }
  if (points.size() > 4) parts += "; and " + std::to_string(points.size() - 4) + " more";
  cause.finding.message = parts;
  cause.finding.why = "Each waits for another one of them, in a circle, so none can go on" +
                      std::string(wait.stuck ? ", in whichever order things happen." : ".");
  cause.deviants = wait.roots;
  place_at(context, first_point(context, wait), cause);
  if (overtaking) {
    cause.finding.culprits = context.ranks(overtaking->deviants);
  } else if (id == RuleId::cross_group_deadlock && points.size() == 2) {
    cause.finding.culprits = context.ranks(in_the_other_order(
        context.where.wait_points[points[0]], context.where.wait_points[points[1]]));
  }
  if (cause.finding.culprits.empty()) {
    cause.finding.culprits = context.ranks(out_of_their_order(context, points));
  }
  if (cause.finding.culprits.empty()) {
    cause.finding.culprits = context.ranks(ahead_of_most(context, points));
  }
  if (cause.finding.culprits.empty()) {
    std::vector<std::uint32_t> broke;
    for (const Break& b : breaks) broke.push_back(b.rank);
    cause.finding.culprits = context.ranks(broke);
  }
  if (cause.finding.culprits.empty()) {
    cause.finding.culprits = context.ranks(part_from_sisters(context, points));
  }
  return cause;
}

// Ranks that wait for each other: what one of them left out, or else the cycle itself.
Cause explain_cycle(const Context& context, const WaitCause& wait) {
  const std::vector<std::size_t> points = points_of_roots(context, wait);
  const std::optional<Overtaking> overtaking = find_overtaking(context, points);
  std::optional<Cause> left_out;
  std::vector<Break> breaks;
  if (overtaking && overtaking->left_out) {
    left_out = explain_left_out(context, *overtaking);
  } else {
    breaks = breaks_with_the_past(context, wait.roots);
    left_out = explain_left_out_call(context, points, breaks);
    if (!left_out) left_out = explain_broken_habit(context, points, breaks);
  }
  if (left_out) {
    left_out->finding.consequences.push_back(wait_consequence(context, wait));
    return std::move(*left_out);
  }
  Cause cause = cycle_cause(context, wait, points, breaks, overtaking);
  add_wait_evidence(context, wait, cause.finding);
  return cause;
}

}  // namespace

Cause explain_wait(const Context& context, const WaitCause& wait) {
  if (wait.stalled != SIZE_MAX) {
    Cause cause = explain_stall(context, context.where.wait_points[wait.stalled]);
    if (!wait.victims.empty()) {
      cause.finding.consequences.push_back(wait_consequence(context, wait));
    }
    cause.finding.ranks = context.ranks(all_ranks(wait));
    return cause;
  }
  Cause cause;
  Finding& f = cause.finding;
  if (const auto deviation = passed_by_deviation(context, wait)) {
    cause = explain_deviation(context, *deviation);
    f.consequences.push_back(wait_consequence(context, wait));
  } else if (wait.circle) {
    cause = explain_cycle(context, wait);
  } else {
    cause = context.where.positions[wait.roots[0]].state == State::finished
                ? explain_finished(context, wait)
                : explain_gone(context, wait);
    add_wait_evidence(context, wait, f);
  }
  f.certainty = wait.stuck ? Certainty::proven : Certainty::observed;
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
  for (const std::size_t p : wait.points) {
    if (++shown > 4) break;
    const WaitPoint& point = context.where.wait_points[p];
    parts += (parts.empty() ? "" : "; ") + waiting_for_words(context, point);
  }
  if (wait.points.size() > 4)
    parts += "; and " + std::to_string(wait.points.size() - 4) + " more calls";
  for (const std::uint32_t r : wait.roots) {
    if (wait.circle || shown++ > 8) break;
    if (wait.stalled != SIZE_MAX) break;
    parts +=
        "; rank " + std::to_string(context.run.ranks[r].rank.value) + " " + state_words(context, r);
  }
  f.message = parts;
  f.fix.clear();
  set_fingerprint(f, "");
  return f;
}

}  // namespace lockstep::verify
