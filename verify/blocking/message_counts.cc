#include "verify/blocking/message_counts.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/blocking/witnesses.h"
#include "verify/matching/matching.h"
#include "verify/streams/past.h"

namespace lockstep::verify {

trace::Op other_side(trace::Op op) {
  return op == trace::Op::send ? trace::Op::recv : trace::Op::send;
}

PostedMessages exchanged_before(const Context& context, CallRef end, trace::GroupId group) {
  const std::vector<trace::Call>& calls = context.run.ranks[end.rank].calls;
  PostedMessages out;
  for (std::uint32_t c = end.call; c-- > 0;) {
    if (context.run.tables.is_message(calls[c])) {
      ++out[{calls[c].peer, context.run.tables.op(calls[c])}];
    } else if (calls[c].group == group) {
      break;
    }
  }
  return out;
}

bool is_whole(const PostedMessages& exchange) {
  const auto is_answered = [&](const PostedMessages::value_type& messages) {
    const auto& [peer, op] = messages.first;
    return exchange.contains({peer, other_side(op)});
  };
  return exchange.size() >= 2 &&
         std::all_of(exchange.begin(), exchange.end(),
                     [&](const PostedMessages::value_type& messages) {
                       return messages.second == exchange.begin()->second &&
                              is_answered(messages) == is_answered(*exchange.begin());
                     });
}

namespace {

// Whether with the message, what either rank exchanged since the group's last collective would be
// whole, and what the peer exchanged is not.
bool would_be_whole(const Context& context, const WaitPoint& message, CallRef of_peer,
                    trace::GroupId group) {
  const CallRef posted = waiting_call(context, message.waiting[0]);
  const trace::Op op = context.op(posted);
  PostedMessages own = exchanged_before(context, posted, group);
  PostedMessages of_other = exchanged_before(context, of_peer, group);
  if (is_whole(of_other)) return false;
  ++own[{context.run.ranks[of_peer.rank].rank, op}];
  ++of_other[{context.run.ranks[posted.rank].rank, other_side(op)}];
  return is_whole(own) && is_whole(of_other);
}

}  // namespace

const WaitPoint* collective_of_peer(const Context& context, const WaitPoint& message) {
  if (message.group != WaitPoint::kPointToPoint || message.missing.size() != 1) return nullptr;
  const std::size_t of_peer = context.where.point_of[message.missing[0]];
  if (of_peer == SIZE_MAX) return nullptr;
  const WaitPoint& point = context.where.wait_points[of_peer];
  const bool lacks_it_alone = point.missing == message.waiting;
  return point.group != WaitPoint::kPointToPoint && lacks_it_alone ? &point : nullptr;
}

std::optional<std::uint32_t> lacks_one_side(const Context& context,
                                            const std::vector<std::size_t>& points) {
  for (const std::size_t p : points) {
    const WaitPoint& message = context.where.wait_points[p];
    const WaitPoint* const collective = collective_of_peer(context, message);
    if (collective == nullptr) continue;
    const std::uint32_t peer = message.missing[0];
    const trace::GroupId group = context.groups[collective->group].group;
    if (would_be_whole(context, message, waiting_call(context, peer), group)) return peer;
  }
  return std::nullopt;
}

MessageCounts count_messages(const trace::Run& run) {
  MessageCounts out;
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
    for (const trace::Call& call : run.ranks[r].calls) {
      const trace::RankTrace* const peer = run.find(call.peer);
      if (!run.tables.is_message(call) || peer == nullptr) continue;
      const auto p = static_cast<std::uint32_t>(peer - run.ranks.data());
      if (run.tables.op(call) == trace::Op::send) {
        ++out.sent[{r, p}];
      } else {
        ++out.received[{p, r}];
      }
    }
  }
  return out;
}

std::optional<bool> is_one_message_more(const Context& context, const WaitPoint& point) {
  MessageCounts counts = count_messages(context.run);
  const CallRef waiting = waiting_call(context, point.waiting[0]);
  const bool sends = context.op(waiting) == trace::Op::send;
  const std::pair own =
      sends ? std::pair(waiting.rank, point.missing[0]) : std::pair(point.missing[0], waiting.rank);
  std::set<std::size_t> of_others;
  for (const auto* side : {&counts.sent, &counts.received})
    for (const auto& [pair, count] : *side)
      if (pair != own) of_others.insert(count);
  const std::size_t with_peer = (sends ? counts.sent : counts.received)[own];
  if (with_peer <= 1) return false;  // the only message that the two have is no further one
  if (of_others.size() != 1) return std::nullopt;
  return with_peer > *of_others.begin();
}

