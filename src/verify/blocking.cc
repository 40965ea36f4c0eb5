#include "verify/blocking.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>

#include "base/text.h"
#include "verify/loose_ends.h"
#include "verify/overtaking.h"
#include "verify/snapshot.h"
#include "verify/wait_words.h"

namespace lockstep {

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
    const std::size_t few = step == kNone ? SIZE_MAX - point.waiting.size() : 0;
    return std::make_tuple(step == kNone ? INT32_MAX : step, few, seq_at(context, point), p);
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
  const std::vector<Call>& calls = context.run.ranks[current.rank].calls;
  const auto like = [&](const Call& a, const Call& b) {
    return a.group == b.group && a.what == b.what &&
           context.agreement.agree(a.signature, b.signature);
  };
  const Call& now = calls[current.call];
  const Call& other = context.call(waited);
  bool seen = false;  // one like `waited`, in the past
  for (std::size_t c = current.call; c-- > 0;) {
    if (calls[c].step == now.step) continue;
    if (like(calls[c], now)) return seen;  // … after the last one like the current call
    seen = seen || like(calls[c], other);
  }
  return false;
}

// The newest call that shows how far the rank's program came: over NCCL the one it issued last,
// since its host goes on; else the one in which it waits.
std::uint32_t newest_call(const Context& context, std::uint32_t rank) {
  const std::uint32_t waits = context.where.positions[rank].waiting_in();
  const auto issued = static_cast<std::uint32_t>(context.run.ranks[rank].calls.size());
  if (context.semantics == CallSemantics::nccl && waits != kNoCall) return issued - 1;
  return waits;
}

// Whether the rank left out a call of a kind that it made in the round before, a round being what
// it issues from one call like its newest to the next. For traces without steps.
bool broke_its_round(const Context& context, std::uint32_t rank, const Call& left_out) {
  const RankTrace& trace = context.run.ranks[rank];
  const std::uint32_t newest = newest_call(context, rank);
  if (newest == kNoCall) return false;
  const auto like = [&](const Call& a, const Call& b) {
    const bool same_place = a.at == b.at || a.at.value == 0 || b.at.value == 0;
    return a.group == b.group && a.what == b.what && same_place && a.peer == b.peer &&
           context.agreement.agree(a.signature, b.signature);
  };
  bool in_last_round = false;
  for (std::uint32_t c = newest; c-- > 0;) {
    const Call& call = trace.calls[c];
    if (like(call, trace.calls[newest])) {
      if (in_last_round) return false;
      in_last_round = true;
    } else if (like(call, left_out)) {
      return in_last_round;
    }
  }
  return false;
}

// Whether a rank went past a call in which others wait: it is in a later step, or in the same step
// with a batch that lacked a modality which theirs held. A rank that waits at an earlier call of
// the same group is late, not past it. Over NCCL, where the host's order is that of its calls and
// not of its waits, a round without the call tells it too.
bool passed_by(const Context& context, std::uint32_t rank, const WaitPoint& point) {
  const CallRef waited = waiting_call(context, point.waiting[0]);
  const std::int32_t step = context.call(waited).step;
  const Position& position = context.where.positions[rank];
  const bool queued = context.semantics == CallSemantics::nccl;
  if (step == kNone || position.step == kNone) {
    return queued && broke_its_round(context, rank, context.call(waited));
  }
  const bool lacks = !context.modalities.lacking(rank, waited.rank, step).empty();
  if (const std::uint32_t own = newest_call(context, rank); own != kNoCall) {
    const Call& call = context.call({rank, own});
    // Within a step only another group's collective tells: a message may come before the call, and
    // of one group's collectives an earlier one does.
    const bool message = is_point_to_point(context.run.tables.signatures[call.signature].op);
    const bool other_group = call.group != context.call(waited).group;
    // A call without a step of its own (a barrier between two steps) is in the rank's.
    const std::int32_t own_step = call.step == kNone ? position.step : call.step;
    if (own_step != step) return own_step > step && (message || other_group || queued);
    if (message || !other_group) return false;
    if (lacks) return !comes_later(context, {rank, own}, waited);
    return queued && broke_its_round(context, rank, context.call(waited));
  }
  return position.step > step || (position.state == State::finished && lacks);
}

// Whether those who passed a call are more than those who wait in it, and not because their batches
// lacked what the call carries. Then the majority is right, as everywhere.
bool went_on_without_the_few(const Context& context, const Deviation& d) {
  return d.deviants.size() > d.reference.size() &&
         context.modalities.lacking(d.deviants[0], d.reference[0], d.step).empty();
}

