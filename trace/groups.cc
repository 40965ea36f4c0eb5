#include "trace/groups.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::trace {

namespace {

// Marks an unlinked membership: its description begins with this. A control character, so that no
// program's description does.
constexpr std::string_view kMark = "\x01unlinked communicator\x01";

// Finds the members of communicators over all traces.
class Linker {
 public:
  Linker(std::span<RankTrace> traces, Tables& tables, LinkOptions options)
      : tables_(tables), options_(options) {
    for (RankTrace& trace : traces) {
      world_size_ = std::max(world_size_, trace.world_size);
      (has_unlinked(trace, tables) ? traces_ : others_).push_back(&trace);
    }
  }

  void link() {
    if (traces_.empty()) return;
    if (options_.ranks_are_guesses) number_ranks();
    collect();
    choose_world();
    if (options_.ranks_are_guesses) add_missing_members();
    for (RankTrace* trace : traces_) {
      declare(*trace);
      translate(*trace);
    }
    if (!options_.ranks_are_guesses) return;
    for (RankTrace* trace : traces_) trace->world_size = world_size_;
    for (RankTrace* trace : others_) trace->world_size = world_size_;
  }

 private:
  struct Comm {
    std::int32_t size = 0;
    std::map<std::int32_t, Rank> members;  // by group rank
    std::set<Rank> ranks;                  // those of `members`: no rank may occur twice
    bool contradicted = false;             // traces disagree about size or members
    RankList list;                         // of all members; made on first use, shared by all

    bool is_whole() const {
      return !contradicted && static_cast<std::int32_t>(members.size()) == size;
    }
  };

  // Gives the processes new numbers, by host and pid, if two of them claim one rank.
  void number_ranks() {
    std::set<Rank> used;
    const bool unique = std::all_of(traces_.begin(), traces_.end(), [&](const RankTrace* trace) {
      return used.insert(trace->rank).second;
    });
    if (unique || repeats_a_process()) return;
    std::stable_sort(traces_.begin(), traces_.end(), [](const RankTrace* a, const RankTrace* b) {
      return std::tie(a->host, a->pid) < std::tie(b->host, b->pid);
    });
    std::int32_t next = 0;
    for (RankTrace* trace : traces_) trace->rank = Rank(next++);
    world_size_ = std::max(world_size_, next);
  }

  // Whether a trace is there twice. Then loading drops one of the two later, and the ranks are
  // right as they are.
  bool repeats_a_process() const {
    std::set<std::tuple<std::string, std::int64_t, Rank>> seen;
    return std::any_of(traces_.begin(), traces_.end(), [&](const RankTrace* trace) {
      return !seen.emplace(trace->host, trace->pid, trace->rank).second;
    });
  }

  void collect() {
    for (const RankTrace* trace : traces_) {
      for (const auto& m : trace->groups) {
        if (!is_unlinked(m, tables_) || m.ranks.size() != 2) continue;
        Comm& comm = comms_[m.group];
        comm.contradicted |= comm.size != 0 && comm.size != m.ranks[1].value;
        comm.size = m.ranks[1].value;
        const auto [known, is_new] = comm.members.emplace(m.ranks[0].value, trace->rank);
        comm.contradicted |=
            is_new ? !comm.ranks.insert(trace->rank).second : known->second != trace->rank;
      }
    }
  }

  // Chooses the world: the first communicator of the lowest rank that has as many members as there
  // are ranks.
  void choose_world() {
    const auto first =
        std::min_element(traces_.begin(), traces_.end(),
                         [](const RankTrace* a, const RankTrace* b) { return a->rank < b->rank; });
    for (const auto& m : (*first)->groups) {
      const auto found = comms_.find(m.group);
      if (found == comms_.end() || found->second.size != world_size_) continue;
      world_ = m.group;
      return;
    }
  }

  // Whether group ranks in this communicator are global ranks: for the world, if no known member
  // speaks against it. Then the members without a trace are known, too.
  bool group_ranks_are_ranks(GroupId group, const Comm& comm) const {
    return world_ == group && !comm.contradicted &&
           std::all_of(comm.members.begin(), comm.members.end(),
                       [](const auto& m) { return m.first == m.second.value; });
  }

  // Adds the members without a trace where the ranks are those of the world after all. Only a rank
  // that left no trace can be one; and where the known members ascend, as PyTorch sorts them, those
  // that are missing between two of them lie between them, too:
  //
  //   size 8, no trace of ranks 12 and 37      32 33 34 35 36 . 38 39      37 is missing
  void add_missing_members() {
    if (!world_) return;
    const Comm& world = comms_.at(*world_);
    if (!group_ranks_are_ranks(*world_, world)) return;
    std::set<Rank> missing;
    for (std::int32_t r = 0; r < world_size_; ++r) missing.emplace(r);
    for (const RankTrace* trace : traces_) missing.erase(trace->rank);
    for (const RankTrace* trace : others_) missing.erase(trace->rank);
    // The bound is on all communicators together: a log may name many huge ones.
    std::size_t left = kMaxMembersAdded;
    for (auto& [group, comm] : comms_)
      if (!comm.contradicted && !comm.is_whole()) fill_gaps(comm, missing, left);
  }

