#include "runtime/derive/trial.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "runtime/derive/all_ranks.h"
#include "runtime/derive/plan_scenarios.h"
#include "trace/load.h"
#include "trace/spread.h"
#include "verify/product/assignments.h"
#include "verify/verify.h"

namespace lockstep::runtime {

namespace {

struct Trial {
  verify::Situation situation;
  std::optional<trace::Rank> other;  // the rank that is not as usual
  verify::Assignment assignment;
};

// The usual options; where nothing was recorded that makes them so, each rank's first.
std::vector<verify::ProductOption> options_to_try(const verify::ProductModel& model,
                                                  const verify::Situation& situation) {
  std::vector<verify::ProductOption> out = verify::usual_options(model, situation);
  for (std::int32_t r = 0; out.size() < static_cast<std::size_t>(model.ranks()); ++r)
    out.push_back(model.situations().options(situation, r).front());
  return out;
}

// Adds a step like the last one, if the ranks may stay in its conditions: some programs notice only
// then that a step was not complete.
void add_one_like_it(const verify::ProductModel& model, const verify::Situation& situation,
                     verify::Assignment& assignment) {
  const std::int64_t next = assignment.steps.back() + 1;
  const auto& only = model.spec().only_steps;
  if (only && next >= *only) return;
  const std::vector<verify::ProductOption> options = assignment.options.back();
  for (std::int32_t r = 0; r < model.ranks(); ++r) {
    const auto mine = model.situations().conditions(situation.condition_set, r, next);
    const verify::ConditionId own = options[static_cast<std::size_t>(r)].condition;
    if (!std::binary_search(mine.begin(), mine.end(), own)) return;
  }
  assignment.steps.push_back(next);
  assignment.options.push_back(options);
}

// For each kind of later step: all ranks as usual; and, for each other condition, one rank in it.
std::vector<Trial> trials_of(const verify::ProductModel& model) {
  std::vector<Trial> out;
  const auto add = [&](const verify::Situation& situation, std::optional<trace::Rank> other,
                       const std::vector<verify::ProductOption>& options) {
    verify::Assignment assignment = verify::steps_up_to(model, situation, options);
    if (!assignment.steps.empty() && assignment.steps.back() == situation.step)
      add_one_like_it(model, situation, assignment);
    if (out.size() < kMaxTrials && !assignment.steps.empty()) {
      out.push_back({situation, other, std::move(assignment)});
    }
  };
  for (const verify::Situation& situation : model.situations().all()) {
    if (situation.kind != verify::Situation::Kind::later) continue;
    const std::vector<verify::ProductOption> usual = options_to_try(model, situation);
    add(situation, std::nullopt, usual);
    std::vector<verify::ConditionId> tried;
    for (std::int32_t r = 0; r < model.ranks(); ++r) {
      for (const verify::ProductOption& option : model.situations().options(situation, r)) {
        const auto index = static_cast<std::size_t>(r);
        const bool known = std::find(tried.begin(), tried.end(), option.condition) != tried.end();
        if (known || option.condition == usual[index].condition) continue;
        // One rank per condition is enough for a trial; others would most likely show the same.
        tried.push_back(option.condition);
        std::vector<verify::ProductOption> options = usual;
        for (const std::int32_t other : model.situations().team_of(r))
          options[static_cast<std::size_t>(other)] = option;
        add(situation, trace::Rank(r), options);
      }
    }
  }
  return out;
}

// The first step in which ranks are in different conditions.
std::int64_t first_difference(const Trial& trial) {
  const verify::Assignment& a = trial.assignment;
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    const bool alike = std::all_of(a.options[i].begin(), a.options[i].end(),
                                   [&](const verify::ProductOption& option) {
                                     return option.condition == a.options[i].front().condition;
                                   });
    if (!alike) return a.steps[i];
  }
  return trial.situation.step;
}

using Conditions = std::vector<std::vector<std::size_t>>;  // by step, then by rank

// By rank: the rank that is run for it. Beyond kMaxRanksRun, one rank is run for all that the job
// treats as equals and that are under the same conditions.
std::vector<int> traced_ranks(const Scenario& scenario, const Conditions& conditions) {
  std::vector<int> out(static_cast<std::size_t>(scenario.ranks));
  if (scenario.ranks <= kMaxRanksRun) {
    for (int rank = 0; rank < scenario.ranks; ++rank) out[static_cast<std::size_t>(rank)] = rank;
    return out;
  }
  std::map<std::vector<std::size_t>, std::uint32_t> numbers;
  std::vector<std::uint32_t> met;
  for (std::size_t rank = 0; rank < out.size(); ++rank) {
    std::vector<std::size_t> own;
    for (const std::vector<std::size_t>& step : conditions) own.push_back(step[rank]);
    met.push_back(
        numbers.emplace(std::move(own), static_cast<std::uint32_t>(numbers.size())).first->second);
  }
  return representatives(scenario, met);
}

// Runs the ranks under the assignment, and returns their traces as one run.
Result<trace::Run> look_at(const DerivationPlan& plan, const std::string& scenario_text,
                           const verify::Assignment& assignment, const std::string& folder,
                           LoneOptions options, Interrupts& interrupts) {
  if (const Status ok = make_folder(folder); !ok) return ok.error();
  const std::string file = folder + "/scenario.yaml";
  const Conditions conditions = conditions_of(assignment);
  const Result<std::string> text = assignment_scenario(scenario_text, file, plan, conditions);
  if (!text) return text.error();
  if (const Status ok = write_file(file, *text); !ok) return ok.error();
  const Result<Scenario> scenario = load_scenario(file);
  if (!scenario) return scenario.error();
  const std::vector<int> traced = traced_ranks(*scenario, conditions);
  std::vector<LoneRanks> all;
  for (const std::vector<int>& ranks : teams(*scenario)) {
    if (traced[static_cast<std::size_t>(ranks.front())] != ranks.front()) continue;
    all.push_back(
        {file, ranks, folder, folder + "/broadcasts", dissent_steps(*scenario, ranks.front()), {}});
  }
  options.folder = folder;
  const Result<std::string> ran = run_alone(all, options, interrupts, [](std::size_t) {});
  if (!ran) return ran.error();
  Result<trace::Run> run = trace::load_run({folder});
  if (!run) return run.error();
  const Result<trace::Run> whole =
      trace::spread(std::move(*run), traced, scenario->ranks_of_copy());
  if (!whole) return whole.error();
  return verify::as_program(*whole);
}

}  // namespace

