// Messages whose sides do not fit: another size or type, or a side that nobody posted.
#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/context.h"
#include "verify/matching/matching.h"
#include "verify/replay/semantics.h"

namespace lockstep::verify {

namespace {

using State = Position::State;

constexpr std::size_t kMismatchesShown = 16;  // a loop repeats the same mismatch

// Explains matching calls with different sizes or types.
Cause explain_mismatch(const Context& context, const ReplayResult::PointToPointPair& pair) {
  const CallRef send{pair.sender, pair.send_call};
  const CallRef receive{pair.receiver, pair.recv_call};
  const trace::Signature& given = context.run.tables.signatures[context.call(send).signature];
  const trace::Signature& taken = context.run.tables.signatures[context.call(receive).signature];
  // In MPI, equal counts of different types are a mismatch of types rather than of sizes.
  const bool type_alone = context.semantics == CallSemantics::mpi && given.count == taken.count;
  Cause cause;
  cause.finding = make_finding(type_alone ? RuleId::dtype_mismatch : RuleId::p2p_size);
  Finding& f = cause.finding;
  f.message =
      fmt::format("{} issued {} to {}, which issued {}", context.describe_ranks({pair.sender}),
                  trace::describe(context.run.tables, context.call(send).signature),
                  context.describe_ranks({pair.receiver}),
                  trace::describe(context.run.tables, context.call(receive).signature));
  cause.deviants = {std::min(pair.sender, pair.receiver), std::max(pair.sender, pair.receiver)};
  f.ranks = context.ranks(cause.deviants);
  f.group = printable(context.run.tables.str(context.call(send).group));
  if (context.call(send).step != trace::kNone) f.step = cause.step = context.call(send).step;
  f.evidence = {context.evidence(send, "sends"), context.evidence(receive, "receives")};
  set_fingerprint(f, "send");
  return cause;
}

// By rank: its calls without a partner, where both ranks finished. A rank that did not finish might
// still have posted the other side.
std::map<std::uint32_t, std::vector<std::uint32_t>> calls_left_open(const Context& context) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> out;
  for (const auto& [rank, call] : context.where.unmatched) {
    const trace::RankTrace* peer = context.run.find(context.call({rank, call}).peer);
    if (peer == nullptr || context.where.positions[rank].state != State::finished) continue;
    const auto p = static_cast<std::uint32_t>(peer - context.run.ranks.data());
    if (context.where.positions[p].state == State::finished &&
        context.where.positions[rank].waiting_in() == kNoCall) {
      out[rank].push_back(call);
    }
  }
  return out;
}

Cause explain_left_open(const Context& context, std::uint32_t rank,
                        const std::vector<std::uint32_t>& calls) {
  const CallRef first{rank, calls[0]};
  Cause cause;
  cause.finding = make_finding(RuleId::p2p_unmatched);
  Finding& f = cause.finding;
  f.message =
      fmt::format("{} left {} without the other side; the first is {} with rank {} ({})",
                  context.describe_ranks({rank}), plural(calls.size(), "point-to-point call"),
                  context.describe_call(first), context.call(first).peer.value,
                  context.describe_location(first, context.call(first).seq));
  cause.deviants = {rank};
  f.ranks = context.ranks({rank});
  f.group = printable(context.run.tables.str(context.call(first).group));
  if (context.call(first).step != trace::kNone) f.step = cause.step = context.call(first).step;
  f.evidence = {context.evidence(first, "no other side")};
  set_fingerprint(f, "p2p");
  return cause;
}

// The one rank that is on a side of all these messages, if it has two partners or more: a batch of
// another size misfits on both sides of its rank. O(messages).
std::optional<std::uint32_t> on_one_side_of_all(
    const std::vector<ReplayResult::PointToPointPair>& pairs) {
  std::set<std::uint32_t> all, common;
  for (const auto& pair : pairs) {
    const std::set<std::uint32_t> both{pair.sender, pair.receiver};
    if (all.empty()) common = both;
    std::erase_if(common, [&](std::uint32_t r) { return !both.contains(r); });
    all.insert(both.begin(), both.end());
  }
  // Nothing shows which side of a single pair is wrong. The rank itself, and two partners:
  constexpr std::size_t kWithTwoPartners = 3;
  if (common.size() != 1 || all.size() < kWithTwoPartners) return std::nullopt;
  return *common.begin();
}

// Whether the message is as all earlier ones of its rank to this peer from the same line, of which
// there are two or more and which are all alike. Nothing where they differ, or are fewer: of texts
// of many lengths, one may have a new length. (is_usual() of streams/past.h asks what comes at this
// place, and would take the length that came there before for the right one.)
std::optional<bool> is_as_before(const Context& context, CallRef message) {
  constexpr std::size_t kMinBefore = 2;
  const trace::Call& own = context.call(message);
  const std::vector<trace::Call>& calls = context.run.ranks[message.rank].calls;
  std::optional<trace::SignatureId> usual;
  std::size_t before = 0;
  for (std::uint32_t c = 0; c < message.call; ++c) {
    const trace::Call& call = calls[c];
    if (call.group != own.group || call.peer != own.peer || call.ptag != own.ptag ||
        call.at != own.at || context.run.tables.op(call) != context.run.tables.op(own)) {
      continue;
    }
    if (usual && *usual != call.signature) return std::nullopt;
    usual = call.signature;
    ++before;
  }
  return before < kMinBefore ? std::nullopt : std::optional(*usual == own.signature);
}

// Whether the message is what comes next by its rank's earlier ones to this peer, in any lines,
// where these repeat: 4, 8, 4, 8 is followed by 4. Nothing where they do not repeat as a whole,
// twice at least. O(calls of the rank).
std::optional<bool> follows_its_rounds(const Context& context, CallRef message) {
  const trace::Call& own = context.call(message);
  const std::vector<trace::Call>& calls = context.run.ranks[message.rank].calls;
  std::vector<trace::SignatureId> before;
  for (std::uint32_t c = 0; c < message.call; ++c) {
    const trace::Call& call = calls[c];
    if (call.group == own.group && call.peer == own.peer && call.ptag == own.ptag &&
        context.run.tables.op(call) == context.run.tables.op(own))
      before.push_back(call.signature);
  }
  if (before.size() < 2) return std::nullopt;
  // The smallest period, by the longest proper prefix that is a suffix (Knuth, Morris and Pratt).
  std::vector<std::size_t> longest(before.size());
  for (std::size_t i = 1; i < before.size(); ++i) {
    std::size_t length = longest[i - 1];
    while (length > 0 && before[i] != before[length]) length = longest[length - 1];
    longest[i] = before[i] == before[length] ? length + 1 : 0;
  }
  const std::size_t period = before.size() - longest.back();
  if (before.size() < 2 * period) return std::nullopt;
  return before[before.size() - period] == own.signature;
}

// Names the side of a message that does not fit which broke with the order of its earlier rounds,
// where the other side did as always: in the first message between the two that does not fit, as
// the later ones follow from it.
bool name_who_broke_rounds(const Context& context, const ReplayResult::PointToPointPair& pair,
                           Finding& finding) {
  const ReplayResult::PointToPointPair* first = &pair;
  for (const auto& other : context.where.size_mismatches)
    if (other.sender == pair.sender && other.receiver == pair.receiver &&
        other.send_call < first->send_call)
      first = &other;
  const auto sender = follows_its_rounds(context, {first->sender, first->send_call});
  const auto receiver = follows_its_rounds(context, {first->receiver, first->recv_call});
  if (!sender || !receiver || *sender == *receiver) return false;
  const std::uint32_t broke = *sender ? pair.receiver : pair.sender;
  finding.culprits = context.ranks({broke});
  finding.why = fmt::format(
      "In all earlier rounds the two exchanged messages in one order, and only {} broke with it: "
      "it changed the order, or left out a message.",
      context.describe_ranks({broke}));
  finding.fix = fmt::format(
      "make {} {} in the order of its earlier rounds, and as often (also in batch_isend_irecv)",
      context.describe_ranks({broke}), *sender ? "receive" : "send");
  return true;
}

// Names the side of a message that does not fit whose size or type is new, where the other side did
// as always.
void name_who_changed(const Context& context, const ReplayResult::PointToPointPair& pair,
                      Finding& finding) {
  const auto sender = is_as_before(context, {pair.sender, pair.send_call});
  const auto receiver = is_as_before(context, {pair.receiver, pair.recv_call});
  if (!sender || !receiver || *sender == *receiver) return;
  const std::uint32_t changed = *sender ? pair.receiver : pair.sender;
  finding.culprits = context.ranks({changed});
  finding.why = fmt::format(
      "All earlier messages between the two had one size and type, and only "
      "{} changed it.",
      context.describe_ranks({changed}));
}

// Says where another message between the two ranks that does not fit would fit here, and this one
// there: sent in one order, received in another. O(messages that do not fit).
void tell_crossed(const Context& context, const ReplayResult::PointToPointPair& pair,
                  Finding& finding) {
  const auto fits = [&](std::uint32_t send, std::uint32_t receive) {
    return !message_differs(
        context.run.tables.signatures[context.call({pair.sender, send}).signature],
        context.run.tables.signatures[context.call({pair.receiver, receive}).signature]);
  };
  const auto& all = context.where.size_mismatches;
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& with) {
    return with.sender == pair.sender && with.receiver == pair.receiver &&
           with.send_call != pair.send_call && fits(with.send_call, pair.recv_call) &&
           fits(pair.send_call, with.recv_call);
  });
  if (other == all.end()) return;
  finding.why = fmt::format(
      "{} sends this and {} in one order, and {} receives them in the other. Messages between two "
      "ranks are paired by their order.",
      context.describe_ranks({pair.sender}),
      context.describe_call({other->sender, other->send_call}),
      context.describe_ranks({pair.receiver}));
  finding.fix = "receive in the order of the sends (also in batch_isend_irecv)";
}

