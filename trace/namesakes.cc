#include "trace/namesakes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

using Lists = std::set<RankList>;

// Makes equal lists one object. O(members of distinct objects + memberships).
void share_lists(Run& run) {
  std::unordered_map<const void*, std::pair<RankList, RankList>> known;  // by identity: it, the one
  for (RankTrace& trace : run.ranks) {
    for (RankTrace::Membership& m : trace.groups) {
      const auto [found, is_new] = known.try_emplace(m.ranks.identity());
      if (is_new) found->second = {m.ranks, run.tables.rank_lists.share(m.ranks)};
      m.ranks = found->second.second;
    }
  }
}

// A name that stands for several lists.
struct Ambiguous {
  Lists lists;
  bool by_members_only = true;  // each list was given by its own members
};

// Nothing but these names is looked at again.
std::map<GroupId, Ambiguous> ambiguous_names(const Run& run) {
  std::map<GroupId, const RankList*> first;
  std::map<GroupId, Ambiguous> out;
  for (const RankTrace& trace : run.ranks) {
    for (const RankTrace::Membership& m : trace.groups) {
      const auto [known, is_new] = first.try_emplace(m.group, &m.ranks);
      if (is_new || *known->second == m.ranks) continue;
      out[m.group].lists.insert({*known->second, m.ranks});
    }
  }
  if (out.empty()) return out;
  for (const RankTrace& trace : run.ranks) {
    for (const RankTrace::Membership& m : trace.groups) {
      const auto found = out.find(m.group);
      if (found != out.end()) found->second.by_members_only &= m.ranks.contains(trace.rank);
    }
  }
  return out;
}

// By rank: the list that holds it. Nothing where lists overlap.
std::optional<std::map<Rank, const RankList*>> owners(const Lists& lists) {
  std::map<Rank, const RankList*> out;
  for (const RankList& list : lists) {
    for (const Rank r : list) {
      if (!out.emplace(r, &list).second) return std::nullopt;
    }
  }
  return out;
}

// Different lists of one name begin with different ranks.
std::string own_name(const std::string& name, const RankList& ranks) {
  constexpr std::size_t kShown = 4;
  std::string out = name + " [";
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(ranks[i].value);
  }
  return out + (ranks.size() > kShown ? ", …]" : "]");
}

void rename(RankTrace& trace, const std::map<GroupId, GroupId>& names) {
  const auto renamed = [&](GroupId group) {
    const auto found = names.find(group);
    return found == names.end() ? group : found->second;
  };
  for (RankTrace::Membership& m : trace.groups) m.group = renamed(m.group);
  for (RankTrace::Progress& p : trace.progress) p.group = renamed(p.group);
  for (Call& call : trace.calls) call.group = renamed(call.group);
  std::map<GroupId, std::uint64_t> first_seq;
  for (const auto& [group, seq] : trace.first_seq) first_seq.emplace(renamed(group), seq);
  trace.first_seq = std::move(first_seq);
}

}  // namespace

void separate_namesakes(Run& run) {
  share_lists(run);
  std::map<Rank, std::map<GroupId, GroupId>> names;
  for (const auto& [group, ambiguous] : ambiguous_names(run)) {
    const std::string name = run.tables.str(group);
    if (name == "world" || name == "0") continue;  // the group of all ranks, of which there is one
    if (!ambiguous.by_members_only) continue;
    const auto owner = owners(ambiguous.lists);
    if (!owner) continue;
    for (const auto& [rank, list] : *owner) {
      names[rank][group] = run.tables.groups.intern(own_name(name, *list));
    }
  }
  if (names.empty()) return;
  for (RankTrace& trace : run.ranks) {
    if (const auto found = names.find(trace.rank); found != names.end())
      rename(trace, found->second);
  }
}

}  // namespace lockstep
