#include "verify/streams/odd_programs.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "verify/streams/odd_program_edit.h"
#include "verify/streams/past.h"
#include "verify/streams/programs.h"
#include "verify/streams/rank_programs.h"
#include "verify/streams/rounds.h"

namespace lockstep::verify {

namespace {

// More places where programs diverge are not the fault of one rank: the programs depend on the
// data.
constexpr std::size_t kMaxDivergences = 64;

// Finds where the ranks of each kind diverge, then judges each of these divergences.
class OddProgramSearch {
 public:
  OddProgramSearch(const trace::Run& run, Agreement& agreement) : programs_(run, agreement) {
    const auto all = static_cast<std::size_t>(std::max(run.world_size, 0));
    // A file that is cut off before it declares its groups does not even tell the kind of its rank.
    const auto unknown = std::count_if(
        run.ranks.begin(), run.ranks.end(),
        [](const trace::RankTrace& trace) { return trace.open_ended && trace.groups.empty(); });
    absent_ = all - std::min(all, run.ranks.size()) + static_cast<std::size_t>(unknown);
  }

  std::optional<OddProgram> find() {
    std::map<RankPrograms::RankKind, std::vector<std::uint32_t>> kinds;
    for (std::uint32_t r = 0; r < programs_.run().ranks.size(); ++r)
      kinds[programs_.kind_of(r)].push_back(r);
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
    if (out && !find_smallest_edit(programs_, *out) && out->deviants.size() > out->others.size())
      return std::nullopt;
    return out && may_be_left_out_by_others(*out) ? std::nullopt : out;
  }

 private:
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

