#include "verify/product/counterexample.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"

namespace lockstep::verify {

namespace {

const std::vector<std::uint32_t>& keys_of(const ProductModel& model, std::uint32_t shared) {
  static const std::vector<std::uint32_t> kNone_;
  return shared == kNothing ? kNone_ : model.sequences().shared_lists[shared];
}

std::vector<std::string> shown(const ProductModel& model, std::uint32_t shared) {
  std::vector<std::string> out;
  for (const std::uint32_t key : keys_of(model, shared))
    out.push_back(model.sequences().shown[key]);
  return out;
}

std::set<std::string> carried(const ProductModel& model, std::uint32_t shared) {
  std::set<std::string> out;
  for (const std::uint32_t key : keys_of(model, shared)) {
    const std::vector<std::string>& names = model.sequences().carried[key];
    out.insert(names.begin(), names.end());
  }
  return out;
}

}  // namespace

std::string channel_words(const ProductChannel& channel) {
  if (!channel.message) return "group " + printable(channel.name);
  std::string out = "messages from rank " + std::to_string(channel.members[0].value) + " to rank " +
                    std::to_string(channel.members[1].value);
  if (channel.tag != trace::kNoPeerTag) out += ", tag " + std::to_string(channel.tag);
  return out;
}

ChannelParties parties_on(const ProductModel& model, std::uint32_t channel,
                          const std::vector<std::uint32_t>& sequences) {
  std::set<trace::Rank> members(model.sequences().channels[channel].members.begin(),
                                model.sequences().channels[channel].members.end());
  ChannelParties out;
  std::map<std::uint32_t, std::size_t> party_of;
  for (const trace::Rank member : members) {
    if (member.value < 0 || member.value >= model.ranks()) continue;
    const std::uint32_t s = sequences[static_cast<std::size_t>(member.value)];
    std::uint32_t shared = kNothing;
    if (s != kNothing) {
      for (const Projection& p : model.sequences().sequences[s].projections) {
        if (p.channel == channel) shared = p.shared;
      }
    }
    const auto [party, fresh] = party_of.emplace(shared, out.size());
    if (fresh) out.push_back({shared, {}});
    out[party->second].ranks.push_back(member);
  }
  return out;
}

std::size_t parties_reference(const ChannelParties& parties) {
  std::size_t best = 0;
  for (std::size_t p = 1; p < parties.size(); ++p) {
    if (parties[p].ranks.size() > parties[best].ranks.size()) best = p;
  }
  return best;
}

void describe_divergence(const ProductModel& model, const std::vector<std::uint32_t>& sequences,
                         Counterexample& out) {
  const std::vector<std::uint32_t> channels = model.disagreeing(sequences);
  if (channels.empty()) return;
  const std::uint32_t channel = channels.front();
  out.channel = channel_words(model.sequences().channels[channel]);
  const ChannelParties parties = parties_on(model, channel, sequences);
  if (parties.size() < 2) {
    out.reason.push_back("the ranks of " + out.channel +
                         " cut an exchange in ways that do not fit each other");
    return;
  }
  // A rank that was made to differ is the deviant, also where the parties are equal in size.
  const auto differs = [&](const ChannelParty& party) {
    return std::includes(out.differing.begin(), out.differing.end(), party.ranks.begin(),
                         party.ranks.end());
  };
  std::size_t reference = parties_reference(parties);
  if (differs(parties[reference]))
    reference = static_cast<std::size_t>(std::find_if_not(parties.begin(), parties.end(), differs) -
                                         parties.begin());
  if (reference == parties.size()) reference = 0;
  const std::size_t deviant = reference == 0 ? 1 : 0;
  const ChannelParty& usual = parties[reference];
  const ChannelParty& other = parties[deviant];
  out.reference = {usual.ranks.front(), shown(model, usual.shared)};
  out.deviant = {other.ranks.front(), shown(model, other.shared)};
  const auto& x = keys_of(model, usual.shared);
  const auto& y = keys_of(model, other.shared);
  const auto [first, second] = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
  out.parts_at = static_cast<std::size_t>(first - x.begin());
  const std::set<std::string> here = carried(model, usual.shared);
  const std::set<std::string> there = carried(model, other.shared);
  std::set_symmetric_difference(here.begin(), here.end(), there.begin(), there.end(),
                                std::back_inserter(out.what));
  const auto count = [](std::size_t n) { return n == 0 ? "no calls" : plural(n, "call"); };
  out.reason.push_back("in " + out.channel + " rank " + std::to_string(usual.ranks.front().value) +
                       " makes " + count(x.size()) + ", rank " +
                       std::to_string(other.ranks.front().value) + " " + count(y.size()) +
                       "; they part at call " + std::to_string(out.parts_at));
}

void describe_circle(const ProductModel& model, const Circle& circle, Counterexample& out) {
  const auto words = [&](const ProductMeeting& meeting) {
    return "call " + std::to_string(meeting.place) + " of " +
           channel_words(model.sequences().channels[meeting.channel]);
  };
  for (std::size_t i = 0; i < circle.links.size(); ++i) {
    const Circle::Link& link = circle.links[i];
    const Circle::Link& next = circle.links[(i + 1) % circle.links.size()];
    out.reason.push_back("rank " + std::to_string(link.rank) + " waits in " + words(link.meeting) +
                         " before it comes to " + words(next.meeting));
  }
}

}  // namespace lockstep::verify
