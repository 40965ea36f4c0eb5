#include "verify/product/model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/product/sequences.h"
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
    case Situation::Kind::later:
      return at_step(rank, situation.step, option);
    default:
      break;
  }
  const auto part =
      situation.kind == Situation::Kind::start ? ProductSequences::kStart : ProductSequences::kEnd;
  for (std::uint32_t h = 0; h < derivation_.runs.size(); ++h) {
    const RecordedPart& there = sequences_.part(HistoryId(h), rank, part);
    if (there.sequence != kNoSequence) return there;
  }
  return sequences_.part(HistoryId(0), rank, part);
}

const RecordedPart& ProductModel::at_step(std::int32_t rank, std::int64_t step,
                                          const ProductOption& option) const {
  static const RecordedPart kNotRecorded;
  if (step == 0) return sequences_.part(option.history, rank, ProductSequences::kFirst);
  const RecordedPart& second = sequences_.part(option.history, rank, ProductSequences::kSecond);
  if (step != 1 || (second.sequence == kNoSequence && !spec().has_seconds()))
    return sequences_.part(option.history, rank,
                           sequences_.under(option.previous, option.condition));
  return option.condition == recorded_condition(option.history, 1) ? second : kNotRecorded;
}

Evaluation ProductModel::evaluate(const Situation& situation) const {
  Evaluation out;
  out.choices.resize(static_cast<std::size_t>(ranks()));
  for (std::int32_t r = 0; r < ranks(); ++r) {
    std::vector<SequenceId>& mine = out.choices[static_cast<std::size_t>(r)];
    for (const ProductOption& option : situations_.options(situation, r)) {
      const SequenceId sequence = recorded(situation, r, option).sequence;
      if (sequence != kNoSequence) {
        mine.push_back(sequence);
      } else if (out.missing.empty()) {
        const bool end = situation.kind == Situation::Kind::end;
        const bool second = situation.kind == Situation::Kind::later && situation.step == 1 &&
                            sequences_.has_late_calls();
        const auto name = [&](ConditionId c) { return printable(spec().conditions[c.value].name); };
        std::string past;
        if (spec().has_seconds() && situation.step > 0)
          past = fmt::format(" and a second under \"{}\"",
                             name(recorded_condition(option.history, 1)));
        if (spec().looks_back && situation.step > 1)
          past = fmt::format(" and another under \"{}\"", name(option.previous));
        const std::string when =
            end ? "after the last step"
                : fmt::format("{}under \"{}\" after a first step under \"{}\"{}",
                              second ? "in step 1, among which calls of step 0 come, " : "",
                              name(option.condition), name(recorded_condition(option.history, 0)),
                              past);
        out.missing.push_back(fmt::format("what rank {} does {} was not recorded", r, when));
      }
    }
    std::sort(mine.begin(), mine.end());
    mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
  }
  compare_choices(sequences_, out);
  add_team_choices(situation, out);
  accept_differences_within_teams(situation, out);
  return out;
}

