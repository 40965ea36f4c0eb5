#include <map>

#include "base/text.h"
#include "verify/context.h"
#include "verify/matching/matching.h"

namespace lockstep::verify {

namespace {

std::string tag_words(std::int32_t tag) {
  return tag == trace::kNoPeerTag ? "without a tag" : "with tag " + std::to_string(tag);
}

}  // namespace

std::vector<Cause> check_near_misses(const Context& context) {
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
    // Both ranks concern the finding, but nothing tells which of them is wrong: no culprits.
    cause.deviants = {std::min(r, send.rank), std::max(r, send.rank)};
    if (r == send.rank) cause.deviants.pop_back();
    f.message = context.rank_words({r}) + " waits in " + context.call_words(receive) +
                " from rank " + std::to_string(waiting.peer.value) + " " +
                (other_group ? "in group " + printable(context.run.tables.str(waiting.group))
                             : tag_words(waiting.ptag)) +
                " (" + context.place_words(receive, waiting.seq) + "); rank " +
                std::to_string(waiting.peer.value) + " sent its message " +
                (other_group ? "in group " + printable(context.run.tables.str(message.group))
                             : tag_words(message.ptag)) +
                " (" + context.place_words(send, message.seq) + ")";
    f.why = std::string("A message meets a receive of the same ") +
            (other_group ? "group" : "tag") + " only.";
    f.fix = other_group ? "send and receive in the same group (communicator)"
                        : "give the send and its receive one tag";
    f.ranks = context.ranks(cause.deviants);
    f.group = printable(context.run.tables.str(waiting.group));
    f.seq = cause.seq = waiting.seq;
    if (waiting.step != trace::kNone) f.step = cause.step = waiting.step;
    f.evidence = {context.evidence(receive, "waits for a message " + tag_words(waiting.ptag)),
                  context.evidence(send, "sent " + tag_words(message.ptag))};
    set_fingerprint(f, other_group ? "group" : "tag");
    out.push_back(std::move(cause));
    if (out.size() >= 16) break;
  }
  return out;
}

}  // namespace lockstep::verify
