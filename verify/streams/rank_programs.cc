#include "verify/streams/rank_programs.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>

#include "trace/groups.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

constexpr std::uint32_t kNotKnown = OwnGroup::kNotKnown;
// In place of the stage of a rank in a ring, where all members do the same.
constexpr std::uint32_t kRing = kNotKnown - 1;

// Numbers for what groups are for.
class Roles {
 public:
  explicit Roles(const trace::Run& run) : run_(run), seen_(run.tables.groups.size()) {}

  // O(calls of the rank); nothing is allocated for each of them.
  OwnGroups groups_of(std::uint32_t rank) {
    const trace::RankTrace& trace = run_.ranks[rank];
    ++asked_;
    OwnGroups out;
    out.of_call.reserve(trace.calls.size());
    Alike alike;
    for (const trace::Call& call : trace.calls) {
      Seen& seen = seen_[call.group.value];
      if (seen.asked != asked_) {
        seen = {asked_, static_cast<std::uint32_t>(out.list.size())};
        out.list.push_back(describe(trace, call.group, alike));
      }
      out.of_call.push_back(seen.index);
    }
    return out;
  }

 private:
  using Alike = std::map<std::pair<std::uint32_t, std::string_view>, int>;

  OwnGroup describe(const trace::RankTrace& trace, trace::GroupId id, Alike& alike) {
    OwnGroup group;
    group.id = id;
    std::string_view purpose;
    if (const auto* const declared = trace::membership(trace, id)) {
      group.members = declared->ranks;
      group.index = group.index_of(trace.rank);
      purpose = role_of(run_.tables, *declared);
    }
    const int number = alike[{group.size(), purpose}]++;
    group.role = numbers_.try_emplace({group.size(), std::string(purpose), number}, numbers_.size())
                     .first->second;
    return group;
  }

  // The index of a group in the list of the rank that was asked for as number `asked`.
  struct Seen {
    std::uint32_t asked = 0;
    std::uint32_t index = 0;
  };

  const trace::Run& run_;
  std::vector<Seen> seen_;  // by group
  std::uint32_t asked_ = 0;
  std::map<std::tuple<std::uint32_t, std::string, int>, std::uint32_t> numbers_;
};

const OwnGroup& find_group(const std::vector<OwnGroup>& groups, trace::GroupId id) {
  return *std::find_if(groups.begin(), groups.end(), [&](const OwnGroup& g) { return g.id == id; });
}

}  // namespace

RankPrograms::RankPrograms(const trace::Run& run, Agreement& agreement)
    : run_(run), agreement_(agreement) {
  Roles roles(run);
  groups_.reserve(run.ranks.size());
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) groups_.push_back(roles.groups_of(r));
  message_.resize(run.tables.signatures.size());
  for (std::uint32_t s = 0; s < message_.size(); ++s)
    message_[s] = trace::is_point_to_point(run.tables.signatures[trace::SignatureId(s)].op);
  find_peers();
  find_rings();
}

RankPrograms::RankKind RankPrograms::kind_of(std::uint32_t r) const {
  RankKind out;
  for (const trace::RankTrace::Membership& m : run_.ranks[r].groups)
    if (m.ranks.contains(run_.ranks[r].rank)) out.first.push_back(m.ranks.size());
  std::sort(out.first.begin(), out.first.end());
  for (const OwnGroup& group : groups_[r].list)
    if (has_messages(group.id))
      out.second.emplace_back(group.role, is_ring(group.id) ? kRing : group.index);
  std::sort(out.second.begin(), out.second.end());
  return out;
}

// Looks up each message's peer in its group. A run without messages costs nothing here.
void RankPrograms::find_peers() {
  peers_.resize(run_.ranks.size());
  if (std::find(message_.begin(), message_.end(), true) == message_.end()) return;
  for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) {
    for (std::uint32_t c = 0; c < size(r); ++c) {
      const trace::Call& call = calls(r)[c];
      if (!is_message(call)) continue;
      if (peers_[r].empty()) peers_[r].resize(size(r), kNotKnown);
      peers_[r][c] = group_of(r, c).index_of(call.peer);
    }
  }
}