namespace {

// A rank of the cycle that waits in a message of this kind for `rank`; nothing: none does.
std::optional<std::uint32_t> waits_in(const Context& context,
                                      const std::vector<std::size_t>& points, trace::Op op,
                                      std::uint32_t rank) {
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group != WaitPoint::kPointToPoint) continue;
    const CallRef waiting = waiting_call(context, point.waiting[0]);
    if (context.op(waiting) == op && context.call(waiting).peer == context.run.ranks[rank].rank)
      return waiting.rank;
  }
  return std::nullopt;
}

// Whether the rank issued as many calls like this one between two collectives before, so that it
// expects no more messages than usual. O(calls of the rank).
bool had_as_many_before(const Context& context, CallRef waiting) {
  const std::vector<trace::Call>& calls = context.run.ranks[waiting.rank].calls;
  std::size_t now = 0;
  std::size_t most_before = 0;
  for (std::uint32_t c = 0; c <= waiting.call; ++c) {
    if (is_same_of_program(context.agreement, calls[c], calls[waiting.call])) {
      ++now;
    } else if (!trace::is_point_to_point(context.run.tables.op(calls[c]))) {
      most_before = std::max(most_before, std::exchange(now, 0));
    }
  }
  return now > 1 && most_before >= now;
}

// Whether another rank than `waiting` posted more messages to the rank than it received: then it
// has not taken all that came, and it is not the others that expect too many. O(channels).
bool left_messages_of_others(const MessageCounts& counts, std::uint32_t rank,
                             std::uint32_t waiting) {
  return std::any_of(counts.sent.begin(), counts.sent.end(), [&](const auto& channel) {
    const auto& [ends, sent] = channel;
    if (ends.second != rank || ends.first == waiting) return false;
    const auto received = counts.received.find(ends);
    return sent > (received == counts.received.end() ? 0 : received->second);
  });
}

}  // namespace

std::optional<std::uint32_t> left_out_between(const Context& context,
                                              const std::vector<std::size_t>& points) {
  std::optional<std::uint32_t> out;
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group == WaitPoint::kPointToPoint || point.waiting.size() != 1) continue;
    const std::uint32_t rank = point.waiting[0];
    const auto sends = waits_in(context, points, trace::Op::send, rank);
    const auto receives = waits_in(context, points, trace::Op::recv, rank);
    if (!sends || !receives || *sends == *receives) continue;
    if (out) return std::nullopt;
    out = rank;
  }
  return out;
}

std::vector<std::uint32_t> expect_more_than_comes(const Context& context,
                                                  const std::vector<std::size_t>& points) {
  std::vector<std::uint32_t> out;
  std::optional<MessageCounts> counts;  // for the first message that may be one too many
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    const CallRef waiting = waiting_call(context, point.waiting[0]);
    if (point.group != WaitPoint::kPointToPoint || point.missing.empty() ||
        context.op(waiting) != trace::Op::recv ||
        waits_in(context, points, trace::Op::send, point.missing[0])) {
      continue;
    }
    if (had_as_many_before(context, waiting)) continue;
    if (!counts) counts = count_messages(context.run);
    if (left_messages_of_others(*counts, point.missing[0], waiting.rank)) continue;
    std::size_t came_in = 0;
    std::size_t passed_on = 0;
    std::size_t came_back = 0;
    for (const trace::Call& call : context.run.ranks[point.missing[0]].calls) {
      const trace::Op op = context.run.tables.op(call);
      const bool is_with_waiting = call.peer == context.run.ranks[waiting.rank].rank;
      came_in += op == trace::Op::recv && !is_with_waiting ? 1U : 0U;
      passed_on += op == trace::Op::send && is_with_waiting ? 1U : 0U;
      came_back += op == trace::Op::recv && is_with_waiting ? 1U : 0U;
    }
    // The receive in which it waits itself is among those that came back.
    if (came_in == passed_on && passed_on > came_back) out.push_back(waiting.rank);
  }
  return out.size() == points.size() ? std::vector<std::uint32_t>{} : out;
}