  // In all groups together: a file may declare many groups of a million members.
  static constexpr std::size_t kMaxMembersAdded = 1U << 18U;

  // `left`: how many members may still be added.
  static void fill_gaps(Comm& comm, const std::set<Rank>& missing, std::size_t& left) {
    const auto lacking = static_cast<std::size_t>(comm.size) - comm.members.size();
    if (lacking > missing.size() || lacking > left) return;
    left -= lacking;
    std::map<std::int32_t, Rank> members = comm.members;
    const auto fill = [&](std::int32_t from, std::int32_t to, auto low, auto high) {
      if (from == to) return true;
      for (; from < to && low != high; ++from, ++low) members.emplace(from, *low);
      return from == to && low == high;
    };
    std::int32_t next = 0;
    auto above = missing.begin();  // the first missing rank above the last known member
    for (const auto& [group_rank, rank] : comm.members) {
      const auto until = missing.lower_bound(rank);
      const bool ascends = next == 0 || members.at(next - 1) < rank;
      if (!ascends || !fill(next, group_rank, above, until)) return;
      above = until;
      next = group_rank + 1;
    }
    if (!fill(next, comm.size, above, missing.end())) return;
    for (const auto& [group_rank, rank] : members) comm.ranks.insert(rank);
    comm.members = std::move(members);
  }

  GroupId final_group(GroupId group) {
    return world_ == group ? tables_.groups.intern("world") : group;
  }

  const RankList& members_of(Comm& comm) {
    if (!comm.list.empty()) return comm.list;
    std::vector<Rank> in_order;
    if (comm.is_whole()) {
      for (const auto& [group_rank, rank] : comm.members) in_order.push_back(rank);
    } else {
      for (std::int32_t rank = 0; rank < comm.size; ++rank) in_order.emplace_back(rank);
    }
    comm.list = RankList(std::move(in_order));
    return comm.list;
  }

  void declare(RankTrace& trace) {
    std::vector<RankTrace::Membership> kept;
    std::set<GroupId> declared;
    for (auto& m : trace.groups) {
      if (!is_unlinked(m, tables_)) {
        declared.insert(m.group);
        kept.push_back(std::move(m));
        continue;
      }
      const auto found = comms_.find(m.group);
      if (found == comms_.end()) continue;
      const bool known =
          found->second.is_whole() ||
          (!options_.ranks_are_guesses && group_ranks_are_ranks(m.group, found->second));
      if (!known) continue;
      const GroupId group = final_group(m.group);
      if (!declared.insert(group).second) continue;
      const std::string desc = tables_.str(m.desc).substr(kMark.size());
      kept.push_back({group, members_of(found->second),
                      desc.empty() ? StringId() : tables_.strings.intern(desc)});
    }
    trace.groups = std::move(kept);
    trace.created_in_order = static_cast<std::uint32_t>(trace.groups.size());
  }

  // Turns roots and peers from group ranks into global ranks.
  void translate(RankTrace& trace) {
    std::map<GroupId, std::uint64_t> first_seq;
    for (const auto& [group, seq] : trace.first_seq) first_seq.emplace(final_group(group), seq);
    trace.first_seq = std::move(first_seq);
    for (Call& call : trace.calls.own()) {
      const GroupId own = call.group;
      if (!comms_.contains(own)) continue;
      if (call.peer.value >= 0) call.peer = Rank(rank_at(own, call.peer.value));
      call.signature = translated(call.signature, own);
      call.group = final_group(own);
    }
  }

  std::int32_t rank_at(GroupId group, std::int32_t group_rank) const {
    const auto comm = comms_.find(group);
    if (comm == comms_.end() || comm->second.contradicted) return kNone;
    const auto found = comm->second.members.find(group_rank);
    if (found != comm->second.members.end()) return found->second.value;
    return group_ranks_are_ranks(group, comm->second) ? group_rank : kNone;
  }

  // The signature with its root as a global rank; each is translated once.
  SignatureId translated(SignatureId id, GroupId group) {
    const auto [known, is_new] = translated_.try_emplace({id, group}, id);
    if (!is_new) return known->second;
    Signature s = tables_.signatures[id];
    if (s.root == kNone) return id;
    s.root = rank_at(group, s.root);
    known->second = tables_.make_signature(s);
    return known->second;
  }

  Tables& tables_;
  LinkOptions options_;
  std::vector<RankTrace*> traces_, others_;
  std::int32_t world_size_ = 0;
  std::map<GroupId, Comm> comms_;
  std::optional<GroupId> world_;
  std::map<std::pair<SignatureId, GroupId>, SignatureId> translated_;
};

}  // namespace