constexpr std::size_t kNearMissesShown = 16;  // one mistake in a program shows on many ranks

std::string describe_tag(std::int32_t tag) {
  return tag == trace::kNoPeerTag ? "without a tag" : fmt::format("with tag {}", tag);
}

// By sender and receiver.
using FirstMessages = std::map<std::pair<trace::Rank, trace::Rank>, CallRef>;

// The first message that nobody received, of these senders. Looks at their messages alone: of a
// pipeline each replica may hang in a cycle of its own.
FirstMessages first_messages(const Context& context, const std::vector<std::uint32_t>& senders) {
  FirstMessages out;
  const auto& left = context.where.left_messages;
  for (const std::uint32_t sender : senders)
    for (auto it = std::lower_bound(left.begin(), left.end(), std::pair(sender, 0U));
         it != left.end() && it->first == sender; ++it)
      out.try_emplace({context.run.ranks[sender].rank, context.call({sender, it->second}).peer},
                      CallRef{sender, it->second});
  return out;
}

// Explains a receive and a message for it that differ in group or tag only.
Cause explain_near_miss(const Context& context, const CallRef& receive, const CallRef& send) {
  const trace::Call& waiting = context.call(receive);
  const trace::Call& message = context.call(send);
  const bool other_group = message.group != waiting.group;
  const auto as_seen_by = [&](const CallRef& side) {
    const trace::Call& call = context.call(side);
    return other_group ? fmt::format("in {}", context.describe_group(side.rank, call.group))
                       : describe_tag(call.ptag);
  };
  Cause cause;
  cause.finding = make_finding(RuleId::p2p_unmatched);
  Finding& f = cause.finding;
  // The finding concerns both ranks, but nothing shows which of them is wrong: no culprits.
  cause.deviants = {std::min(receive.rank, send.rank), std::max(receive.rank, send.rank)};
  if (receive.rank == send.rank) cause.deviants.pop_back();
  f.message = fmt::format(
      "{0} waits in {1} from rank {2} {3} ({4}); rank {2} sent its message {5} ({6})",
      context.describe_ranks({receive.rank}), context.describe_call(receive), waiting.peer.value,
      as_seen_by(receive), context.describe_location(receive, waiting.seq), as_seen_by(send),
      context.describe_location(send, message.seq));
  f.why = fmt::format("A message matches a receive of the same {} only.",
                      other_group ? "group" : "tag");
  f.fix = other_group ? "send and receive in the same group (communicator)"
                      : "give the send and its receive one tag";
  f.ranks = context.ranks(cause.deviants);
  f.group = printable(context.run.tables.str(waiting.group));
  f.seq = cause.seq = waiting.seq;
  if (waiting.step != trace::kNone) f.step = cause.step = waiting.step;
  f.evidence = {
      context.evidence(receive, fmt::format("waits for a message {}", describe_tag(waiting.ptag))),
      context.evidence(send, fmt::format("sent {}", describe_tag(message.ptag)))};
  set_fingerprint(f, other_group ? "group" : "tag");
  return cause;
}

}  // namespace