namespace {

// A collective that the rank issued within a round of its partner, or left out between two of them.
std::optional<Cause> explain_uneven_collective(const Context& context,
                                               const UnevenExchange& uneven) {
  const trace::Call& end = context.call(uneven.end);
  const auto group =
      std::find_if(context.groups.begin(), context.groups.end(),
                   [&](const GroupStreams& g) { return g.group == end.group && g.comparable; });
  if (group == context.groups.end() || end.seq < group->first_seq) return std::nullopt;
  Deviation d;
  d.kind = uneven.kind == UnevenExchange::Kind::extra_collective ? Deviation::Kind::extra
                                                                 : Deviation::Kind::missing;
  d.group = static_cast<std::size_t>(group - context.groups.begin());
  d.seq = end.seq;
  d.got = uneven.end;
  d.expected = uneven.end_of_partner;
  d.step = context.call(d.kind == Deviation::Kind::extra ? d.got : d.expected).step;
  for (const Stream& s : group->streams)
    (s.rank_index == uneven.odd ? d.deviants : d.reference).push_back(s.rank_index);
  if (d.deviants.empty() || d.reference.empty()) return std::nullopt;
  return explain_deviation(context, d);
}

}  // namespace

Cause explain_uneven_exchange(const Context& context, const UnevenExchange& uneven) {
  if (uneven.kind != UnevenExchange::Kind::messages)
    if (auto collective = explain_uneven_collective(context, uneven)) return std::move(*collective);
  const trace::Call& shown = context.call(uneven.shown);
  const CallRef end = uneven.end.call != kNoCall ? uneven.end : uneven.end_of_partner;
  const bool has_ended = end.call != kNoCall;
  const std::string odd = context.describe_ranks({uneven.odd});
  const std::string partner = context.describe_ranks({uneven.partner});
  const bool left_out = uneven.posted < uneven.expected;
  const std::string own = uneven.odd_sends ? "send" : "receive";
  const std::string other = uneven.odd_sends ? "receive" : "send";
  const std::uint32_t difference =
      std::max(uneven.posted, uneven.expected) - std::min(uneven.posted, uneven.expected);
  Cause cause;
  cause.finding = make_finding(RuleId::p2p_unmatched);
  Finding& f = cause.finding;
  f.message = fmt::format("{0} posted {1} {2} {3} {4} than {4} posted {5}s ({6})", odd,
                          plural(difference, own), left_out ? "fewer" : "more",
                          uneven.odd_sends ? "to" : "from", partner, other,
                          context.describe_location(uneven.shown, shown.seq));
  if (has_ended)
    f.message += fmt::format(", before {}", context.describe_numbered(end, context.call(end).seq));
  f.why = fmt::format("{} posted {} and {} {}. ",
                      has_ended ? fmt::format("Since the collective before it, {}", odd) : odd,
                      plural(uneven.posted, own), partner, plural(uneven.expected, other));
  switch (uneven.reason) {
    case UnevenExchange::Reason::all_pairs:
      f.why += fmt::format("{} does not fit its other peers either.", odd);
      break;
    case UnevenExchange::Reason::proportion:
      f.why += fmt::format(
          "In no other round are the messages of a rank in the proportion in which "
          "{} posted them, and those of {} are.",
          odd, partner);
      break;
    case UnevenExchange::Reason::answers:
      f.why += fmt::format(
          "All other pairs posted as many messages one way as the other, and so did {}; {} did "
          "not.",
          partner, odd);
      break;
    case UnevenExchange::Reason::others:
      f.why += fmt::format("More ranks agree with {} than with {}.", partner, odd);
      break;
    case UnevenExchange::Reason::newest:
      f.why += fmt::format(
          "Its peers posted what fits their other peers; had {} stopped, it would lack messages "
          "there, too.",
          partner);
      break;
  }
  cause.deviants = {uneven.odd};
  f.culprits = context.ranks(cause.deviants);
  f.group = printable(context.run.tables.str(shown.group));
  f.seq = cause.seq = shown.seq;
  if (shown.step != trace::kNone) f.step = cause.step = shown.step;
  f.evidence = {context.evidence(uneven.shown,
                                 left_out ? "has no other side in its round" : "is one too many")};
  if (has_ended) f.evidence.push_back(context.evidence(end, "ends the round"));
  set_fingerprint(f, trace::describe(context.run.tables, shown.signature));
  return cause;
}

}  // namespace lockstep::verify
