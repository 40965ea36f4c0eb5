#include "verify/blocking/messages.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "verify/blocking/message_counts.h"
#include "verify/blocking/stopped.h"
#include "verify/blocking/unanswered.h"
#include "verify/matching/matching.h"
#include "verify/streams/past.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

// Whether the call's batch has further calls.
bool shares_a_batch(const trace::RankTrace& trace, std::uint32_t call) {
  const auto same = [&](std::uint32_t other) {
    return other < trace.calls.size() &&
           trace.calls[other].coalesced == trace.calls[call].coalesced;
  };
  return trace.calls[call].coalesced != trace::kNone && (same(call - 1) || same(call + 1));
}

// Whether the rank posted any message in the group.
bool posted_messages(const Context& context, std::uint32_t rank, trace::GroupId group) {
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  return std::any_of(calls.begin(), calls.end(), [&](const trace::Call& c) {
    return c.group == group && context.run.tables.is_message(c);
  });
}

// Judges a message: the first one of its kind is one too many where the rank's past predicts
// another call.
Fault message_fault(const Context& context, const WaitPoint& point) {
  const CallRef waiting = waiting_call(context, point.waiting[0]);
  const trace::RankTrace& trace = context.run.ranks[waiting.rank];
  if (!knows_its_past(context, waiting.rank)) return Fault::unknown;
  const trace::Call& message = trace.calls[waiting.call];
  const bool made_before = std::any_of(
      trace.calls.begin(), trace.calls.begin() + waiting.call, [&](const trace::Call& c) {
        return c.group == message.group && c.peer == message.peer &&
               context.run.tables.op(c) == context.run.tables.op(message);
      });
  // Sister pipelines are the best witnesses: they show which of the two sides is unusual.
  const std::vector<std::uint32_t> odd = ranks_unlike_sisters(context, {&point});
  if (!odd.empty() && odd == point.missing) return Fault::missing;
  // A rank that broke with its past may have left out a message itself, if its peer did what it
  // always does.
  if (made_before) {
    const std::vector<Break> breaks =
        breaks_with_the_past(context, united(point.waiting, point.missing));
    if (breaks.size() == 1 && breaks[0].rank == waiting.rank) return Fault::unknown;
  }
  if (made_before) return Fault::missing;
  if (waiting.call == 0) return Fault::unknown;
  if (is_usual(context.run, context.agreement, waiting) == Usual::no) return Fault::extra;
  // In a program's first round every message is the first of its kind, which says nothing. Sister
  // groups that make such messages, or a peer that takes part in the exchange, speak against a
  // fault of this rank.
  if (is_made_in_sister_groups(context, waiting)) return Fault::missing;
  const bool in_exchange = std::any_of(
      point.missing.begin(), point.missing.end(),
      [&](std::uint32_t peer) { return posted_messages(context, peer, message.group); });
  return in_exchange ? Fault::unknown : Fault::extra;
}

Cause message_cause(const Context& context, const WaitPoint& message, Fault fault) {
  Cause cause;
  cause.finding = make_finding(RuleId::p2p_unmatched);
  Finding& f = cause.finding;
  f.message = describe_awaited(context, message) +
              (fault == Fault::extra     ? ", which never took part in such a message"
               : fault == Fault::missing ? ", which never posted its side and continued"
                                         : ", which has not posted its side");
  cause.deviants = fault == Fault::extra ? message.waiting : message.missing;
  if (fault == Fault::unknown) {
    f.why = kEitherWay;
  } else {
    f.culprits = context.ranks(cause.deviants);
  }
  locate_cause(context, message, cause);
  return cause;
}

// Who left out what belongs between two rounds of messages.
struct BetweenRounds {
  const WaitPoint* collective = nullptr;  // that the waiting rank left out; null: it did not
  bool either = false;                    // it may have, or its peer left out a round
};

