#include "verify/blocking/cycles.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "verify/blocking/begun_alone.h"
#include "verify/blocking/blocking.h"
#include "verify/blocking/message_counts.h"
#include "verify/blocking/messages.h"
#include "verify/blocking/overtaking.h"
#include "verify/blocking/program_divergence.h"
#include "verify/blocking/stopped.h"
#include "verify/blocking/unanswered.h"
#include "verify/blocking/wait_evidence.h"
#include "verify/blocking/witnesses.h"
#include "verify/matching/matching.h"
#include "verify/streams/loops.h"
#include "verify/streams/past.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

bool all_point_to_point(const Context& context, const std::vector<std::size_t>& points) {
  return std::all_of(points.begin(), points.end(), [&](std::size_t p) {
    return context.where.wait_points[p].group == WaitPoint::kPointToPoint;
  });
}

// Whether the first rank of each message waits in this operation, a send or a receive.
bool all_wait_in(const Context& context, const std::vector<std::size_t>& points, trace::Op op) {
  return std::all_of(points.begin(), points.end(), [&](std::size_t p) {
    const WaitPoint& point = context.where.wait_points[p];
    return context.op(waiting_call(context, point.waiting[0])) == op;
  });
}

// In a cycle over two groups, the ranks that entered the groups in the less common order; none
// where both orders are equally common.
std::vector<std::uint32_t> in_the_other_order(const WaitPoint& a, const WaitPoint& b) {
  // The ranks that wait `there` and are missing `here`: they took `there` first.
  const auto missed = [](const WaitPoint& there, const WaitPoint& here) {
    const std::vector<std::uint32_t> lacks = lacked_by(here);
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

// The ranks of a cycle that reached one call before most of its group and are missing in another in
// which most of the group waits. Whether they left that one out or moved it, they are the minority
// in both.
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
    if (const std::vector<std::uint32_t> lacks = lacked_by(point); few(lacks, point))
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

// Whether, by the rank's past, `second` should have come where it issued `first`: then it changed
// the order of the two. Nothing where its past does not show it.
std::optional<bool> broke_its_order(const Context& context, std::uint32_t rank, std::uint32_t first,
                                    std::uint32_t second) {
  if (mixes_threads(context.run.ranks[rank], first)) return std::nullopt;
  const std::optional<std::uint32_t> usual =
      usual_call(context.run, context.agreement, {rank, first});
  if (!usual) return std::nullopt;
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  if (is_same_of_program(context.agreement, calls[*usual], calls[first])) return false;
  if (is_same_of_program(context.agreement, calls[*usual], calls[second])) return true;
  return std::nullopt;
}

// In a cycle of queued calls, the ranks that issued two of its calls in another order than the last
// time. None where all ranks did, since then no rank stands out.
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
      if (!behind || point.instance >= s.calls.size()) continue;
      const std::uint32_t first = context.where.positions[s.rank_index].waiting_in();
      const auto out = broke_its_order(context, s.rank_index, first, s.calls[point.instance]);
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

// In a cycle over two calls, the ranks that wait in one for a rank in the other, if a sister group
// went to the other call without making theirs. So they issued it alone.
//
//   ranks 0, 1   rank 0 waits in all_gather of [0, 1] for rank 1, which waits in the barrier
//   ranks 2, 3   wait in the barrier, and neither issued an all_gather of [2, 3]: rank 0 is odd
std::vector<std::uint32_t> beside_sister_groups(const Context& context,
                                                const std::vector<std::size_t>& points) {
  if (points.size() != 2) return {};
  std::vector<std::uint32_t> out;
  for (const std::size_t p : points) {
    const WaitPoint& own = context.where.wait_points[p];
    const WaitPoint& usual = context.where.wait_points[p == points[0] ? points[1] : points[0]];
    if (own.group == WaitPoint::kPointToPoint || usual.group == WaitPoint::kPointToPoint) return {};
    const GroupStreams& group = context.groups[own.group];
    const bool went_past =
        std::any_of(context.groups.begin(), context.groups.end(), [&](const GroupStreams& sister) {
          return &sister != &group && sister.members.size() == group.members.size() &&
                 sister.first_seq == group.first_seq && !sister.streams.empty() &&
                 std::all_of(sister.streams.begin(), sister.streams.end(), [&](const Stream& s) {
                   return s.calls.size() == own.instance &&
                          std::binary_search(usual.waiting.begin(), usual.waiting.end(),
                                             s.rank_index);
                 });
        });
    if (went_past) out.insert(out.end(), own.waiting.begin(), own.waiting.end());
  }
  return out;
}

// Whether ranks wait in one of the calls in another round of a loop whose length nothing shows.
bool goes_on_with_varying_loop(const Context& context, const std::vector<std::size_t>& points) {
  return std::any_of(points.begin(), points.end(), [&](std::size_t p) {
    const WaitPoint& point = context.where.wait_points[p];
    const CallRef call = waiting_call(context, point.waiting[0]);
    return goes_on_with_loop(context.run, context.agreement, call) &&
           is_at_end_of_varying_loop(context.run, context.agreement, call);
  });
}

// Whether a call of the cycle lacks a member of a group that nobody lists: one of several ranks,
// and nothing shows which.
bool lacks_unlisted_member(const Context& context, const std::vector<std::size_t>& points) {
  return std::any_of(points.begin(), points.end(), [&](std::size_t p) {
    const WaitPoint& point = context.where.wait_points[p];
    return point.any_source && point.group != WaitPoint::kPointToPoint;
  });
}

// Says where a message and its receive differ in the tag alone: two ranks that wait for each other
// may not be a cycle of messages but one message with a wrong tag.
void add_other_tags(const Context& context, const WaitCause& wait, Finding& finding) {
  const std::vector<Cause> near = check_near_misses(context, &wait.roots);
  if (near.empty()) return;
  finding.why += fmt::format(" But {}. {}", near[0].finding.message, near[0].finding.why);
  finding.fix = fmt::format("{}; or {}", near[0].finding.fix, finding.fix);
}

// The rule that the cycle breaks. `lacks_message`: see cycle_cause().
RuleId rule_of_cycle(const Context& context, const std::vector<std::size_t>& points,
                     bool lacks_message) {
  const auto first_call = [&](std::size_t p) {
    return waiting_call(context, context.where.wait_points[p].waiting[0]);
  };
  if (all_point_to_point(context, points)) {
    // In MPI programs, ranks that all receive from each other mostly forgot to send.
    return context.semantics == CallSemantics::mpi && all_wait_in(context, points, trace::Op::recv)
               ? RuleId::p2p_unmatched
               : RuleId::p2p_cycle;
  }
  std::set<trace::GroupId> groups;
  for (const std::size_t p : points) groups.insert(context.call(first_call(p)).group);
  return groups.size() > 1 && !lacks_message ? RuleId::cross_group_deadlock : RuleId::deadlock;
}

// Who is waited for in each of the first few calls of the cycle.
std::string describe_cycle(const Context& context, const std::vector<std::size_t>& points) {
  constexpr std::size_t kShown = 4;
  std::string out;
  for (std::size_t i = 0; i < points.size() && i < kShown; ++i) {
    const WaitPoint& point = context.where.wait_points[points[i]];
    out += (out.empty() ? "" : "; ") + describe_awaited(context, point);
  }
  if (points.size() > kShown) out += fmt::format("; and {} more", points.size() - kShown);
  return out;
}

std::vector<std::uint32_t> ranks_of(const std::vector<Break>& breaks) {
  std::vector<std::uint32_t> out(breaks.size());
  std::transform(breaks.begin(), breaks.end(), out.begin(), [](const Break& b) { return b.rank; });
  return out;
}

// Whether a rank that did not break with its past in the cycle waits in a message like the one in
// which a rank of the cycle broke with its own, and its past does not predict that either.
bool others_break_alike(const Context& context, const std::vector<Break>& breaks) {
  if (breaks.size() != 1) return false;
  const Break& broke = breaks[0];
  const CallRef call{broke.rank, broke.call};
  if (!trace::is_point_to_point(context.op(call)) ||
      !goes_on_with_loop(context.run, context.agreement, call)) {
    return false;
  }
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    const CallRef waiting{r, context.where.positions[r].waiting_in()};
    if (r == broke.rank || waiting.call == kNoCall || context.op(waiting) != context.op(call) ||
        !context.agreement.agree(context.call(waiting).signature, context.call(call).signature)) {
      continue;
    }
    if (goes_on_with_loop(context.run, context.agreement, waiting) &&
        is_usual(context.run, context.agreement, waiting) == Usual::no) {
      return true;
    }
  }
  return false;
}

// The ranks that are to blame for a cycle of the rule `rule` (rank indices). The criteria go from
// strong evidence to weak; the first one that names anyone decides.
std::vector<std::uint32_t> culprits_of_cycle(const Context& context,
                                             const std::vector<std::size_t>& points, RuleId rule,
                                             const std::vector<Break>& breaks,
                                             const std::optional<Overtaking>& overtaking,
                                             const std::vector<std::uint32_t>& odd) {
  using Ranks = std::vector<std::uint32_t>;
  const std::vector<std::function<Ranks()>> criteria = {
      // Ranks whose device overtook (overtaking.h).
      [&] { return overtaking ? overtaking->deviants : Ranks{}; },
      // With messages, ranks that differ from their sister groups.
      [&] { return overtaking ? Ranks{} : odd; },
      // With two groups, ranks that used the less common order.
      [&] {
        if (overtaking || rule != RuleId::cross_group_deadlock || points.size() != 2)
          return Ranks{};
        return in_the_other_order(context.where.wait_points[points[0]],
                                  context.where.wait_points[points[1]]);
      },
      // Ranks that changed the order of two calls since the last time.
      [&] { return out_of_their_order(context, points); },
      // Ranks that were early in one call and late in another.
      [&] { return ahead_of_most(context, points); },
      // Ranks that wait in a call which sister groups did not issue.
      [&] { return beside_sister_groups(context, points); },
      // Ranks that broke with their past, unless others who wait for them broke with theirs in the
      // same way: then their step has more micro-batches, and one rank left one out.
      [&] { return others_break_alike(context, breaks) ? Ranks{} : ranks_of(breaks); },
      // A rank that lacks one side of what it exchanges with its neighbours.
      [&] {
        const std::optional<std::uint32_t> rank = lacks_one_side(context, points);
        return rank ? Ranks{*rank} : Ranks{};
      },
      // A rank alone in a collective, for which neighbours on both sides wait in messages.
      [&] {
        const std::optional<std::uint32_t> rank = left_out_between(context, points);
        return rank ? Ranks{*rank} : Ranks{};
      },
      // Stages of a pipeline that expect more messages than their neighbour has to pass on. Not
      // where the length of a text decides how many there are.
      [&] {
        return goes_on_with_varying_loop(context, points) ? Ranks{}
                                                          : expect_more_than_comes(context, points);
      },
      // Ranks alone in a collective, where all its other members wait in messages.
      [&] {
        return goes_on_with_varying_loop(context, points) ? Ranks{}
                                                          : alone_among_messages(context, points);
      },
  };
  for (const auto& criterion : criteria)
    if (Ranks ranks = criterion(); !ranks.empty()) return ranks;
  return {};
}

// Says which call the rank left out, by its earlier rounds.
void add_left_out(const Context& context, const Break& broke, Finding& finding) {
  const std::string who = context.describe_ranks({broke.rank});
  const std::string usual = context.describe_call({broke.rank, broke.usual});
  const std::string call = context.describe_call({broke.rank, broke.call});
  finding.why += fmt::format(
      " In its earlier rounds {} issued {} where it issued {} now: it left that call out, "
      "or comes to it later.",
      who, usual, call);
  finding.fix =
      fmt::format("on {}, issue {} before {}, as in its earlier rounds", who, usual, call);
}

std::vector<trace::Rank> members_of(const Context& context, trace::GroupId group) {
  const auto found =
      std::find_if(context.groups.begin(), context.groups.end(),
                   [&](const GroupStreams& streams) { return streams.group == group; });
  return found == context.groups.end() ? std::vector<trace::Rank>{} : found->members;
}

// Whether ranks wait in one call of the program, by its line and signature, in two groups of the
// same ranks: these may have made the two in different orders, so that names are exchanged.
bool may_have_exchanged_groups(const Context& context, const std::vector<std::size_t>& points) {
  if (points.size() != 2) return false;
  const auto call_at = [&](std::size_t i) -> const trace::Call& {
    return context.call(waiting_call(context, context.where.wait_points[points[i]].waiting[0]));
  };
  const trace::Call& a = call_at(0);
  const trace::Call& b = call_at(1);
  return a.at.value != 0 && a.at == b.at && a.signature == b.signature && a.group != b.group &&
         members_of(context, a.group) == members_of(context, b.group);
}

// What to do about a cycle of messages in which one rank alone waits in a collective, as far as
// that is known. Empty for other cycles.
std::string advice_of_one_collective(const Context& context,
                                     const std::vector<std::size_t>& points) {
  std::optional<std::uint32_t> alone;
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group == WaitPoint::kPointToPoint) continue;
    if (alone || point.waiting.size() != 1) return "";
    alone = point.waiting[0];
  }
  if (!alone) return "";
  return fmt::format(
      "either {} comes to {} too early, before its side of a message, or the others post one too "
      "many: make as many steps and micro-batches on every rank",
      context.describe_ranks({*alone}), context.describe_call(waiting_call(context, *alone)));
}

