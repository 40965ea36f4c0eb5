#include "verify/product/evaluation.h"

#include <algorithm>
#include <map>
#include <set>

namespace lockstep::verify {

namespace {

// What all choices of all ranks do on one channel.
struct ChannelUse {
  std::size_t choices = 0;             // pairs of a rank and one of its sequences
  std::uint32_t shared = 0, size = 0;  // of the first choice
  bool differs = false;                // some choice has another list of shared keys, or own keys
  std::map<std::int32_t, std::uint32_t> own;  // by rank: into SequenceTable::own_lists
};

// Whether the splits of the channel's all-to-alls fit: what member i sends to member j is what j
// expects from i. A list that is not as long as the group fits nobody.
bool exchanges_fit(const SequenceTable& table, const ProductChannel& channel,
                   const ChannelUse& use) {
  const std::size_t n = channel.members.size();
  std::vector<const std::vector<std::uint32_t>*> own;
  std::set<std::uint32_t> different;
  for (const trace::Rank member : channel.members) {
    const auto found = use.own.find(member.value);
    if (found == use.own.end()) return false;
    own.push_back(&table.own_lists[found->second]);
    different.insert(found->second);
  }
  // The common case: no call has splits.
  const bool plain = std::all_of(different.begin(), different.end(), [&](std::uint32_t list) {
    const std::vector<std::uint32_t>& ids = table.own_lists[list];
    return std::all_of(ids.begin(), ids.end(), [](std::uint32_t id) { return id == 0; });
  });
  if (plain) return true;
  for (std::size_t index = 0; index < use.size; ++index) {
    std::vector<const ExchangeSplits*> rows;
    bool any = false;
    for (const std::vector<std::uint32_t>* ids : own) {
      rows.push_back(&table.exchanges[(*ids)[index]]);
      any = any || (*ids)[index] != 0;
    }
    if (!any) continue;
    for (const ExchangeSplits* row : rows) {
      if (row->in.size() != n || row->out.size() != n) return false;
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        if (rows[i]->in[j] != rows[j]->out[i]) return false;
      }
    }
  }
  return true;
}

}  // namespace

void compare_choices(const SequenceTable& table, Evaluation& evaluation) {
  const auto ranks = static_cast<std::int32_t>(evaluation.choices.size());
  std::map<ChannelId, ChannelUse> uses;
  for (std::size_t r = 0; r < evaluation.choices.size(); ++r) {
    for (const SequenceId s : evaluation.choices[r]) {
      for (const Projection& p : table.sequences[s.value].projections) {
        const ProductChannel& channel = table.channels[p.channel.value];
        if (channel.has_one_member() || !channel.counts(static_cast<std::int32_t>(r))) continue;
        ChannelUse& use = uses[p.channel];
        if (use.choices++ == 0) {
          use.shared = p.shared;
          use.size = p.size;
        }
        const auto [own, fresh] = use.own.emplace(static_cast<std::int32_t>(r), p.own);
        use.differs = use.differs || use.shared != p.shared || own->second != p.own;
      }
    }
  }
  for (const auto& [id, use] : uses) {
    const ProductChannel& channel = table.channels[id.value];
    // Every choice of every member must use the channel.
    std::size_t expected = 0;
    for (const trace::Rank member : channel.members) {
      if (member.value >= 0 && member.value < ranks)
        expected += evaluation.choices[static_cast<std::size_t>(member.value)].size();
    }
    if (use.differs || use.choices != expected ||
        (!channel.message && !exchanges_fit(table, channel, use))) {
      evaluation.disagreeing.push_back(id);
    } else {
      evaluation.agreed.push_back({id, use.shared, use.size});
    }
  }
}

std::vector<SequenceId> distinct_sequences(const Evaluation& evaluation) {
  std::vector<SequenceId> out;
  for (const std::vector<SequenceId>& mine : evaluation.choices)
    out.insert(out.end(), mine.begin(), mine.end());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace lockstep::verify
