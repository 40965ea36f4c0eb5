#include "verify/product/model.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "verify/replay/semantics.h"

namespace lockstep::verify {

ProductModel::ProductModel(const trace::Derivation& derivation)
    : derivation_(derivation),
      sequences_(cut_sequences(derivation)),
      situations_(derivation.spec, sequences_.has_late_calls()) {
  for (const trace::Run& run : derivation.runs)
    nccl_ = nccl_ || recorded_semantics(run) == CallSemantics::nccl;
}

const RecordedPart& ProductModel::recorded(const Situation& situation, std::int32_t rank,
                                           const ProductOption& option) const {
  switch (situation.kind) {
    case Situation::Kind::first:
      return at_step(option.history, rank, 0, option.condition);
    case Situation::Kind::later:
      return at_step(option.history, rank, situation.step, option.condition);
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

const RecordedPart& ProductModel::at_step(std::uint32_t history, std::int32_t rank,
                                          std::int64_t step, std::uint32_t condition) const {
  static const RecordedPart kNotRecorded;
  if (step == 0) return sequences_.part(history, rank, ProductSequences::kFirst);
  const RecordedPart& second = sequences_.part(history, rank, ProductSequences::kSecond);
  if (step != 1 || second.sequence == kNothing)
    return sequences_.part(history, rank, ProductSequences::kFirstCondition + condition);
  return condition == spec().recorded_condition(history, 1) ? second : kNotRecorded;
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
        const bool second = situation.kind == Situation::Kind::later && situation.step == 1 &&
                            sequences_.has_late_calls();
        out.missing.push_back(
            "what rank " + std::to_string(r) + " does " +
            (end ? "after the last step"
                 : std::string(second ? "in step 1, among which calls of step 0 come, " : "") +
                       "under \"" + printable(spec().conditions[option.condition].name) +
                       "\" after a first step under \"" +
                       printable(spec().conditions[spec().histories[option.history].first].name) +
                       "\"") +
            " was not recorded");
      }
    }
    std::sort(mine.begin(), mine.end());
    mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
  }
  compare_choices(sequences_, out);
  note_teams(situation, out);
  forgive_teams(situation, out);
  return out;
}

void ProductModel::note_teams(const Situation& situation, Evaluation& out) const {
  for (std::int32_t r = 0; r < ranks(); ++r) {
    const std::vector<std::int32_t>& team = situations_.team_of(r);
    if (team.size() == 1) continue;
    const std::vector<std::uint32_t>& mine = out.choices[static_cast<std::size_t>(r)];
    TeamChoice choice{team.front(), std::vector<std::vector<std::uint32_t>>(mine.size())};
    const std::vector<ProductOption> options = situations_.options(situation, r);
    for (std::uint32_t o = 0; o < options.size(); ++o) {
      const auto at =
          std::lower_bound(mine.begin(), mine.end(), recorded(situation, r, options[o]).sequence);
      if (at != mine.end()) choice.under[static_cast<std::size_t>(at - mine.begin())].push_back(o);
    }
    out.teams.emplace(r, std::move(choice));
  }
}

// Who chooses as one need not agree over its options.
void ProductModel::forgive_teams(const Situation& situation, Evaluation& out) const {
  std::set<std::int32_t> concerned;  // first ranks
  std::set<std::uint32_t> within;
  for (const std::uint32_t channel : out.disagreeing) {
    if (!within_team(channel)) continue;
    within.insert(channel);
    concerned.insert(situations_.team_of(sequences_.channels[channel].members[0].value).front());
  }
  std::set<std::uint32_t> bad;
  for (const std::int32_t team : concerned) {
    for (const ProductOption& option : situations_.options(situation, team)) {
      const auto wrong = disagreeing(team_sequences(situation, team, option));
      bad.insert(wrong.begin(), wrong.end());
    }
  }
  std::erase_if(within, [&](std::uint32_t channel) { return bad.contains(channel); });
  std::erase_if(out.disagreeing, [&](std::uint32_t channel) { return within.contains(channel); });
  out.varying.assign(within.begin(), within.end());
}

bool ProductModel::within_team(std::uint32_t channel) const {
  const trace::RankList& members = sequences_.channels[channel].members;
  const auto known = [&](trace::Rank r) { return r.value >= 0 && r.value < ranks(); };
  if (members.size() == 0 || !known(members[0])) return false;
  const std::vector<std::int32_t>& team = situations_.team_of(members[0].value);
  return team.size() > 1 && std::all_of(members.begin(), members.end(), [&](trace::Rank r) {
           return std::binary_search(team.begin(), team.end(), r.value);
         });
}

std::vector<std::uint32_t> ProductModel::team_sequences(const Situation& situation,
                                                        std::int32_t rank,
                                                        const ProductOption& option) const {
  std::vector<std::uint32_t> out(static_cast<std::size_t>(ranks()), kNothing);
  for (const std::int32_t r : situations_.team_of(rank))
    out[static_cast<std::size_t>(r)] = recorded(situation, r, option).sequence;
  return out;
}

bool ProductModel::was_recorded(const Situation& situation, std::int32_t rank,
                                const ProductOption& option) const {
  const std::vector<std::int32_t>& team = situations_.team_of(rank);
  return std::all_of(team.begin(), team.end(), [&](std::int32_t r) {
    return recorded(situation, r, option).sequence != kNothing;
  });
}

std::vector<std::uint32_t> ProductModel::disagreeing(
    const std::vector<std::uint32_t>& sequences) const {
  Evaluation one;
  one.choices.resize(sequences.size());
  for (std::size_t r = 0; r < sequences.size(); ++r) {
    if (sequences[r] != kNothing) one.choices[r].push_back(sequences[r]);
  }
  compare_choices(sequences_, one);
  return one.disagreeing;
}

}  // namespace lockstep::verify
