#include "runtime/forecast/derived_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <numeric>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/files/write_file.h"
#include "base/status_line.h"
#include "runtime/derive/all_ranks.h"
#include "runtime/derive/derivation_plan.h"
#include "trace/load.h"

namespace lockstep::runtime {
namespace {

// Short, so that a small derivation (0.2 s, most of it to load LibTorch) does not take noticeably
// longer.
constexpr std::chrono::milliseconds kDerivationPoll(5);
constexpr int kPollsPerLogRead = 20;  // the worker's log is read every tenth of a second

// By step, what the scenario's rules say about a rank's batch: its modalities (empty: no rule
// says), and the factor of its images.
using BatchesByRule = std::vector<std::pair<std::vector<Modality>, double>>;

BatchesByRule batches_by_rule(const Scenario& scenario, int rank) {
  BatchesByRule out;
  for (std::int64_t step = 0; step < scenario.train.steps; ++step) {
    const Scenario::Data::Rule* rule = scenario.rule_for(rank, step);
    out.emplace_back(rule == nullptr ? std::vector<Modality>() : rule->has,
                     scenario.outlier_factor(rank, step));
  }
  return out;
}

Result<std::vector<trace::RankCosts>> read_costs(const trace::Run& run, const std::string& folder) {
  std::vector<trace::RankCosts> out;
  for (const trace::RankTrace& trace : run.ranks) {
    Result<trace::RankCosts> costs =
        trace::read_work_costs(trace::costs_file(folder, trace.rank.value));
    if (!costs) return costs.error();
    if (costs->rank != trace.rank.value)
      return Error{fmt::format("these are the costs of rank {}", costs->rank),
                   {trace::costs_file(folder, trace.rank.value)},
                   "derive them again"};
    out.push_back(std::move(*costs));
  }
  return out;
}

// A rank whose program raises an exception makes no step that could be timed.
Status none_raised(const trace::Run& run) {
  for (const trace::RankTrace& trace : run.ranks) {
    if (trace.exceptions.empty()) continue;
    return Error{fmt::format("rank {} ends with an exception: {}", trace.rank.value,
                             trace.exceptions.front().what),
                 {},
                 "`lockstep derive` and `lockstep run` say what comes of it"};
  }
  return Status::ok();
}

// By rank: a number that is equal for ranks with equal batches, by the rules and by what they draw.
// `drawn`: by rank, a rank that draws alike; empty: not known.
std::vector<std::uint32_t> batch_numbers(const Scenario& scenario,
                                         const std::vector<std::int32_t>& drawn) {
  std::map<std::pair<BatchesByRule, std::int32_t>, std::uint32_t> numbers;
  std::vector<std::uint32_t> out;
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    const std::int32_t alike = drawn.empty() ? 0 : drawn[static_cast<std::size_t>(rank)];
    out.push_back(numbers
                      .emplace(std::pair(batches_by_rule(scenario, rank), alike),
                               static_cast<std::uint32_t>(numbers.size()))
                      .first->second);
  }
  return out;
}

std::size_t count_traced(const std::vector<std::int32_t>& traced) {
  std::size_t out = 0;
  for (std::size_t rank = 0; rank < traced.size(); ++rank)
    out += traced[rank] == static_cast<std::int32_t>(rank) ? 1U : 0U;
  return out;
}

}  // namespace

bool needs_draws(const Scenario& scenario) {
  return scenario.ranks > kMaxRanksRun && !rules_say_all(scenario);
}

Result<std::vector<std::int32_t>> ranks_that_stand_for(const Scenario& scenario,
                                                       const std::optional<DrawnAlike>& drawn) {
  if (scenario.ranks <= kMaxRanksRun) {
    std::vector<std::int32_t> out(static_cast<std::size_t>(scenario.ranks));
    std::iota(out.begin(), out.end(), 0);
    return out;
  }
  // Ways to classify ranks by the batches that they draw, the finest first. Takes the first that
  // leaves few enough ranks to derive.
  std::vector<const std::vector<std::int32_t>*> ways;
  const std::vector<std::int32_t> none;
  if (!drawn) {
    ways = {&none};
  } else {
    ways = {&drawn->by_images, &drawn->by_micro_batches};
    // In a pipeline no other replica sees the micro-batches, so it may suffice that the same steps
    // have images.
    if (scenario.ranks_of_replica() > 1) ways.push_back(&drawn->by_steps);
  }
  std::size_t fewest = 0;
  for (const std::vector<std::int32_t>* const way : ways) {
    std::vector<std::int32_t> out = representatives(scenario, batch_numbers(scenario, *way));
    fewest = count_traced(out);
    if (fewest <= kMaxRepresentatives) return out;
  }
  return Error{fmt::format("{} ranks of this job have different conditions, and at most {} are "
                           "derived",
                           fewest, kMaxRepresentatives),
               {scenario.file},
               "simulate fewer steps (--steps), or give more ranks the same batches; `lockstep "
               "derive` decides for all mixes"};
}