RankTrace::Membership unlinked_membership(GroupId group, std::int32_t group_rank, std::int32_t size,
                                          std::string_view desc, Tables& tables) {
  std::vector<Rank> numbers = {Rank(group_rank), Rank(size)};
  return {group, RankList(std::move(numbers)),
          tables.strings.intern(std::string(kMark).append(desc))};
}

bool is_unlinked(const RankTrace::Membership& membership, const Tables& tables) {
  return tables.str(membership.desc).starts_with(kMark);
}

bool has_unlinked(const RankTrace& trace, const Tables& tables) {
  return std::any_of(trace.groups.begin(), trace.groups.end(),
                     [&](const auto& m) { return is_unlinked(m, tables); });
}

void link_communicators(std::span<RankTrace> traces, Tables& tables, LinkOptions options) {
  Linker(traces, tables, options).link();
}

namespace {

using Lists = std::set<RankList>;

// Makes equal lists one object, so that comparing them is comparing pointers. O(members of distinct
// objects + memberships).
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

// A name with several member lists.
struct Ambiguous {
  Lists lists;
  bool by_members_only = true;  // each list was declared by its own members only
};

// Finds these names. The first pass is over all memberships, the second only if there are any.
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

// The list that holds each rank; nothing where lists overlap.
std::optional<std::map<Rank, const RankList*>> owners(const Lists& lists) {
  std::map<Rank, const RankList*> out;
  for (const RankList& list : lists) {
    for (const Rank r : list) {
      if (!out.emplace(r, &list).second) return std::nullopt;
    }
  }
  return out;
}

// "1 [2, 3]". The first ranks suffice: lists of one name do not overlap.
std::string own_name(const std::string& name, const RankList& ranks) {
  constexpr std::size_t kShown = 4;
  std::string out = name + " [";
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i].value);
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
  for (Call& call : trace.calls.own()) call.group = renamed(call.group);
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
    if (name == "world" || name == "0") continue;  // there is only one group of all ranks
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

namespace {

// "13", "13 [32, 33]", "0x5c1d…", "d8b7a5e…": numbers and hashes, which say nothing to people.
bool is_number_or_hash(std::string_view name) {
  constexpr std::size_t kShortestHash = 8;  // shorter ones may be words: "dp0", "face2"
  name = name.substr(0, name.find(" ["));
  const std::string_view digits = name.substr(0, name.find_first_not_of("0123456789"));
  if (digits.size() == name.size()) return true;
  if (name.starts_with("0x")) name.remove_prefix(2);
  return name.size() >= kShortestHash && name.find_first_of("0123456789") != kNpos &&
         name.find_first_not_of("0123456789abcdef_:") == kNpos;
}

// "TENSOR_PARALLEL" of "TENSOR_PARALLEL (22)", as the watchdog's groups are named; otherwise empty.
std::string_view before_number(std::string_view name) {
  const std::size_t open = name.rfind(" (");
  if (open == kNpos || open == 0 || !name.ends_with(')')) return {};
  const std::string_view number = name.substr(open + 2, name.size() - open - 3);
  const bool digits = !number.empty() && number.find_first_not_of("0123456789") == kNpos;
  return digits ? name.substr(0, open) : std::string_view();
}

}  // namespace

const RankTrace::Membership* membership(const RankTrace& trace, GroupId group) {
  const auto found = std::find_if(trace.groups.begin(), trace.groups.end(),
                                  [&](const RankTrace::Membership& m) { return m.group == group; });
  return found == trace.groups.end() ? nullptr : &*found;
}

std::string_view description_of(const Tables& tables, const RankTrace::Membership& group) {
  constexpr std::string_view kNotGiven = "undefined";  // as PyTorch writes it
  const std::string_view description = tables.str(group.desc);
  return description == kNotGiven ? std::string_view() : description;
}

std::string_view kind_in_name(std::string_view name) {
  const std::string_view before = before_number(name);
  return is_number_or_hash(before) ? std::string_view() : before;
}

std::string group_label(const RankTrace& trace, const Tables& tables, GroupId group) {
  const std::string& name = tables.str(group);
  if (const std::string_view kind = kind_in_name(name); !kind.empty()) return printable(kind);
  const std::string_view before = before_number(name);
  const bool is_number = is_number_or_hash(before.empty() ? name : before);
  // "unnamed group (ALLGATHER)", of the watchdog in old versions.
  const std::string plain = (name.starts_with("unnamed group") ? "" : "group ") + printable(name);
  if (!is_number) return plain;
  const RankTrace::Membership* const own = membership(trace, group);
  const std::string_view description = own == nullptr ? "" : description_of(tables, *own);
  if (description.empty()) return plain;
  const auto same =
      std::count_if(trace.groups.begin(), trace.groups.end(),
                    [&](const RankTrace::Membership& m) { return m.desc == own->desc; });
  return printable(description) + (same > 1 ? fmt::format(" ({})", plain) : "");
}

}  // namespace lockstep::trace