// Whether the rank's rounds make the message there. In a first round the past is a part of that
// round, and what comes later may contradict it: then it is not known.
Usual is_message_usual(const Context& context, CallRef made) {
  const Usual usual = is_usual(context.run, context.agreement, made);
  const bool contradicted =
      usual == Usual::yes && is_usual_anywhere(context.run, context.agreement, made) == Usual::no;
  return contradicted ? Usual::unknown : usual;
}

// Whether the waiting rank left out a collective before the message: its newest rounds make it
// there, or it alone is unlike its sisters, or, in a first round, both ranks have exchanged what
// belongs before it; and most of the group wait in it, the peer among them; of a pair, the peer,
// whose rounds make it there, too.
//
//   rank 0, 1   … recv send reduce   recv send reduce
//   rank 2      … recv send reduce   recv send            recv      waits for rank 1
//
// Where the rank issued as many collectives as its peer, after the message, its first round may
// have two exchanges before the collective, of which the peer left one out:
//
//   rank 0      send recv reduce
//   rank 1      recv send            recv send reduce               waits for rank 0
BetweenRounds look_between_rounds(const Context& context, const WaitPoint& message) {
  const CallRef made = waiting_call(context, message.waiting[0]);
  const bool is_unlike_sisters = ranks_unlike_sisters(context, {&message}) == message.waiting;
  const Usual is_made_there = is_message_usual(context, made);
  const auto usual = usual_call(context.run, context.agreement, made);
  const bool past_is_against =
      is_made_there == Usual::yes || (is_made_there == Usual::no && !usual);
  if (past_is_against && !is_unlike_sisters) return {};
  const auto lacks = [&](const std::vector<std::uint32_t>& ranks) {
    return std::binary_search(ranks.begin(), ranks.end(), made.rank);
  };
  const auto issued_as_many = [&](std::size_t group, std::uint32_t peer) {
    const Stream* const own = stream_of(context.groups[group], made.rank);
    const Stream* const theirs = stream_of(context.groups[group], peer);
    return own != nullptr && theirs != nullptr && own->calls.size() >= theirs->calls.size();
  };
  BetweenRounds out;
  for (const std::uint32_t peer : message.missing) {
    if (context.where.point_of[peer] == SIZE_MAX) continue;
    const WaitPoint& point = context.where.wait_points[context.where.point_of[peer]];
    if (point.group == WaitPoint::kPointToPoint || point.mismatched) continue;
    if (!lacks(point.missing) && !lacks(point.behind)) continue;
    const CallRef waiting = waiting_call(context, point.waiting[0]);
    const trace::GroupId group = context.groups[point.group].group;
    const CallRef of_peer = waiting_call(context, peer);
    const PostedMessages exchanged = exchanged_before(context, made, group);
    const auto belongs_there = [&] {
      if (is_unlike_sisters) return true;
      if (is_made_there == Usual::no)
        return is_like(context, context.call({made.rank, *usual}), context.call(waiting));
      return is_whole(exchanged) && is_whole(exchanged_before(context, of_peer, group));
    };
    if (!belongs_there()) continue;
    if (!lacks(point.missing) && issued_as_many(point.group, peer)) {
      // A message of another kind begins no round.
      out.either |= is_made_there == Usual::unknown &&
                    exchanged.contains({context.run.ranks[peer].rank, context.op(made)});
      continue;
    }
    const std::size_t all = context.groups[point.group].streams.size();
    const bool most = 2 * point.waiting.size() > all ||
                      (2 * point.waiting.size() == all &&
                       is_usual(context.run, context.agreement, waiting) == Usual::yes);
    if (most) return {&point, false};
  }
  return out;
}

Cause explain_left_out_collective(const Context& context, const WaitPoint& message,
                                  const WaitPoint& collective) {
  const CallRef made = waiting_call(context, message.waiting[0]);
  Deviation d = missing_at(context, collective, {made.rank});
  d.got = made;
  return explain_deviation(context, d);
}

}  // namespace