Result<RanksToDerive> ranks_to_derive(const Scenario& scenario, const DeriveRanksOptions& options,
                                      Interrupts& interrupts) {
  // What cannot be derived is refused here as well.
  if (const Result<DerivationPlan> plan = derivation_plan(scenario); !plan) return plan.error();
  RanksToDerive out;
  std::optional<DrawnAlike> drawn;
  if (needs_draws(scenario)) {
    Result<DrawnAlike> answer =
        ask_who_draws_alike(scenario, {options.worker, options.folder, false}, interrupts);
    if (!answer) return answer.error();
    drawn = std::move(*answer);
  }
  Result<std::vector<std::int32_t>> traced = ranks_that_stand_for(scenario, drawn);
  if (!traced) return traced.error();
  out.traced = std::move(*traced);
  const Result<bool> meta = derive_on_meta(scenario, options.on_meta);
  if (!meta) return meta.error();
  out.on_meta = *meta;
  for (const std::vector<int>& team : teams(scenario)) {
    if (out.traced[static_cast<std::size_t>(team.front())] != team.front()) continue;
    out.ranks.push_back({scenario.file, team, options.folder, options.folder + "/broadcasts",
                         dissent_steps(scenario, team.front()), std::string(), options.costs});
    out.ranks.back().answered = true;
  }
  return out;
}

Result<RankDerivation> RankDerivation::start(RanksToDerive ranks,
                                             const DeriveRanksOptions& options) {
  Result<LoneRun> worker =
      LoneRun::start(ranks.ranks, {options.worker, options.folder, ranks.on_meta});
  if (!worker) return worker.error();
  sim::DerivedRanks out;
  out.traced = std::move(ranks.traced);
  out.on_meta = ranks.on_meta;
  return RankDerivation(std::move(*worker), std::move(out), options.folder, ranks.ranks.size());
}

Result<sim::DerivedRanks> read_derived_ranks(const std::string& folder,
                                             const sim::DerivedRanks& known) {
  Result<trace::Run> run = trace::load_run({folder});
  if (!run) return run.error();
  Result<std::vector<trace::RankCosts>> costs = read_costs(*run, folder);
  if (!costs) return costs.error();
  return sim::DerivedRanks{std::move(*run), std::move(*costs), known.traced, known.origin,
                           known.on_meta};
}

std::optional<Result<sim::DerivedRanks>> RankDerivation::poll() {
  std::optional<Result<std::string>> version = worker_.poll();
  if (!version) return std::nullopt;
  refused_ = worker_.refused();
  if (!*version) return version->error();
  derived_.origin = std::move(**version);
  Result<sim::DerivedRanks> out = read_derived_ranks(folder_, derived_);
  if (!out) return out;
  if (const Status ok = none_raised(out->run); !ok) {
    refused_ = true;
    return ok.error();
  }
  return out;
}

Result<sim::DerivedRanks> derive_ranks(const Scenario& scenario, const DeriveRanksOptions& options,
                                       Interrupts& interrupts) {
  Result<RanksToDerive> ranks = ranks_to_derive(scenario, options, interrupts);
  if (!ranks) return ranks.error();
  Result<RankDerivation> derivation = RankDerivation::start(std::move(*ranks), options);
  if (!derivation) return derivation.error();
  StatusLine line({.silent = options.quiet});
  for (int polls = 0;; ++polls) {
    if (auto derived = derivation->poll()) return std::move(*derived);
    if (interrupts.poll() != 0) return Error{"interrupted", {}, ""};
    if (polls % kPollsPerLogRead == kPollsPerLogRead - 1)
      line.show(fmt::format("deriving {} of {}", derivation->finished(), derivation->teams()));
    std::this_thread::sleep_for(kDerivationPoll);
  }
}

namespace {

Error other_program() {
  return {"a rank did something else when it was timed than when it was counted", {}, ""};
}

}  // namespace

Status time_work(const Scenario& scenario, DeriveRanksOptions options,
                 std::vector<trace::RankCosts>& counted, Interrupts& interrupts) {
  if (const Status ok = make_folder(options.folder); !ok) return ok;
  options.on_meta = false;
  options.costs = LoneRanks::Costs::times;
  Result<sim::DerivedRanks> timed = derive_ranks(scenario, options, interrupts);
  if (!timed) return timed.error();
  if (timed->costs.size() != counted.size()) return other_program();
  for (std::size_t r = 0; r < counted.size(); ++r) {
    trace::RankCosts& costs = timed->costs[r];
    // The stages of a pipeline are looked at together: the other threads are not their own.
    if (scenario.ranks_of_replica() > 1) costs.other_threads_nanos = 0;
    if (const Status ok = keep_shortest(costs, counted[r]); !ok) return ok;
  }
  return Status::ok();
}

Status keep_shortest(const trace::RankCosts& timed, trace::RankCosts& counted) {
  if (counted.work.size() != timed.work.size() || counted.rank != timed.rank)
    return other_program();
  // The shortest of several times is the one that nothing else disturbed. 0: not timed yet.
  const auto shorter = [](std::int64_t a, std::int64_t b) { return a == 0 ? b : std::min(a, b); };
  for (std::size_t i = 0; i < timed.work.size(); ++i) {
    trace::WorkCost& kept = counted.work[i];
    if (kept.before != timed.work[i].before || kept.id != timed.work[i].id) return other_program();
    kept.nanos = shorter(kept.nanos, timed.work[i].nanos);
  }
  counted.other_threads_nanos = shorter(counted.other_threads_nanos, timed.other_threads_nanos);
  return Status::ok();
}

}  // namespace lockstep::runtime