// Of a cycle over two groups whose culprits lack in a call in which most of its group wait: that
// they may have left it out altogether. What would have come later is unknown. Ranks that lack in a
// checkpoint's call are mostly those that did not save it, whoever else is to blame.
std::string advice_if_left_out(const Context& context, const std::vector<std::size_t>& points,
                               const Finding& finding) {
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group == WaitPoint::kPointToPoint || point.missing.empty()) continue;
    const CallRef call = waiting_call(context, point.waiting[0]);
    const std::string_view at = context.run.tables.str(context.call(call).at);
    const bool saves = at.find("distributed/checkpoint/") != std::string_view::npos;
    const bool most_wait_for_culprits = !finding.culprits.empty() &&
                                        context.ranks(point.missing) == finding.culprits &&
                                        point.waiting.size() > point.missing.size();
    if (!saves && !most_wait_for_culprits) continue;
    return fmt::format("; or, if {} left out {}, {}", context.describe_ranks(point.missing),
                       context.describe_call(call),
                       saves ? "let every rank save the checkpoint" : "make it there, too");
  }
  return "";
}

// The cycle as a finding.
//
// `lacks_message`: one of the ranks waits in a collective where a message was to come. It left the
// message out, or comes to it later; so the finding does not say that two groups cross.
Cause cycle_cause(const Context& context, const WaitCause& wait,
                  const std::vector<std::size_t>& points, const std::vector<Break>& breaks,
                  const std::optional<Overtaking>& overtaking,
                  const std::vector<std::uint32_t>& odd, bool lacks_message) {
  if (std::optional<Cause> lost = explain_lost_message(context, points)) return std::move(*lost);
  Cause cause;
  Finding& f = cause.finding;
  f = make_finding(rule_of_cycle(context, points, lacks_message));
  f.message = describe_cycle(context, points);
  f.why = fmt::format("Each waits for another one of them, in a cycle, so none can continue{}.",
                      wait.stuck ? ", in whichever order things happen" : "");
  cause.deviants = wait.roots;
  locate_cause(context, first_point(context, wait), cause);
  if (lacks_unlisted_member(context, points)) {
    f.why += " The dumps do not list the members of the group, and so not who left its call out.";
    return cause;
  }
  f.culprits = context.ranks(culprits_of_cycle(context, points, f.rule, breaks, overtaking, odd));
  if (breaks.size() == 1 && breaks[0].kind == EditKind::missing &&
      f.culprits == context.ranks({breaks[0].rank})) {
    add_left_out(context, breaks[0], f);
  } else if (f.rule == RuleId::deadlock || !alone_among_messages(context, points).empty()) {
    if (std::string advice = advice_of_one_collective(context, points); !advice.empty())
      f.fix = std::move(advice);
  }
  if (f.rule == RuleId::cross_group_deadlock) f.fix += advice_if_left_out(context, points, f);
  if (may_have_left_loop(context, points))
    f.fix += "; or, if a loop ended early on a rank, make as many iterations on every rank";
  if (f.rule == RuleId::cross_group_deadlock && may_have_exchanged_groups(context, points)) {
    f.why += " They wait in one line of the program, but in different groups of the same ranks.";
    f.fix += "; or, if they made these two groups in different orders, make them in one order";
  }
  if (all_point_to_point(context, points)) {
    if (context.semantics != CallSemantics::mpi && all_wait_in(context, points, trace::Op::recv)) {
      f.fix +=
          "; or, if one of these receives is one too many or a send is missing, make the counts of "
          "micro-batches equal";
    } else if (context.semantics != CallSemantics::mpi && !f.culprits.empty() &&
               all_wait_in(context, points, trace::Op::send)) {
      f.fix +=
          "; or, if one of these sends is one too many or a receive is missing, make the counts of "
          "micro-batches equal";
    }
    add_other_tags(context, wait, f);
  } else {
    // The same cycle in sister groups is one cause.
    cause.call =
        context.call(waiting_call(context, first_point(context, wait).waiting[0])).signature;
  }
  return cause;
}

