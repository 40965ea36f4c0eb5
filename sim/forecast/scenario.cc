#include "sim/forecast/scenario.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/forecast/timed_run.h"
#include "sim/forecast/training_steps.h"
#include "trace/spread.h"

namespace lockstep::sim {
namespace {

std::int64_t samples_of(const runtime::Scenario& scenario, int rank) {
  return std::int64_t{scenario.train.batch_size} * scenario.micro_batches(rank);
}

RanksCosts ranks_costs(const runtime::Scenario& scenario, DerivedRanks& derived) {
  RanksCosts out;
  out.different = std::move(derived.costs);
  std::map<std::int32_t, std::size_t> index_of;
  for (std::size_t i = 0; i < out.different.size(); ++i) index_of[out.different[i].rank] = i;
  for (std::size_t r = 0; r < derived.traced.size(); ++r) {
    out.of_rank.push_back(index_of.at(derived.traced[r]));
    out.samples.push_back(samples_of(scenario, static_cast<int>(r)));
  }
  return out;
}

void count_carried(const ProgramCall& call, const NcclCost& nccl,
                   std::vector<CarriedCalls>& carried) {
  for (CarriedCalls& c : carried) {
    if (c.op != call.op || c.algorithm != nccl.algorithm || c.protocol != nccl.protocol) continue;
    c.least = std::min(c.least, call.bytes);
    c.most = std::max(c.most, call.bytes);
    return;
  }
  carried.push_back({call.op, nccl.algorithm, nccl.protocol, call.bytes, call.bytes});
}

// True if the remedy computes images that no sample has.
bool has_dummies(const runtime::Scenario& scenario) {
  using Kind = runtime::Scenario::Remedy::Kind;
  switch (scenario.remedy.kind) {
    case Kind::dummy_image:
    case Kind::gradient_mask:
      return true;
    case Kind::empty_image:
    case Kind::none:
    case Kind::alternating:
    case Kind::presence_vote:
      break;
  }
  return false;
}

void add_checkpoints(const runtime::Scenario& scenario, ScenarioForecast& out) {
  const int every = scenario.train.checkpoint.every;
  if (every == 0) return;
  const StepTimes& times = out.figures.times;
  // A checkpoint follows every `every`-th step.
  out.checkpoints = static_cast<std::int64_t>(times.size()) / every;
  if (out.checkpoints == 0) return;
  Picos all;
  for (std::size_t s = 0; s < times.size(); ++s) all += times.after(s);
  out.checkpoint_time = Picos{all.value / out.checkpoints};
}

bool is_timed(const RanksCosts& costs) {
  return std::ranges::any_of(costs.different, [](const trace::RankCosts& rank) {
    return std::ranges::any_of(rank.work,
                               [](const trace::WorkCost& work) { return work.nanos > 0; });
  });
}

ScenarioForecast summarise(const runtime::Scenario& scenario, const Machine& machine,
                           const DerivedRanks& derived, const TimedScenario& timed) {
  const SimulatedProgram& simulated = timed.simulated;
  ScenarioForecast out;
  out.scenario = scenario.name;
  out.machine = machine;
  out.steps = scenario.train.steps;
  // The stages of a pipeline train on the same batch, and so do all ranks if the batch is
  // broadcast: count each batch once.
  const int alike = scenario.data.broadcast ? scenario.ranks : scenario.ranks_of_replica();
  for (int rank = 0; rank < scenario.ranks; rank += alike)
    out.samples += samples_of(scenario, rank);
  out.class_of = simulated.folding.class_of;
  out.slowed_calls = simulated.result.slowed_calls;
  out.most_slowed = simulated.result.most_slowed;
  out.figures =
      forecast(timed.run, simulated.program, simulated.folding, simulated.result, timed.layouts);
  add_checkpoints(scenario, out);
  const MeasuredSteps measured = measured_steps(out.figures.times);
  out.flops = flop_use(timed.costs.pointers(), machine, measured.first, measured.count);
  out.flops_share = out.flops.share(measured.seconds() / static_cast<double>(measured.count));
  out.dummies = has_dummies(scenario);
  if (scenario.strategy.kind == runtime::Scenario::Strategy::Kind::pipeline)
    out.stages = scenario.strategy.stages;
  out.path = forecast_path(timed.run, simulated, timed.layouts, measured);
  for (const trace::RankCosts& costs : timed.costs.different)
    out.state_bytes = std::max(out.state_bytes, costs.state_bytes);
  out.memory = memory_forecast(memory_timelines(timed.run, simulated.program, simulated.folding,
                                                simulated.result, timed.costs.pointers()),
                               timed.run);
  out.on_meta = derived.on_meta;
  out.timed_work = is_timed(timed.costs);
  out.derived_by = derived.origin;
  return out;
}

}  // namespace

std::vector<const trace::RankCosts*> RanksCosts::pointers() const {
  std::vector<const trace::RankCosts*> out;
  out.reserve(of_rank.size());
  for (const std::size_t i : of_rank) out.push_back(&different[i]);
  return out;
}

Result<TimedScenario> time_scenario(const runtime::Scenario& scenario, DerivedRanks derived,
                                    const Machine& machine) {
  RanksCosts costs = ranks_costs(scenario, derived);
  // How many ranks share a node's cores depends on all ranks, so the job is spread first and timed
  // then.
  Result<trace::Run> run =
      trace::spread(std::move(derived.run), derived.traced, scenario.ranks_of_copy());
  if (!run) return run.error();
  run = timed_run(std::move(*run), costs.pointers(), costs.samples, machine);
  if (!run) return run.error();
  Result<RunProgram> program = program_of(*run);
  if (!program) return program.error();
  std::vector<GroupLayout> layouts = layouts_of(program->job, machine);
  std::vector<CarriedCalls> carried;
  const PriceOfCall price = [&](std::uint32_t group, const ProgramCall& call) {
    // Prices::of() asks once for each different call, which is what the report lists.
    if (const auto nccl = nccl_call({call.op, call.bytes}, layouts[group], machine))
      count_carried(call, *nccl, carried);
    return call_cost(call, layouts[group], machine);
  };
  const auto prices = Prices::of(program->job, kinds_of(layouts), price);
  if (!prices) return prices.error();
  Result<SimulatedProgram> simulated =
      simulate_on_machine(std::move(*program), layouts, *prices, machine);
  if (!simulated) return simulated.error();
  TimedScenario out{scenario.name,         std::move(*run),    std::move(costs),
                    std::move(*simulated), std::move(layouts), std::nullopt};
  if (!out.simulated.result.stuck) {
    out.forecast = summarise(scenario, machine, derived, out);
    out.forecast->carried = std::move(carried);
  }
  return out;
}

Result<std::vector<WhatIf>> what_ifs(const TimedScenario& timed, const Machine& machine) {
  return what_ifs(timed.run, timed.simulated.program, timed.costs.pointers(), timed.costs.samples,
                  machine);
}

Result<TrialsForecast> run_trials(const TimedScenario& timed, const Machine& machine,
                                  const TrialOptions& options) {
  const Result<Trials> trials = run_trials(timed.run, timed.simulated.program, machine, options);
  if (!trials) return trials.error();
  return trials_forecast(*trials, options);
}

}  // namespace lockstep::sim
