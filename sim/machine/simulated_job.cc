#include "sim/machine/simulated_job.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/files/write_file.h"
#include "sim/engine/to_run.h"
#include "sim/machine/job_network.h"
#include "trace/formats/text/text_trace.h"

namespace lockstep::sim {
namespace {

Result<SimulatedProgram> checked(SimulatedProgram simulated) {
  if (simulated.result.end.is_forever())
    return Error{
        "it takes longer than 106 days, which no simulated clock can show", {}, "check the units"};
  return simulated;
}

// forever(): beyond the range of the clock.
Picos scaled(Picos time, double factor) {
  const double out = static_cast<double>(time.value) * factor;
  if (!(out < static_cast<double>(Picos::forever().value))) return Picos::forever();
  return Picos{std::llround(out)};
}

// On shared cores the price of a call is the work that each member does for it.
Result<SimulatedProgram> simulate_on_cores(RunProgram program, const Prices& prices,
                                           const SharedCores& shared) {
  ExecutionResult result = execute_on_cores(program.job, prices.cost_in(program.job), shared);
  Folding apart = unfolded(program.job);
  return checked({std::move(program), std::move(apart), std::move(result)});
}

}  // namespace

SharedCores shared_cores(const Machine& machine, std::size_t ranks) {
  SharedCores out;
  out.speeds = {machine.cores.value_or(1), machine.contention, machine.slice};
  out.wake = machine.wake;
  out.start = machine.start;
  out.refill = machine.refill;
  for (std::size_t r = 0; r < ranks; ++r)
    out.node_of.push_back(
        static_cast<std::uint32_t>(r / static_cast<std::size_t>(machine.ranks_per_node)));
  return out;
}

Result<Prices> prices_on(const Machine& machine, const ProgramJob& job,
                         const std::vector<GroupLayout>& layouts) {
  return Prices::of(job, kinds_of(layouts), [&](std::uint32_t group, const ProgramCall& call) {
    return call_cost(call, layouts[group], machine);
  });
}

ExecutedJob execute_job(const ProgramJob& job, const Machine& machine,
                        const std::vector<GroupLayout>& layouts, const Prices& prices,
                        const DurationVariation* variation) {
  const CostOfCall cost = prices.cost_in(job);
  if (machine.cores)
    return {unfolded(job),
            execute_on_cores(job, cost, shared_cores(machine, job.ranks.size()), variation)};
  if (machine.network) {
    const Result<JobNetwork> network = JobNetwork::of(machine, job, layouts);
    LOCKSTEP_CHECK(network, "a job that does not fit the network that it was timed on");
    Folding folding = variation == nullptr ? network->fold(job) : unfolded(job);
    const SharedLinks links = network->links(job, folding);
    ExecutionResult result = execute(job, folding, cost, {{}, false, variation, &links});
    return {std::move(folding), std::move(result)};
  }
  // Ranks with equal programs are simulated once, unless each varies on its own.
  Folding folding = variation == nullptr ? fold(job, kinds_of(layouts)) : unfolded(job);
  ExecutionResult result = execute(job, folding, cost, {{}, false, variation, nullptr});
  return {std::move(folding), std::move(result)};
}

Result<SimulatedProgram> simulate_program(RunProgram program, Folding folding, const Prices& prices,
                                          Picos launch, const SharedLinks* links) {
  ExecutionResult result = execute(program.job, folding, prices.cost_in(program.job),
                                   {launch, /*record_issues=*/true, nullptr, links});
  return checked({std::move(program), std::move(folding), std::move(result)});
}

Result<SimulatedProgram> simulate_with_calls(RunProgram program, const RecordedCalls& calls,
                                             double factor, Picos launch) {
  Folding apart = unfolded(program.job);
  DurationVariation recorded;
  recorded.call_duration = [&](std::uint32_t group_class, std::uint32_t number, Picos) {
    return calls.time(apart.group_representatives[group_class], number, factor);
  };
  const CostOfCall nothing = [](std::uint32_t, const ProgramCall&) { return CallCost{}; };
  ExecutionResult result =
      execute(program.job, apart, nothing, {launch, /*record_issues=*/true, &recorded, nullptr});
  return checked({std::move(program), std::move(apart), std::move(result)});
}

void slow_down(RunProgram& program, const Machine& machine) {
  std::map<std::pair<std::uint32_t, double>, std::uint32_t> slowed;  // by program and factor
  for (std::size_t r = 0; r < program.job.ranks.size(); ++r) {
    ProgramJob::Member& member = program.job.ranks[r];
    const double factor = slowness_of(machine, static_cast<std::int64_t>(r));
    if (factor == 1) continue;
    const auto next = static_cast<std::uint32_t>(program.job.programs.size());
    const auto [found, is_new] = slowed.try_emplace({member.program, factor}, next);
    if (is_new) {
      Program slow = program.job.programs[member.program];
      const auto on_device = [](const ProgramStep& step) {
        return step.kind == StepKind::compute && step.stream != ProgramStep::kHost;
      };
      const bool device = std::any_of(slow.steps.begin(), slow.steps.end(), on_device);
      for (ProgramStep& step : slow.steps)
        if (step.kind == StepKind::compute && (!device || on_device(step)))
          step.duration = scaled(step.duration, factor);
      program.job.programs.push_back(std::move(slow));
      program.events.push_back(program.events[member.program]);
    }
    member.program = found->second;
  }
}

Result<SimulatedProgram> simulate_on_machine(RunProgram program,
                                             const std::vector<GroupLayout>& layouts,
                                             const Prices& prices, const Machine& machine,
                                             bool apart, Picos launch) {
  if (machine.cores) {
    const std::size_t ranks = program.job.ranks.size();
    return simulate_on_cores(std::move(program), prices, shared_cores(machine, ranks));
  }
  if (machine.network) {
    const Result<JobNetwork> network = JobNetwork::of(machine, program.job, layouts);
    if (!network) return network.error();
    Folding folding = apart ? unfolded(program.job) : network->fold(program.job);
    const SharedLinks links = network->links(program.job, folding);
    return simulate_program(std::move(program), std::move(folding), prices, launch, &links);
  }
  // Groups that are placed differently cost differently, so fold() must keep them apart.
  Folding folding = apart ? unfolded(program.job) : fold(program.job, kinds_of(layouts));
  return simulate_program(std::move(program), std::move(folding), prices, launch);
}

std::vector<trace::Rank> stuck_ranks(const SimulatedProgram& simulated) {
  std::vector<trace::Rank> out;
  for (std::size_t r = 0; r < simulated.folding.class_of.size(); ++r)
    if (!simulated.result.classes[simulated.folding.class_of[r]].done)
      out.emplace_back(static_cast<std::int32_t>(r));
  return out;
}

std::optional<RaisedJob> raised_job(trace::Run run) {
  // Without an exception something else went wrong.
  const bool raised =
      std::any_of(run.ranks.begin(), run.ranks.end(),
                  [](const trace::RankTrace& trace) { return !trace.exceptions.empty(); });
  if (!raised) return std::nullopt;
  Result<RunProgram> program = program_of(run);
  if (!program) return std::nullopt;
  // Who waits for whom does not depend on durations: all calls are free.
  const PriceOfCall nothing = [](std::uint32_t, const ProgramCall&) { return CallCost{}; };
  const Result<Prices> prices = Prices::of(program->job, {}, nothing);
  if (!prices) return std::nullopt;
  Folding folding = fold(program->job);
  Result<SimulatedProgram> simulated =
      simulate_program(std::move(*program), std::move(folding), *prices, Picos{});
  if (!simulated) return std::nullopt;
  return RaisedJob{std::move(run), std::move(*simulated)};
}

Status write_simulated_traces(const SimulatedProgram& simulated, const trace::Run& run,
                              const std::string& folder) {
  if (const Status made = make_folder(folder); !made) return made;
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const trace::RankTrace trace =
        simulated_rank(run, r, simulated.program, simulated.folding, simulated.result);
    std::ostringstream text;
    trace::write_text_trace(text, trace, run.tables);
    const std::string file = fmt::format("{}/rank_{}.trace.jsonl", folder, trace.rank.value);
    if (const Status written = write_file(file, std::move(text).str()); !written) return written;
  }
  return Status::ok();
}

}  // namespace lockstep::sim
