#include "verify/unanswered.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "verify/habit.h"
#include "verify/snapshot.h"
#include "verify/wait_words.h"

namespace lockstep {

namespace {

// Who is at fault where a call lacks ranks that never issued it, and as many wait as are missing.
enum class Fault : std::uint8_t { missing, extra, unknown };

bool shares_a_batch(const RankTrace& trace, std::uint32_t call) {
  const auto same = [&](std::uint32_t other) {
    return other < trace.calls.size() &&
           trace.calls[other].coalesced == trace.calls[call].coalesced;
  };
  return trace.calls[call].coalesced != kNone && (same(call - 1) || same(call + 1));
}

// A rank that waits in a call that was usual there was left alone in it; one that waits where it
// used to make another call made one too many. Where its past does not say, a call that it made
// before is no new one; of one that it never made nobody knows.
Fault fault_at(const Context& context, CallRef waiting) {
  if (!knows_its_past(context, waiting.rank)) return Fault::unknown;
  const Usual usual = is_usual(context, waiting);
  if (usual == Usual::yes) return Fault::missing;
  const RankTrace& trace = context.run.ranks[waiting.rank];
  const bool made_before = std::any_of(
      trace.calls.begin(), trace.calls.begin() + waiting.call,
      [&](const Call& c) { return is_same_of_program(context, c, trace.calls[waiting.call]); });
  if (usual == Usual::no) return made_before ? Fault::unknown : Fault::extra;
  return made_before ? Fault::missing : Fault::unknown;
}

// The same for a message: the first one of its kind, in a program that made other calls before, is
// one too many.
Fault message_fault(const Context& context, CallRef waiting) {
  const RankTrace& trace = context.run.ranks[waiting.rank];
  if (!knows_its_past(context, waiting.rank)) return Fault::unknown;
  const Call& message = trace.calls[waiting.call];
  const bool made_before =
      std::any_of(trace.calls.begin(), trace.calls.begin() + waiting.call, [&](const Call& c) {
        return c.group == message.group && c.peer == message.peer &&
               context.run.tables.signatures[c.signature].op ==
                   context.run.tables.signatures[message.signature].op;
      });
  if (made_before) return Fault::missing;
  return waiting.call > 0 ? Fault::extra : Fault::unknown;
}

constexpr const char* kEitherWay =
    "The traces do not tell which: either it is missing on the one side, or it is one too many on "
    "the other.";

}  // namespace

bool went_on_without_the_few(const Context& context, const Deviation& d) {
  return d.deviants.size() > d.reference.size() &&
         context.modalities.lacking(d.deviants[0], d.reference[0], d.step).empty();
}

bool is_new_kind_of_message(const Context& context, CallRef message) {
  return message_fault(context, message) == Fault::extra;
}

Cause explain_message(const Context& context, const WaitPoint& message) {
  const CallRef call = waiting_call(context, message.waiting[0]);
  const bool in_exchange = shares_a_batch(context.run.ranks[call.rank], call.call);
  const Fault fault = in_exchange ? Fault::missing : message_fault(context, call);
  Cause cause;
  cause.finding = make_finding(RuleId::p2p_unmatched);
  Finding& f = cause.finding;
  f.message = waiting_for_words(context, message) +
              (fault == Fault::extra ? ", which never took part in such a message"
                                     : ", which never posted its side and went on");
  cause.deviants = fault == Fault::extra ? message.waiting : message.missing;
  if (fault == Fault::unknown) {
    f.why = kEitherWay;
  } else {
    f.culprits = context.ranks(cause.deviants);
  }
  place_at(context, message, cause);
  return cause;
}

std::optional<Cause> explain_lost_message(const Context& context,
                                          const std::vector<std::size_t>& points) {
  for (const std::size_t p : points) {
    const WaitPoint& message = context.where.wait_points[p];
    if (message.group != WaitPoint::kPointToPoint || message.missing.size() != 1) continue;
    const std::uint32_t peer = message.missing[0];
    if (context.where.point_of[peer] == SIZE_MAX) continue;
    const WaitPoint& collective = context.where.wait_points[context.where.point_of[peer]];
    if (collective.group == WaitPoint::kPointToPoint || collective.mismatched) continue;
    if (collective.missing != message.waiting) continue;
    const bool most =
        2 * collective.waiting.size() > context.groups[collective.group].streams.size();
    const CallRef call = waiting_call(context, message.waiting[0]);
    // Of whole programs the deviations say who; a dump shows no more of a rank than its last calls.
    const bool told = most && is_snapshot(context.run);
    if (!told && !is_new_kind_of_message(context, call)) continue;
    return explain_message(context, message);
  }
  return std::nullopt;
}

std::optional<Cause> explain_left_out_call(const Context& context,
                                           const std::vector<std::size_t>& points) {
  const WaitPoint* lacking = nullptr;
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.missing.empty()) continue;
    if (lacking != nullptr) return std::nullopt;
    lacking = &point;
  }
  if (lacking == nullptr || lacking->unknown_member || lacking->any_source) return std::nullopt;
  if (lacking->group == WaitPoint::kPointToPoint) return explain_message(context, *lacking);
  Deviation d;
  d.kind = Deviation::Kind::missing;
  d.group = lacking->group;
  d.seq = context.seq_of(*lacking);
  d.expected = waiting_call(context, lacking->waiting[0]);
  d.step = context.call(d.expected).step;
  d.reference = lacking->waiting;
  d.deviants = lacking->missing;
  d.got = {d.deviants[0], newest_call(context, d.deviants[0])};
  const bool tie = d.deviants.size() == d.reference.size();
  const bool modality = !context.modalities.lacking(d.deviants[0], d.reference[0], d.step).empty();
  const Fault fault = tie && !modality ? fault_at(context, d.expected) : Fault::missing;
  d.singled_out = fault != Fault::unknown;
  if (went_on_without_the_few(context, d) || fault == Fault::extra) {
    d.kind = Deviation::Kind::extra;
    std::swap(d.deviants, d.reference);
    std::swap(d.got, d.expected);
  }
  Cause cause = explain_deviation(context, d);
  if (fault == Fault::unknown) {
    cause.finding.why = kEitherWay;
  } else if (cause.finding.rule == RuleId::missing_collective) {
    cause.finding.why =
        "The other calls of the cycle were issued by all their members; they stand in queues "
        "behind "
        "this one.";
  }
  return cause;
}

}  // namespace lockstep
