#include "verify/streams/odd_programs.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "trace/groups.h"
#include "trace/rank_list.h"
#include "verify/streams/past.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

namespace {

// More places where programs diverge are no fault of one rank: the programs depend on the data.
constexpr std::size_t kMostDivergences = 64;
// Calls left out or added in a row that are looked for.
constexpr std::uint32_t kMostEdited = 256;
// Calls after an edit that have to agree.
constexpr std::uint32_t kEnough = 32;
// Calls searched backwards for what repeats.
constexpr std::uint32_t kLooksBack = 4096;

// In place of a rank's index in a group.
constexpr std::uint32_t kNotKnown = UINT32_MAX;

// A group in which a rank calls.
struct OwnGroup {
  trace::GroupId id;
  std::uint32_t role = 0;   // that ranks of one kind have in common: size, purpose, and which of
                            // several of one purpose by their first calls
  trace::RankList members;  // empty: not known
  std::uint32_t index = kNotKnown;  // of the rank in it

  std::uint32_t size() const { return static_cast<std::uint32_t>(members.size()); }
  std::uint32_t index_of(trace::Rank rank) const {
    return static_cast<std::uint32_t>(members.index_of(rank).value_or(kNotKnown));
  }
};

// The groups of a rank, in the order of its first calls in them.
struct OwnGroups {
  std::vector<OwnGroup> list;
  std::vector<std::uint32_t> of_call;  // the index in the list of each call's group
};

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

class Programs {
 public:
  Programs(const trace::Run& run, Agreement& agreement) : run_(run), agreement_(agreement) {
    Roles roles(run);
    groups_.reserve(run.ranks.size());
    for (std::uint32_t r = 0; r < run.ranks.size(); ++r) groups_.push_back(roles.groups_of(r));
    message_.resize(run.tables.signatures.size());
    for (std::uint32_t s = 0; s < message_.size(); ++s)
      message_[s] = trace::is_point_to_point(run.tables.signatures[trace::SignatureId(s)].op);
    const auto all = static_cast<std::size_t>(std::max(run.world_size, 0));
    absent_ = all - std::min(all, run.ranks.size());
    find_peers();
    find_rings();
  }

  std::optional<OddProgram> find() {
    std::map<Kind, std::vector<std::uint32_t>> kinds;
    for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) kinds[kind_of(r)].push_back(r);
    std::optional<OddProgram> out;
    for (const auto& [kind, ranks] : kinds) {
      std::vector<Party> left{{ranks, 0}};
      while (!left.empty()) {
        const Party party = std::move(left.back());
        left.pop_back();
        if (!split(party, left)) return std::nullopt;
      }
    }
    for (const Divergence& divergence : divergences_) {
      std::optional<OddProgram> odd = judge(divergence);
      if (!odd) continue;
      if (out) return std::nullopt;
      out = std::move(odd);
    }
    // Most ranks are blamed only where one edit explains what they did.
    if (out && !tell_edit(*out) && out->deviants.size() > out->others.size()) return std::nullopt;
    return out && may_be_left_out_by_others(*out) ? std::nullopt : out;
  }

 private:
  // What ranks of one kind have in common: the sizes of their groups, and their stage in groups in
  // which they exchange messages.
  using Kind =
      std::pair<std::vector<std::size_t>, std::vector<std::pair<std::uint32_t, std::uint32_t>>>;
  static constexpr std::uint32_t kRing = kNotKnown - 1;

  struct Party {
    std::vector<std::uint32_t> ranks;
    std::uint32_t from = 0;  // they agree up to here
  };

  // Ranks that agree up to a call and no further: those on each side that have made one there.
  struct Divergence {
    std::vector<std::uint32_t> one, other;
    std::uint32_t index = 0;
    std::size_t silent = 0;  // ranks like these that end before, or left no trace
  };

  const std::vector<trace::Call>& calls(std::uint32_t r) const { return run_.ranks[r].calls; }
  std::uint32_t size(std::uint32_t r) const { return static_cast<std::uint32_t>(calls(r).size()); }
  const OwnGroup& group_of(std::uint32_t r, std::uint32_t call) const {
    return groups_[r].list[groups_[r].of_call[call]];
  }
  bool is_message(const trace::Call& call) const { return message_[call.signature.value]; }