// A call that was left out, or issued too often, as the cause of a cycle.
struct Omission {
  std::optional<Cause> cause;                   // empty: nothing shows one
  std::vector<Break> breaks;                    // where the cycle's ranks broke with their past
  std::optional<ProgramDivergence> divergence;  // where the programs of two of its ranks diverge
  bool most_broke = false;                      // … and most ranks are on the unusual side
};

// The messages of one operation with a peer among a rank's first calls, of those that carry as much
// as `like`.
std::ptrdiff_t count_posted(const Context& context, const trace::RankTrace& trace, std::size_t end,
                            trace::Op op, trace::Rank peer, const trace::Signature& like) {
  const trace::Tables& tables = context.run.tables;
  const auto elements = [](const trace::Signature& s) {
    return std::max(s.in_elements, s.out_elements);  // a send has the one, a receive the other
  };
  return std::count_if(trace.calls.begin(), trace.calls.begin() + static_cast<std::ptrdiff_t>(end),
                       [&](const trace::Call& c) {
                         const trace::Signature& s = tables.signatures[c.signature];
                         return c.peer == peer && s.op == op && elements(s) == elements(like);
                       });
}

// Whether never as much came back from a peer as was sent to it, in a rank's first calls.
bool is_first_round(const Context& context, const trace::RankTrace& trace, std::size_t end,
                    trace::Rank peer) {
  std::ptrdiff_t more_sent = 0;
  for (std::size_t c = 0; c < end; ++c) {
    if (trace.calls[c].peer != peer) continue;
    const trace::Op op = context.run.tables.op(trace.calls[c]);
    if (op == trace::Op::send) ++more_sent;
    if (op == trace::Op::recv && --more_sent <= 0) return false;
  }
  return more_sent > 0;
}

