#include "cli/simulate_raise.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/tables.h"
#include "reports/findings/finding_words.h"
#include "trace/load.h"

namespace lockstep {

std::optional<RaisedJob> raised_job(const std::string& folder) {
  Result<Run> run = load_run({folder});
  if (!run) return std::nullopt;
  const bool raised = std::any_of(run->ranks.begin(), run->ranks.end(),
                                  [](const RankTrace& trace) { return !trace.exceptions.empty(); });
  if (!raised) return std::nullopt;
  Result<sim::RunProgram> program = sim::program_of(*run);
  if (!program) return std::nullopt;
  // Who comes to meet whom does not depend on what it takes.
  const sim::PriceOfCall nothing = [](std::uint32_t, const sim::ProgramCall&) {
    return sim::CallCost{};
  };
  const Result<sim::Prices> prices = sim::Prices::of(program->job, {}, nothing);
  if (!prices) return std::nullopt;
  sim::Folding folding = sim::fold(program->job);
  Result<SimulatedProgram> simulated =
      simulate_program(std::move(*program), std::move(folding), *prices, sim::Picos{});
  if (!simulated) return std::nullopt;
  return RaisedJob{std::move(*run), std::move(*simulated)};
}

ExitStatus report_raise(const std::string& scenario, RaisedJob job,
                        const SimulationOutput& output) {
  const sim::ExecutionResult& result = job.simulated.result;
  std::vector<Rank> raised;
  nlohmann::ordered_json json = {
      {"scenario", scenario}, {"stuck", result.stuck}, {"raised", nlohmann::ordered_json::array()}};
  for (std::size_t r = 0; r < job.run.ranks.size(); ++r) {
    if (job.run.ranks[r].exceptions.empty() ||
        !result.classes[job.simulated.folding.class_of[r]].done)
      continue;
    raised.emplace_back(static_cast<std::int32_t>(r));
    json["raised"].push_back(r);
  }
  std::string what = "The simulated job fails: ";
  if (!raised.empty()) what += "an exception ends " + rank_label(raised);
  if (result.stuck) {
    what += raised.empty() ? "" : ", and ";
    what += rank_label(stuck_ranks(job.simulated)) + " can never go on";
  }
  return report_failure(job.simulated, std::move(job.run), std::move(json), what + ".", output);
}

}  // namespace lockstep
