#include "verify/product/assignments.h"

#include <algorithm>
#include <map>

namespace lockstep {

namespace {

constexpr std::int64_t kAllStepsUpTo = 32;
constexpr std::int64_t kMostFollowed = 4096;

Situation first_situation(std::uint32_t meet) {
  return {Situation::Kind::first, 0, false, meet, 0};
}

// The first set of conditions that is possible at the step, `meet` if it is.
std::optional<std::uint32_t> possible_meet(const ProductModel& model, std::int64_t step,
                                           std::uint32_t meet) {
  const Situations& situations = model.situations();
  if (situations.possible(meet, step)) return meet;
  for (std::uint32_t m = 0; m < situations.meets().size(); ++m) {
    if (situations.possible(m, step)) return m;
  }
  return std::nullopt;
}

std::uint32_t meet_of(const ProductModel& model, std::uint32_t condition) {
  const auto& meets = model.situations().meets();
  const auto found = std::find_if(meets.begin(), meets.end(), [&](const auto& meet) {
    return std::binary_search(meet.begin(), meet.end(), condition);
  });
  return static_cast<std::uint32_t>(found - meets.begin());
}

// The usual conditions of a later step for ranks whose histories are settled. Empty: none that was
// recorded.
std::vector<ProductOption> usual_in(const ProductModel& model, std::int64_t step,
                                    std::uint32_t meet, const std::vector<ProductOption>& past) {
  std::map<std::uint32_t, std::size_t> votes;
  for (std::int32_t r = 0; r < model.ranks(); ++r) {
    for (const std::uint32_t c : model.situations().conditions(meet, r, step)) ++votes[c];
  }
  std::vector<ProductOption> out;
  for (std::int32_t r = 0; r < model.ranks(); ++r) {
    const std::uint32_t history = past[static_cast<std::size_t>(r)].history;
    std::optional<std::uint32_t> best;
    for (const std::uint32_t c : model.situations().conditions(meet, r, step)) {
      const auto& team = model.situations().team_of(r);
      const bool recorded = std::all_of(team.begin(), team.end(), [&](std::int32_t other) {
        return model.at_step(history, other, step, c).sequence != kNothing;
      });
      if (recorded && (!best || votes[c] > votes[*best])) best = c;
    }
    if (!best) return {};
    out.push_back({history, *best});
  }
  return out;
}

// Step 0 in which each rank begins the history that it follows later.
std::vector<ProductOption> first_step(const ProductModel& model,
                                      const std::vector<ProductOption>& later) {
  std::vector<ProductOption> out;
  for (const ProductOption& option : later)
    out.push_back({option.history, model.spec().histories[option.history].first});
  return out;
}

void add_step(Assignment& assignment, std::int64_t step, std::vector<ProductOption> options) {
  assignment.steps.push_back(step);
  assignment.options.push_back(std::move(options));
}

// A step as usual. False: none is possible, or was recorded for all.
bool add_usual(const ProductModel& model, Assignment& assignment, std::int64_t step,
               std::uint32_t meet, const std::vector<ProductOption>& past) {
  if (model.spec().only_steps && step >= *model.spec().only_steps) return false;
  const auto possible = possible_meet(model, step, meet);
  if (!possible) return false;
  std::vector<ProductOption> options = usual_in(model, step, *possible, past);
  if (options.empty()) return false;
  add_step(assignment, step, std::move(options));
  return true;
}

}  // namespace

std::vector<ProductOption> usual_options(const ProductModel& model, const Situation& situation) {
  std::map<std::uint32_t, std::size_t> conditions, histories;  // how many ranks may have them
  std::vector<std::vector<ProductOption>> all;
  for (std::int32_t r = 0; r < model.ranks(); ++r) {
    std::vector<ProductOption> mine = model.situations().options(situation, r);
    std::erase_if(mine, [&](const ProductOption& option) {
      return !model.was_recorded(situation, r, option);
    });
    for (const ProductOption& option : mine) {
      ++conditions[option.condition];
      ++histories[option.history];
    }
    all.push_back(std::move(mine));
  }
  std::vector<ProductOption> out;
  for (const std::vector<ProductOption>& mine : all) {
    if (mine.empty()) return {};
    out.push_back(*std::max_element(mine.begin(), mine.end(), [&](const auto& a, const auto& b) {
      const std::pair x(conditions[a.condition], histories[a.history]);
      const std::pair y(conditions[b.condition], histories[b.history]);
      return x < y;
    }));
  }
  return out;
}

Assignment lead_to(const ProductModel& model, const Situation& situation,
                   const std::vector<ProductOption>& options) {
  Assignment out;
  const bool later = situation.kind == Situation::Kind::later;
  std::vector<ProductOption> first = options;
  if (later) {
    first = first_step(model, options);
  } else if (situation.kind != Situation::Kind::first) {
    const auto meet = possible_meet(model, 0, 0);
    first = usual_options(model, first_situation(meet.value_or(0)));
  }
  if (first.empty()) return out;
  add_step(out, 0, first);
  const std::vector<ProductOption> past = std::move(first);
  std::int64_t last = 0;
  if (later) {
    last = situation.step;
    for (std::int64_t step = 1; step < last && last <= kAllStepsUpTo; ++step) {
      if (!add_usual(model, out, step, situation.meet, past)) break;
    }
    add_step(out, last, options);
  }
  add_usual(model, out, last + 1, situation.meet, past);
  return out;
}

std::optional<Assignment> usual_steps(const ProductModel& model) {
  Assignment out = lead_to(model, Situation{}, {});
  if (out.steps.empty()) return std::nullopt;
  return out;
}

std::optional<Assignment> follow_trace(const ProductModel& model, std::uint32_t history,
                                       std::int32_t rank) {
  const ProductSpec& spec = model.spec();
  const auto& raise = model.sequences().raise(history, rank);
  if (!raise || raise->step > kMostFollowed) return std::nullopt;
  if (spec.only_steps && raise->step >= *spec.only_steps) return std::nullopt;
  Assignment out;
  std::vector<ProductOption> past;
  for (std::int64_t step = 0; step <= raise->step; ++step) {
    const std::uint32_t condition = spec.recorded_condition(history, step);
    const std::uint32_t meet = meet_of(model, condition);
    const std::vector<std::uint32_t> mine = model.situations().conditions(meet, rank, step);
    if (!std::binary_search(mine.begin(), mine.end(), condition)) return std::nullopt;
    if (!model.situations().possible(meet, step)) return std::nullopt;
    std::vector<ProductOption> options(static_cast<std::size_t>(model.ranks()));
    for (std::int32_t other = 0; other < model.ranks(); ++other) {
      const auto o = static_cast<std::size_t>(other);
      // The rank's own condition where the other one may have it: the fewest ranks differ.
      const auto may = model.situations().conditions(meet, other, step);
      const std::uint32_t c =
          std::binary_search(may.begin(), may.end(), condition) ? condition : may.front();
      options[o] = {step == 0 ? model.situations().history_of(c) : past[o].history, c};
    }
    if (step == 0) past = options;
    add_step(out, step, std::move(options));
  }
  return out;
}

}  // namespace lockstep