// Whether the message that a rank's past predicts is none that it left out:
//
//   - nobody misses it: its peer posted no more of the other side than the rank has. So it belongs
//     to earlier rounds alone, as the shapes that stages of a pipeline exchange before their first
//     micro-batch.
//   - in place of a send to a stage came a receive from it, in a first round in which more was sent
//     there than came back: after its last micro-batch a stage only receives gradients, and its
//     past does not hold the end of a round yet.
bool is_no_omission(const Context& context, const Break& broke) {
  const trace::RankTrace& trace = context.run.ranks[broke.rank];
  const trace::Call& usual = trace.calls[broke.usual];
  const trace::Call& call = trace.calls[broke.call];
  const trace::Signature& message = context.run.tables.signatures[usual.signature];
  if (broke.kind == EditKind::extra || !trace::is_point_to_point(message.op)) return false;
  const trace::RankTrace* const peer = context.run.find(usual.peer);
  if (peer == nullptr || (message.op != trace::Op::send && message.op != trace::Op::recv))
    return false;
  const std::ptrdiff_t theirs =
      count_posted(context, *peer, peer->calls.size(), other_side(message.op), trace.rank, message);
  if (theirs <= count_posted(context, trace, broke.call, message.op, usual.peer, message))
    return true;
  return message.op == trace::Op::send && context.run.tables.op(call) == trace::Op::recv &&
         call.peer == usual.peer && is_first_round(context, trace, broke.call, usual.peer);
}

