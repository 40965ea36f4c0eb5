#include "sim/engine/program.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace lockstep::sim {
namespace {

// A value that the source did not record (0 or kNone) agrees with everything.
template <class Id>
bool agree_id(Id a, Id b) {
  return a == b || a.value == 0 || b.value == 0;
}
template <class Number>
bool agree_number(Number a, Number b) {
  return a == b || a == trace::kNone || b == trace::kNone;
}

}  // namespace

bool agree(const ProgramCall& a, const ProgramCall& b) {
  return a.op == b.op && agree_id(a.other_op, b.other_op) && agree_id(a.redop, b.redop) &&
         agree_id(a.dtypes, b.dtypes) && agree_number(a.elements, b.elements) &&
         agree_number(a.root, b.root);
}

namespace {

using Colors = std::vector<std::uint32_t>;

// Gives equal keys equal numbers, counted from 0 in the order in which keys first appear.
class Numbering {
 public:
  std::uint32_t of(Colors key) {
    return numbers_.try_emplace(std::move(key), static_cast<std::uint32_t>(numbers_.size()))
        .first->second;
  }
  std::size_t size() const { return numbers_.size(); }

 private:
  std::map<Colors, std::uint32_t> numbers_;
};

// For each group, the (rank, slot) pairs that refer to it.
struct MemberSlot {
  std::uint32_t rank, slot;
};
std::vector<std::vector<MemberSlot>> member_slots(const ProgramJob& job) {
  std::vector<std::vector<MemberSlot>> members(job.groups.size());
  for (std::uint32_t r = 0; r < job.ranks.size(); ++r)
    for (std::uint32_t s = 0; s < job.ranks[r].groups.size(); ++s)
      members[job.ranks[r].groups[s]].push_back({r, s});
  return members;
}

// The (class, slot) of each member of a group, sorted but not yet unique: two groups whose lists
// are equal have equivalent members in the same slots.
std::vector<std::pair<std::uint32_t, std::uint32_t>> color_members(
    const std::vector<MemberSlot>& members, const Colors& colors) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> who;
  who.reserve(members.size());
  for (const MemberSlot& member : members) who.emplace_back(colors[member.rank], member.slot);
  std::sort(who.begin(), who.end());
  return who;
}

// Appends a pair of numbers for each item, in an order that does not depend on that of the items.
template <class Item, class PairOf>
void add_sorted(Colors& key, const std::vector<Item>& items, const PairOf& pair_of) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  pairs.reserve(items.size());
  for (const Item& item : items) pairs.push_back(pair_of(item));
  std::sort(pairs.begin(), pairs.end());
  // How many there are, so that what follows is not taken for what precedes.
  key.push_back(static_cast<std::uint32_t>(pairs.size()));
  for (const auto& [first, second] : pairs) {
    key.push_back(first);
    key.push_back(second);
  }
}

// Who loads each link: the group, and the label of the load.
struct LinkUser {
  std::uint32_t group, label;
};
std::vector<std::vector<LinkUser>> link_users(const GroupLinks& links) {
  std::vector<std::vector<LinkUser>> out(links.kinds.size());
  for (std::uint32_t g = 0; g < links.of_group.size(); ++g)
    for (const GroupLinks::Load& load : links.of_group[g])
      out[load.link].push_back({g, load.label});
  return out;
}

// A link's new colour is its old one and the colours of the groups that load it.
std::size_t recolor_links(const std::vector<std::vector<LinkUser>>& users, const Colors& groups,
                          Colors& links) {
  Numbering numbering;
  for (std::size_t l = 0; l < users.size(); ++l) {
    Colors key = {links[l]};
    add_sorted(key, users[l],
               [&](const LinkUser& user) { return std::pair(groups[user.group], user.label); });
    links[l] = numbering.of(std::move(key));
  }
  return numbering.size();
}

