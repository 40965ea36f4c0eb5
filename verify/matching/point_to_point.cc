#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/text.h"
#include "verify/context.h"
#include "verify/matching/matching.h"

namespace lockstep::verify {

namespace {

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

}  // namespace

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
    const CallRef send = found->second;
    const trace::Call& message = context.call(send);
    const bool other_group = message.group != waiting.group;
    Cause cause;
    cause.finding = make_finding(RuleId::p2p_unmatched);
    Finding& f = cause.finding;
    // The finding concerns both ranks, but nothing shows which of them is wrong: no culprits.
    cause.deviants = {std::min(r, send.rank), std::max(r, send.rank)};
    if (r == send.rank) cause.deviants.pop_back();
    const std::string expected =
        other_group ? fmt::format("in {}", context.describe_group(r, waiting.group))
                    : describe_tag(waiting.ptag);
    const std::string sent =
        other_group ? fmt::format("in {}", context.describe_group(send.rank, message.group))
                    : describe_tag(message.ptag);
    f.message =
        fmt::format("{0} waits in {1} from rank {2} {3} ({4}); rank {2} sent its message {5} ({6})",
                    context.describe_ranks({r}), context.describe_call(receive), waiting.peer.value,
                    expected, context.describe_location(receive, waiting.seq), sent,
                    context.describe_location(send, message.seq));
    f.why = fmt::format("A message matches a receive of the same {} only.",
                        other_group ? "group" : "tag");
    f.fix = other_group ? "send and receive in the same group (communicator)"
                        : "give the send and its receive one tag";
    f.ranks = context.ranks(cause.deviants);
    f.group = printable(context.run.tables.str(waiting.group));
    f.seq = cause.seq = waiting.seq;
    if (waiting.step != trace::kNone) f.step = cause.step = waiting.step;
    f.evidence = {context.evidence(
                      receive, fmt::format("waits for a message {}", describe_tag(waiting.ptag))),
                  context.evidence(send, fmt::format("sent {}", describe_tag(message.ptag)))};
    set_fingerprint(f, other_group ? "group" : "tag");
    out.push_back(std::move(cause));
    if (out.size() >= kNearMissesShown) break;
  }
  return out;
}

}  // namespace lockstep::verify
