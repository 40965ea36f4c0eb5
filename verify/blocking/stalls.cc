#include "verify/blocking/stalls.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/quantities.h"
#include "verify/advice.h"
#include "verify/blocking/device_stall.h"
#include "verify/blocking/messages.h"
#include "verify/replay/semantics.h"
#include "verify/replay/short_waits.h"

namespace lockstep::verify {

namespace {

using State = Position::State;

bool is_message(const WaitPoint& point) { return point.group == WaitPoint::kPointToPoint; }

// Whether the trace records when devices begin calls.
bool records_starts(const trace::RankTrace& trace) {
  return std::any_of(trace.calls.begin(), trace.calls.end(),
                     [](const trace::Call& c) { return c.has(trace::kStarted); });
}

bool has_begun(const Context& context, std::uint32_t rank) {
  return context.call(waiting_call(context, rank)).has(trace::kStarted);
}

// Whether only the counters of these ranks tell that they completed the call, so that it may have
// been another one there. (A rank whose call is smaller completes it with data of the others'.)
bool completed_by_count(const Context& context, const WaitPoint& point,
                        const std::vector<std::uint32_t>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [&](std::uint32_t r) {
    const Stream* const stream = stream_of(context.groups[point.group], r);
    return stream != nullptr && point.instance < stream->calls.size() &&
           context.call({r, stream->calls[point.instance]}).signature == trace::SignatureId{};
  });
}

// Whether the call is an all-to-all whose splits were not recorded. Splits that do not match make
// devices wait forever, even if the totals agree.
bool has_unknown_splits(const Context& context, CallRef ref) {
  const trace::Signature& s = context.run.tables.signatures[context.call(ref).signature];
  return (s.op == trace::Op::all_to_all || s.op == trace::Op::all_to_all_single) &&
         s.splits_in.value == 0;
}

// On which of the waiting ranks' devices the call began, by their start events.
enum class Begun : std::uint8_t { all, some, none, unknown };

Begun begun(const Context& context, const WaitPoint& point) {
  std::size_t count = 0;
  for (const std::uint32_t r : point.waiting) {
    if (!records_starts(context.run.ranks[r])) return Begun::unknown;
    if (has_begun(context, r)) ++count;
  }
  if (count == point.waiting.size()) return Begun::all;
  return count == 0 ? Begun::none : Begun::some;
}

// Whether no member of the rank's newest call went on to another one, and none of them is a victim:
// a member that waits in an older call is not in this one. A member without a trace is taken not to
// have gone on.
bool may_be_in_newest(const Context& context, std::uint32_t rank,
                      const std::vector<std::uint32_t>& victims) {
  const std::vector<trace::Call>& calls = context.run.ranks[rank].calls;
  if (calls.empty()) return false;
  const auto newest_is = [&](const Stream& s, std::size_t length) {
    return s.calls.size() == length && !s.calls.empty() &&
           s.calls.back() + 1 == context.run.ranks[s.rank_index].calls.size();
  };
  for (const GroupStreams& group : context.groups) {
    if (group.group != calls.back().group || group.members.size() < 2) continue;
    const Stream* const own = stream_of(group, rank);
    if (own == nullptr || !newest_is(*own, own->calls.size())) return false;
    return std::all_of(group.streams.begin(), group.streams.end(), [&](const Stream& s) {
      return newest_is(s, own->calls.size()) &&
             !std::binary_search(victims.begin(), victims.end(), s.rank_index);
    });
  }
  return false;
}

// Whether others wait for the rank in a message that it would have posted before its newest call.
bool lacks_past_message(const Context& context, const WaitCause& wait, std::uint32_t rank) {
  return std::any_of(wait.points.begin(), wait.points.end(), [&](std::size_t p) {
    const WaitPoint& point = context.where.wait_points[p];
    return is_message(point) && point.missing == std::vector{rank} &&
           went_past_message(context, point, rank);
  });
}

// The other side of the message in which ranks wait, where its rank never waited for it: Gloo drops
// a message with its Work. Nothing where it did, or may yet: it is not held up itself, or it waited
// for the messages before, so that it has only not come to this wait.
std::optional<CallRef> unwaited_side(const Context& context, const WaitPoint& point) {
  const CallRef own = waiting_call(context, point.waiting[0]);
  const trace::Call& message = context.call(own);
  const trace::RankTrace* const peer = context.run.find(message.peer);
  if (context.semantics != CallSemantics::gloo || peer == nullptr) return std::nullopt;
  const auto p = static_cast<std::uint32_t>(peer - context.run.ranks.data());
  const Position& there = context.where.positions[p];
  if (there.state != State::finished && there.waiting_in() == kNoCall) return std::nullopt;
  for (std::uint32_t c = 0; c < peer->calls.size(); ++c) {
    const trace::Call& side = peer->calls[c];
    if (!trace::is_point_to_point(context.op({p, c}))) continue;
    if (side.has(trace::kAsync) && side.has(trace::kWaitBegan)) return std::nullopt;
    const bool is_other = side.group == message.group &&
                          side.peer == context.run.ranks[own.rank].rank &&
                          context.op({p, c}) != context.op(own);
    if (is_other && side.has(trace::kAsync) && !side.has(trace::kWaitBegan) &&
        !side.has(trace::kCompleted) && c != there.waiting_in())
      return CallRef{p, c};
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::uint32_t> completed_by(const Context& context, const WaitPoint& point) {
  std::vector<std::uint32_t> out;
  if (is_message(point)) return out;
  for (const Stream& s : context.groups[point.group].streams) {
    if (point.instance >= s.calls.size()) continue;
    const CallRef call{s.rank_index, s.calls[point.instance]};
    if (is_over(context.call(call), context.semantics)) out.push_back(s.rank_index);
  }
  return out;
}

std::string may_be_running(const Context& context, const WaitPoint& point,
                           const std::vector<std::uint32_t>& victims) {
  const bool hung = std::any_of(point.waiting.begin(), point.waiting.end(), [&](std::uint32_t r) {
    return context.where.positions[r].state == State::hung;
  });
  const bool snapshot = std::any_of(point.waiting.begin(), point.waiting.end(),
                                    [&](std::uint32_t r) { return context.run.ranks[r].snapshot; });
  // A watchdog ended a rank in this call: it had waited long enough.
  if (hung && !snapshot) return "";
  const CallRef call = waiting_call(context, point.waiting[0]);
  if (context.hung && !has_unknown_splits(context, call)) return "";
  const std::string what = fmt::format(
      "{} had not completed {} ({})", context.describe_ranks(point.waiting),
      context.describe_call(call), context.describe_location(call, seq_at(context, point)));
  if (const auto others = completed_by(context, point); !others.empty()) {
    // Those who completed it wait in another group for those who did not: as where they wait in a
    // later call of this group (find_device_stall). A call that some member saw completed holds up
    // nobody: the dumps were taken at different moments.
    const bool held_up = std::any_of(others.begin(), others.end(), [&](std::uint32_t r) {
      const std::size_t waits = context.where.point_of[r];
      if (waits == SIZE_MAX || !std::binary_search(victims.begin(), victims.end(), r)) return false;
      const WaitPoint& there = context.where.wait_points[waits];
      return !is_message(there) && completed_by(context, there).empty();
    });
    if (snapshot && held_up &&
        !may_be_dumped_earlier(context, point.group, point.waiting, others, seq_at(context, point)))
      return "";
    return fmt::format(
        "{} when {} had: the traces do not show whether they stall or were only copied earlier",
        what, context.describe_ranks(others));
  }
  const Begun who = begun(context, point);
  // Splits that do not fit keep a call from ending. They do not keep a device from beginning it.
  if (has_unknown_splits(context, call) && !(snapshot && who == Begun::some)) {
    return fmt::format(
        "{}, which every member issued: its splits were not recorded, and may not fit together",
        what);
  }
  if (snapshot && is_message(point)) {
    // The two sides were read at different moments. Where a ring has lost messages of the channel,
    // the last one that the other rank completed may be this one's other side or the one before.
    const trace::RankTrace* const peer = context.run.find(context.call(call).peer);
    const bool lost =
        context.run.ranks[call.rank].dropped > 0 || (peer != nullptr && peer->dropped > 0);
    return lost ? fmt::format(
                      "{}: messages are lost, so that its other side may never have been "
                      "posted, or have ended just after this rank was read",
                      what)
                : fmt::format("{}, whose other side was posted", what);
  }
  if (snapshot && (who == Begun::all || who == Begun::some)) return "";
  return fmt::format("{}, which every member issued: {}", what,
                     who == Begun::none
                         ? "no device had begun it"
                         : "the traces do not show whether it runs, stalls, or has only just "
                           "been issued");
}

std::string may_be_late(const Context& context) {
  constexpr trace::Nanos kSecond = 1'000'000'000;
  const std::optional<ShortWaits> waits = context.hung ? std::nullopt : short_waits(context.run);
  if (!waits) return "";
  const auto text = [&](trace::Nanos time) {
    return duration_text(static_cast<double>(time) / static_cast<double>(kSecond));
  };
  return fmt::format(
      ": it may just be late; by the times of the files, no call had been open for more than {} "
      "when they were written{}; take the dumps again a minute later",
      text(std::max(waits->open, kSecond)),
      waits->completed > kSecond ? fmt::format(", and one before took {}", text(waits->completed))
                                 : "");
}

bool issued_alone(const Context& context) {
  return context.semantics == CallSemantics::nccl &&
         !records_completion(context.run, context.semantics);
}

std::string may_be_in_newest_call(const Context& context, const WaitCause& wait) {
  if (wait.cycle || wait.stalled != SIZE_MAX || !issued_alone(context)) return "";
  for (const std::uint32_t r : wait.roots) {
    const bool hung = context.where.positions[r].state == State::hung;
    if (!hung || !may_be_in_newest(context, r, wait.victims) ||
        lacks_past_message(context, wait, r))
      continue;
    const CallRef call{
        r, static_cast<std::uint32_t>(context.run.ranks[r].calls.size() - std::size_t{1})};
    return fmt::format(
        "{} issued no call after {} ({}), and neither did its other members: completions were not "
        "recorded, so it may be the call that hangs",
        context.describe_ranks({r}), context.describe_call(call),
        context.describe_location(call, context.call(call).seq));
  }
  return "";
}

Cause explain_stall(const Context& context, const WaitPoint& point) {
  Cause cause;
  cause.finding = make_finding(RuleId::device_stall);
  Finding& f = cause.finding;
  const CallRef call = waiting_call(context, point.waiting[0]);
  const std::string describe_call = context.describe_call(call);
  const Begun who = begun(context, point);
  const std::vector<std::uint32_t> others = completed_by(context, point);
  cause.deviants = point.waiting;
  if (who == Begun::some) {
    std::vector<std::uint32_t> begun_on;
    std::vector<std::uint32_t> not_begun_on;
    for (const std::uint32_t r : point.waiting) {
      (has_begun(context, r) ? begun_on : not_begun_on).push_back(r);
    }
    cause.deviants = not_begun_on;
    f.message = fmt::format("{} issued {}, and its device never began it; it runs on {}",
                            context.describe_ranks(not_begun_on), describe_call,
                            context.describe_ranks(begun_on));
    f.culprits = context.ranks(not_begun_on);
  } else if (!others.empty() && point.waiting.size() >= others.size() &&
             completed_by_count(context, point, others)) {
    f.message = fmt::format(
        "{} did not complete {}; by {} counters {} went past it: either the devices of the former "
        "stall, or {} called something else there",
        context.describe_ranks(point.waiting), describe_call, others.size() == 1 ? "its" : "their",
        context.describe_ranks(others), others.size() == 1 ? "it" : "they");
    f.why = "That most ranks' devices stall is no likelier than that the others' calls differ.";
    const std::string& backend = context.run.ranks[point.waiting[0]].backend;
    const std::string_view variables = recorder_variables(backend.empty() ? "nccl" : backend);
    f.fix = fmt::format("find out what {} called there: keep a {} in the next run{}",
                        context.describe_ranks(others),
                        variables.empty() ? "record of the calls" : "Flight Recorder",
                        variables.empty() ? "" : fmt::format(" ({})", variables));
  } else if (!others.empty()) {
    f.message = fmt::format("{} did not complete {}, which every member issued and {} completed",
                            context.describe_ranks(point.waiting), describe_call,
                            context.describe_ranks(others));
    f.culprits = context.ranks(point.waiting);
  } else if (const auto side = is_message(point) ? unwaited_side(context, point) : std::nullopt) {
    f = make_finding(RuleId::never_waited);
    f.severity = Severity::error;
    f.message = fmt::format(
        "{} issued {} ({}) and never waited for it, so that it may have been dropped; {}",
        context.describe_ranks({side->rank}), context.describe_call(*side),
        context.describe_location(*side, context.call(*side).seq), describe_wait(context, point));
    f.fix = "keep the Work of every isend and irecv, and wait for it";
    cause.deviants = {side->rank};
    f.culprits = context.ranks(cause.deviants);
    f.evidence.push_back(context.evidence(*side, "no wait for it"));
    f.ranks = context.ranks(united(cause.deviants, point.waiting));
    locate_cause(context, point, *side, context.call(*side).seq, cause);
    set_fingerprint(f, "");
    return cause;
  } else if (is_message(point)) {
    f.message = fmt::format("{} did not complete {}, whose other side rank {} did issue",
                            context.describe_ranks(point.waiting), describe_call,
                            context.call(call).peer.value);
  } else if (who == Begun::all) {
    f.message =
        fmt::format("{} runs on the devices of all its ranks and ends on none", describe_call);
  } else {
    f.message =
        fmt::format("all members issued {}, and it completed on none of them", describe_call);
  }
  if (context.semantics == CallSemantics::gloo) {
    f.fix = "check the network between the hosts of these ranks, and where their processes stand";
  }
  f.ranks = context.ranks(point.waiting);
  locate_cause(context, point, cause);
  set_fingerprint(f, "");
  return cause;
}

}  // namespace lockstep::verify