// Where some of the missing ranks went past the call: a deviation that no comparison of streams
// shows, since their stream in that group just ends.
std::optional<Deviation> passed_by_deviation(const Context& context, const WaitCause& wait) {
  std::optional<Deviation> best;
  for (const std::size_t p : wait.points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group == WaitPoint::kPointToPoint) continue;
    Deviation d;
    d.kind = Deviation::Kind::missing;
    d.group = point.group;
    d.seq = context.seq_of(point);
    d.expected = waiting_call(context, point.waiting[0]);
    d.step = context.call(d.expected).step;
    d.reference = point.waiting;
    for (const std::uint32_t r : point.missing) {
      // A victim has just not come that far.
      const bool root = std::binary_search(wait.roots.begin(), wait.roots.end(), r);
      if (root && passed_by(context, r, point)) d.deviants.push_back(r);
    }
    if (d.deviants.empty()) continue;
    d.got = {d.deviants[0], newest_call(context, d.deviants[0])};
    if (went_on_without_the_few(context, d)) {
      // Most of the group went on without the few that wait: those made a call too many.
      d.kind = Deviation::Kind::extra;
      std::swap(d.deviants, d.reference);
      std::swap(d.got, d.expected);
    }
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
  const bool few_go_on = fewer_wait_than_finished(context, point);
  std::int32_t last_step = kNone;
  for (const std::uint32_t r : wait.roots) {
    last_step = std::max(last_step, context.where.positions[r].step);
  }
  const bool steps_known = step != kNone && last_step != kNone;
  const bool further_step = !steps_known || step > last_step;
  Cause cause;
  if (point.group == WaitPoint::kPointToPoint && !(steps_known && further_step)) {
    cause.finding = make_finding(RuleId::p2p_unmatched);
    cause.finding.message =
        waiting_words(context, point) + ", which finished without the other side of it";
  } else if (further_step) {
    cause.finding = make_finding(RuleId::unequal_iterations);
    cause.finding.message =
        few_go_on ? context.rank_words(point.waiting) + " went on to " + context.call_words(call) +
                        " (" + context.place_words(call, seq_at(context, point)) + ") after " +
                        context.rank_words(wait.roots) + " had finished"
                  : context.rank_words(wait.roots) + " finished" +
                        (last_step == kNone ? "" : " after step " + std::to_string(last_step)) +
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

// Whether the rank's call is the first message of its kind that it ever made.
bool is_first_of_its_kind(const Context& context, CallRef ref) {
  const RankTrace& trace = context.run.ranks[ref.rank];
  const Call& message = trace.calls[ref.call];
  if (trace.dropped > 0) return false;
  return std::none_of(trace.calls.begin(), trace.calls.begin() + ref.call, [&](const Call& c) {
    return c.group == message.group && c.peer == message.peer &&
           context.run.tables.signatures[c.signature].op ==
               context.run.tables.signatures[message.signature].op;
  });
}

// A message without its other side: a rank waits for a peer that went on to a collective together
// with most of its group, which now waits for that rank. Who is left out of the collective is not
// at fault for it: the peer never posted its side, unless such a message is new to both and the
// sender or receiver alone made it. Nothing: another kind of cycle.
std::optional<Cause> explain_lost_message(const Context& context, const WaitCause& wait) {
  for (const std::size_t p : points_of_roots(context, wait)) {
    const WaitPoint& message = context.where.wait_points[p];
    if (message.group != WaitPoint::kPointToPoint || message.missing.size() != 1) continue;
    const std::uint32_t peer = message.missing[0];
    if (context.where.point_of[peer] == SIZE_MAX) continue;
    const WaitPoint& collective = context.where.wait_points[context.where.point_of[peer]];
    if (collective.group == WaitPoint::kPointToPoint || collective.mismatched) continue;
    // The collective lacks the rank of the message, and nobody else.
    if (collective.missing != message.waiting && collective.behind != message.waiting) continue;
    const std::size_t members = context.groups[collective.group].streams.size();
    const bool issued = !collective.behind.empty();
    if (!issued && 2 * collective.waiting.size() <= members) continue;
    const bool extra = !issued && collective.waiting.size() > 1 &&
                       is_first_of_its_kind(context, waiting_call(context, message.waiting[0]));
    const std::vector<std::uint32_t> culprits =
        extra ? message.waiting : std::vector<std::uint32_t>{peer};
    Cause cause;
    cause.finding = make_finding(RuleId::p2p_unmatched);
    cause.finding.message =
        waiting_for_words(context, message) +
        (extra ? ", which went on without it" : ", which never posted it and went on") + ": " +
        waiting_for_words(context, collective);
    cause.finding.culprits = context.ranks(culprits);
    cause.deviants = culprits;
    place_at(context, message, cause);
    return cause;
  }
  return std::nullopt;
}

// A cycle in which only one call lacks ranks that never issued it, while all the others are there
// and merely queued: who never issued that one call left it out. (Where several calls lack ranks,
// each of them may just not have been reached.)
std::optional<Cause> explain_left_out_call(const Context& context, const WaitCause& wait) {
  const WaitPoint* lacking = nullptr;
  for (const std::size_t p : points_of_roots(context, wait)) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.missing.empty()) continue;
    if (lacking != nullptr) return std::nullopt;
    lacking = &point;
  }
  if (lacking == nullptr || lacking->unknown_member || lacking->any_source) return std::nullopt;
  if (lacking->group == WaitPoint::kPointToPoint) {
    Cause cause;
    cause.finding = make_finding(RuleId::p2p_unmatched);
    cause.finding.message = waiting_for_words(context, *lacking) + ", which never posted it";
    cause.deviants = lacking->missing;
    cause.finding.culprits = context.ranks(cause.deviants);
    place_at(context, *lacking, cause);
    return cause;
  }
  Deviation d;
  d.kind = Deviation::Kind::missing;
  d.group = lacking->group;
  d.seq = context.seq_of(*lacking);
  d.expected = waiting_call(context, lacking->waiting[0]);
  d.step = context.call(d.expected).step;
  d.reference = lacking->waiting;
  d.deviants = lacking->missing;
  d.got = {d.deviants[0], newest_call(context, d.deviants[0])};
  Cause cause = explain_deviation(context, d);
  if (cause.finding.rule == RuleId::missing_collective) {
    cause.finding.why =
        "The other calls of the cycle were issued by all their members; they stand in queues "
        "behind "
        "this one.";
  }
  return cause;
}

