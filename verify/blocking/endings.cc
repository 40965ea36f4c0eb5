#include "verify/blocking/endings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/core.h>

#include "base/text.h"
#include "verify/blocking/blocking.h"
#include "verify/context.h"
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
  constexpr std::size_t kWithTwoPartners = 3;
  if (common.size() != 1 || all.size() < kWithTwoPartners) return std::nullopt;
  return *common.begin();
}

}  // namespace

std::vector<Cause> check_point_to_point(const Context& context) {
  std::vector<Cause> out;
  const auto odd = on_one_side_of_all(context.where.size_mismatches);
  for (const auto& pair : context.where.size_mismatches) {
    if (out.size() == kMismatchesShown) break;
    out.push_back(explain_mismatch(context, pair));
    if (!odd) continue;
    out.back().finding.culprits = context.ranks({*odd});
    out.back().finding.why = fmt::format("{} is on one side of each message that does not fit.",
                                         context.describe_ranks({*odd}));
  }
  for (const auto& [rank, calls] : calls_left_open(context)) {
    out.push_back(explain_left_open(context, rank, calls));
  }
  return out;
}

namespace {

bool is_message(const WaitPoint& point) { return point.group == WaitPoint::kPointToPoint; }

// Whether the trace records when devices begin calls.
bool records_starts(const trace::RankTrace& trace) {
  return std::any_of(trace.calls.begin(), trace.calls.end(),
                     [](const trace::Call& c) { return c.has(trace::kStarted); });
}

bool has_begun(const Context& context, std::uint32_t rank) {
  return context.call(waiting_call(context, rank)).has(trace::kStarted);
}

// Members whose trace shows that they completed the call in which others wait.
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

// Whether the call is an all-to-all whose splits were not recorded. Splits that do not match make
// devices wait forever, even if the totals agree.
bool has_unknown_splits(const Context& context, CallRef ref) {
  const trace::Signature& s = context.run.tables.signatures[context.call(ref).signature];
  return (s.op == trace::Op::all_to_all || s.op == trace::Op::all_to_all_single) &&
         s.splits_in.value == 0;
}

}  // namespace

