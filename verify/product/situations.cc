#include "verify/product/situations.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/text.h"
#include "verify/product/sequences.h"

namespace lockstep::verify {

Situations::Situations(const trace::ProductSpec& spec, bool second_alone) : spec_(spec) {
  every_.resize(spec.conditions.size());
  std::iota(every_.begin(), every_.end(), 0U);
  history_of_.assign(spec.conditions.size(), kNothing);
  for (std::uint32_t h = 0; h < spec.histories.size(); ++h)
    history_of_[spec.histories[h].first] = h;
  for (std::int32_t r = 0; r < spec.world_size; ++r) teams_.push_back({r});
  if (spec.choice == trace::ProductSpec::Choice::free) {
    for (const std::vector<std::int32_t>& team : spec.together)
      for (const std::int32_t r : team) teams_[static_cast<std::size_t>(r)] = team;
  }
  find_meets();
  check_size();
  if (!problems_.empty()) return;
  check_histories();
  if (problems_.empty()) list_steps(second_alone);
}

void Situations::find_meets() {
  if (spec_.choice == trace::ProductSpec::Choice::agreed) {
    for (const std::uint32_t c : every_) meets_.push_back({c});
    return;
  }
  std::map<std::string, std::size_t> by_phase;
  for (const std::uint32_t c : every_) {
    const auto [phase, fresh] = by_phase.emplace(spec_.conditions[c].phase, meets_.size());
    if (fresh) meets_.emplace_back();
    meets_[phase->second].push_back(c);
  }
}

const std::vector<std::uint32_t>& Situations::allowed(std::int32_t rank, std::int64_t step) const {
  for (const trace::ProductSpec::Allowed& rule : spec_.allowed) {
    if (!rule.ranks.empty() && !std::binary_search(rule.ranks.begin(), rule.ranks.end(), rank))
      continue;
    if (!rule.steps.empty() && !std::binary_search(rule.steps.begin(), rule.steps.end(), step))
      continue;
    return rule.conditions;
  }
  return every_;
}

std::vector<std::uint32_t> Situations::conditions(std::uint32_t meet, std::int32_t rank,
                                                  std::int64_t step) const {
  std::vector<std::uint32_t> out = meets_[meet];
  for (const std::int32_t r : team_of(rank)) {
    const std::vector<std::uint32_t>& may = allowed(r, step);
    std::erase_if(out,
                  [&](std::uint32_t c) { return !std::binary_search(may.begin(), may.end(), c); });
  }
  return out;
}

bool Situations::possible(std::uint32_t meet, std::int64_t step) const {
  for (std::int32_t r = 0; r < spec_.world_size; ++r) {
    if (conditions(meet, r, step).empty()) return false;
  }
  return true;
}

// Every situation asks every rank for its options, and every option for the first rule that fits.
void Situations::check_size() {
  constexpr double kMost = double{1U << 28U};
  std::size_t named = 2;  // step 0, and all others
  for (const trace::ProductSpec::Allowed& rule : spec_.allowed) named += rule.steps.size();
  const auto sets = static_cast<double>(meets_.size());
  const auto conditions = static_cast<double>(every_.size());
  const auto rules = static_cast<double>(spec_.allowed.size() + 1);
  double asked = 0;  // whom each rank's options depend on
  for (const std::vector<std::int32_t>& team : teams_) asked += static_cast<double>(team.size());
  const double work =
      static_cast<double>(named) * asked * (rules * sets * sets + conditions * conditions);
  if (work <= kMost) return;
  problems_.emplace_back(
      "conditions, ranks and the steps that \"allowed\" names are too many to look at them all");
}

void Situations::check_histories() {
  std::set<std::uint32_t> missing;
  for (std::uint32_t m = 0; m < meets_.size(); ++m) {
    if (!possible(m, 0)) continue;
    for (std::int32_t r = 0; r < spec_.world_size; ++r) {
      for (const std::uint32_t c : conditions(m, r, 0)) {
        if (history_of_[c] == kNothing) missing.insert(c);
      }
    }
  }
  for (const std::uint32_t c : missing) {
    problems_.push_back("step 0 may be under \"" + printable(spec_.conditions[c].name) +
                        "\", but no history begins with it");
  }
}

void Situations::add_later(std::int64_t step, bool any_other,
                           const std::vector<std::uint32_t>& pasts) {
  constexpr std::size_t kMostSituations = std::size_t{1} << 16U;
  if (all_.size() + meets_.size() * pasts.size() > kMostSituations) {
    if (problems_.empty())
      problems_.emplace_back(
          "more than 65,536 kinds of steps are to be told apart: conditions, "
          "phases and the steps that \"allowed\" names are too many");
    return;
  }
  bool any = false;
  for (std::uint32_t m = 0; m < meets_.size(); ++m) {
    if (!possible(m, step)) continue;
    any = true;
    for (const std::uint32_t past : pasts)
      all_.push_back({Situation::Kind::later, step, any_other, m, past});
  }
  if (!any) {
    problems_.push_back(
        "\"allowed\" leaves some rank without a condition that the others may "
        "meet in step " +
        std::to_string(step));
  }
}

void Situations::list_steps(bool second_alone) {
  all_.push_back({Situation::Kind::start, trace::kNone, false, 0, 0});
  std::vector<std::uint32_t> pasts;
  for (std::uint32_t m = 0; m < meets_.size(); ++m) {
    if (!possible(m, 0)) continue;
    all_.push_back({Situation::Kind::first, 0, false, m, 0});
    pasts.push_back(m);
  }
  if (pasts.empty())
    problems_.emplace_back("\"allowed\" leaves some rank without a condition in step 0");
  std::set<std::int64_t> named;
  for (const trace::ProductSpec::Allowed& rule : spec_.allowed)
    named.insert(rule.steps.begin(), rule.steps.end());
  if (second_alone) named.insert(1);
  named.erase(0);
  if (spec_.only_steps) named.erase(named.lower_bound(*spec_.only_steps), named.end());
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
      out.push_back({0, 0});
      break;
    case Situation::Kind::first:
      for (const std::uint32_t c : conditions(situation.meet, rank, 0))
        out.push_back({history_of_[c], c});
      break;
    case Situation::Kind::later: {
      const std::vector<std::uint32_t> firsts = conditions(situation.past, rank, 0);
      for (const std::uint32_t c : conditions(situation.meet, rank, situation.step)) {
        for (const std::uint32_t first : firsts) out.push_back({history_of_[first], c});
      }
      break;
    }
  }
  return out;
}

}  // namespace lockstep::verify
