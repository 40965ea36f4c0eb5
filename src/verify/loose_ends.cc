#include "verify/loose_ends.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"
#include "verify/wait_words.h"

namespace lockstep {

namespace {

using State = Position::State;

constexpr std::size_t kMismatchesTold = 16;

// A pair that met with different sizes or types.
Cause explain_mismatch(const Context& context, const ReplayResult::PointToPointPair& pair) {
  const CallRef send{pair.sender, pair.send_call};
  const CallRef receive{pair.receiver, pair.recv_call};
  const Signature& given = context.run.tables.signatures[context.call(send).signature];
  const Signature& taken = context.run.tables.signatures[context.call(receive).signature];
  // MPI knows the types of messages and calls this a mismatch of types.
  const bool type_alone = context.semantics == CallSemantics::mpi && given.count == taken.count;
  Cause cause;
  cause.finding = make_finding(type_alone ? RuleId::dtype_mismatch : RuleId::p2p_size);
  Finding& f = cause.finding;
  f.message = context.rank_words({pair.sender}) + " issued " +
              describe(context.run.tables, context.call(send).signature) + " to " +
              context.rank_words({pair.receiver}) + ", which issued " +
              describe(context.run.tables, context.call(receive).signature);
  cause.deviants = {std::min(pair.sender, pair.receiver), std::max(pair.sender, pair.receiver)};
  f.ranks = context.ranks(cause.deviants);
  f.group = printable(context.run.tables.str(context.call(send).group));
  if (context.call(send).step != kNone) f.step = cause.step = context.call(send).step;
  f.evidence = {context.evidence(send, "sends"), context.evidence(receive, "receives")};
  set_fingerprint(f, "send");
  return cause;
}

// By rank: its calls that never met their other side, where both ranks finished. Only what finished
// is over.
std::map<std::uint32_t, std::vector<std::uint32_t>> calls_left_open(const Context& context) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> out;
  for (const auto& [rank, call] : context.where.unmatched) {
    const RankTrace* peer = context.run.find(context.call({rank, call}).peer);
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
  f.message = context.rank_words({rank}) + " left " + plural(calls.size(), "point-to-point call") +
              " without the other side; the first is " + context.call_words(first) + " with rank " +
              std::to_string(context.call(first).peer.value) + " (" +
              context.place_words(first, context.call(first).seq) + ")";
  cause.deviants = {rank};
  f.ranks = context.ranks({rank});
  f.group = printable(context.run.tables.str(context.call(first).group));
  if (context.call(first).step != kNone) f.step = cause.step = context.call(first).step;
  f.evidence = {context.evidence(first, "no other side")};
  set_fingerprint(f, "p2p");
  return cause;
}

}  // namespace

std::vector<Cause> check_point_to_point(const Context& context) {
  std::vector<Cause> out;
  for (const auto& pair : context.where.size_mismatches) {
    if (out.size() == kMismatchesTold) break;
    out.push_back(explain_mismatch(context, pair));
  }
  for (const auto& [rank, calls] : calls_left_open(context)) {
    out.push_back(explain_left_open(context, rank, calls));
  }
  return out;
}

bool is_stalled(const Context& context, const WaitPoint& point) {
  if (!point.missing.empty() || point.unknown_member || point.mismatched) return false;
  return std::any_of(point.waiting.begin(), point.waiting.end(), [&](std::uint32_t r) {
    return context.where.positions[r].state == State::hung;
  });
}

Cause explain_stall(const Context& context, const WaitPoint& point) {
  Cause cause;
  cause.finding = make_finding(RuleId::device_stall);
  Finding& f = cause.finding;
  const CallRef call = waiting_call(context, point.waiting[0]);
  const std::string call_words = context.call_words(call);
  const bool message = point.group == WaitPoint::kPointToPoint;
  const bool all = !message && point.waiting.size() == context.groups[point.group].streams.size();
  if (all) {
    f.message = "all members issued " + call_words + ", and it completed on none of them";
  } else if (message) {
    f.message = context.rank_words(point.waiting) + " did not complete " + call_words +
                ", whose other side rank " + std::to_string(context.call(call).peer.value) +
                " did issue";
  } else {
    f.message = context.rank_words(point.waiting) + " did not complete " + call_words +
                ", which everybody issued and the others completed";
  }
  cause.deviants = point.waiting;
  if (!all && !message) f.culprits = context.ranks(point.waiting);
  f.ranks = context.ranks(point.waiting);
  place_at(context, point, cause);
  set_fingerprint(f, "");
  return cause;
}

std::vector<Cause> check_transport(const Context& context) {
  std::vector<Cause> out;
  for (const WaitPoint& point : context.where.wait_points) {
    if (is_stalled(context, point)) out.push_back(explain_stall(context, point));
  }
  return out;
}

namespace {

// What a peer's death, or a time-out, looks like from the other side (Gloo, NCCL, c10d, TCPStore).
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
  if (dead.empty() || hurt.empty()) return std::nullopt;
  Cause cause;
  cause.finding = make_finding(RuleId::host_stall);
  Finding& f = cause.finding;
  const CallRef last{dead[0], context.where.positions[dead[0]].last_open};
  f.message = context.rank_words(dead) + " " + state_words(context, dead[0]);
  if (last.call != kNoCall) {
    const Call& call = context.call(last);
    f.message +=
        ", inside " + context.call_words(last) + " (" + context.place_words(last, call.seq) + ")";
    f.group = printable(context.run.tables.str(call.group));
    f.seq = cause.seq = call.seq;
    if (call.step != kNone) f.step = cause.step = call.step;
    f.what = context.run.tables.names(call.what);
  }
  f.message += "; " + context.rank_words(hurt) + " lost " + (dead.size() == 1 ? "it" : "them") +
               " in the middle of a call";
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

std::optional<Finding> note_killed(const Context& context) {
  constexpr std::size_t kShown = 4;
  std::vector<std::uint32_t> killed;
  std::int32_t earliest = kNone;
  std::int32_t latest = kNone;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    const Position& p = context.where.positions[r];
    if (p.state != State::killed) continue;
    killed.push_back(r);
    if (p.step == kNone) continue;
    earliest = earliest == kNone ? p.step : std::min(earliest, p.step);
    latest = std::max(latest, p.step);
  }
  if (killed.empty()) return std::nullopt;
  Finding f = make_finding(RuleId::rank_killed);
  f.message = context.rank_words(killed) + (killed.size() == 1 ? " was killed" : " were killed");
  if (earliest != kNone) {
    f.message += earliest == latest
                     ? " in step " + std::to_string(latest)
                     : " in steps " + std::to_string(earliest) + " to " + std::to_string(latest);
    f.step = earliest;
  }
  const std::string them = killed.size() == 1 ? "it" : "them";
  f.message += "; nobody waits for " + them + ", and the traces do not tell what ended " + them;
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

// DistributedDataParallel's own words (torch/csrc/distributed/c10d/reducer.cpp).
bool tells_unused_parameters(const std::string& text) {
  return text.find("Expected to have finished reduction in the prior iteration") !=
         std::string::npos;
}

}  // namespace

Cause explain_exceptions(const Context& context, const std::vector<std::uint32_t>& ranks) {
  Cause cause;
  const auto& marks = context.run.ranks[ranks[0]].exceptions;
  const bool unused = !marks.empty() && tells_unused_parameters(marks.back().what);
  cause.finding = make_finding(unused ? RuleId::unused_parameter : RuleId::rank_exception);
  Finding& f = cause.finding;
  f.message = context.rank_words(ranks) + " " + state_words(context, ranks[0]);
  f.culprits = context.ranks(ranks);
  f.ranks = f.culprits;
  cause.deviants = ranks;
  const Position& position = context.where.positions[ranks[0]];
  if (position.step != kNone) f.step = cause.step = position.step;
  for (const std::uint32_t r : ranks) {
    f.evidence.push_back(context.evidence({r, kNoCall}, last_seen(context, r)));
    if (f.evidence.size() >= 4) break;
  }
  set_fingerprint(f, "");
  return cause;
}

}  // namespace lockstep