void ProductModel::add_team_choices(const Situation& situation, Evaluation& out) const {
  for (std::int32_t r = 0; r < ranks(); ++r) {
    const std::vector<std::int32_t>& team = situations_.team_of(r);
    if (team.size() == 1) continue;
    const std::vector<SequenceId>& mine = out.choices[static_cast<std::size_t>(r)];
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

// compare_choices() demands that a channel is the same under all options of all members. Within a
// team that is too much: its ranks choose together, so their calls need to agree under each option,
// but may differ between options. Channels for which that holds move to `varying`.
void ProductModel::accept_differences_within_teams(const Situation& situation,
                                                   Evaluation& out) const {
  std::set<std::int32_t> teams;  // by their first ranks
  std::set<ChannelId> within;
  for (const ChannelId channel : out.disagreeing) {
    if (!within_team(channel)) continue;
    within.insert(channel);
    teams.insert(situations_.team_of(sequences_.channels[channel.value].members[0].value).front());
  }
  std::set<ChannelId> disagreeing_channels;
  for (const std::int32_t team : teams) {
    for (const ProductOption& option : situations_.options(situation, team)) {
      const auto wrong = disagreeing(team_sequences(situation, team, option));
      disagreeing_channels.insert(wrong.begin(), wrong.end());
    }
  }
  std::erase_if(within, [&](ChannelId channel) { return disagreeing_channels.contains(channel); });
  std::erase_if(out.disagreeing, [&](ChannelId channel) { return within.contains(channel); });
  out.varying.assign(within.begin(), within.end());
}

bool ProductModel::within_team(ChannelId channel) const {
  const trace::RankList& members = sequences_.channels[channel.value].members;
  const auto known = [&](trace::Rank r) { return r.value >= 0 && r.value < ranks(); };
  if (members.size() == 0 || !known(members[0])) return false;
  const std::vector<std::int32_t>& team = situations_.team_of(members[0].value);
  return team.size() > 1 && std::all_of(members.begin(), members.end(), [&](trace::Rank r) {
           return std::binary_search(team.begin(), team.end(), r.value);
         });
}

std::vector<SequenceId> ProductModel::team_sequences(const Situation& situation, std::int32_t rank,
                                                     const ProductOption& option) const {
  std::vector<SequenceId> out(static_cast<std::size_t>(ranks()), kNoSequence);
  for (const std::int32_t r : situations_.team_of(rank))
    out[static_cast<std::size_t>(r)] = recorded(situation, r, option).sequence;
  return out;
}

bool ProductModel::was_recorded(const Situation& situation, std::int32_t rank,
                                const ProductOption& option) const {
  const std::vector<std::int32_t>& team = situations_.team_of(rank);
  return std::all_of(team.begin(), team.end(), [&](std::int32_t r) {
    return recorded(situation, r, option).sequence != kNoSequence;
  });
}

std::vector<ChannelId> ProductModel::disagreeing(const std::vector<SequenceId>& sequences) const {
  Evaluation one;
  one.choices.resize(sequences.size());
  for (std::size_t r = 0; r < sequences.size(); ++r) {
    if (sequences[r] != kNoSequence) one.choices[r].push_back(sequences[r]);
  }
  compare_choices(sequences_, one);
  return one.disagreeing;
}

Situations::Situations(const trace::ProductSpec& spec, bool second_alone) : spec_(spec) {
  for (std::uint32_t h = 0; h < spec.histories.size(); ++h) {
    const trace::ProductSpec::History& history = spec.histories[h];
    history_of_.emplace(std::pair(history.first, history.second.value_or(ConditionId())),
                        HistoryId(h));
  }
  for (std::int32_t r = 0; r < spec.world_size; ++r) teams_.push_back({r});
  if (spec.choice == trace::ProductSpec::Choice::free) {
    for (const std::vector<std::int32_t>& team : spec.together)
      for (const std::int32_t r : team) teams_[static_cast<std::size_t>(r)] = team;
  }
  find_condition_sets();
  check_size();
  if (!problems_.empty()) return;
  check_histories();
  if (problems_.empty()) list_steps(second_alone);
}

HistoryId Situations::history_of(ConditionId first, ConditionId second) const {
  const auto found = history_of_.find({first, spec_.has_seconds() ? second : ConditionId()});
  return found == history_of_.end() ? kNoHistory : found->second;
}

void Situations::find_condition_sets() {
  if (spec_.choice == trace::ProductSpec::Choice::agreed) {
    for (std::uint32_t c = 0; c < spec_.conditions.size(); ++c)
      condition_sets_.push_back({ConditionId(c)});
    return;
  }
  std::map<std::string, std::size_t> by_phase;
  for (std::uint32_t c = 0; c < spec_.conditions.size(); ++c) {
    const auto [phase, fresh] = by_phase.emplace(spec_.conditions[c].phase, condition_sets_.size());
    if (fresh) condition_sets_.emplace_back();
    condition_sets_[phase->second].emplace_back(c);
  }
}

// The conditions of the first rule that fits the rank and the step. Null: no rule does, so all
// conditions are allowed.
const std::vector<ConditionId>* Situations::allowed(std::int32_t rank, std::int64_t step) const {
  for (const trace::ProductSpec::Allowed& rule : spec_.allowed) {
    if (!rule.ranks.empty() && !std::binary_search(rule.ranks.begin(), rule.ranks.end(), rank))
      continue;
    if (!rule.steps.empty() && !std::binary_search(rule.steps.begin(), rule.steps.end(), step))
      continue;
    return &rule.conditions;
  }
  return nullptr;
}

std::vector<ConditionId> Situations::conditions(std::uint32_t condition_set, std::int32_t rank,
                                                std::int64_t step) const {
  std::vector<ConditionId> out = condition_sets_[condition_set];
  for (const std::int32_t r : team_of(rank)) {
    const std::vector<ConditionId>* const may = allowed(r, step);
    if (may == nullptr) continue;
    std::erase_if(out,
                  [&](ConditionId c) { return !std::binary_search(may->begin(), may->end(), c); });
  }
  return out;
}

bool Situations::possible(std::uint32_t condition_set, std::int64_t step) const {
  for (std::int32_t r = 0; r < spec_.world_size; ++r) {
    if (conditions(condition_set, r, step).empty()) return false;
  }
  return true;
}

// Estimates the work: each situation asks each rank for its options, and each option for the first
// rule of `allowed` that fits. 2^28 such questions take minutes.
void Situations::check_size() {
  constexpr double kMax = double{1U << 28U};
  std::size_t named = 3;  // step 0, step 1, and all others
  for (const trace::ProductSpec::Allowed& rule : spec_.allowed)
    named += rule.steps.size() * (spec_.looks_back ? 2 : 1);
  // How many sets and conditions a situation remembers, beside its own.
  const int past = spec_.looks_back || spec_.has_seconds() ? 2 : 1;
  const auto sets = static_cast<double>(condition_sets_.size());
  const auto conditions = static_cast<double>(spec_.conditions.size());
  const auto rules = static_cast<double>(spec_.allowed.size() + 1);
  double asked = 0;  // a rank's options depend on its whole team
  for (const std::vector<std::int32_t>& team : teams_) asked += static_cast<double>(team.size());
  const double work = static_cast<double>(named) * asked *
                      (rules * std::pow(sets, past + 1) + std::pow(conditions, past + 1));
  if (work <= kMax) return;
  problems_.emplace_back(
      "there are too many conditions, ranks, or steps in \"allowed\" to examine all of them");
}

void Situations::check_histories() {
  // Step 1 counts where histories go on to it; else any set stands for it.
  const bool seconds = spec_.has_seconds() && spec_.only_steps != 1;
  std::set<std::pair<ConditionId, ConditionId>> missing;
  const auto look_at = [&](std::uint32_t set, std::uint32_t second_set) {
    for (std::int32_t r = 0; r < spec_.world_size; ++r) {
      for (const ConditionId c : conditions(set, r, 0)) {
        const std::vector<ConditionId> after =
            seconds ? conditions(second_set, r, 1) : std::vector<ConditionId>(1);
        for (const ConditionId second : after)
          if (history_of(c, second) == kNoHistory) missing.emplace(c, second);
      }
    }
  };
  for (std::uint32_t set = 0; set < condition_sets_.size(); ++set) {
    if (!possible(set, 0)) continue;
    if (!seconds) look_at(set, set);
    for (std::uint32_t second = 0; second < condition_sets_.size() && seconds; ++second)
      if (possible(second, 1)) look_at(set, second);
  }
  const auto name = [&](ConditionId c) { return printable(spec_.conditions[c.value].name); };
  for (const auto& [first, second] : missing) {
    problems_.push_back(
        fmt::format("step 0 may be under \"{}\"{}, but no history starts with it", name(first),
                    seconds ? fmt::format(" and step 1 under \"{}\"", name(second)) : ""));
  }
}

void Situations::add_later(std::int64_t step, bool any_other,
                           const std::vector<std::uint32_t>& pasts) {
  constexpr std::size_t kMaxSituations = std::size_t{1} << 16U;
  const std::optional<std::int64_t> other_past = Situations::other_past(step);
  std::vector<std::uint32_t> others;
  for (std::uint32_t set = 0; set < condition_sets_.size(); ++set)
    if (other_past && possible(set, *other_past)) others.push_back(set);
  if (!other_past) others.push_back(0);
  if (all_.size() + condition_sets_.size() * pasts.size() * others.size() > kMaxSituations) {
    if (problems_.empty())
      problems_.emplace_back(
          "there are more than 65,536 kinds of steps: use fewer conditions, phases, or steps in "
          "\"allowed\"");
    return;
  }
  bool any = false;
  for (std::uint32_t set = 0; set < condition_sets_.size(); ++set) {
    if (!possible(set, step)) continue;
    any = true;
    for (const std::uint32_t past : pasts)
      for (const std::uint32_t other : others)
        all_.push_back({Situation::Kind::later, step, any_other, set, past, other});
  }
  if (!any) {
    problems_.push_back(fmt::format(
        "\"allowed\" leaves some rank without a condition that the others may have in step {}",
        step));
  }
}

void Situations::list_steps(bool second_alone) {
  all_.push_back({Situation::Kind::start, trace::kNone, false, 0, 0});
  std::vector<std::uint32_t> pasts;
  for (std::uint32_t set = 0; set < condition_sets_.size(); ++set) {
    if (!possible(set, 0)) continue;
    all_.push_back({Situation::Kind::first, 0, false, set, 0});
    pasts.push_back(set);
  }
  if (pasts.empty())
    problems_.emplace_back("\"allowed\" leaves some rank without a condition in step 0");
  std::set<std::int64_t> named;
  for (const trace::ProductSpec::Allowed& rule : spec_.allowed)
    named.insert(rule.steps.begin(), rule.steps.end());
  if (second_alone || spec_.has_seconds()) named.insert(1);
  if (spec_.looks_back) {
    // After a step with conditions of its own comes one that may look back on them. Step 1 looks
    // back on step 0. Other steps look back on one of the others.
    const std::set<std::int64_t> own = std::exchange(named, {1});
    for (const std::int64_t step : own) named.insert({step, step + 1});
  }
  named.erase(0);
  if (spec_.only_steps) named.erase(named.lower_bound(*spec_.only_steps), named.end());
  // The first step after 0 that `allowed` does not name: it represents all of them.
  std::int64_t other = 1;
  for (const std::int64_t step : named) other += step == other ? 1 : 0;
  const bool others = !spec_.only_steps || other < *spec_.only_steps;
  bool placed = !others;
  for (const std::int64_t step : named) {
    if (!placed && other < step) {
      add_later(other, true, pasts);
      placed = true;
    }
    add_later(step, false, pasts);
  }
  if (!placed) add_later(other, true, pasts);
  all_.push_back({Situation::Kind::end, 0, false, 0, 0});
}

std::vector<ProductOption> Situations::options(const Situation& situation,
                                               std::int32_t rank) const {
  std::vector<ProductOption> out;
  switch (situation.kind) {
    case Situation::Kind::start:
    case Situation::Kind::end:
      out.emplace_back();
      break;
    case Situation::Kind::first:
      for (const ConditionId c : conditions(situation.condition_set, rank, 0)) {
        for (std::uint32_t h = 0; h < spec_.histories.size(); ++h)
          if (spec_.histories[h].first == c) out.push_back({HistoryId(h), c});
      }
      break;
    case Situation::Kind::later: {
      const std::vector<ConditionId> firsts = conditions(situation.past_set, rank, 0);
      const std::optional<std::int64_t> other_past = Situations::other_past(situation.step);
      std::vector<ConditionId> others(1);
      if (other_past) others = conditions(situation.other_past_set, rank, *other_past);
      for (const ConditionId c : conditions(situation.condition_set, rank, situation.step)) {
        for (const ConditionId first : firsts) {
          for (const ConditionId other : others) {
            const ConditionId second = situation.step == 1 ? c : other;
            const ConditionId previous = situation.step == 1 ? first : other;
            out.push_back(
                {history_of(first, second), c, spec_.looks_back ? previous : ConditionId()});
          }
        }
      }
      break;
    }
  }
  return out;
}

}  // namespace lockstep::verify
