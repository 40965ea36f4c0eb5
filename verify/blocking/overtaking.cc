#include "verify/blocking/overtaking.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/groups.h"
#include "verify/blocking/stopped.h"
#include "verify/blocking/unanswered.h"
#include "verify/context.h"
#include "verify/matching/matching.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

// Groups of one kind are sisters: the tensor-parallel groups of a mesh, or the groups of the ranks
// on each node.
struct GroupKind {
  std::size_t members = 0;
  std::string_view role;  // role_of()

  auto operator<=>(const GroupKind&) const = default;
};

// The kind of a group as the rank declared it; nothing where it did not.
std::optional<GroupKind> kind_of(const trace::Tables& tables, const trace::RankTrace& trace,
                                 trace::GroupId group) {
  const trace::RankTrace::Membership* const own = trace::membership(trace, group);
  return own == nullptr ? std::nullopt
                        : std::optional(GroupKind{own->ranks.size(), role_of(tables, *own)});
}

// A call of one or several sister groups in which all members but a few wait, while these few are
// in one other call: they may have overtaken it.
struct Candidate {
  trace::Call call;  // a waiting rank's
  GroupKind kind;
  std::vector<std::size_t> overtaken;
  std::size_t at = SIZE_MAX;
  RankIndices waiting, deviants;
};

// Whether it is known who is there and who is missing.
bool may_be_compared(const WaitPoint& point) {
  return point.group != WaitPoint::kPointToPoint && !point.mismatched && !point.unknown_member;
}

// The other collective in which all ranks that point p lacks wait; nothing where they are in
// several calls.
std::optional<std::size_t> where_the_lacked_are(const Context& context, std::size_t p) {
  const WaitPoint& point = context.where.wait_points[p];
  const std::vector<std::uint32_t> lacked = lacked_by(point);
  if (!may_be_compared(point) || lacked.empty()) return std::nullopt;
  const std::size_t at = context.where.point_of[lacked[0]];
  const bool together = std::all_of(lacked.begin(), lacked.end(), [&](std::uint32_t r) {
    return context.where.point_of[r] == at;
  });
  if (!together || at == SIZE_MAX) return std::nullopt;
  const WaitPoint& other = context.where.wait_points[at];
  if (!may_be_compared(other) || other.group == point.group) return std::nullopt;
  return at;
}

// Puts the wait points together that are the same call of sister groups, with the missing ranks in
// the same other call.
std::vector<Candidate> candidates_in(const Context& context,
                                     const std::vector<std::size_t>& points) {
  std::map<std::tuple<std::size_t, trace::SignatureId, trace::NameListId, GroupKind>, std::size_t>
      known;
  std::vector<Candidate> out;
  for (const std::size_t p : points) {
    const auto at = where_the_lacked_are(context, p);
    if (!at) continue;
    const WaitPoint& point = context.where.wait_points[p];
    const CallRef ref = waiting_call(context, point.waiting[0]);
    const trace::Call& call = context.call(ref);
    const auto kind = kind_of(context.run.tables, context.run.ranks[ref.rank], call.group);
    if (!kind) continue;
    const auto [entry, is_new] =
        known.try_emplace({*at, call.signature, call.what, *kind}, out.size());
    if (is_new) {
      if (out.size() == kMaxKinds) break;
      out.push_back({call, *kind, {}, *at, {}, {}});
    }
    Candidate& candidate = out[entry->second];
    candidate.overtaken.push_back(p);
    candidate.waiting = united(candidate.waiting, point.waiting);
    candidate.deviants = united(candidate.deviants, lacked_by(point));
  }
  return out;
}

// The number of calls of the kind that a rank issued in its current round, in the one before, and
// in the one before that.
struct LastRounds {
  // Nothing: the round's beginning was not recorded.
  std::optional<std::size_t> current, last, before_last;

  // Whether the current round has fewer than earlier ones, which had as many as each other. Texts
  // that are generated have lengths of their own.
  bool is_shorter() const {
    return last && *last > *current && (!before_last || *before_last == *last);
  }
};

// Decides whether a candidate's few ranks really overtook.
class Judge {
 public:
  Judge(const Context& context, const Candidate& candidate)
      : context_(context), candidate_(candidate) {}

  std::optional<Overtaking> judge() const {
    const RankIndices& there = context_.where.wait_points[candidate_.at].waiting;
    // If only the deviants are in the other call, the two sides took two groups in different
    // orders, and nothing shows which order is right.
    if (there.size() <= candidate_.deviants.size()) return std::nullopt;
    // The deviants: how many calls of the kind they have at most, and whether they all had more of
    // them in the round before.
    std::size_t most = 0;
    bool broke_habit = true;
    for (const std::uint32_t r : candidate_.deviants) {
      const trace::RankTrace& trace = context_.run.ranks[r];
      const LastRounds own = rounds_of(r);
      if (trace.damaged_count > 0 || trace.open_ended || !own.current) return std::nullopt;
      most = std::max(most, *own.current);
      broke_habit = broke_habit && own.is_shorter();
    }
    // The witnesses: sisters in the same call that have more calls of the kind.
    RankIndices in_order;
    std::size_t others = 0;  // sisters that did as the deviants did
    for (const std::uint32_t r : there) {
      if (std::binary_search(candidate_.deviants.begin(), candidate_.deviants.end(), r)) continue;
      if (!is_sister(r)) continue;
      const LastRounds own = rounds_of(r);
      if (own.current && *own.current > most)
        in_order.push_back(r);
      else
        ++others;
    }
    // Witnesses must outnumber those who did as the deviants. Without any sisters there, the
    // deviants must have broken with their own past. In any case the usual order must be the more
    // common one, or, on a tie, be the deviants' own former order.
    const std::size_t few = candidate_.deviants.size() + others;
    const std::size_t many = candidate_.waiting.size() + in_order.size();
    const bool shown = in_order.size() > others || (others == 0 && broke_habit);
    if (!shown || few > many || (few == many && !broke_habit)) return std::nullopt;
    return Overtaking{candidate_.overtaken, candidate_.at, candidate_.deviants, std::move(in_order),
                      left_out()};
  }

