#include "verify/product/model.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "verify/semantics.h"

namespace lockstep {

namespace {

// All that ranks do on one channel.
struct Bucket {
  std::size_t entries = 0;  // (rank, sequence)
  std::uint32_t shared = 0, size = 0;
  bool differs = false;
  std::map<std::int32_t, std::uint32_t> own;  // by rank
};

// Whether what each member sends to each other is what that one expects. Lists of another length
// than the group fit nobody.
bool exchanges_fit(const ProductSequences& sequences, const ProductChannel& channel,
                   const Bucket& bucket) {
  const std::size_t n = channel.members.size();
  for (std::size_t place = 0; place < bucket.size; ++place) {
    std::vector<const ExchangeSplits*> rows;
    bool any = false;
    for (const Rank member : channel.members) {
      const auto own = bucket.own.find(member.value);
      if (own == bucket.own.end()) return false;
      const std::uint32_t id = sequences.own_lists[own->second][place];
      rows.push_back(&sequences.exchanges[id]);
      any = any || id != 0;
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

ProductModel::ProductModel(const Derivation& derivation)
    : derivation_(derivation), sequences_(cut_sequences(derivation)), situations_(derivation.spec) {
  for (const Run& run : derivation.runs)
    nccl_ = nccl_ || recorded_semantics(run) == CallSemantics::nccl;
}

const RecordedPart& ProductModel::recorded(const Situation& situation, std::int32_t rank,
                                           const ProductOption& option) const {
  switch (situation.kind) {
    case Situation::Kind::first:
      return sequences_.part(option.history, rank, ProductSequences::kFirst);
    case Situation::Kind::later:
      return sequences_.part(option.history, rank,
                             ProductSequences::kFirstCondition + option.condition);
    default:
      break;
  }
  const auto part =
      situation.kind == Situation::Kind::start ? ProductSequences::kStart : ProductSequences::kEnd;
  for (std::uint32_t h = 0; h < derivation_.runs.size(); ++h) {
    const RecordedPart& there = sequences_.part(h, rank, part);
    if (there.sequence != kNothing) return there;
  }
  return sequences_.part(0, rank, part);
}

Evaluation ProductModel::evaluate(const Situation& situation) const {
  Evaluation out;
  out.choices.resize(static_cast<std::size_t>(ranks()));
  for (std::int32_t r = 0; r < ranks(); ++r) {
    std::vector<std::uint32_t>& mine = out.choices[static_cast<std::size_t>(r)];
    for (const ProductOption& option : situations_.options(situation, r)) {
      const std::uint32_t sequence = recorded(situation, r, option).sequence;
      if (sequence != kNothing) {
        mine.push_back(sequence);
      } else if (out.missing.empty()) {
        const bool end = situation.kind == Situation::Kind::end;
        out.missing.push_back(
            "what rank " + std::to_string(r) + " does " +
            (end ? "after the last step"
                 : "under \"" + printable(spec().conditions[option.condition].name) +
                       "\" after a first step under \"" +
                       printable(spec().conditions[spec().histories[option.history].first].name) +
                       "\"") +
            " was not recorded");
      }
    }
    std::sort(mine.begin(), mine.end());
    mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
  }
  compare(out);
  return out;
}

void ProductModel::compare(Evaluation& evaluation) const {
  std::map<std::uint32_t, Bucket> buckets;  // by channel
  for (std::size_t r = 0; r < evaluation.choices.size(); ++r) {
    for (const std::uint32_t s : evaluation.choices[r]) {
      for (const Projection& p : sequences_.sequences[s].projections) {
        if (sequences_.channels[p.channel].lonely()) continue;
        Bucket& bucket = buckets[p.channel];
        if (bucket.entries++ == 0) {
          bucket.shared = p.shared;
          bucket.size = p.size;
        }
        const auto [own, fresh] = bucket.own.emplace(static_cast<std::int32_t>(r), p.own);
        bucket.differs = bucket.differs || bucket.shared != p.shared || own->second != p.own;
      }
    }
  }
  for (const auto& [id, bucket] : buckets) {
    const ProductChannel& channel = sequences_.channels[id];
    std::size_t expected = 0;
    for (const Rank member : channel.members) {
      if (member.value >= 0 && member.value < ranks())
        expected += evaluation.choices[static_cast<std::size_t>(member.value)].size();
    }
    if (bucket.differs || bucket.entries != expected ||
        (!channel.message && !exchanges_fit(sequences_, channel, bucket))) {
      evaluation.disagreeing.push_back(id);
    } else {
      evaluation.agreed.push_back({id, bucket.shared, bucket.size});
    }
  }
}

std::vector<std::uint32_t> ProductModel::disagreeing(
    const std::vector<std::uint32_t>& sequences) const {
  Evaluation one;
  one.choices.resize(sequences.size());
  for (std::size_t r = 0; r < sequences.size(); ++r) {
    if (sequences[r] != kNothing) one.choices[r].push_back(sequences[r]);
  }
  compare(one);
  return one.disagreeing;
}

std::vector<std::uint32_t> ProductModel::distinct(const Evaluation& evaluation) {
  std::vector<std::uint32_t> out;
  for (const std::vector<std::uint32_t>& mine : evaluation.choices)
    out.insert(out.end(), mine.begin(), mine.end());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace lockstep
