// The forecast of a job that is derived and counted by hand.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/job/scenario.h"
#include "sim/forecast/scenario.h"
#include "tests/sim/machine/kernel_job.h"

namespace lockstep::sim {

// Three ranks, of which the last works longest; three steps.
inline TimedScenario small_forecast(const std::string& name = "a job",
                                    const std::string& parameter = "w") {
  const std::vector<std::vector<KernelStep>> work = {
      {{2, 0, "text"}, {2, 1, "text"}, {2, 1, "text"}},
      {{2, 0, "text"}, {2, 1, "text"}, {2, 1, "text"}},
      {{9, 0, "text"}, {4, 0, "text"}, {5, 0, "text"}}};
  DerivedRanks derived;
  std::vector<std::string> programs;
  for (std::size_t r = 0; r < work.size(); ++r) {
    std::string text = program_of_steps(work[r]);
    for (std::size_t at = 0; (at = text.find("what=w", at)) != std::string::npos; ++at)
      text.replace(at, 6, "what=" + parameter);
    programs.push_back(text);
    derived.costs.push_back(costs_of_steps(static_cast<std::int32_t>(r), work[r]));
    derived.costs.back().work[4].flops.push_back({"float32", 2e9, 1e9});
    for (trace::WorkCost& segment : derived.costs.back().work) {
      trace::SegmentMemory memory;
      memory.end[trace::MemoryCategory::parameters] = 3'000'000;
      memory.peak = memory.end;
      memory.peak[trace::MemoryCategory::activations] = 4'000'000;
      segment.memory = memory;
    }
    derived.traced.push_back(static_cast<std::int32_t>(r));
  }
  derived.run = verify::program(programs, false);
  derived.origin = "by hand";
  const Result<runtime::Scenario> scenario = runtime::parse_scenario(
      "lockstep: 1\nname: \"" + name + "\"\nranks: 3\ntrain: {steps: 3}\n", "job.yaml");
  EXPECT_TRUE(scenario) << scenario.error().str();
  const Machine machine = millisecond_kernels();
  Result<TimedScenario> out = time_scenario(*scenario, std::move(derived), machine);
  EXPECT_TRUE(out) << out.error().str();
  EXPECT_TRUE(out->forecast);
  out->forecast->what_ifs = *what_ifs(*out, machine);
  return std::move(*out);
}

inline TimedScenario small_forecast_with_trials() {
  TimedScenario out = small_forecast();
  TrialOptions options;
  options.trials = 20;
  options.jitter.work = .1;
  Result<TrialsForecast> trials = run_trials(out, millisecond_kernels(), options);
  EXPECT_TRUE(trials);
  out.forecast->trials = std::move(*trials);
  return out;
}

}  // namespace lockstep::sim