// The few of the ranks in both groups of a circle that entered them in the other order; nobody
// where as many did the one as the other.
std::vector<std::uint32_t> in_the_other_order(const WaitPoint& a, const WaitPoint& b) {
  const auto missed = [](const WaitPoint& there, const WaitPoint& here) {
    std::vector<std::uint32_t> out;
    std::set_intersection(there.waiting.begin(), there.waiting.end(), here.missing.begin(),
                          here.missing.end(), std::back_inserter(out));
    return out;
  };
  std::vector<std::uint32_t> in_a = missed(a, b);
  std::vector<std::uint32_t> in_b = missed(b, a);
  if (in_a.size() == in_b.size()) return {};
  return in_a.size() < in_b.size() ? in_a : in_b;
}

Cause explain_circle(const Context& context, const WaitCause& wait,
                     const std::optional<Overtaking>& overtaking) {
  if (std::optional<Cause> lost = explain_lost_message(context, wait)) return std::move(*lost);
  const std::vector<std::size_t> points = points_of_roots(context, wait);
  std::set<GroupId> groups;
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
        return context.run.tables.signatures[context.call(call).signature].op == Op::recv;
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
  std::optional<Overtaking> overtaking;
  if (wait.circle) overtaking = find_overtaking(context, points_of_roots(context, wait));
  Cause cause;
  Finding& f = cause.finding;
  if (const auto deviation = passed_by_deviation(context, wait)) {
    cause = explain_deviation(context, *deviation);
    f.consequences.push_back(wait_consequence(context, wait));
  } else if (overtaking && overtaking->left_out) {
    cause = explain_left_out(context, *overtaking);
    f.consequences.push_back(wait_consequence(context, wait));
  } else if (std::optional<Cause> left_out =
                 wait.circle ? explain_left_out_call(context, wait) : std::nullopt) {
    cause = std::move(*left_out);
    f.consequences.push_back(wait_consequence(context, wait));
  } else {
    cause = wait.circle ? explain_circle(context, wait, overtaking)
            : context.where.positions[wait.roots[0]].state == State::finished
                ? explain_finished(context, wait)
                : explain_gone(context, wait);
    add_wait_evidence(context, wait, f);
  }
  f.certainty = wait.stuck ? Certainty::proven : Certainty::observed;
  f.ranks = context.ranks(all_ranks(wait));
  if (f.fingerprint.empty()) {
    const WaitPoint& point = first_point(context, wait);
    set_fingerprint(f, describe(context.run.tables,
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

}  // namespace lockstep
