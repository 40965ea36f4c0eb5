// Jobs whose work is counted in kernels of a millisecond, so that every time is known by hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/forecast/forecast.h"
#include "sim/forecast/timed_run.h"
#include "sim/machine/simulated_job.h"
#include "sim/machine/work_time.h"
#include "tests/verify/program.h"

namespace lockstep::sim {

// A kernel takes a millisecond, nothing else takes any time; calls take 1 ms a hop.
inline Machine millisecond_kernels() {
  Machine machine;
  machine.ranks_per_node = 64;
  machine.compute["float32"] = {FlopRate{1'000'000'000'000}, 1, 1};
  machine.memory_bandwidth = Bandwidth{8'000'000'000};
  machine.launch = Picos{1'000'000'000};
  machine.launches_hidden = false;
  machine.links = {{Picos{1'000'000'000}, Bandwidth{800'000'000'000'000}, std::nullopt}};
  return machine;
}

inline trace::WorkCost kernels(trace::WorkCost::Before before, std::int64_t id, std::int64_t step,
                               std::int64_t count) {
  trace::WorkCost out;
  out.before = before;
  out.id = id;
  out.step = step;
  out.kernels = count;
  return out;
}

// Steps of: so many kernels, an all-reduce of nothing, so many more while it runs, a wait.
struct KernelStep {
  std::int64_t before = 0, beside = 0;
  std::string modalities;  // of the batch: "image,text"; empty: not recorded
  std::optional<std::int64_t> saving =
      std::nullopt;     // kernels of the checkpoint that comes after it
  bool remedy = false;  // a dummy image is among what it computes
};

inline std::string program_of_steps(const std::vector<KernelStep>& steps) {
  std::string out;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const std::string n = std::to_string(s);
    if (!steps[s].modalities.empty()) out += "modality " + n + " " + steps[s].modalities + "; ";
    if (steps[s].remedy) out += "span remedy.dummy_image; ";
    out += "all_reduce n=0 dtype=float32 what=w step=" + n + " async open; wait " + n + "; step " +
           n + "; ";
  }
  return out + "clean";
}

inline trace::RankCosts costs_of_steps(std::int32_t rank, const std::vector<KernelStep>& steps) {
  trace::RankCosts out;
  out.rank = rank;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto s = static_cast<std::int64_t>(i);
    out.work.push_back(kernels(trace::WorkCost::Before::call, s, s, steps[i].before));
    out.work.push_back(kernels(trace::WorkCost::Before::wait, s, s, steps[i].beside));
    out.work.push_back(kernels(trace::WorkCost::Before::step, s, s, 0));
    if (steps[i].saving)
      out.work.push_back(kernels(trace::WorkCost::Before::checkpoint, s, s, *steps[i].saving));
  }
  return out;
}

// A job of a list of steps for each rank, on its simulated clock.
struct KernelJob {
  Machine machine;
  std::vector<trace::RankCosts> owned;
  std::vector<const trace::RankCosts*> costs;
  std::vector<std::int64_t> samples;
  trace::Run run;
  RunProgram program;
  std::vector<GroupLayout> layouts;
  Folding folding;
  ExecutionResult result;

  explicit KernelJob(const std::vector<std::vector<KernelStep>>& ranks,
                     Machine on = millisecond_kernels())
      : machine(std::move(on)), samples(ranks.size(), 0) {
    std::vector<std::string> programs;
    for (const std::vector<KernelStep>& steps : ranks) {
      programs.push_back(program_of_steps(steps));
      owned.push_back(costs_of_steps(static_cast<std::int32_t>(owned.size()), steps));
    }
    for (const trace::RankCosts& own : owned) costs.push_back(&own);
    Result<trace::Run> timed = timed_run(verify::program(programs, false), costs, samples, machine);
    EXPECT_TRUE(timed);
    run = std::move(*timed);
    program = *program_of(run);
    layouts = layouts_of(program.job, machine.ranks_per_node);
    if (machine.cores) {
      folding = unfolded(program.job);
      result = execute_on_cores(program.job, cost(), shared_cores(machine, ranks.size()));
    } else {
      folding = fold(program.job, kinds_of(layouts));
      result = execute(program.job, folding, cost(), {Picos{}, /*record_issues=*/true});
    }
  }

  CostOfCall cost() const {
    return [this](std::uint32_t group, const ProgramCall& call) {
      return *call_cost(call, layouts[group], machine);
    };
  }
  Forecast forecast() const { return sim::forecast(run, program, folding, result, layouts); }
};

inline Picos ms(double milliseconds) {
  return Picos{static_cast<std::int64_t>(milliseconds * 1e9)};
}

}  // namespace lockstep::sim
