#include "cli/simulate_program.h"

#include <string>
#include <utility>
#include <vector>

#include "base/tables.h"
#include "base/text.h"
#include "cli/report_options.h"
#include "reports/findings/csv_report.h"
#include "reports/findings/finding_words.h"
#include "reports/findings/html_report.h"
#include "reports/findings/json_report.h"
#include "reports/findings/text_report.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

std::string timeline_of(const Report& report, const Run& run,
                        std::vector<TimelineCounter> counters = {}) {
  TimelineOptions options;
  options.simulated = true;
  options.counters = std::move(counters);
  return timeline_report(report, run, options);
}

Result<SimulatedProgram> checked(SimulatedProgram simulated) {
  if (simulated.result.end.is_forever())
    return Error{
        "it takes longer than 106 days, which no simulated clock can show", {}, "check the units"};
  return simulated;
}

// Whether the first finding is that devices hold each other up.
bool shows_a_circle(const Report& report) {
  return !report.findings.empty() && report.findings.front().rule == RuleId::cross_group_deadlock;
}

// Where hosts went on and their devices hold each other up, all calls were made, and only a look at
// the devices shows what is wrong.
Report judge_program(Run& run) {
  Report report = verify(run);
  if (shows_a_circle(report)) return report;
  for (RankTrace& trace : run.ranks) trace.snapshot = true;
  Report looked_at = verify(run);
  for (RankTrace& trace : run.ranks) trace.snapshot = false;
  return shows_a_circle(looked_at) ? looked_at : report;
}

}  // namespace

Result<SimulatedProgram> simulate_program(sim::RunProgram program, sim::Folding folding,
                                          const sim::Prices& prices, sim::Picos launch) {
  sim::ExecutionResult result = sim::execute(program.job, folding, prices.cost_in(program.job),
                                             {launch, /*record_issues=*/true});
  return checked({std::move(program), std::move(folding), std::move(result)});
}

Result<SimulatedProgram> simulate_on_cores(sim::RunProgram program, const sim::Prices& prices,
                                           const sim::SharedCores& shared) {
  sim::ExecutionResult result =
      sim::execute_on_cores(program.job, prices.cost_in(program.job), shared);
  sim::Folding apart = sim::keep_apart(program.job);
  return checked({std::move(program), std::move(apart), std::move(result)});
}

std::string simulated_timeline(Run& run, std::vector<TimelineCounter> counters) {
  return timeline_of(judge_program(run), run, std::move(counters));
}

Report judge_hang(const SimulatedProgram& simulated, Run& run) {
  run = sim::as_simulated(std::move(run), simulated.program, simulated.folding, simulated.result);
  return judge_program(run);
}

std::vector<Rank> stuck_ranks(const SimulatedProgram& simulated) {
  std::vector<Rank> out;
  for (std::size_t r = 0; r < simulated.folding.class_of.size(); ++r)
    if (!simulated.result.classes[simulated.folding.class_of[r]].done)
      out.emplace_back(static_cast<std::int32_t>(r));
  return out;
}

ExitStatus report_failure(const SimulatedProgram& simulated, Run run, nlohmann::ordered_json json,
                          const std::string& what, const SimulationOutput& output) {
  const Report report = judge_hang(simulated, run);
  json["report"] = nlohmann::ordered_json::parse(json_report(report));
  const std::string text = wrap(what, 80) + "\n\n" + text_report(report, run, {.color = false});
  const auto content = [&](const std::string& kind, bool) {
    if (kind == "timeline") return timeline_of(report, run);
    if (kind == "html") return html_report(report, run);
    if (kind == "csv") return csv_report(report);
    return kind == "json" ? json.dump(2) + "\n" : text;
  };
  const Status written = write_simulation(content, output);
  return written ? ExitStatus::findings : fail(written.error(), ExitStatus::own_failure);
}

ExitStatus report_hang(const SimulatedProgram& simulated, Run run, nlohmann::ordered_json json,
                       const SimulationOutput& output) {
  const std::string what = "The simulated job hangs at " + sim::to_string(simulated.result.end) +
                           ": " + rank_label(stuck_ranks(simulated)) + " can never go on.";
  return report_failure(simulated, std::move(run), std::move(json), what, output);
}

}  // namespace lockstep
