#include "verify/blocking/sisters.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "verify/replay/semantics.h"

namespace lockstep {

namespace {

constexpr std::size_t kSistersAsked = 8;

const RankTrace::Membership* membership(const RankTrace& trace, GroupId group) {
  const auto found = std::find_if(trace.groups.begin(), trace.groups.end(),
                                  [&](const RankTrace::Membership& m) { return m.group == group; });
  return found == trace.groups.end() ? nullptr : &*found;
}

// The index of a rank in a group; the number of its ranks where it is no member.
std::ptrdiff_t place_in(const RankTrace::Membership& group, Rank rank) {
  return std::find(group.ranks.begin(), group.ranks.end(), rank) - group.ranks.begin();
}

// A message as its sisters make it: peers by their index in the group.
struct SisterMessage {
  Op op = Op::other;
  std::ptrdiff_t peer = 0;
  SignatureId signature;
};

std::vector<SisterMessage> messages_in(const Context& context, std::uint32_t rank,
                                       const RankTrace::Membership& group) {
  std::vector<SisterMessage> out;
  for (const Call& call : context.run.ranks[rank].calls) {
    const Op op = context.run.tables.signatures[call.signature].op;
    if (call.group == group.group && is_point_to_point(op))
      out.push_back({op, place_in(group, call.peer), call.signature});
  }
  return out;
}

// Whether two sequences of messages are alike as far as both go; nothing where one is empty.
std::optional<bool> are_alike(const Context& context, const std::vector<SisterMessage>& a,
                              const std::vector<SisterMessage>& b) {
  if (a.empty() || b.empty()) return std::nullopt;
  const std::size_t both = std::min(a.size(), b.size());
  return std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(both), b.begin(),
                    [&](const SisterMessage& x, const SisterMessage& y) {
                      return x.op == y.op && x.peer == y.peer &&
                             context.agreement.agree(x.signature, y.signature);
                    });
}

// Whether most sisters of a rank in a group made the same messages as it did.
std::optional<bool> does_as_sisters(const Context& context, std::uint32_t rank, GroupId group) {
  const RankTrace& trace = context.run.ranks[rank];
  const RankTrace::Membership* mine = membership(trace, group);
  if (mine == nullptr) return std::nullopt;
  const std::ptrdiff_t place = place_in(*mine, trace.rank);
  const std::vector<SisterMessage> own = messages_in(context, rank, *mine);
  std::size_t alike = 0;
  std::size_t others = 0;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    if (alike + others == kSistersAsked) break;
    for (const RankTrace::Membership& theirs : context.run.ranks[r].groups) {
      if (r == rank || theirs.group == group || theirs.ranks.size() != mine->ranks.size() ||
          place_in(theirs, context.run.ranks[r].rank) != place) {
        continue;
      }
      const auto same = are_alike(context, own, messages_in(context, r, theirs));
      if (same) ++(*same ? alike : others);
    }
  }
  if (alike == others) return std::nullopt;
  return alike > others;
}

}  // namespace

bool is_made_in_sister_groups(const Context& context, CallRef call) {
  const Call& mine = context.call(call);
  const RankTrace::Membership* group = membership(context.run.ranks[call.rank], mine.group);
  if (group == nullptr) return false;
  return std::any_of(
      context.run.ranks.begin(), context.run.ranks.end(), [&](const RankTrace& trace) {
        return std::any_of(trace.calls.begin(), trace.calls.end(), [&](const Call& c) {
          if (c.group == mine.group || c.what != mine.what ||
              !context.agreement.agree(c.signature, mine.signature)) {
            return false;
          }
          const RankTrace::Membership* theirs = membership(trace, c.group);
          return theirs != nullptr && theirs->ranks.size() == group->ranks.size();
        });
      });
}

std::vector<std::uint32_t> part_from_sisters(const Context& context,
                                             const std::vector<std::size_t>& points) {
  std::vector<std::pair<std::uint32_t, GroupId>> concerned;
  for (const std::size_t p : points) {
    const WaitPoint& point = context.where.wait_points[p];
    if (point.group != WaitPoint::kPointToPoint) continue;
    const std::uint32_t waiting = point.waiting[0];
    const GroupId group =
        context.call({waiting, context.where.positions[waiting].waiting_in()}).group;
    for (const std::uint32_t r : point.waiting) concerned.emplace_back(r, group);
    for (const std::uint32_t r : point.missing) concerned.emplace_back(r, group);
  }
  std::sort(concerned.begin(), concerned.end());
  concerned.erase(std::unique(concerned.begin(), concerned.end()), concerned.end());
  std::vector<std::uint32_t> parted;
  for (const auto& [rank, group] : concerned) {
    const std::optional<bool> same = does_as_sisters(context, rank, group);
    if (!same) return {};
    if (!*same) parted.push_back(rank);
  }
  if (parted.size() == concerned.size()) return {};
  parted.erase(std::unique(parted.begin(), parted.end()), parted.end());
  return parted;
}

}  // namespace lockstep
