#include "trace/namesakes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

using Lists = std::set<std::vector<Rank>>;

// The lists of each name, of the names that have several; nothing else is looked at again.
std::map<GroupId, Lists> ambiguous_names(const Run& run) {
  std::map<GroupId, const std::vector<Rank>*> first;
  std::map<GroupId, Lists> out;
  for (const RankTrace& trace : run.ranks) {
    for (const RankTrace::Membership& m : trace.groups) {
      const auto [known, is_new] = first.try_emplace(m.group, &m.ranks);
      if (is_new || *known->second == m.ranks) continue;
      out[m.group].insert({*known->second, m.ranks});
    }
  }
  return out;
}

// By rank: the list that holds it. Nothing where lists overlap.
std::optional<std::map<Rank, const std::vector<Rank>*>> owners(const Lists& lists) {
  std::map<Rank, const std::vector<Rank>*> out;
  for (const std::vector<Rank>& list : lists) {
    for (const Rank r : list) {
      if (!out.emplace(r, &list).second) return std::nullopt;
    }
  }
  return out;
}

bool given_by_members_only(const Run& run, GroupId group) {
  return std::all_of(run.ranks.begin(), run.ranks.end(), [&](const RankTrace& trace) {
    return std::all_of(trace.groups.begin(), trace.groups.end(), [&](const auto& m) {
      return m.group != group ||
             std::find(m.ranks.begin(), m.ranks.end(), trace.rank) != m.ranks.end();
    });
  });
}

// Different lists of one name begin with different ranks.
std::string own_name(const std::string& name, const std::vector<Rank>& ranks) {
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
  std::map<Rank, std::map<GroupId, GroupId>> names;
  for (const auto& [group, lists] : ambiguous_names(run)) {
    const auto owner = owners(lists);
    const std::string name = run.tables.str(group);
    if (name == "world" || name == "0") continue;  // the group of all ranks, of which there is one
    if (!owner || !given_by_members_only(run, group)) continue;
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