// How far the message's peer is in the order of the group.
std::uint32_t RankPrograms::distance(std::uint32_t r, std::uint32_t message) const {
  const OwnGroup& group = group_of(r, message);
  const std::uint32_t peer = peers_[r][message];
  if (peer == kNotKnown || group.index == kNotKnown) return kNotKnown;
  return (peer + group.size() - group.index) % group.size();
}

void RankPrograms::find_rings() {
  using Distances = std::set<std::pair<trace::Op, std::uint32_t>>;
  std::map<std::uint32_t, std::map<Distances, std::uint32_t>> by_group;
  // By group and distance: whether messages go up and down in the order of the group.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::set<bool>> directions;
  std::set<std::uint32_t> closed;  // groups with both, over one distance
  for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) {
    if (peers_[r].empty()) continue;
    std::vector<Distances> own(groups_[r].list.size());
    for (std::uint32_t c = 0; c < size(r); ++c) {
      const trace::Call& call = calls(r)[c];
      if (!is_message(call)) continue;
      own[groups_[r].of_call[c]].emplace(run_.tables.signatures[call.signature].op, distance(r, c));
      std::set<bool>& seen = directions[{call.group.value, distance(r, c)}];
      seen.insert(peers_[r][c] > group_of(r, c).index);
      if (seen.size() == 2) closed.insert(call.group.value);
    }
    for (std::size_t g = 0; g < own.size(); ++g) {
      if (own[g].empty()) continue;
      const OwnGroup& group = groups_[r].list[g];
      sizes_[group.id.value] = group.size();
      ++by_group[group.id.value][own[g]];
    }
  }
  for (const auto& [group, distances] : by_group) {
    std::uint32_t most = 0;
    for (const auto& [seen, ranks] : distances) most = std::max(most, ranks);
    if (sizes_[group] >= 3 && most + 1 >= sizes_[group] && closed.contains(group))
      rings_.insert(group);
  }
  find_pairs();
}

// Finds rings of two: the pairs of one purpose in which, with at most one exception, both
// members do the same until they have exchanged a few messages. The two stages of a pipeline do
// so only with one micro-batch per step, where one sends and receives, and the other receives and
// sends; then they count as ranks of one kind, too.
void RankPrograms::find_pairs() {
  constexpr std::uint32_t kFew = 4;
  std::map<std::uint32_t, std::vector<std::uint32_t>> members;  // ranks, by group
  std::map<std::uint32_t, std::vector<std::uint32_t>> pairs;    // groups, by role
  for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) {
    for (const OwnGroup& group : groups_[r].list) {
      if (group.size() != 2 || !has_messages(group.id)) continue;
      members[group.id.value].push_back(r);
      if (members[group.id.value].size() == 2) pairs[group.role].push_back(group.id.value);
    }
  }
  for (const auto& [role, groups] : pairs) {
    const auto exchange = [&](std::uint32_t group) {
      const std::uint32_t a = members[group][0], b = members[group][1];
      std::uint32_t messages = 0, until = 0;  // the first kFew messages of a, and where they end
      for (; until < size(a) && messages < kFew; ++until)
        if (calls(a)[until].group.value == group && is_message(calls(a)[until])) ++messages;
      return messages >= kFew && agree_until(a, b, 0, until) >= until;
    };
    std::size_t others = 0;
    for (std::size_t g = 0; g < groups.size() && others < 2; ++g)
      if (!exchange(groups[g])) ++others;
    if (others < 2 && others < groups.size()) rings_.insert(groups.begin(), groups.end());
  }
}

bool RankPrograms::same(std::uint32_t a, std::uint32_t i, std::uint32_t b, std::uint32_t j) {
  const trace::Call& x = calls(a)[i];
  const trace::Call& y = calls(b)[j];
  if (x.at != y.at && x.at.value != 0 && y.at.value != 0) return false;
  if (x.group == y.group && x.what != y.what && x.what.value != 0 && y.what.value != 0)
    return false;
  if (x.signature != y.signature &&
      !agree_across_groups(agreement_, run_.ranks[a], x, run_.ranks[b], y)) {
    return false;
  }
  if (x.group != y.group && group_of(a, i).role != group_of(b, j).role) return false;
  return !is_message(x) || peers_correspond(a, i, b, j);
}