  // Looks up each message's peer in its group. A run without messages costs nothing here.
  void find_peers() {
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
  std::uint32_t distance(std::uint32_t r, std::uint32_t message) const {
    const OwnGroup& group = group_of(r, message);
    const std::uint32_t peer = peers_[r][message];
    if (peer == kNotKnown || group.index == kNotKnown) return kNotKnown;
    return (peer + group.size() - group.index) % group.size();
  }

  // Finds groups whose members, but at most one, send and receive over the same distances, also
  // from the last to the first: rings. The first and the last stage of a pipeline lack a side.
  void find_rings() {
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
        own[groups_[r].of_call[c]].emplace(run_.tables.signatures[call.signature].op,
                                           distance(r, c));
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

  // Finds rings of two: the pairs of one purpose in which, but for at most one of them, both
  // members do the same until they have exchanged a few messages. The two stages of a pipeline do
  // so only with one micro-batch per step, where one sends and receives, and the other receives and
  // sends; then they count as ranks of one kind, too.
  void find_pairs() {
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

  bool has_messages(trace::GroupId group) const { return sizes_.contains(group.value); }
  bool is_ring(trace::GroupId group) const { return rings_.contains(group.value); }

  Kind kind_of(std::uint32_t r) const {
    Kind out;
    for (const trace::RankTrace::Membership& m : run_.ranks[r].groups)
      if (m.ranks.contains(run_.ranks[r].rank)) out.first.push_back(m.ranks.size());
    std::sort(out.first.begin(), out.first.end());
    for (const OwnGroup& group : groups_[r].list)
      if (has_messages(group.id))
        out.second.emplace_back(group.role, is_ring(group.id) ? kRing : group.index);
    std::sort(out.second.begin(), out.second.end());
    return out;
  }

  // Whether two ranks of one kind made the same call, each in its own group and with its own peer.
  bool same(std::uint32_t a, std::uint32_t i, std::uint32_t b, std::uint32_t j) {
    const trace::Call& x = calls(a)[i];
    const trace::Call& y = calls(b)[j];
    if (x.at != y.at && x.at.value != 0 && y.at.value != 0) return false;
    if (x.group == y.group && x.what != y.what && x.what.value != 0 && y.what.value != 0)
      return false;
    if (x.signature != y.signature && !agreement_.agree(x.signature, y.signature)) return false;
    if (x.group != y.group && group_of(a, i).role != group_of(b, j).role) return false;
    return !is_message(x) || peers_correspond(a, i, b, j);
  }

  // As far away in the order of their groups, or at the same place of it. (A root is at one place;
  // partners in a butterfly are apart by the same bits.)
  bool peers_correspond(std::uint32_t a, std::uint32_t i, std::uint32_t b, std::uint32_t j) const {
    const std::uint32_t own_a = group_of(a, i).index, own_b = group_of(b, j).index;
    const std::uint32_t peer_a = peers_[a][i], peer_b = peers_[b][j];
    for (const std::uint32_t index : {own_a, own_b, peer_a, peer_b})
      if (index == kNotKnown) return true;
    if (distance(a, i) == distance(b, j)) return true;
    if (is_ring(calls(a)[i].group) && is_ring(calls(b)[j].group)) return false;
    return peer_a == peer_b || (own_a ^ peer_a) == (own_b ^ peer_b);
  }

  // The index of the first call from `from` on that differs, or the end of the shorter program;
  // stops at `enough`. Two messages in a row in the other order agree: in a ring every second rank
  // receives first.
  std::uint32_t agree_until(std::uint32_t a, std::uint32_t b, std::uint32_t from,
                            std::uint32_t enough = UINT32_MAX) {
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
  bool posts_later(std::uint32_t a, std::uint32_t b, std::uint32_t i) {
    if (!is_message(calls(a)[i]) || !is_message(calls(b)[i])) return false;
    return i + 1 < size(a) ? same(a, i + 1, b, i) : i + 1 < size(b) && same(a, i, b, i + 1);
  }

  // Splits a party where its ranks diverge from the one with most calls; what leaves it is split
  // later. False: too many places.
  bool split(const Party& party, std::vector<Party>& left) {
    const std::uint32_t lead =
        *std::max_element(party.ranks.begin(), party.ranks.end(),
                          [&](auto a, auto b) { return calls(a).size() < calls(b).size(); });
    std::map<std::uint32_t, std::vector<std::uint32_t>> leaves;  // by index
    std::vector<std::pair<std::uint32_t, std::uint32_t>> agrees_until;
    for (const std::uint32_t r : party.ranks) {
      const std::uint32_t until = r == lead ? size(lead) : agree_until(lead, r, party.from);
      agrees_until.emplace_back(until, r);
      if (r != lead && until < calls(r).size()) leaves[until].push_back(r);
    }
    for (auto& [index, ranks] : leaves) {
      std::vector<std::uint32_t> stay;
      std::size_t silent = absent_;
      for (const auto& [until, r] : agrees_until) {
        if (until > index)
          stay.push_back(r);
        else if (until == size(r))
          ++silent;
      }
      std::vector<std::vector<std::uint32_t>> parties;
      for (const std::uint32_t r : ranks) {
        const auto known = std::find_if(parties.begin(), parties.end(),
                                        [&, at = index](auto& p) { return same(p[0], at, r, at); });
        if (known != parties.end()) {
          known->push_back(r);
          continue;
        }
        if (divergences_.size() + parties.size() == kMostDivergences) return false;
        parties.push_back({r});
      }
      for (std::vector<std::uint32_t>& p : parties) {
        divergences_.push_back({stay, p, index, silent});
        if (p.size() > 1) left.push_back({std::move(p), index + 1});
      }
    }
    return true;
  }

  // Which side did something unusual; nothing where nothing shows it.
  std::optional<OddProgram> judge(const Divergence& divergence) {
    const std::uint32_t one = divergence.one[0];
    const std::uint32_t other = divergence.other[0];
    const auto odd = [&](bool is_one, bool by_numbers) {
      return OddProgram{.kind = OddProgram::Kind::replaced,
                        .count = 1,
                        .deviants = is_one ? divergence.one : divergence.other,
                        .others = is_one ? divergence.other : divergence.one,
                        .usual = is_one ? other : one,
                        .index = divergence.index,
                        .by_numbers = by_numbers};
    };
    const std::size_t ones = divergence.one.size();
    const std::size_t others = divergence.other.size();
    const CallRef of_one{one, divergence.index};
    const CallRef of_other{other, divergence.index};
    // Ranks that stand in a collective where the others of a pipeline post messages: nothing shows
    // what they would have done next, and the past of messages does not show it (below). In a ring,
    // all post as many; one of two may be a pipeline.
    const auto stands_in_collective = [&](std::uint32_t r, std::uint32_t peer) {
      const trace::Call& message = calls(peer)[divergence.index];
      return size(r) == divergence.index + 1 && !is_message(calls(r)[divergence.index]) &&
             is_message(message) && !(is_ring(message.group) && sizes_.at(message.group.value) > 2);
    };
    if (stands_in_collective(one, other) || stands_in_collective(other, one)) return std::nullopt;
    // Only the members of one group that goes through the loop have to leave it together.
    if (part_at_end_of_varying_loop(run_, agreement_, of_one, of_other) &&
        !are_in_one_group(divergence)) {
      return std::nullopt;
    }
    // A vote that ranks which are not heard could have turned decides nothing.
    const std::size_t margin = ones > others ? ones - others : others - ones;
    if (margin > divergence.silent && is_told_by_numbers(divergence)) {
      const bool one_is_few = ones < others;
      // Most ranks may have left out a call: then their past expects that of the few.
      // Not of messages, which come in rows that are as long as the ring or the pipeline.
      const bool message =
          is_message(calls(one)[divergence.index]) || is_message(calls(other)[divergence.index]);
      const Expected expected =
          message ? Expected::unknown : expected_of(run_, agreement_, of_one, of_other);
      const bool most_broke = expected == (one_is_few ? Expected::first : Expected::second);
      if (!most_broke && !message) {
        const std::optional<bool> told = is_second_unusual(run_, agreement_, of_one, of_other);
        if (told && *told == one_is_few) return std::nullopt;  // numbers and rounds contradict
      }
      return odd(one_is_few != most_broke, true);
    }
    const std::optional<bool> told = is_second_unusual(run_, agreement_, of_one, of_other);
    if (!told) return std::nullopt;
    return odd(!*told, false);
  }

  // Whether all ranks of both sides are in the group in which they called last.
  bool are_in_one_group(const Divergence& divergence) const {
    if (divergence.index == 0) return false;
    const OwnGroup& group = group_of(divergence.one[0], divergence.index - 1);
    const auto is_member = [&](std::uint32_t r) {
      return group.members.index_of(run_.ranks[r].rank).has_value();
    };
    return std::all_of(divergence.one.begin(), divergence.one.end(), is_member) &&
           std::all_of(divergence.other.begin(), divergence.other.end(), is_member);
  }

  // Whether the ranks' places are known in each group in which they exchange messages, unless it is
  // a ring. Otherwise the two may be different stages.
  bool is_told_by_numbers(const Divergence& divergence) const {
    const auto is_certain = [&](std::uint32_t r) {
      const std::vector<OwnGroup>& list = groups_[r].list;
      return std::all_of(list.begin(), list.end(), [&](const OwnGroup& group) {
        return !has_messages(group.id) || is_ring(group.id) || group.index != kNotKnown;
      });
    };
    return is_certain(divergence.one[0]) && is_certain(divergence.other[0]);
  }

  // The call of a rank at an index; beyond the end by the repetition of its last calls. Nothing
  // where nothing repeats.
  std::optional<std::uint32_t> at(std::uint32_t r, std::uint32_t index,
                                  std::uint32_t period) const {
    const std::uint32_t end = size(r);
    if (index < end) return index;
    if (period == 0 || index - end > kMostEdited) return std::nullopt;
    return end - period + (index - end) % period;
  }

  // The number of calls after which the newest ones came before; 0: they did not.
  std::uint32_t period_of(std::uint32_t r) {
    const std::uint32_t end = size(r);
    std::uint32_t longest = 0, out = 0;
    for (std::uint32_t back = 1; back < end && back <= kLooksBack && longest < kEnough; ++back) {
      std::uint32_t length = 0;
      while (length < kEnough && back + length < end &&
             is_same_of_program(agreement_, calls(r)[end - 1 - length],
                                calls(r)[end - 1 - length - back])) {
        ++length;
      }
      if (length > longest) longest = length, out = back;
    }
    return out;
  }

  // How many of the deviant's calls from `mine` on are those of the usual one from `theirs` on; at
  // most kEnough. 0 if a recorded call of the deviant does not agree. One that is only predicted,
  // by repetition, ends the comparison. `again`: the deviant may leave out as many calls, like
  // those that the usual program makes where they diverge, in later rounds, too.
  std::uint32_t agree_from(const OddProgram& odd, std::uint32_t mine, std::uint32_t theirs,
                           std::uint32_t own_period, std::uint32_t usual_period,
                           std::uint32_t again) {
    const std::uint32_t d = odd.deviants[0];
    std::uint32_t agreeing = 0;
    const auto left_out_again = [&](std::uint32_t from) {
      for (std::uint32_t k = 0; k < again; ++k) {
        const auto call = at(odd.usual, from + k, usual_period);
        if (!call || !same(odd.usual, *call, odd.usual, odd.index + k)) return false;
      }
      return again > 0;
    };
    for (std::uint32_t n = 0; n < kEnough; ++n) {
      if (mine + n >= calls(d).size() && theirs + n >= calls(odd.usual).size()) break;
      const auto i = at(d, mine + n, own_period);
      auto j = at(odd.usual, theirs + n, usual_period);
      if (!i || !j) break;
      if (!same(d, *i, odd.usual, *j)) {
        if (mine + n >= calls(d).size()) return agreeing;
        if (agreeing == 0 || !left_out_again(theirs + n)) return 0;
        theirs += again;
        j = at(odd.usual, theirs + n, usual_period);
        if (!j) break;
        if (!same(d, *i, odd.usual, *j)) return 0;
      }
      ++agreeing;
    }
    return agreeing;
  }

  // Whether calls that look added are the next round, because the last call of this one was left
  // out:
  //
  //   usual     … d a b c d
  //   deviant   … d a b c a b c d      d was left out; a b c were not added
  //
  // The usual program must end with that call. If it made that call before (as here), a round is
  // what lies between the two, and as many calls must look added. Otherwise the deviant must have
  // made the first of them before, but not all of them right before: that would be a loop that ran
  // once too often.
  bool begins_next_round(const OddProgram& odd, std::uint32_t d) {
    if (odd.index + 1 != size(odd.usual) || odd.count > odd.index) return false;
    const auto is_known = [&](std::uint32_t call) {
      for (std::uint32_t i = 0; i < odd.index; ++i)
        if (same(d, i, d, call)) return true;
      return false;
    };
    for (std::uint32_t i = odd.index; i-- > 0;)
      if (same(odd.usual, i, odd.usual, odd.index)) return odd.count == odd.index - i - 1;
    bool repeats = true;
    for (std::uint32_t i = 0; i < odd.count && repeats; ++i)
      repeats = same(d, odd.index + i, d, odd.index + i - odd.count);
    return !repeats && is_known(odd.index);
  }

  // What they did where no single edit makes the rest agree: they left out what comes before the
  // next call that they make, or made more calls before the usual one.
  void guess_edit(OddProgram& odd, std::uint32_t d) {
    odd.kind = OddProgram::Kind::replaced;
    odd.count = 1;
    for (std::uint32_t k = 1; k <= kMostEdited; ++k) {
      if (odd.index + k < size(odd.usual) && same(d, odd.index, odd.usual, odd.index + k)) {
        odd.kind = OddProgram::Kind::missing;
        odd.count = k;
        return;
      }
      if (odd.index + k < size(d) && same(d, odd.index + k, odd.usual, odd.index)) {
        odd.kind = OddProgram::Kind::extra;
        odd.count = k;
        return;
      }
    }
    if (size(d) == odd.index + 1) odd.kind = OddProgram::Kind::extra;
  }

  // What the deviants did: the smallest edit after which their calls are the usual ones again.
  // False: there is none, and what they did is a guess.
  bool tell_edit(OddProgram& odd) {
    const std::uint32_t d =
        *std::max_element(odd.deviants.begin(), odd.deviants.end(),
                          [&](auto a, auto b) { return calls(a).size() < calls(b).size(); });
    std::swap(odd.deviants[0], *std::find(odd.deviants.begin(), odd.deviants.end(), d));
    const std::uint32_t own = period_of(d);
    const std::uint32_t usual = period_of(odd.usual);
    const auto try_edit = [&](OddProgram::Kind kind, std::uint32_t count, std::uint32_t mine,
                              std::uint32_t theirs) {
      const std::uint32_t again = kind == OddProgram::Kind::missing ? count : 0;
      const std::uint32_t n =
          agree_from(odd, odd.index + mine, odd.index + theirs, own, usual, again);
      if (n == 0) return false;
      odd.kind = kind;
      odd.count = count;
      return true;
    };
    const bool found = [&] {
      if (odd.index + 1 < std::min(size(d), size(odd.usual)) &&
          same(d, odd.index, odd.usual, odd.index + 1) &&
          same(d, odd.index + 1, odd.usual, odd.index)) {
        odd.kind = OddProgram::Kind::swapped;
        odd.count = 2;
        return true;
      }
      for (std::uint32_t k = 1; k <= kMostEdited; ++k) {
        const std::uint32_t left = static_cast<std::uint32_t>(calls(d).size()) - odd.index;
        // Nobody leaves out what was not recorded of the usual program either.
        if (odd.index + k <= size(odd.usual) && try_edit(OddProgram::Kind::missing, k, 0, k))
          return true;
        if (k < left && try_edit(OddProgram::Kind::extra, k, k, 0)) {
          if (begins_next_round(odd, d)) odd.kind = OddProgram::Kind::missing, odd.count = 1;
          return true;
        }
        if (k == 1 && left > 1 && try_edit(OddProgram::Kind::replaced, 1, 1, 1)) return true;
      }
      return false;
    }();
    odd.is_certain = found;
    if (!found) guess_edit(odd, d);
    std::sort(odd.deviants.begin(), odd.deviants.end());
    return found;
  }

  // Whether nothing shows if few ranks made several calls too many in their first round, or if most
  // left out these calls of a branch that their batches do not use: neither side makes any such
  // call in another round, and there are no lines and no names.
  bool may_be_left_out_by_others(const OddProgram& odd) {
    if (!odd.by_numbers || odd.kind != OddProgram::Kind::extra || odd.count < 2) return false;
    const std::uint32_t d = odd.deviants[0];
    const auto is_only_one = [&](std::uint32_t r) {
      for (std::uint32_t i = 0; i < size(r); ++i)
        if (i != odd.index && is_same_of_program(agreement_, calls(r)[i], calls(r)[odd.index]))
          return false;
      return true;
    };
    const trace::Call& call = calls(d)[odd.index];
    return call.at.value == 0 && call.what.value == 0 && !is_message(call) && is_only_one(d) &&
           is_only_one(odd.usual);
  }

  const trace::Run& run_;
  Agreement& agreement_;
  std::vector<OwnGroups> groups_;                  // by rank index
  std::vector<bool> message_;                      // by signature: whether its calls are messages
  std::vector<std::vector<std::uint32_t>> peers_;  // by rank index and call
  std::map<std::uint32_t, std::uint32_t> sizes_;   // of groups with messages
  std::set<std::uint32_t> rings_;                  // groups
  std::vector<Divergence> divergences_;
  std::size_t absent_ = 0;  // ranks without a trace
};

}  // namespace

std::optional<OddProgram> find_odd_program(const trace::Run& run, Agreement& agreement) {
  const bool from_start = std::all_of(run.ranks.begin(), run.ranks.end(), is_known_from_its_start);
  if (!from_start || run.ranks.size() < 2) return std::nullopt;
  std::optional<OddProgram> odd = Programs(run, agreement).find();
  const auto mixes = [&](std::uint32_t r) {
    const auto all = static_cast<std::uint32_t>(run.ranks[r].calls.size());
    return mixes_threads(run.ranks[r], std::min(all, odd->index + odd->count));
  };
  return odd && (mixes(odd->usual) || mixes(odd->deviants[0])) ? std::nullopt : odd;
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