 private:
  // Whether the rank has a group of the kind, besides the one in whose call it is.
  bool is_sister(std::uint32_t rank) const {
    const trace::GroupId here =
        context_.groups[context_.where.wait_points[candidate_.at].group].group;
    const auto& groups = context_.run.ranks[rank].groups;
    return std::any_of(groups.begin(), groups.end(), [&](const trace::RankTrace::Membership& m) {
      return m.group != here &&
             GroupKind{m.ranks.size(), role_of(context_.run.tables, m)} == candidate_.kind;
    });
  }

  bool like(const trace::Call& a, const trace::Call& b) const {
    return a.what == b.what && context_.agreement.agree(a.signature, b.signature);
  }

  // Counts backwards from the rank's current call. A call like the current one begins a round.
  LastRounds rounds_of(std::uint32_t rank) const {
    const trace::RankTrace& trace = context_.run.ranks[rank];
    const std::uint32_t now = context_.where.positions[rank].waiting_in();
    LastRounds out;
    std::size_t count = 0;
    for (std::uint32_t c = now; c-- > 0;) {
      const trace::Call& call = trace.calls[c];
      if (call.group == trace.calls[now].group && like(call, trace.calls[now])) {
        if (out.last) {
          out.before_last = count;
          return out;
        }
        (out.current ? out.last : out.current) = count;
        count = 0;
      } else if (like(call, candidate_.call) &&
                 kind_of(context_.run.tables, trace, call.group) == candidate_.kind) {
        ++count;
      }
    }
    // At the start of the trace: a round begins here only if nothing was dropped before.
    if (is_known_from_its_start(trace))
      (out.last ? out.before_last : out.current ? out.last : out.current) = count;
    return out;
  }

  // The number of the rank's calls in the group.
  std::size_t calls_of(const GroupStreams& group, std::uint32_t rank) const {
    const Stream* const stream = stream_of(group, rank);
    return stream == nullptr ? 0 : stream->calls.size();
  }

  // Whether the deviants never issue the call. Where programs are known beyond the hang, a rank
  // that issues it later has as many calls of the group as its peers.
  bool left_out() const {
    for (const std::size_t p : candidate_.overtaken) {
      const WaitPoint& point = context_.where.wait_points[p];
      const GroupStreams& group = context_.groups[point.group];
      const std::size_t peers = calls_of(group, point.waiting[0]);
      if (point.missing.empty()) return false;  // the call is queued on their devices
      for (const std::uint32_t r : point.missing) {
        if (calls_of(group, r) >= peers) return false;
      }
    }
    return true;
  }

  const Context& context_;
  const Candidate& candidate_;
};

}  // namespace

std::optional<Overtaking> find_overtaking(const Context& context,
                                          const std::vector<std::size_t>& points) {
  for (const Candidate& candidate : candidates_in(context, points)) {
    if (auto found = Judge(context, candidate).judge()) return found;
  }
  return std::nullopt;
}

namespace {

// "; nor did rank 5 in group right", for the groups after the first.
std::string describe_other_groups(const Context& context, const std::vector<std::size_t>& points) {
  constexpr std::size_t kShown = 4;
  std::string out;
  for (std::size_t i = 1; i < points.size() && i < kShown; ++i) {
    const WaitPoint& point = context.where.wait_points[points[i]];
    out += fmt::format("{}{} in {}", i == 1 ? "; nor did " : ", ",
                       context.describe_ranks(point.missing),
                       context.describe_group(point.waiting[0], context.groups[point.group].group));
  }
  if (points.size() > kShown) {
    out += fmt::format(", and those of {}", plural(points.size() - kShown, "more group"));
  }
  return out;
}

std::string describe_order(const Context& context, const Overtaking& overtaking) {
  const std::string call = context.describe_call(waiting_call(context, overtaking.deviants[0]));
  const std::string who = context.describe_ranks(overtaking.deviants);
  const std::string without =
      fmt::format("{} now in that one without it", overtaking.deviants.size() == 1 ? "is" : "are");
  const std::string order =
      overtaking.witnesses.empty()
          ? fmt::format("{} made it before {} the last time, and {}", who, call, without)
          : fmt::format("{} made the same call in groups of the same kind before {}; {} {}",
                        context.describe_ranks(overtaking.witnesses), call, who, without);
  return fmt::format(
      "{}. If the call is issued there later, the order is wrong: it belongs before.", order);
}

}  // namespace

Cause explain_left_out(const Context& context, const Overtaking& overtaking) {
  const WaitPoint& first = context.where.wait_points[overtaking.overtaken[0]];
  Deviation d = missing_at(context, first, first.missing);
  d.got = waiting_call(context, first.missing[0]);
  Cause cause = explain_deviation(context, d);
  cause.deviants = overtaking.deviants;
  Finding& f = cause.finding;
  f.culprits = context.ranks(overtaking.deviants);
  if (f.rule == RuleId::missing_collective) {
    f.message += describe_other_groups(context, overtaking.overtaken);
    f.why = describe_order(context, overtaking);
  }
  return cause;
}

}  // namespace lockstep::verify