namespace {

// Whether, of the rounds that the rank completed, one has a message like `side` less than each of
// the others. A round ends with a call like the rank's newest one.
//
//   send send reduce | send reduce | send send reduce      the second round lacks one
bool is_one_less_in_a_round(const Context& context, std::uint32_t rank, const trace::Call& side) {
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  std::vector<std::size_t> messages(1, 0);  // by round
  bool any = false;                         // calls in the last of these
  for (const trace::Call& call : calls) {
    if (!is_same_of_program(context.agreement, call, calls.back())) {
      any = true;
      if (is_same_of_program(context.agreement, call, side)) ++messages.back();
    } else if (std::exchange(any, false)) {
      messages.push_back(0);
    }
  }
  messages.pop_back();
  if (messages.size() < 2) return false;
  std::sort(messages.begin(), messages.end());
  return messages[0] + 1 == messages[1] && messages[1] == messages.back();
}

// The newest call by which the rank exchanged such messages with this peer; kNoCall: none.
std::uint32_t newest_side(const Context& context, std::uint32_t rank, trace::Op op,
                          trace::GroupId group, trace::Rank peer) {
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  for (std::size_t c = calls.size(); c-- > 0;) {
    if (calls[c].group == group && calls[c].peer == peer && context.run.tables.op(calls[c]) == op)
      return static_cast<std::uint32_t>(c);
  }
  return kNoCall;
}

}  // namespace

bool went_past_message(const Context& context, const WaitPoint& message, std::uint32_t rank) {
  const CallRef posted = waiting_call(context, message.waiting[0]);
  const trace::Call& call = context.call(posted);
  const std::uint32_t newest = newest_side(context, rank, other_side(context.op(posted)),
                                           call.group, context.run.ranks[posted.rank].rank);
  if (newest != kNoCall) {
    const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
    const auto left_out = left_out_by_its_past(context, rank, calls[newest]);
    return (left_out && *left_out < calls.size()) ||
           is_one_less_in_a_round(context, rank, calls[newest]);
  }
  if (!is_new_kind_of_message(context, message)) return false;
  return std::any_of(context.groups.begin(), context.groups.end(), [&](const GroupStreams& group) {
    const Stream* const waits = stream_of(group, posted.rank);
    const Stream* const lacks = stream_of(group, rank);
    if (waits == nullptr || lacks == nullptr || !group.comparable) return false;
    const auto after = std::upper_bound(waits->calls.begin(), waits->calls.end(), posted.call);
    return after != waits->calls.end() &&
           lacks->calls.size() > static_cast<std::size_t>(after - waits->calls.begin());
  });
}

bool is_new_kind_of_message(const Context& context, const WaitPoint& message) {
  return message_fault(context, message) == Fault::extra;
}

Cause explain_message(const Context& context, const WaitPoint& message) {
  const BetweenRounds between = look_between_rounds(context, message);
  if (between.collective != nullptr)
    return explain_left_out_collective(context, message, *between.collective);
  if (between.either) return explain_message_of_either(context, message);
  const CallRef call = waiting_call(context, message.waiting[0]);
  const bool in_exchange = shares_a_batch(context.run.ranks[call.rank], call.call);
  return message_cause(context, message,
                       in_exchange ? Fault::missing : message_fault(context, message));
}

Cause explain_message_of_either(const Context& context, const WaitPoint& message) {
  return message_cause(context, message, Fault::unknown);
}

Cause left_out_message(const Context& context, const WaitPoint& message, std::uint32_t rank) {
  Cause cause = message_cause(context, message, Fault::missing);
  if (!std::binary_search(message.behind.begin(), message.behind.end(), rank)) return cause;
  cause.finding.message =
      fmt::format("{}; {} left out its side and posted those of later rounds",
                  describe_awaited(context, message), context.describe_ranks({rank}));
  cause.deviants = {rank};
  cause.finding.culprits = context.ranks(cause.deviants);
  return cause;
}