std::vector<Cause> check_point_to_point(const Context& context) {
  std::vector<Cause> out;
  const auto odd = on_one_side_of_all(context.where.size_mismatches);
  for (const auto& pair : context.where.size_mismatches) {
    if (out.size() == kMismatchesShown) break;
    out.push_back(explain_mismatch(context, pair));
    if (!odd) {
      Finding& finding = out.back().finding;
      name_who_changed(context, pair, finding);
      if (!finding.culprits.empty() || !name_who_broke_rounds(context, pair, finding))
        tell_crossed(context, pair, finding);
      continue;
    }
    out.back().finding.culprits = context.ranks({*odd});
    out.back().finding.why = fmt::format("{} is on one side of each message that does not fit.",
                                         context.describe_ranks({*odd}));
  }
  for (const auto& [rank, calls] : calls_left_open(context)) {
    out.push_back(explain_left_open(context, rank, calls));
  }
  return out;
}

std::vector<Cause> check_near_misses(const Context& context,
                                     const std::vector<std::uint32_t>* among) {
  std::vector<Cause> out;
  if (context.where.left_messages.empty()) return out;
  std::vector<std::uint32_t> ranks;
  if (among != nullptr) {
    ranks = *among;
  } else {
    ranks.resize(context.run.ranks.size());
    std::iota(ranks.begin(), ranks.end(), 0U);
  }
  const FirstMessages left = first_messages(context, ranks);
  for (const std::uint32_t r : ranks) {
    const CallRef receive{r, context.where.positions[r].waiting_in()};
    if (receive.call == kNoCall) continue;
    const trace::Call& waiting = context.call(receive);
    if (context.run.tables.op(waiting) != trace::Op::recv) continue;
    const auto found = left.find({waiting.peer, context.run.ranks[r].rank});
    if (found == left.end()) continue;
    out.push_back(explain_near_miss(context, receive, found->second));
    if (out.size() >= kNearMissesShown) break;
  }
  return out;
}

}  // namespace lockstep::verify
