#include "verify/blocking.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/text.h"

namespace lockstep {

namespace {

using State = Position::State;

constexpr std::size_t kExceptionShown = 200;  // characters of an exception's text in a message

CallRef waiting_call(const Context& context, std::uint32_t rank) {
  return {rank, context.where.positions[rank].waiting_in()};
}

std::uint64_t seq_at(const Context& context, const WaitPoint& point) {
  if (point.group != WaitPoint::kPointToPoint) return context.seq_of(point);
  return context.call(waiting_call(context, point.waiting[0])).seq;
}

std::string waiting_words(const Context& context, const WaitPoint& point) {
  const CallRef call = waiting_call(context, point.waiting[0]);
  if (point.mismatched) {
    return context.rank_words(point.waiting) + " met in calls that do not fit together (" +
           context.place_words(call, seq_at(context, point)) + ")";
  }
  const bool one = point.waiting.size() == 1;
  std::string out = context.rank_words(point.waiting) + (one ? " waits in " : " wait in ") +
                    context.call_words(call);
  if (point.group == WaitPoint::kPointToPoint) {
    const Call& c = context.call(call);
    const bool sends = context.run.tables.signatures[c.signature].op == Op::send;
    out += (sends ? " to rank " : " from rank ") + std::to_string(c.peer.value);
  }
  return out + " (" + context.place_words(call, seq_at(context, point)) + ")";
}

// The same, and for whom.
std::string waiting_for_words(const Context& context, const WaitPoint& point) {
  std::string out = waiting_words(context, point);
  if (!point.missing.empty()) out += " for " + context.rank_words(point.missing);
  return out;
}

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

// The earliest of them: by step, then by place.
const WaitPoint& first_point(const Context& context, const WaitCause& wait) {
  const auto key = [&](std::size_t p) {
    const WaitPoint& point = context.where.wait_points[p];
    const std::int32_t step = context.call(waiting_call(context, point.waiting[0])).step;
    return std::make_tuple(step == kNone ? INT32_MAX : step, seq_at(context, point), p);
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

void place_at(const Context& context, const WaitPoint& point, Cause& cause) {
  const CallRef call = waiting_call(context, point.waiting[0]);
  Finding& f = cause.finding;
  cause.step = context.call(call).step;
  cause.seq = seq_at(context, point);
  f.seq = cause.seq;
  if (cause.step != kNone) f.step = cause.step;
  f.group = printable(context.run.tables.str(context.call(call).group));
  if (point.group != WaitPoint::kPointToPoint) cause.group = point.group;
  for (const std::string& name : context.run.tables.names(context.call(call).what)) {
    f.what.push_back(name);
  }
}

void add_wait_evidence(const Context& context, const WaitCause& wait, Finding& finding) {
  for (const std::size_t p : wait.points) {
    const WaitPoint& point = context.where.wait_points[p];
    const CallRef call = waiting_call(context, point.waiting[0]);
    finding.evidence.push_back(context.evidence(call, waiting_for_words(context, point)));
    if (finding.evidence.size() >= 8) return;
  }
}

// Whether a rank went past a call in which others wait: it is in a later step, or in the same step
// with a batch that lacked a modality which theirs held. A rank that waits at an earlier call of
// the same group is late, not past it.
bool passed_by(const Context& context, std::uint32_t rank, const WaitPoint& point) {
  const CallRef waited = waiting_call(context, point.waiting[0]);
  const std::int32_t step = context.call(waited).step;
  if (step == kNone) return false;
  const bool lacks = !context.modalities.lacking(rank, waited.rank, step).empty();
  const Position& position = context.where.positions[rank];
  if (const std::uint32_t own = position.waiting_in(); own != kNoCall) {
    const Call& call = context.call({rank, own});
    const bool in_order = !is_point_to_point(context.run.tables.signatures[call.signature].op);
    if (in_order && call.group == context.call(waited).group) return false;
    return call.step > step || (call.step == step && lacks);
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
    Deviation d;
    d.kind = Deviation::Kind::missing;
    d.group = point.group;
    d.seq = context.seq_of(point);
    d.expected = waiting_call(context, point.waiting[0]);
    d.step = context.call(d.expected).step;
    d.reference = point.waiting;
    for (const std::uint32_t r : point.missing) {
      if (passed_by(context, r, point)) d.deviants.push_back(r);
    }
    if (d.deviants.empty()) continue;
    d.got = {d.deviants[0], context.where.positions[d.deviants[0]].waiting_in()};
    if (!best || std::pair(d.step, d.seq) < std::pair(best->step, best->seq)) best = std::move(d);
  }
  return best;
}

std::string exception_text(const Context& context, std::uint32_t rank) {
  const RankTrace& trace = context.run.ranks[rank];
  if (trace.exceptions.empty()) return "";
  std::string text = printable(trace.exceptions.back().what);
  if (text.size() > kExceptionShown) {
    std::size_t cut = kExceptionShown;
    while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) --cut;
    text = text.substr(0, cut) + " …";
  }
  return text;
}

std::string state_words(const Context& context, std::uint32_t rank) {
  switch (context.where.positions[rank].state) {
    case State::finished:
      return "finished its program";
    case State::running:
      return "is still running";
    case State::cut:
      return "stopped without an end mark: its process died, or its trace was cut off";
    case State::killed:
      return "was killed";
    case State::raised: {
      const std::string text = exception_text(context, rank);
      return "raised an exception" + (text.empty() ? "" : ": " + text);
    }
    case State::hung:
      return "hung outside of any collective";
  }
  return "";
}

// The last thing that a rank is known to have done.
std::string last_seen(const Context& context, std::uint32_t rank) {
  const RankTrace& trace = context.run.ranks[rank];
  if (trace.calls.empty()) return "it issued no call at all";
  const CallRef last{rank, static_cast<std::uint32_t>(trace.calls.size() - 1)};
  return "its last call was " + context.call_words(last) + " (" +
         context.place_words(last, context.call(last).seq) + ")";
}

// Ranks that finished while others wait: who ran a different number of iterations, or left out the
// last calls?
Cause explain_finished(const Context& context, const WaitCause& wait) {
  const WaitPoint& point = first_point(context, wait);
  const CallRef call = waiting_call(context, point.waiting[0]);
  const std::int32_t step = context.call(call).step;
  const auto finished = static_cast<std::size_t>(
      std::count_if(context.where.positions.begin(), context.where.positions.end(),
                    [](const Position& p) { return p.state == State::finished; }));
  const bool few_go_on = wait.victims.size() < finished;
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
        few_go_on ? context.rank_words(wait.victims) + " went on to " + context.call_words(call) +
                        " (" + context.place_words(call, seq_at(context, point)) + ") after " +
                        context.rank_words(wait.roots) + " had finished"
                  : context.rank_words(wait.roots) + " finished" +
                        (last_step == kNone ? "" : " after step " + std::to_string(last_step)) +
                        "; " + waiting_words(context, point);
  } else {
    cause.finding = make_finding(few_go_on ? RuleId::extra_collective : RuleId::missing_collective);
    cause.finding.message =
        few_go_on ? context.rank_words(wait.victims) + " issued " + context.call_words(call) +
                        " (" + context.place_words(call, seq_at(context, point)) + "), which " +
                        context.rank_words(wait.roots) + " finished without"
                  : context.rank_words(wait.roots) + " finished without " +
                        context.call_words(call) + "; " + waiting_words(context, point);
  }
  const bool blame_waiting = few_go_on && cause.finding.rule != RuleId::p2p_unmatched;
  cause.deviants = blame_waiting ? wait.victims : wait.roots;
  cause.finding.culprits = context.ranks(cause.deviants);
  place_at(context, point, cause);
  return cause;
}

Cause explain_gone(const Context& context, const WaitCause& wait) {
  const WaitPoint& point = first_point(context, wait);
  const std::uint32_t root = wait.roots[0];
  Cause cause;
  const bool raised = context.where.positions[root].state == State::raised;
  cause.finding = make_finding(raised ? RuleId::rank_exception : RuleId::host_stall);
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

Cause explain_circle(const Context& context, const WaitCause& wait) {
  const std::vector<std::size_t> points = points_of_roots(context, wait);
  std::set<GroupId> groups;
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    groups.insert(context.call(waiting_call(context, point.waiting[0])).group);
  }
  const bool p2p = all_point_to_point(context, points);
  const RuleId id = p2p                 ? RuleId::p2p_cycle
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
  // In a circle over two groups the few that entered them in the other order stand out.
  if (id == RuleId::cross_group_deadlock && points.size() == 2) {
    const auto& a = context.where.wait_points[points[0]].waiting;
    const auto& b = context.where.wait_points[points[1]].waiting;
    if (a.size() != b.size()) cause.finding.culprits = context.ranks(a.size() < b.size() ? a : b);
  }
  return cause;
}

}  // namespace

Cause explain_wait(const Context& context, const WaitCause& wait) {
  Cause cause;
  Finding& f = cause.finding;
  if (const auto deviation = passed_by_deviation(context, wait)) {
    cause = explain_deviation(context, *deviation);
    f.consequences.push_back(wait_consequence(context, wait));
  } else {
    cause = wait.circle ? explain_circle(context, wait)
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
    parts +=
        "; rank " + std::to_string(context.run.ranks[r].rank.value) + " " + state_words(context, r);
  }
  f.message = parts;
  f.fix.clear();
  set_fingerprint(f, "");
  return f;
}

std::vector<Cause> check_point_to_point(const Context& context) {
  std::vector<Cause> out;
  for (const auto& pair : context.where.size_mismatches) {
    const CallRef send{pair.sender, pair.send_call};
    const CallRef receive{pair.receiver, pair.recv_call};
    Cause cause;
    cause.finding = make_finding(RuleId::p2p_size);
    Finding& f = cause.finding;
    f.message = context.rank_words({pair.sender}) + " issued " +
                describe(context.run.tables, context.call(send).signature) + " to " +
                context.rank_words({pair.receiver}) + ", which issued " +
                describe(context.run.tables, context.call(receive).signature);
    cause.deviants = {std::min(pair.sender, pair.receiver), std::max(pair.sender, pair.receiver)};
    f.ranks = context.ranks(cause.deviants);
    f.group = printable(context.run.tables.str(context.call(send).group));
    if (context.call(send).step != kNone) f.step = cause.step = context.call(send).step;
    f.evidence = {context.evidence(send, "sends"), context.evidence(receive, "receives")};
    set_fingerprint(f, "send");
    out.push_back(std::move(cause));
    if (out.size() >= 16) break;
  }
  // By the rank that left its call without the other side; only what finished is over.
  std::map<std::uint32_t, std::vector<std::uint32_t>> open;
  for (const auto& [rank, call] : context.where.unmatched) {
    const RankTrace* peer = context.run.find(context.call({rank, call}).peer);
    if (peer == nullptr || context.where.positions[rank].state != State::finished) continue;
    const auto p = static_cast<std::uint32_t>(peer - context.run.ranks.data());
    if (context.where.positions[p].state == State::finished &&
        context.where.positions[rank].waiting_in() == kNoCall) {
      open[rank].push_back(call);
    }
  }
  for (const auto& [rank, calls] : open) {
    const CallRef first{rank, calls[0]};
    Cause cause;
    cause.finding = make_finding(RuleId::p2p_unmatched);
    Finding& f = cause.finding;
    f.message = context.rank_words({rank}) + " left " +
                plural(calls.size(), "point-to-point call") +
                " without the other side; the first is " + context.call_words(first) +
                " with rank " + std::to_string(context.call(first).peer.value) + " (" +
                context.place_words(first, context.call(first).seq) + ")";
    cause.deviants = {rank};
    f.ranks = context.ranks({rank});
    f.group = printable(context.run.tables.str(context.call(first).group));
    if (context.call(first).step != kNone) f.step = cause.step = context.call(first).step;
    f.evidence = {context.evidence(first, "no other side")};
    set_fingerprint(f, "p2p");
    out.push_back(std::move(cause));
  }
  return out;
}

std::vector<Cause> check_transport(const Context& context) {
  std::vector<Cause> out;
  for (const WaitPoint& point : context.where.wait_points) {
    if (!point.missing.empty() || point.unknown_member || point.mismatched) continue;
    if (point.group == WaitPoint::kPointToPoint) continue;
    const auto hung = [&](std::uint32_t r) {
      return context.where.positions[r].state == State::hung;
    };
    if (!std::any_of(point.waiting.begin(), point.waiting.end(), hung)) continue;
    const std::size_t members = context.groups[point.group].streams.size();
    Cause cause;
    cause.finding = make_finding(RuleId::device_stall);
    Finding& f = cause.finding;
    const bool all = point.waiting.size() == members;
    f.message =
        (all ? "all members issued " : context.rank_words(point.waiting) + " did not complete ") +
        context.call_words(waiting_call(context, point.waiting[0])) +
        (all ? ", and it completed on none of them"
             : ", which everybody issued and the others completed");
    cause.deviants = point.waiting;
    if (!all) f.culprits = context.ranks(point.waiting);
    f.ranks = context.ranks(point.waiting);
    place_at(context, point, cause);
    set_fingerprint(f, "");
    out.push_back(std::move(cause));
  }
  return out;
}

namespace {

// What a peer's death, or a time-out, looks like from the other side (Gloo, NCCL, c10d, TCPStore).
bool is_secondary(std::string_view text) {
  static constexpr std::array kSigns = {
      std::string_view("Connection closed by peer"),
      std::string_view("Connection reset by peer"),
      std::string_view("Timed out waiting"),
      std::string_view("Application timeout"),
      std::string_view("pair closure"),
      std::string_view("Broken pipe"),
      std::string_view("Watchdog caught collective operation timeout"),
      std::string_view("remote process exited"),
      std::string_view("NCCL communicator was aborted"),
      std::string_view("Connection refused")};
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](std::string_view s) { return text.find(s) != std::string_view::npos; });
}

}  // namespace

Exceptions sort_exceptions(const Context& context) {
  Exceptions out;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    if (context.where.positions[r].state != State::raised) continue;
    const auto& marks = context.run.ranks[r].exceptions;
    const bool secondary = !marks.empty() && is_secondary(marks.back().what);
    (secondary ? out.victims : out.causes).push_back(r);
  }
  return out;
}

Cause explain_exceptions(const Context& context, const std::vector<std::uint32_t>& ranks) {
  Cause cause;
  cause.finding = make_finding(RuleId::rank_exception);
  Finding& f = cause.finding;
  f.message = context.rank_words(ranks) + " " + state_words(context, ranks[0]);
  f.culprits = context.ranks(ranks);
  f.ranks = f.culprits;
  cause.deviants = ranks;
  const Position& position = context.where.positions[ranks[0]];
  if (position.step != kNone) f.step = cause.step = position.step;
  for (const std::uint32_t r : ranks) {
    f.evidence.push_back(context.evidence({r, kNoCall}, last_seen(context, r)));
    if (f.evidence.size() >= 4) break;
  }
  set_fingerprint(f, "");
  return cause;
}

}  // namespace lockstep