const WaitPoint* awaited_since_earlier_step(const Context& context, const WaitPoint& message) {
  const CallRef later = waiting_call(context, message.waiting[0]);
  // How many messages from one rank to another a side posted up to a step.
  const auto posted = [&](std::uint32_t rank, std::uint32_t peer, trace::Op op, std::int32_t step) {
    const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
    return std::count_if(calls.begin(), calls.end(), [&](const trace::Call& c) {
      return c.peer == context.run.ranks[peer].rank && context.run.tables.op(c) == op &&
             c.step <= step;
    });
  };
  for (const std::uint32_t peer : message.missing) {
    if (context.where.point_of[peer] == SIZE_MAX) continue;
    const WaitPoint& point = context.where.wait_points[context.where.point_of[peer]];
    if (point.group != WaitPoint::kPointToPoint || point.mismatched) continue;
    const CallRef earlier = waiting_call(context, peer);
    const std::int32_t step = context.call(earlier).step;
    if (step == trace::kNone || step >= context.call(later).step ||
        context.call(earlier).peer != context.run.ranks[later.rank].rank ||
        !is_known_from_its_start(context.run.ranks[peer]) ||
        !is_known_from_its_start(context.run.ranks[later.rank])) {
      continue;
    }
    const trace::Op op = context.op(earlier);
    if (posted(later.rank, peer, other_side(op), step) < posted(peer, later.rank, op, step))
      return &point;
  }
  return nullptr;
}

const WaitPoint* crossed_message(const Context& context, const WaitPoint& message) {
  const std::uint32_t waiting = message.waiting[0];
  for (const std::uint32_t peer : message.missing) {
    const std::size_t at = context.where.point_of[peer];
    if (at == SIZE_MAX) continue;
    const WaitPoint& point = context.where.wait_points[at];
    if (point.group == WaitPoint::kPointToPoint && !point.mismatched &&
        newest_call(context, peer) == context.where.positions[peer].waiting_in() &&
        std::binary_search(point.behind.begin(), point.behind.end(), waiting)) {
      return &point;
    }
  }
  return nullptr;
}

std::optional<Cause> explain_lost_message(const Context& context,
                                          const std::vector<std::size_t>& points) {
  for (const std::size_t p : points) {
    const WaitPoint& message = context.where.wait_points[p];
    const WaitPoint* const collective = collective_of_peer(context, message);
    if (collective == nullptr || collective->mismatched) continue;
    const WaitPoint* const left_out = look_between_rounds(context, message).collective;
    if (left_out != nullptr) return explain_left_out_collective(context, message, *left_out);
    const bool most =
        2 * collective->waiting.size() > context.groups[collective->group].streams.size();
    // In a dump, which has only a rank's last calls, the majority in the collective decides. For
    // whole programs the comparison of streams is better evidence.
    const bool by_majority = most && is_snapshot(context.run);
    if (!by_majority && !is_new_kind_of_message(context, message)) continue;
    return explain_message(context, message);
  }
  return std::nullopt;
}

const WaitPoint* message_of_sisters(const Context& context, const std::vector<std::size_t>& points,
                                    std::uint32_t odd) {
  const std::uint32_t waits = context.where.positions[odd].waiting_in();
  // In a message, it may just be the one that comes out of order.
  if (waits == kNoCall || trace::is_point_to_point(context.op({odd, waits}))) return nullptr;
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group != WaitPoint::kPointToPoint || point.mismatched) continue;
    const std::vector<std::uint32_t> lacked = lacked_by(point);
    if (!std::binary_search(lacked.begin(), lacked.end(), odd)) continue;
    const CallRef waiting = waiting_call(context, point.waiting[0]);
    const trace::Op op = other_side(context.op(waiting));
    if (leaves_out_message(context, odd, context.call(waiting).group, waiting.rank, op))
      return &point;
  }
  return nullptr;
}

}  // namespace lockstep::verify