// Looks for an omission, from strong evidence to weak.
Omission find_omission(const Context& context, const WaitCause& wait,
                       const std::vector<std::size_t>& points,
                       const std::optional<Overtaking>& overtaking) {
  Omission out;
  // The past of any rank would only accuse it.
  if (lacks_unlisted_member(context, points)) return out;
  if (overtaking && overtaking->left_out) {
    out.cause = explain_left_out(context, *overtaking);
    return out;
  }
  // Where most ranks left out a call, it is not the few that lack one.
  out.divergence = most_broke_in_cycle(context, points);
  out.most_broke = out.divergence.has_value();
  if (out.most_broke) out.cause = explain_program_divergence(context, *out.divergence);
  if (out.cause) return out;
  out.breaks = breaks_with_the_past(context, wait.roots);
  std::erase_if(out.breaks, [&](const Break& broke) { return is_no_omission(context, broke); });
  if (!out.most_broke) out.cause = explain_left_out_call(context, points, out.breaks);
  if (!out.cause) out.cause = explain_broken_habit(context, points, out.breaks);
  if (!out.cause && !out.most_broke) {
    out.divergence = divergence_in_cycle(context, points);
    if (out.divergence) out.cause = explain_program_divergence(context, *out.divergence);
    if (!out.divergence) out.cause = explain_begun_alone(context, points);
  }
  return out;
}

}  // namespace