std::vector<std::vector<std::size_t>> conditions_of(const verify::Assignment& assignment) {
  std::vector<std::vector<std::size_t>> out;
  for (std::size_t i = 0; i < assignment.steps.size(); ++i) {
    std::vector<std::size_t> row;
    for (const verify::ProductOption& option : assignment.options[i])
      row.push_back(option.condition.value);
    const auto step = static_cast<std::size_t>(assignment.steps[i]);
    while (out.size() < step && !out.empty()) out.push_back(out.back());
    out.push_back(std::move(row));
  }
  return out;
}

Result<std::optional<verify::Counterexample>> try_assignments(const Scenario& scenario,
                                                              const DerivationPlan& plan,
                                                              const verify::ProductModel& model,
                                                              const LoneOptions& options,
                                                              Interrupts& interrupts) {
  const Result<std::string> text = read_input(scenario.file);
  if (!text) return text.error();
  const std::vector<Trial> trials = trials_of(model);
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const Trial& trial = trials[i];
    Result<trace::Run> run =
        look_at(plan, *text, trial.assignment, fmt::format("{}/trial-{}", options.folder, i),
                options, interrupts);
    if (!run) return run.error();
    verify::Report report = verify::verify(*run);
    if (!verify::shows_divergence(report)) continue;
    verify::Counterexample out;
    out.step = first_difference(trial);
    out.assignment = trial.assignment;
    if (trial.other) out.differing = {*trial.other};
    out.reason.emplace_back(
        "a step depends on more than its condition and the first step's; these steps themselves "
        "were examined");
    out.run = std::move(*run);
    out.report = std::move(report);
    return std::optional<verify::Counterexample>(std::move(out));
  }
  return std::optional<verify::Counterexample>();
}

}  // namespace lockstep::runtime
