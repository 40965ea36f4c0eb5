// Reports about a job that ran on the simulated clock: how long its ranks take, its timeline, and
// if it does not end well, why, in the verifier's words about a real run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "reports/findings/timeline_report.h"
#include "sim/machine/simulated_job.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports {

// What the recording itself says about a job whose simulation is shown.
struct Recorded {
  std::map<std::int32_t, Picos> ranks;  // how long each took; none where its work was not measured
  std::vector<std::string> notes;       // sentences that the reader has to know
};

// {"time_ps": …, "recorded_ps": …, "stuck": …, "computes": …, "classes": …,
//  "ranks": [{"rank": 0, "time_ps": …, …}], "notes": […]}.
nlohmann::ordered_json simulated_json(const sim::SimulatedProgram& simulated,
                                      const Recorded& recorded = {});
// One line for each of the first classes of ranks; a warning where nothing is computed, since the
// time is then not the job's. Sentences are wrapped to `width` columns.
std::string simulated_text(const sim::SimulatedProgram& simulated, const Recorded& recorded,
                           std::size_t width);

// The run on the simulated clock as a timeline, with the report's findings. `run`: from
// sim::as_simulated(). `counters`: TimelineOptions::counters, on the simulated clock.
std::string simulated_timeline(const verify::Report& report, const trace::Run& run,
                               std::vector<TimelineCounter> counters = {});

// A run, and the verifier's report on it.
struct JudgedRun {
  trace::Run run;
  verify::Report report;
};

// For a program that is stuck: the verifier's report. `run` is the one that the program was made
// from, and becomes the simulated one.
verify::Report judge_hang(const sim::SimulatedProgram& simulated, trace::Run& run);

// A job that does not end well.
struct SimulatedFailure {
  std::string what;             // one sentence
  trace::Run run;               // as simulated
  verify::Report report;        // the verifier's report on it
  nlohmann::ordered_json json;  // other known facts, and the report
};

// For a program that is stuck. `run` is the one that it was made from, `json` what is known about
// it.
SimulatedFailure simulated_hang(const sim::SimulatedProgram& simulated, trace::Run run,
                                nlohmann::ordered_json json);

// For ranks that raise an exception: which do, and which wait. `scenario`: its name.
SimulatedFailure simulated_raise(const std::string& scenario, sim::RaisedJob job);

// As "text", "json", or a form of reports: "html", "csv", "timeline". `width`: of the text.
std::string failure_content(const SimulatedFailure& failure, const std::string& kind,
                            std::size_t width);

}  // namespace lockstep::reports
