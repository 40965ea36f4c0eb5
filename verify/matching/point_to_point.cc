#include <algorithm>
#include <map>

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

}  // namespace

std::vector<Cause> check_near_misses(const Context& context,
                                     const std::vector<std::uint32_t>* among) {
  std::vector<Cause> out;
  if (context.where.left_messages.empty()) return out;
  // The first message that nobody received, by sender and receiver.
  std::map<std::pair<trace::Rank, trace::Rank>, CallRef> left;
  for (const auto& [rank, call] : context.where.left_messages) {
    left.try_emplace({context.run.ranks[rank].rank, context.call({rank, call}).peer},
                     CallRef{rank, call});
  }
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    const CallRef receive{r, context.where.positions[r].waiting_in()};
    if (receive.call == kNoCall) continue;
    if (among != nullptr && !std::binary_search(among->begin(), among->end(), r)) continue;
    const trace::Call& waiting = context.call(receive);
    if (context.run.tables.signatures[waiting.signature].op != trace::Op::recv) continue;
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
