#include "reports/forecasts/simulated_job.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/tables.h"
#include "base/text.h"
#include "reports/findings/finding_words.h"
#include "reports/findings/reports.h"
#include "sim/engine/to_run.h"
#include "verify/verify.h"

namespace lockstep::reports {
namespace {

// True if the first finding is that devices wait for each other.
bool shows_a_cycle(const verify::Report& report) {
  return !report.findings.empty() &&
         report.findings.front().rule == verify::RuleId::cross_group_deadlock;
}

// If the hosts went on and only their devices wait for each other, all calls were made, and only
// the devices' order shows what is wrong.
verify::Report judge_program(trace::Run& run) {
  verify::Report report = verify::verify(run);
  if (shows_a_cycle(report)) return report;
  // verify() trusts the end of a trace: a host that returned is done. As a snapshot the calls that
  // are not complete count, and among them the devices' cycle.
  for (trace::RankTrace& trace : run.ranks) trace.snapshot = true;
  verify::Report looked_at = verify::verify(run);
  for (trace::RankTrace& trace : run.ranks) trace.snapshot = false;
  // Anything else that only a snapshot shows is an artefact of cutting a finished program.
  return shows_a_cycle(looked_at) ? looked_at : report;
}

// False for a program of calls alone, as most recordings hold: its time is not the job's.
bool computes(const sim::SimulatedProgram& simulated) {
  return std::any_of(simulated.result.classes.begin(), simulated.result.classes.end(),
                     [](const sim::RankOutcome& rank) { return rank.compute.value > 0; });
}

// Whether work runs in a stream, beside what the host does.
bool devices_compute(const sim::SimulatedProgram& simulated) {
  const auto on_device = [](const sim::ProgramStep& step) {
    return step.kind == sim::StepKind::compute && step.stream != sim::ProgramStep::kHost;
  };
  const std::vector<sim::Program>& programs = simulated.program.job.programs;
  return std::any_of(programs.begin(), programs.end(), [&](const sim::Program& program) {
    return std::any_of(program.steps.begin(), program.steps.end(), on_device);
  });
}

// Whether the rank left no trace, and so takes no part.
bool is_silent(const sim::SimulatedProgram& simulated, std::size_t rank) {
  const std::vector<std::int32_t>& silent = simulated.program.silent;
  return std::binary_search(silent.begin(), silent.end(), static_cast<std::int32_t>(rank));
}

Picos longest(const Recorded& recorded) {
  Picos out;
  for (const auto& [rank, time] : recorded.ranks) out = std::max(out, time);
  return out;
}

// ", recorded 19.4 ms (-1.3 %)": what the simulated time is more than the recorded one.
std::string beside_recorded(Picos simulated, Picos recorded) {
  const double more = simulated.seconds() - recorded.seconds();
  const std::string share =
      recorded.value > 0 ? fmt::format(" ({:+.1f} %)", 100 * more / recorded.seconds()) : "";
  return fmt::format(", recorded {}{}", duration_text(recorded), share);
}

SimulatedFailure failure_of(const sim::SimulatedProgram& simulated, trace::Run run,
                            nlohmann::ordered_json json, std::string what) {
  verify::Report report = judge_hang(simulated, run);
  json["report"] = nlohmann::ordered_json::parse(json_report(report, &run));
  return {std::move(what), std::move(run), std::move(report), std::move(json)};
}

// "4 ranks of 2 kinds; here is one of each". Ranks of a kind do the same at the same times.
std::string kinds_text(std::size_t ranks, std::size_t kinds) {
  const std::string all = plural(ranks, "rank");
  if (kinds == ranks) return all;  // alike or not: each may have been simulated by itself
  return kinds == 1 ? all + " that do the same; here is one"
                    : fmt::format("{} of {} kinds; here is one of each", all, kinds);
}

}  // namespace

nlohmann::ordered_json simulated_json(const sim::SimulatedProgram& simulated,
                                      const Recorded& recorded) {
  nlohmann::ordered_json out;
  out["time_ps"] = simulated.result.end.value;
  if (!recorded.ranks.empty()) out["recorded_ps"] = longest(recorded).value;
  out["stuck"] = simulated.result.stuck;
  out["computes"] = computes(simulated);
  out["classes"] = simulated.result.classes.size();
  for (std::size_t r = 0; r < simulated.folding.class_of.size(); ++r) {
    if (is_silent(simulated, r)) continue;
    const sim::RankOutcome& outcome = simulated.result.classes[simulated.folding.class_of[r]];
    out["ranks"].push_back({{"rank", r},
                            {"time_ps", outcome.end.value},
                            {"compute_ps", outcome.compute.value},
                            {"waiting_ps", outcome.waiting.value},
                            {"ended", outcome.done}});
    const auto measured = recorded.ranks.find(static_cast<std::int32_t>(r));
    if (measured != recorded.ranks.end())
      out["ranks"].back()["recorded_ps"] = measured->second.value;
  }
  if (simulated.result.slowed_calls > 0)
    out["slowed_calls"] = {{"count", simulated.result.slowed_calls},
                           {"most", simulated.result.most_slowed}};
  if (!recorded.notes.empty()) out["notes"] = recorded.notes;
  return out;
}

std::string simulated_text(const sim::SimulatedProgram& simulated, const Recorded& recorded,
                           std::size_t width) {
  const sim::ExecutionResult& result = simulated.result;
  std::vector<std::uint32_t> shown;  // classes of ranks that take part
  for (std::uint32_t c = 0; c < result.classes.size(); ++c)
    if (!is_silent(simulated, simulated.folding.representatives[c])) shown.push_back(c);
  std::string out = fmt::format(
      "{}\n  time     {}{}\n",
      kinds_text(simulated.folding.class_of.size() - simulated.program.silent.size(), shown.size()),
      duration_text(result.end),
      recorded.ranks.empty() ? "" : beside_recorded(result.end, longest(recorded)));
  // A screen's worth; the JSON has every rank.
  constexpr std::size_t kShown = 16;
  if (shown.size() > kShown) shown.resize(kShown);
  for (const std::uint32_t c : shown) {
    const sim::RankOutcome& outcome = result.classes[c];
    const std::uint32_t rank = simulated.folding.representatives[c];
    const auto measured = recorded.ranks.find(static_cast<std::int32_t>(rank));
    const std::string line = fmt::format(
        "  rank {}: {}waits {}, ends at {}{}", rank,
        computes(simulated) ? fmt::format("computes {}, ", duration_text(outcome.compute)) : "",
        duration_text(outcome.waiting), duration_text(outcome.end),
        measured == recorded.ranks.end()
            ? ""
            : fmt::format(", recorded {}", duration_text(measured->second)));
    out += fmt::format("{}\n", wrap(line, width, 4));
  }
  if (devices_compute(simulated))
    out += fmt::format(
        "  {}\n",
        wrap("A device computes while its host waits: the two times overlap.", width, 2, 2));
  if (result.slowed_calls > 0)
    out += fmt::format(
        "  links    {}\n",
        wrap(fmt::format("slowed down {} of different ranks, at most {} times as long",
                         plural(result.slowed_calls, "call"), number_text(result.most_slowed)),
             width, 11, 11));
  for (const std::string& note : recorded.notes) out += fmt::format("\n{}\n", wrap(note, width));
  if (!computes(simulated))
    out += fmt::format(
        "\n{}\n",
        wrap("The traces hold no computing: this is the time of the calls alone, and not of the "
             "job. Give profiles that show the device's kernels, add `span` lines "
             "(docs/trace-format.md), or simulate the job's scenario.",
             width));
  return out;
}

std::string simulated_timeline(const verify::Report& report, const trace::Run& run,
                               std::vector<TimelineCounter> counters) {
  TimelineOptions options;
  options.simulated = true;
  options.counters = std::move(counters);
  return timeline_report(report, run, options);
}

verify::Report judge_hang(const sim::SimulatedProgram& simulated, trace::Run& run) {
  run = sim::as_simulated(std::move(run), simulated.program, simulated.folding, simulated.result);
  return judge_program(run);
}

SimulatedFailure simulated_hang(const sim::SimulatedProgram& simulated, trace::Run run,
                                nlohmann::ordered_json json) {
  std::string what =
      fmt::format("The simulated job hangs at {}: {} can never continue.",
                  duration_text(simulated.result.end), rank_label(sim::stuck_ranks(simulated)));
  if (std::any_of(run.ranks.begin(), run.ranks.end(),
                  [](const trace::RankTrace& rank) { return rank.damaged_count > 0; }))
    what += " Not all that was recorded could be read, which may be why.";
  return failure_of(simulated, std::move(run), std::move(json), std::move(what));
}

SimulatedFailure simulated_raise(const std::string& scenario, sim::RaisedJob job) {
  const sim::ExecutionResult& result = job.simulated.result;
  std::vector<trace::Rank> raised;
  nlohmann::ordered_json json = {
      {"scenario", scenario}, {"stuck", result.stuck}, {"raised", nlohmann::ordered_json::array()}};
  for (std::size_t r = 0; r < job.run.ranks.size(); ++r) {
    if (job.run.ranks[r].exceptions.empty() ||
        // A rank that is stuck before its exception does not get to raise it.
        !result.classes[job.simulated.folding.class_of[r]].done)
      continue;
    raised.emplace_back(static_cast<std::int32_t>(r));
    json["raised"].push_back(r);
  }
  std::string what = "The simulated job fails: ";
  if (!raised.empty()) what += fmt::format("an exception ends {}", rank_label(raised));
  if (result.stuck) {
    what += raised.empty() ? "" : ", and ";
    what += fmt::format("{} can never continue", rank_label(sim::stuck_ranks(job.simulated)));
  }
  return failure_of(job.simulated, std::move(job.run), std::move(json), what + ".");
}

std::string failure_content(const SimulatedFailure& failure, const std::string& kind,
                            std::size_t width) {
  if (kind == "timeline") return simulated_timeline(failure.report, failure.run);
  if (kind == "html") return html_report(failure.report, failure.run);
  if (kind == "csv") return csv_report(failure.report);
  if (kind == "json") return fmt::format("{}\n", failure.json.dump(2));
  return fmt::format("{}\n\n{}", wrap(failure.what, width),
                     text_report(failure.report, failure.run, {.width = width, .color = false}));
}

}  // namespace lockstep::reports