// Several analyses may have an answer, and they may contradict each other. From strong to weak:
//
//   vote         whole programs of the other ranks; it also refutes each of the answers below
//   overtaking   a device that ran a call before an earlier one of another group
//   odd          ranks that differ from their sister groups, in messages
//   omission     a call that one rank left out, or made too often, by its past
//   the cycle    what its calls alone show (culprits_of_cycle)
Cause explain_cycle(const Context& context, const WaitCause& wait) {
  const std::vector<std::size_t> points = points_of_roots(context, wait);
  std::optional<Overtaking> overtaking = find_overtaking(context, points);
  // Counts of calls mislead where rounds differ: texts are generated until they end.
  if (overtaking && goes_on_with_varying_loop(context, overtaking->overtaken)) overtaking.reset();
  // Whole programs do not depend on such counts.
  const std::optional<Vote> vote = vote_in_cycle(context, points);
  const auto is_refuted = [&](const std::vector<trace::Rank>& blamed) {
    return vote && vote->contradicts(context, blamed);
  };
  if (overtaking && is_refuted(context.ranks(overtaking->deviants))) overtaking.reset();
  std::vector<const WaitPoint*> waits(points.size());
  std::transform(points.begin(), points.end(), waits.begin(),
                 [&](std::size_t p) { return &context.where.wait_points[p]; });
  const std::vector<std::uint32_t> odd = ranks_unlike_sisters(context, waits);
  Omission omission = find_omission(context, wait, points, overtaking);
  std::optional<Cause>& left_out = omission.cause;
  std::vector<Break>& breaks = omission.breaks;
  const bool most_broke = omission.most_broke;
  if (left_out && !most_broke && is_refuted(left_out->finding.culprits))
    left_out = explain_program_divergence(context, vote->divergence, vote->deviants);
  const WaitPoint* message = nullptr;
  if (!left_out && !overtaking && !most_broke && odd.size() == 1)
    message = message_of_sisters(context, points, odd[0]);
  // Where the rank blocks, the message may still come after the call in which it does.
  if (message != nullptr &&
      newest_call(context, odd[0]) != context.where.positions[odd[0]].waiting_in()) {
    left_out = left_out_message(context, *message, odd[0]);
  }
  // Sister groups are better witnesses than a rank's own past, unless it tells which of theirs.
  const auto is_among_odd = [&](std::uint32_t r) {
    return std::find(odd.begin(), odd.end(), r) != odd.end();
  };
  if (left_out && !odd.empty() && !overtaking && !left_out->finding.culprits.empty() &&
      !std::all_of(left_out->deviants.begin(), left_out->deviants.end(), is_among_odd)) {
    left_out.reset();
  }
  if (left_out) {
    left_out->finding.consequences.push_back(wait_consequence(context, wait));
    return std::move(*left_out);
  }
  // The break's text would blame the rank that the vote refutes.
  const bool refuted =
      !most_broke && breaks.size() == 1 && is_refuted(context.ranks({breaks[0].rank}));
  if (refuted) breaks.clear();
  const bool lacks_message =
      message != nullptr || lacks_one_side(context, points) ||
      (breaks.size() == 1 && breaks[0].kind == EditKind::missing &&
       trace::is_point_to_point(context.op({breaks[0].rank, breaks[0].usual})));
  Cause cause = cycle_cause(context, wait, points, breaks, overtaking, odd, lacks_message);
  // Who the cycle's own calls blame, or do not blame, is corrected by the votes.
  if (!most_broke &&
      ((refuted && cause.finding.culprits.empty()) || is_refuted(cause.finding.culprits))) {
    cause.finding.culprits = context.ranks(vote->deviants);
  } else if (omission.divergence && (most_broke || cause.finding.culprits.empty())) {
    cause.finding.culprits = context.ranks(
        ranks_that_diverge_alike(context.run, context.agreement, *omission.divergence));
  }
  add_wait_evidence(context, wait, cause.finding);
  return cause;
}

}  // namespace lockstep::verify
