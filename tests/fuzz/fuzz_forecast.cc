// A machine file, then the trace and the costs of each rank in turn, separated by blank lines: what
// fits together is forecast, whatever the numbers.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sim/engine/critical_path.h"
#include "sim/forecast/forecast.h"
#include "sim/forecast/memory_timeline.h"
#include "sim/forecast/timed_run.h"
#include "sim/forecast/what_if.h"
#include "sim/machine/simulated_job.h"
#include "tests/fuzz/fuzz_derivation.h"
#include "tests/fuzz/targets.h"
#include "trace/work_costs.h"

namespace lockstep {

namespace {

constexpr std::size_t kMaxForecastRanks = 4;
constexpr std::size_t kMaxEvents = 400;  // of a rank

struct Parts {
  sim::Machine machine;
  trace::Run run;
  std::vector<trace::RankCosts> costs;
};

// Nothing where they cannot be read or are not of one job.
std::optional<Parts> parts_of(std::string_view bytes) {
  const std::vector<std::string_view> sections = sections_of(bytes);
  if (sections.size() < 3 || sections.size() > 1 + 2 * kMaxForecastRanks) return std::nullopt;
  Result<sim::Machine> machine = sim::parse_machine(std::string(sections[0]), "fuzz.yaml");
  if (!machine) return std::nullopt;
  Parts out{std::move(*machine), {}, {}};
  std::vector<std::string_view> traces;
  for (std::size_t i = 1; i + 1 < sections.size(); i += 2) {
    traces.push_back(sections[i]);
    Result<trace::RankCosts> costs = trace::parse_work_costs(sections[i + 1], "fuzz.json");
    if (!costs) return std::nullopt;
    out.costs.push_back(std::move(*costs));
  }
  out.run = run_of_sections(traces);
  for (const trace::RankTrace& trace : out.run.ranks)
    if (trace.events.size() > kMaxEvents) return std::nullopt;
  if (out.run.ranks.size() != out.costs.size() ||
      static_cast<std::size_t>(out.run.world_size) != out.costs.size())
    return std::nullopt;
  return out;
}

void check_use(const sim::RankUse& use) {
  for (const double seconds : {use.busy, use.exposed, use.idle, use.hidden})
    LOCKSTEP_CHECK(std::isfinite(seconds) && seconds >= 0, "a time is from 0");
}

}  // namespace

void fuzz_forecast(std::string_view bytes) {
  std::optional<Parts> parts = parts_of(bytes);
  if (!parts) return;
  const sim::Machine& machine = parts->machine;
  std::vector<const trace::RankCosts*> costs;
  for (const trace::RankCosts& one : parts->costs) costs.push_back(&one);
  const std::vector<std::int64_t> samples(costs.size(), 8);
  const Result<trace::Run> run = sim::timed_run(std::move(parts->run), costs, samples, machine);
  if (!run) return;
  const Result<sim::RunProgram> program = sim::program_of(*run);
  if (!program) return;
  const sim::ProgramJob& job = program->job;
  const std::vector<sim::GroupLayout> layouts = sim::layouts_of(job, machine.ranks_per_node);
  const Result<sim::Prices> prices = sim::prices_on(machine, job, layouts);
  if (!prices) return;
  const sim::CostOfCall cost = prices->cost_in(job);
  const sim::Folding folding =
      machine.cores ? sim::unfolded(job) : sim::fold(job, sim::kinds_of(layouts));
  const sim::ExecutionResult result =
      machine.cores ? sim::execute_on_cores(job, cost, sim::shared_cores(machine, job.ranks.size()))
                    : sim::execute(job, folding, cost, {Picos{}, true, nullptr});
  if (result.stuck || result.end.is_forever()) return;
  const sim::Forecast forecast = sim::forecast(*run, *program, folding, result, layouts);
  for (const sim::RankUse& use : forecast.classes) check_use(use);
  sim::memory_timelines(*run, *program, folding, result, costs);
  const auto changes = sim::what_ifs(*run, *program, costs, samples, machine);
  LOCKSTEP_CHECK(changes || !changes.error().message.empty(), "an error says what is wrong");
}

}  // namespace lockstep