// The peers are equally far away in their groups, or have the same group rank (a root does), or
// differ from the caller in the same bits (partners in a butterfly do).
bool RankPrograms::peers_correspond(std::uint32_t a, std::uint32_t i, std::uint32_t b,
                                    std::uint32_t j) const {
  const std::uint32_t own_a = group_of(a, i).index, own_b = group_of(b, j).index;
  const std::uint32_t peer_a = peers_[a][i], peer_b = peers_[b][j];
  for (const std::uint32_t index : {own_a, own_b, peer_a, peer_b})
    if (index == kNotKnown) return true;
  if (distance(a, i) == distance(b, j)) return true;
  if (is_ring(calls(a)[i].group) && is_ring(calls(b)[j].group)) return false;
  return peer_a == peer_b || (own_a ^ peer_a) == (own_b ^ peer_b);
}

std::uint32_t RankPrograms::agree_until(std::uint32_t a, std::uint32_t b, std::uint32_t from,
                                        std::uint32_t enough) {
  const auto end = std::min(size(a), size(b));
  std::uint32_t i = from;
  while (i < end && i < enough) {
    if (same(a, i, b, i)) {
      ++i;
    } else if (i + 1 < end && is_message(calls(a)[i]) && is_message(calls(b)[i]) &&
               same(a, i, b, i + 1) && same(a, i + 1, b, i)) {
      i += 2;
    } else if (i + 1 == end && posts_later(a, b, i)) {
      return end;
    } else {
      break;
    }
  }
  return i;
}

// Whether the last message of one of the two is the one that the other posts after this one.
bool RankPrograms::posts_later(std::uint32_t a, std::uint32_t b, std::uint32_t i) {
  if (!is_message(calls(a)[i]) || !is_message(calls(b)[i])) return false;
  return i + 1 < size(a) ? same(a, i + 1, b, i) : i + 1 < size(b) && same(a, i, b, i + 1);
}

std::optional<trace::GroupId> corresponding_group(const trace::Run& run, std::uint32_t rank,
                                                  std::uint32_t other, trace::GroupId of_other) {
  const trace::RankTrace::Membership* const shared = trace::membership(run.ranks[rank], of_other);
  if (shared != nullptr && shared->ranks.contains(run.ranks[rank].rank)) return of_other;
  Roles roles(run);
  const std::vector<OwnGroup> own = roles.groups_of(rank).list;
  const std::vector<OwnGroup> theirs = roles.groups_of(other).list;
  const auto role = find_group(theirs, of_other).role;
  const auto found =
      std::find_if(own.begin(), own.end(), [&](const OwnGroup& g) { return g.role == role; });
  return found == own.end() ? std::nullopt : std::optional(found->id);
}

std::optional<trace::Rank> corresponding_peer(const trace::Run& run, std::uint32_t rank,
                                              std::uint32_t other, const trace::Call& of_other) {
  const auto group = corresponding_group(run, rank, other, of_other.group);
  if (!group) return std::nullopt;
  const trace::RankTrace::Membership* const mine = trace::membership(run.ranks[rank], *group);
  const trace::RankTrace::Membership* const theirs =
      trace::membership(run.ranks[other], of_other.group);
  if (mine == nullptr || theirs == nullptr || mine->ranks.size() != theirs->ranks.size())
    return std::nullopt;
  const auto self = mine->ranks.index_of(run.ranks[rank].rank);
  const auto from = theirs->ranks.index_of(run.ranks[other].rank);
  const auto to = theirs->ranks.index_of(of_other.peer);
  if (!self || !from || !to) return std::nullopt;
  const std::size_t size = mine->ranks.size();
  return mine->ranks[(*self + *to + size - *from) % size];
}

}  // namespace lockstep::verify