  // Splits a party where its ranks diverge from the one with most calls; what leaves it is split
  // later. False: too many places.
  bool split(const Party& party, std::vector<Party>& left) {
    const std::uint32_t lead = *std::max_element(
        party.ranks.begin(), party.ranks.end(),
        [&](auto a, auto b) { return programs_.calls(a).size() < programs_.calls(b).size(); });
    std::map<std::uint32_t, std::vector<std::uint32_t>> leaves;  // by index
    std::vector<std::pair<std::uint32_t, std::uint32_t>> agrees_until;
    for (const std::uint32_t r : party.ranks) {
      const std::uint32_t until =
          r == lead ? programs_.size(lead) : programs_.agree_until(lead, r, party.from);
      agrees_until.emplace_back(until, r);
      if (r != lead && until < programs_.calls(r).size()) leaves[until].push_back(r);
    }
    for (auto& [index, ranks] : leaves) {
      std::vector<std::uint32_t> stay;
      std::size_t silent = absent_;
      for (const auto& [until, r] : agrees_until) {
        if (until > index)
          stay.push_back(r);
        else if (until == programs_.size(r))
          ++silent;
      }
      std::vector<std::vector<std::uint32_t>> parties;
      for (const std::uint32_t r : ranks) {
        const auto known = std::find_if(parties.begin(), parties.end(), [&, at = index](auto& p) {
          return programs_.same(p[0], at, r, at);
        });
        if (known != parties.end()) {
          known->push_back(r);
          continue;
        }
        if (divergences_.size() + parties.size() == kMaxDivergences) return false;
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
      const trace::Call& message = programs_.calls(peer)[divergence.index];
      return programs_.size(r) == divergence.index + 1 &&
             !programs_.is_message(programs_.calls(r)[divergence.index]) &&
             programs_.is_message(message) &&
             !(programs_.is_ring(message.group) && programs_.size_of(message.group) > 2);
    };
    if (stands_in_collective(one, other) || stands_in_collective(other, one)) return std::nullopt;
    // Only the members of one group that goes through the loop have to leave it together.
    if (part_at_end_of_varying_loop(programs_.run(), programs_.agreement(), of_one, of_other) &&
        !are_in_one_group(divergence)) {
      return std::nullopt;
    }
    // The smaller side is unusual, unless ranks that are not heard could have turned that vote.
    const std::size_t margin = ones > others ? ones - others : others - ones;
    if (margin > divergence.silent && are_of_one_kind(divergence)) {
      const bool one_is_few = ones < others;
      // Most ranks may have left out a call: then their past expects that of the few.
      // Not of messages, which come in rows that are as long as the ring or the pipeline.
      const bool message = programs_.is_message(programs_.calls(one)[divergence.index]) ||
                           programs_.is_message(programs_.calls(other)[divergence.index]);
      const Expected expected =
          message ? Expected::unknown
                  : expected_of(programs_.run(), programs_.agreement(), of_one, of_other);
      const bool most_broke = expected == (one_is_few ? Expected::first : Expected::second);
      if (!most_broke && !message) {
        const std::optional<bool> told =
            is_second_unusual(programs_.run(), programs_.agreement(), of_one, of_other);
        if (told && *told == one_is_few) return std::nullopt;  // numbers and rounds contradict
      }
      return odd(one_is_few != most_broke, true);
    }
    const std::optional<bool> told =
        is_second_unusual(programs_.run(), programs_.agreement(), of_one, of_other);
    if (!told) return std::nullopt;
    return odd(!*told, false);
  }

  // Whether all ranks of both sides are in the group in which they called last.
  bool are_in_one_group(const Divergence& divergence) const {
    if (divergence.index == 0) return false;
    const OwnGroup& group = programs_.group_of(divergence.one[0], divergence.index - 1);
    const auto is_member = [&](std::uint32_t r) {
      return group.members.index_of(programs_.run().ranks[r].rank).has_value();
    };
    return std::all_of(divergence.one.begin(), divergence.one.end(), is_member) &&
           std::all_of(divergence.other.begin(), divergence.other.end(), is_member);
  }

  // Whether the ranks are certainly of one kind: their indices are known in each group in which
  // they exchange messages, unless it is a ring. Otherwise they may be different stages.
  bool are_of_one_kind(const Divergence& divergence) const {
    const auto is_certain = [&](std::uint32_t r) {
      const std::vector<OwnGroup>& list = programs_.groups_of(r);
      return std::all_of(list.begin(), list.end(), [&](const OwnGroup& group) {
        return !programs_.has_messages(group.id) || programs_.is_ring(group.id) ||
               group.index != OwnGroup::kNotKnown;
      });
    };
    return is_certain(divergence.one[0]) && is_certain(divergence.other[0]);
  }

  // Whether nothing shows if few ranks made several calls too many in their first round, or if most
  // left out these calls of a branch that their batches do not use: neither side makes any such
  // call in another round, and there are no lines and no names.
  bool may_be_left_out_by_others(const OddProgram& odd) {
    if (!odd.by_numbers || odd.kind != OddProgram::Kind::extra || odd.count < 2) return false;
    const std::uint32_t d = odd.deviants[0];
    const auto is_only_one = [&](std::uint32_t r) {
      for (std::uint32_t i = 0; i < programs_.size(r); ++i)
        if (i != odd.index && is_same_of_program(programs_.agreement(), programs_.calls(r)[i],
                                                 programs_.calls(r)[odd.index]))
          return false;
      return true;
    };
    const trace::Call& call = programs_.calls(d)[odd.index];
    return call.at.value == 0 && call.what.value == 0 && !programs_.is_message(call) &&
           is_only_one(d) && is_only_one(odd.usual);
  }

  RankPrograms programs_;
  std::vector<Divergence> divergences_;
  std::size_t absent_ = 0;  // ranks without a trace, or of an unknown kind
};

}  // namespace

std::optional<OddProgram> find_odd_program(const trace::Run& run, Agreement& agreement) {
  const bool from_start = std::all_of(run.ranks.begin(), run.ranks.end(), is_known_from_its_start);
  if (!from_start || run.ranks.size() < 2) return std::nullopt;
  std::optional<OddProgram> odd = OddProgramSearch(run, agreement).find();
  const auto mixes = [&](std::uint32_t r) {
    const auto all = static_cast<std::uint32_t>(run.ranks[r].calls.size());
    return mixes_threads(run.ranks[r], std::min(all, odd->index + odd->count));
  };
  return odd && (mixes(odd->usual) || mixes(odd->deviants[0])) ? std::nullopt : odd;
}

}  // namespace lockstep::verify