Begun begun(const Context& context, const WaitPoint& point) {
  std::size_t count = 0;
  for (const std::uint32_t r : point.waiting) {
    if (!records_starts(context.run.ranks[r])) return Begun::unknown;
    if (has_begun(context, r)) ++count;
  }
  if (count == point.waiting.size()) return Begun::all;
  return count == 0 ? Begun::none : Begun::some;
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

bool issued_alone(const Context& context) {
  return context.semantics == CallSemantics::nccl &&
         !records_completion(context.run, context.semantics);
}

namespace {

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

}  // namespace

std::string may_be_in_newest_call(const Context& context, const WaitCause& wait) {
  if (wait.cycle || wait.stalled != SIZE_MAX || !issued_alone(context)) return "";
  for (const std::uint32_t r : wait.roots) {
    const bool hung = context.where.positions[r].state == State::hung;
    if (!hung || !may_be_in_newest(context, r, wait.victims)) continue;
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

namespace {

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

namespace {

// Whether the text is what another rank's death or a timeout causes (Gloo, NCCL, c10d, TCPStore),
// so that the exception is a consequence.
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

std::optional<Cause> explain_deaths(const Context& context) {
  // The dead, and the ranks that suffered from it: by a secondary exception, or hung in a call.
  std::vector<std::uint32_t> dead;
  std::vector<std::uint32_t> hurt;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    const Position& p = context.where.positions[r];
    const auto& marks = context.run.ranks[r].exceptions;
    if (p.state == State::killed || p.state == State::cut) {
      dead.push_back(r);
    } else if ((p.state == State::raised && !marks.empty() && is_secondary(marks.back().what)) ||
               (p.state == State::hung && p.waiting_in() != kNoCall)) {
      hurt.push_back(r);
    }
  }
  // Ranks that wait for living ones hang by themselves, whichever rank died as well.
  std::erase_if(hurt, [&](std::uint32_t r) {
    const std::size_t at = context.where.point_of[r];
    if (context.where.positions[r].state != State::hung || at == SIZE_MAX) return false;
    const std::vector<std::uint32_t>& missing = context.where.wait_points[at].missing;
    return !missing.empty() && std::none_of(missing.begin(), missing.end(), [&](std::uint32_t m) {
      return std::find(dead.begin(), dead.end(), m) != dead.end();
    });
  });
  // A death from which nobody suffers explains nothing.
  if (dead.empty() || hurt.empty()) return std::nullopt;
  Cause cause;
  cause.finding = make_finding(RuleId::host_stall);
  Finding& f = cause.finding;
  const CallRef last{dead[0], context.where.positions[dead[0]].last_open};
  f.message = fmt::format("{} {}", context.describe_ranks(dead),
                          describe_state(context, dead[0], dead.size()));
  if (last.call != kNoCall) {
    const trace::Call& call = context.call(last);
    f.message += fmt::format(", inside {} ({})", context.describe_call(last),
                             context.describe_location(last, call.seq));
    f.group = printable(context.run.tables.str(call.group));
    f.seq = cause.seq = call.seq;
    if (call.step != trace::kNone) f.step = cause.step = call.step;
    f.what = context.run.tables.names(call.what);
  }
  f.message += fmt::format("; {} lost {} in the middle of a call", context.describe_ranks(hurt),
                           dead.size() == 1 ? "it" : "them");
  cause.deviants = dead;
  f.culprits = context.ranks(dead);
  std::vector<std::uint32_t> concerned = dead;
  concerned.insert(concerned.end(), hurt.begin(), hurt.end());
  f.ranks = context.ranks(concerned);
  for (const std::uint32_t r : dead) {
    if (f.evidence.size() < 4) {
      f.evidence.push_back(context.evidence({r, kNoCall}, last_seen(context, r)));
    }
  }
  set_fingerprint(f, "");
  return cause;
}

namespace {

// The steps in which ranks were.
struct Steps {
  std::int32_t earliest = trace::kNone;
  std::int32_t latest = trace::kNone;

  // " in step 7", " in steps 7 to 9"; empty where no step is known.
  std::string words() const {
    if (earliest == trace::kNone) return "";
    return earliest == latest ? fmt::format(" in step {}", latest)
                              : fmt::format(" in steps {} to {}", earliest, latest);
  }
};

Steps steps_of(const Context& context, const std::vector<std::uint32_t>& ranks) {
  Steps out;
  for (const std::uint32_t r : ranks) {
    const std::int32_t step = context.where.positions[r].step;
    if (step == trace::kNone) continue;
    out.earliest = out.earliest == trace::kNone ? step : std::min(out.earliest, step);
    out.latest = std::max(out.latest, step);
  }
  return out;
}

}  // namespace

std::optional<std::string> interruption(const Context& context) {
  std::vector<std::uint32_t> interrupted;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r)
    if (context.run.ranks[r].end == trace::End::interrupted) interrupted.push_back(r);
  if (interrupted.empty()) return std::nullopt;
  return fmt::format("the job was interrupted{}: what would have come later is not known",
                     steps_of(context, interrupted).words());
}

std::optional<Finding> note_killed(const Context& context) {
  constexpr std::size_t kShown = 4;
  std::vector<std::uint32_t> killed;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    const Position& p = context.where.positions[r];
    if (p.state == State::killed && context.run.ranks[r].end == trace::End::killed)
      killed.push_back(r);
  }
  if (killed.empty()) return std::nullopt;
  Finding f = make_finding(RuleId::rank_killed);
  const Steps steps = steps_of(context, killed);
  f.message = fmt::format("{} {} killed{}", context.describe_ranks(killed),
                          killed.size() == 1 ? "was" : "were", steps.words());
  if (steps.earliest != trace::kNone) f.step = steps.earliest;
  const std::string them = killed.size() == 1 ? "it" : "them";
  const bool waited_for = std::any_of(
      context.where.wait_points.begin(), context.where.wait_points.end(), [&](const WaitPoint& p) {
        return std::any_of(p.missing.begin(), p.missing.end(), [&](std::uint32_t r) {
          return std::binary_search(killed.begin(), killed.end(), r);
        });
      });
  f.message +=
      waited_for
          ? fmt::format("; the traces do not show what ended {}", them)
          : fmt::format("; nobody waits for {0}, and the traces do not show what ended {0}", them);
  f.ranks = context.ranks(killed);
  for (const std::uint32_t r : killed) {
    if (f.evidence.size() == kShown) break;
    f.evidence.push_back(context.evidence({r, kNoCall}, last_seen(context, r)));
  }
  set_fingerprint(f, "");
  return f;
}

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

namespace {

// DistributedDataParallel's message (torch/csrc/distributed/c10d/reducer.cpp).
bool mentions_unused_parameters(const std::string& text) {
  return text.find("Expected to have finished reduction in the prior iteration") !=
         std::string::npos;
}

std::size_t ranks_of_job(const Context& context) {
  return static_cast<std::size_t>(context.run.world_size);
}

// Whether DistributedDataParallel found models that differ. It raises on all ranks.
bool compares_models(const std::string& what) {
  return what.find("DDP expects same model across all ranks") != std::string::npos;
}

// The rank that most others call inconsistent, where DistributedDataParallel compared their models:
// "Rank 0 has 6 params, while rank 1 has inconsistent 4 params". Nothing: none, or no majority.
std::optional<std::uint32_t> inconsistent_by_most(const Context& context,
                                                  const std::vector<std::uint32_t>& ranks) {
  constexpr std::string_view kBefore = "params, while rank ";
  std::map<std::int32_t, std::size_t> votes;
  for (const std::uint32_t r : ranks) {
    const auto& marks = context.run.ranks[r].exceptions;
    const std::string what = marks.empty() ? "" : marks.back().what;
    if (!compares_models(what)) continue;
    const std::size_t at = what.find(kBefore);
    std::int32_t named = trace::kNone;
    if (at == std::string::npos) continue;
    std::from_chars(what.data() + at + kBefore.size(), what.data() + what.size(), named);
    ++votes[named];
  }
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r)
    if (2 * votes[context.run.ranks[r].rank.value] > ranks_of_job(context)) return r;
  return std::nullopt;
}

}  // namespace

RuleId rule_of_exception(const Context& context, std::uint32_t rank) {
  const auto& marks = context.run.ranks[rank].exceptions;
  const bool unused = !marks.empty() && mentions_unused_parameters(marks.back().what);
  return unused ? RuleId::unused_parameter : RuleId::rank_exception;
}

Cause explain_exceptions(const Context& context, const std::vector<std::uint32_t>& ranks) {
  Cause cause;
  cause.finding = make_finding(rule_of_exception(context, ranks[0]));
  Finding& f = cause.finding;
  f.message = fmt::format("{} {}", context.describe_ranks(ranks),
                          describe_state(context, ranks[0], ranks.size()));
  f.culprits = context.ranks(ranks);
  f.ranks = f.culprits;
  // Where all ranks raise, or will, none stands out by that.
  const auto& marks = context.run.ranks[ranks[0]].exceptions;
  const bool compared = !marks.empty() && compares_models(marks.back().what);
  if (compared || (f.rule == RuleId::rank_exception && ranks.size() > 1 &&
                   ranks.size() == ranks_of_job(context))) {
    const auto odd = inconsistent_by_most(context, ranks);
    f.culprits = odd ? context.ranks({*odd}) : std::vector<trace::Rank>{};
  }
  cause.deviants = ranks;
  const Position& position = context.where.positions[ranks[0]];
  if (position.step != trace::kNone) f.step = cause.step = position.step;
  for (const std::uint32_t r : ranks) {
    f.evidence.push_back(context.evidence({r, kNoCall}, last_seen(context, r)));
    if (f.evidence.size() >= 4) break;
  }
  set_fingerprint(f, "");
  return cause;
}

}  // namespace lockstep::verify
