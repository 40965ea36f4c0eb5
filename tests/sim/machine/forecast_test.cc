// From derived calls and costs to step times: what the simulated clock must show, by hand.
#include "sim/machine/forecast.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/engine/shared_cores.h"
#include "sim/machine/timed_run.h"
#include "sim/machine/work_time.h"
#include "verify/program.h"

namespace lockstep::sim {
namespace {

using testing::HasSubstr;
using Before = WorkCost::Before;

// A kernel takes a millisecond, nothing else takes any time; calls take 1 ms a hop.
Machine millisecond_kernels() {
  Machine machine;
  machine.ranks_per_node = 64;
  machine.compute["float32"] = {FlopRate{1'000'000'000'000}, 1, 1};
  machine.memory_bandwidth = Bandwidth{8'000'000'000};
  machine.launch = Picos{1'000'000'000};
  machine.launches_hidden = false;
  machine.links = {{Picos{1'000'000'000}, Bandwidth{800'000'000'000'000}, std::nullopt}};
  return machine;
}

WorkCost kernels(Before before, std::int64_t id, std::int64_t step, std::int64_t count) {
  WorkCost out;
  out.before = before;
  out.id = id;
  out.step = step;
  out.kernels = count;
  return out;
}

// Two steps: so many kernels, an all-reduce of nothing, so many more while it runs, a wait.
const std::string kProgram =
    "all_reduce n=0 dtype=float32 what=w step=0 async open; wait 0; step 0;"
    "all_reduce n=0 dtype=float32 what=w step=1 async open; wait 1; step 1; clean";
RankCosts costs_of(std::int32_t rank, std::int64_t before, std::int64_t beside) {
  RankCosts out{rank, 0, 0, {}};
  for (std::int64_t s = 0; s < 2; ++s) {
    out.work.push_back(kernels(Before::call, s, s, before));
    out.work.push_back(kernels(Before::wait, s, s, beside));
    out.work.push_back(kernels(Before::step, s, s, 0));
  }
  return out;
}

struct Outcome {
  Run run;
  Forecast forecast;
};

Result<Run> timed(const std::vector<RankCosts>& costs, const Machine& machine,
                  std::int64_t samples = 0) {
  std::vector<const RankCosts*> pointers;
  for (const RankCosts& own : costs) pointers.push_back(&own);
  return timed_run(program(std::vector<std::string>(costs.size(), kProgram), false), pointers,
                   std::vector<std::int64_t>(costs.size(), samples), machine);
}

Forecast forecast_of(const std::vector<RankCosts>& costs, const Machine& machine,
                     std::int64_t samples = 0) {
  const Result<Run> run = timed(costs, machine, samples);
  EXPECT_TRUE(run) << run.error().str();
  const RunProgram program = *program_of(*run);
  const CostOfCall cost = [&](std::uint32_t group, const ProgramCall& call) {
    return *call_time(call, place_of(program.job.groups[group].members, 64), machine);
  };
  if (machine.cores) {
    const SharedCores shared{{*machine.cores, machine.contention, machine.slice},
                             std::vector<std::uint32_t>(program.job.ranks.size())};
    const CoresOfCall work = [&](std::uint32_t group, const ProgramCall& call) {
      return CallOnCores{1, Picos{}, cost(group, call)};
    };
    return forecast(*run, program, keep_apart(program.job),
                    execute_on_cores(program.job, work, shared));
  }
  const Folding folding = fold(program.job);
  return forecast(*run, program, folding,
                  execute(program.job, folding, cost, {Picos{}, /*record_issues=*/true}));
}

TEST(Forecast, AStepIsItsWorkAndTheCallThatIsWaitedFor) {
  // Two ranks: an all-reduce takes two hops, 2 ms, of which 1 ms is hidden.
  const Forecast f = forecast_of({costs_of(0, 3, 1), costs_of(1, 3, 1)}, millisecond_kernels());
  ASSERT_EQ(f.step_ends.size(), 2U);
  EXPECT_EQ(f.step_time.value, 5'000'000'000);
  ASSERT_EQ(f.classes.size(), 1U);
  EXPECT_DOUBLE_EQ(f.classes[0].busy, 4e-3);
  EXPECT_DOUBLE_EQ(f.classes[0].exposed, 1e-3);
  EXPECT_DOUBLE_EQ(f.classes[0].idle, 0);
  EXPECT_DOUBLE_EQ(f.classes[0].hidden, 1e-3);
  EXPECT_DOUBLE_EQ(f.calls, 1);
}

TEST(Forecast, WorkThatIsLongEnoughHidesTheWholeCall) {
  const Forecast f = forecast_of({costs_of(0, 3, 2), costs_of(1, 3, 2)}, millisecond_kernels());
  EXPECT_EQ(f.step_time.value, 5'000'000'000);
  EXPECT_DOUBLE_EQ(f.classes[0].exposed, 0);
  EXPECT_DOUBLE_EQ(f.classes[0].hidden, 2e-3);
}

TEST(Forecast, WhoIsEarlyIsIdleUntilTheStragglerComes) {
  const Forecast f = forecast_of({costs_of(0, 1, 0), costs_of(1, 5, 0)}, millisecond_kernels());
  EXPECT_EQ(f.step_time.value, 7'000'000'000);
  ASSERT_EQ(f.classes.size(), 2U);
  EXPECT_DOUBLE_EQ(f.classes[0].idle, 4e-3);
  EXPECT_DOUBLE_EQ(f.classes[0].exposed, 2e-3);
  EXPECT_DOUBLE_EQ(f.classes[1].idle, 0);
  EXPECT_DOUBLE_EQ(f.classes[1].exposed, 2e-3);
}

TEST(Forecast, RanksThatShareCoresTakeTurns) {
  Machine machine = millisecond_kernels();
  machine.cores = 1;
  const Forecast f = forecast_of({costs_of(0, 3, 0), costs_of(1, 3, 0)}, machine);
  EXPECT_EQ(f.step_ends.back().value, 20'000'000'000) << "3 ms of work and 2 of the call, each";
  machine.cores = 2;
  EXPECT_EQ(forecast_of({costs_of(0, 3, 0), costs_of(1, 3, 0)}, machine).step_time.value,
            5'000'000'000);
}

TEST(Forecast, SamplesArePreparedWhereNoCoreIsLeftOver) {
  Machine machine = millisecond_kernels();
  machine.sample = Picos{500'000'000};
  machine.cores = 2;
  EXPECT_EQ(forecast_of({costs_of(0, 3, 0), costs_of(1, 3, 0)}, machine, 4).step_time.value,
            7'000'000'000);
  machine.cores = 4;
  EXPECT_EQ(forecast_of({costs_of(0, 3, 0), costs_of(1, 3, 0)}, machine, 4).step_time.value,
            5'000'000'000);
}

TEST(TimedRun, CostsOfAnotherProgramAreRefused) {
  const Machine machine = millisecond_kernels();
  const std::vector<RankCosts> good = {costs_of(0, 1, 1), costs_of(1, 1, 1)};
  EXPECT_TRUE(timed(good, machine));
  std::vector<RankCosts> other = good;
  other[1].work[0].id = 7;
  EXPECT_THAT(timed(other, machine).error().message, HasSubstr("rank 1"));
  other = good;
  other[0].work.pop_back();
  EXPECT_FALSE(timed(other, machine));
  other = good;
  other[0].work.push_back(other[0].work.back());
  EXPECT_FALSE(timed(other, machine));
}

TEST(Spread, OneRankStandsForThoseThatDoTheSame) {
  const std::string calls = "all_reduce n=8 dtype=float32 what=w; clean";
  Result<lockstep::Run> all = spread(run_of({{0, calls}, {1, calls}}, 6), {0, 1, 1, 1, 1, 1});
  ASSERT_TRUE(all) << all.error().str();
  ASSERT_EQ(all->ranks.size(), 6U);
  EXPECT_EQ(all->ranks[4].rank.value, 4);
  EXPECT_EQ(all->ranks[4].calls.size(), 1U);
}

TEST(Spread, NobodyStandsForARankOfAnotherGroup) {
  const auto refusal = [](const std::string& text) {
    const Result<lockstep::Run> all = spread(run_of({{0, text}, {1, text}}, 4), {0, 1, 1, 1});
    return all ? std::string("accepted") : all.error().str();
  };
  EXPECT_EQ(refusal("all_reduce n=8 dtype=float32 what=w; clean"), "accepted");
  EXPECT_THAT(refusal("group few 0,1,2; all_reduce g=few n=8 dtype=float32; clean"),
              HasSubstr("few"));
  EXPECT_THAT(refusal("send peer=0 n=8 dtype=float32; clean"), HasSubstr("messages"));
}

}  // namespace
}  // namespace lockstep::sim
