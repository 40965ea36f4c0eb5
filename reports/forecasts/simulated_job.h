// What is said of a job that ran on the simulated clock: how long its ranks take, its timeline, and
// where it does not end well, why: in the words in which the verifier says it of a real run.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "reports/findings/timeline_report.h"
#include "sim/machine/simulated_job.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports {

// {"time_ps": …, "stuck": …, "classes": …, "ranks": [{"rank": 0, "time_ps": …, …}]}.
nlohmann::ordered_json simulated_json(const sim::SimulatedProgram& simulated);
// The first ones of the ranks that differ.
std::string simulated_text(const sim::SimulatedProgram& simulated);

// The run on the simulated clock as a timeline. `run`: as of sim::as_simulated(); it is judged, and
// left as it was. `counters`: TimelineOptions::counters, on the simulated clock.
std::string simulated_timeline(trace::Run& run, std::vector<TimelineCounter> counters = {});

// Of a program that is stuck: what the verifier says of `run`, which the program was made of and
// which becomes what the simulation made of it.
verify::Report judge_hang(const sim::SimulatedProgram& simulated, trace::Run& run);

// A job that does not end well.
struct SimulatedFailure {
  std::string what;             // happens: one sentence
  trace::Run run;               // as the simulation made it
  verify::Report report;        // what the verifier says of that
  nlohmann::ordered_json json;  // what is known besides, and the report
};

// Of a program that is stuck: `run` is the one that it was made of, `json` what is known of it.
SimulatedFailure simulated_hang(const sim::SimulatedProgram& simulated, trace::Run run,
                                nlohmann::ordered_json json);

// Of ranks that raise an exception: who does, and who waits. `scenario`: its name.
SimulatedFailure simulated_raise(const std::string& scenario, sim::RaisedJob job);

// As "text", "json", or what a report is written as: "html", "csv", "timeline".
std::string failure_content(const SimulatedFailure& failure, const std::string& kind);

}  // namespace lockstep::reports