// One half of a round: a group's new colour is its kind, its size and the colours of its members.
// Computed afresh each round, since the members' colours only get finer. Returns the number of
// colours.
std::size_t recolor_groups(const ProgramJob& job,
                           const std::vector<std::vector<MemberSlot>>& members,
                           const std::vector<std::uint32_t>& kinds, const Colors& ranks,
                           const GroupLinks* links, const Colors& link_colors, Colors& groups) {
  Numbering numbering;
  for (std::size_t g = 0; g < members.size(); ++g) {
    Colors key = {kinds.empty() ? 0 : kinds[g],
                  static_cast<std::uint32_t>(job.groups[g].members.size())};
    for (const auto& [color, slot] : color_members(members[g], ranks)) {
      key.push_back(color);
      key.push_back(slot);
    }
    if (links != nullptr)
      add_sorted(key, links->of_group[g], [&](const GroupLinks::Load& load) {
        return std::pair(link_colors[load.link], load.label);
      });
    groups[g] = numbering.of(std::move(key));
  }
  return numbering.size();
}

// The other half: a rank's new colour is its old one and the colours of its groups, slot by slot.
// The old colour is part of the key, so classes only ever split. Returns the number of classes.
std::size_t recolor_ranks(const ProgramJob& job, const Colors& groups, Colors& ranks) {
  Numbering numbering;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    Colors key = {ranks[r]};
    for (const std::uint32_t group : job.ranks[r].groups) key.push_back(groups[group]);
    ranks[r] = numbering.of(std::move(key));
  }
  return numbering.size();
}

Folding folding_of(const std::vector<std::vector<MemberSlot>>& members, Colors ranks,
                   Colors groups) {
  Folding folding;
  for (std::uint32_t r = 0; r < ranks.size(); ++r)
    // Classes are numbered in the order of their first rank, so a new number is the next index.
    if (ranks[r] == folding.representatives.size()) folding.representatives.push_back(r);
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    if (groups[g] != folding.group_representatives.size()) continue;
    auto who = color_members(members[g], ranks);
    // Members of the same class in the same slot act at the same time and count as one arrival.
    who.erase(std::unique(who.begin(), who.end()), who.end());
    folding.group_representatives.push_back(g);
    folding.arrivals.push_back(static_cast<std::uint32_t>(who.size()));
  }
  folding.class_of = std::move(ranks);
  folding.group_class_of = std::move(groups);
  return folding;
}

}  // namespace

Folding fold(const ProgramJob& job, const std::vector<std::uint32_t>& kinds,
             const GroupLinks* links) {
  const std::vector<std::vector<MemberSlot>> members = member_slots(job);
  Colors ranks, groups(job.groups.size());
  Numbering programs;
  for (const ProgramJob::Member& member : job.ranks) ranks.push_back(programs.of({member.program}));
  // The coarsest start: ranks with the same program.
  std::size_t classes = programs.size();
  Colors link_colors;
  std::vector<std::vector<LinkUser>> users;
  if (links != nullptr) {
    link_colors = links->kinds;
    users = link_users(*links);
  }
  std::size_t link_classes = 0;
  for (;;) {
    recolor_groups(job, members, kinds, ranks, links, link_colors, groups);
    // Colours never merge, so an unchanged count means that no class has split: it is stable.
    const std::size_t finer = recolor_ranks(job, groups, ranks);
    const std::size_t finer_links = recolor_links(users, groups, link_colors);
    if (finer == classes && finer_links == link_classes) break;
    classes = finer;
    link_classes = finer_links;
  }
  Folding folding = folding_of(members, std::move(ranks), std::move(groups));
  for (std::uint32_t l = 0; l < link_colors.size(); ++l)
    // Numbered in the order of their first link, as classes of ranks are.
    if (link_colors[l] == folding.link_representatives.size())
      folding.link_representatives.push_back(l);
  folding.link_class_of = std::move(link_colors);
  return folding;
}

Folding unfolded(const ProgramJob& job) {
  Colors ranks(job.ranks.size()), groups(job.groups.size());
  for (std::uint32_t r = 0; r < ranks.size(); ++r) ranks[r] = r;
  for (std::uint32_t g = 0; g < groups.size(); ++g) groups[g] = g;
  return folding_of(member_slots(job), std::move(ranks), std::move(groups));
}

}  // namespace lockstep::sim
