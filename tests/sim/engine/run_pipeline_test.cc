// What schedules cost on the engine: the closed forms of the literature, and an oracle for all
// other costs.
#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/engine/step_program.h"

namespace lockstep::sim {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PipelineProgram program(PipelineSchedule schedule, PipelineShape shape) {
  return *make_pipeline(schedule, shape);
}

PipelineCosts equal_costs(const PipelineProgram& of, PieceCost cost) {
  return {std::vector<PieceCost>(static_cast<std::size_t>(of.shape.pieces()), cost), Picos{0}};
}

PipelineRun run(PipelineSchedule schedule, PipelineShape shape, PieceCost cost) {
  const PipelineProgram made = program(schedule, shape);
  return *run_pipeline(made, equal_costs(made, cost));
}

std::vector<std::int64_t> in_flight(PipelineSchedule schedule, PipelineShape shape) {
  return peak_in_flight(program(schedule, shape));
}

PieceCost whole(std::int64_t forward, std::int64_t backward) {
  return {.forward = Picos{forward}, .backward = Picos{backward}};
}

PieceCost parts(std::int64_t forward, std::int64_t backward, std::int64_t weight) {
  return {.forward = Picos{forward}, .backward = Picos{backward}, .weight = Picos{weight}};
}

// (p, m): time (m + p - 1)(tF + tB), idle (p - 1)(tF + tB). GPipe keeps all micro-batches, 1F1B
// min(p - r, m) of them (arXiv 2104.04473, section 2.2).
TEST(RunPipeline, GpipeAndOneFOneBTakeTheSameTime) {
  for (std::int32_t p = 1; p <= 9; ++p)
    for (std::int32_t m = 1; m <= 33; m += 4) {
      const PipelineRun gpipe = run(PipelineSchedule::gpipe, {p, m, 1}, whole(1, 2));
      const PipelineRun alternate = run(PipelineSchedule::one_f_one_b, {p, m, 1}, whole(1, 2));
      for (const PipelineRun& one : {gpipe, alternate}) {
        ASSERT_EQ(one.time, Picos{(m + p - 1) * 3}) << p << " " << m;
        ASSERT_EQ(one.period, one.time);
        ASSERT_THAT(one.idle, Each(Picos{(p - 1) * 3}));
        ASSERT_THAT(one.busy, Each(Picos{m * 3}));
      }
      ASSERT_THAT(in_flight(PipelineSchedule::gpipe, {p, m, 1}), Each(m));
      for (std::int32_t r = 0; r < p; ++r)
        ASSERT_EQ(in_flight(PipelineSchedule::one_f_one_b, {p, m, 1})[static_cast<std::size_t>(r)],
                  std::min(p - r, m));
    }
}

TEST(RunPipeline, KnownIntegers) {
  const PipelineRun small = run(PipelineSchedule::one_f_one_b, {4, 8, 1}, whole(1, 2));
  EXPECT_EQ(small.time, Picos{33});
  EXPECT_THAT(small.idle, Each(Picos{9}));
  EXPECT_THAT(in_flight(PipelineSchedule::one_f_one_b, {4, 8, 1}), ElementsAre(4, 3, 2, 1));
  EXPECT_EQ(run(PipelineSchedule::one_f_one_b, {8, 32, 1}, whole(1, 2)).time, Picos{117});
  EXPECT_EQ(run(PipelineSchedule::gpipe, {8, 8, 1}, whole(1, 2)).time, Picos{45});
  EXPECT_EQ(run(PipelineSchedule::gpipe, {4, 4, 1}, whole(1, 2)).time, Picos{21});

  const PipelineRun two = run(PipelineSchedule::interleaved, {4, 8, 2}, whole(1, 2));
  EXPECT_EQ(two.time, Picos{57});
  EXPECT_THAT(two.idle, Each(Picos{9}));
  EXPECT_THAT(in_flight(PipelineSchedule::interleaved, {4, 8, 2}), ElementsAre(11, 9, 7, 5));
  EXPECT_EQ(run(PipelineSchedule::interleaved, {8, 32, 2}, whole(1, 2)).time, Picos{213});
  EXPECT_EQ(run(PipelineSchedule::interleaved, {8, 32, 4}, whole(1, 2)).time, Picos{405});
  const PipelineRun four = run(PipelineSchedule::interleaved, {4, 16, 4}, whole(1, 2));
  EXPECT_EQ(four.time, Picos{201});
  EXPECT_THAT(in_flight(PipelineSchedule::interleaved, {4, 16, 4}), ElementsAre(19, 17, 15, 13));
}

// m v (tF + tB) + (p - 1)(tF + tB) with tF and tB of a chunk; chunks in flight
// min(2(p - r - 1) + (v - 1)p + 1, m v).
TEST(RunPipeline, InterleavedDividesTheBubble) {
  for (std::int32_t p = 1; p <= 6; ++p)
    for (std::int32_t groups = 1; groups <= 4; ++groups)
      for (std::int32_t v = 1; v <= 4; ++v) {
        const std::int32_t m = p * groups;
        const PipelineRun one = run(PipelineSchedule::interleaved, {p, m, v}, whole(3, 5));
        ASSERT_EQ(one.time, Picos{(m * v + p - 1) * 8}) << p << " " << m << " " << v;
        ASSERT_THAT(one.idle, Each(Picos{(p - 1) * 8}));
        for (std::int32_t r = 0; r < p; ++r)
          ASSERT_EQ(
              in_flight(PipelineSchedule::interleaved, {p, m, v})[static_cast<std::size_t>(r)],
              std::min(2 * (p - r - 1) + (v - 1) * p + 1, m * v));
      }
}

// arXiv 2401.10241, table 1 and section 2: the bubble shrinks from (p-1)(F+B+W) to (p-1)(F+B-W)
// for the same memory, and to (p-1)(F+B-2W) for that of 2p - 1 micro-batches.
TEST(RunPipeline, ZeroBubbleSchedules) {
  for (std::int32_t p = 2; p <= 8; ++p)
    for (std::int32_t m = 2 * p - 1; m <= 2 * p + 9; ++m)
      for (std::int32_t w = 1; w <= 4; ++w) {
        const PieceCost cost = parts(4, 4, w);
        const PipelineRun h1 = run(PipelineSchedule::zb_h1, {p, m, 1}, cost);
        ASSERT_THAT(h1.idle, Each(Picos{(p - 1) * (8 - w)})) << p << " " << m << " " << w;
        ASSERT_THAT(in_flight(PipelineSchedule::zb_h1, {p, m, 1}), Each(p));
        const PipelineRun h2 = run(PipelineSchedule::zb_h2, {p, m, 1}, cost);
        ASSERT_THAT(h2.idle, Each(Picos{(p - 1) * (8 - 2 * w)})) << p << " " << m << " " << w;
        ASSERT_THAT(in_flight(PipelineSchedule::zb_h2, {p, m, 1}), Each(2 * p - 1));
      }
}

// Equal parts: no bubble in any stage's own time, for the memory of p micro-batches (2p chunks).
// The stages start and end one after the other, so the first start to the last end takes longer.
TEST(RunPipeline, ZeroBubbleInAVee) {
  for (std::int32_t p = 2; p <= 6; ++p)
    for (std::int32_t m = 2 * p; m <= 2 * p + 5; ++m) {
      const PipelineRun vee = run(PipelineSchedule::zbv, {p, m, 2}, parts(1, 1, 1));
      ASSERT_THAT(vee.idle, Each(Picos{0})) << p << " " << m;
      ASSERT_EQ(vee.period, Picos{6 * m});
      ASSERT_EQ(vee.time, Picos{6 * m + p - 1});
      ASSERT_THAT(in_flight(PipelineSchedule::zbv, {p, m, 2}), Each(2 * p));
    }
}

// Costs that differ by micro-batch: alike they are the same run, and by hand 2 stages and 2
// micro-batches of 1, 3 forward and 2, 6 backward.
TEST(RunPipeline, MicroBatchesMayDiffer) {
  const PipelineProgram made = program(PipelineSchedule::gpipe, {2, 2, 1});
  PipelineCosts alike;
  alike.pieces = {whole(1, 2), whole(1, 2)};
  PipelineCosts spelled;
  spelled.unequal = std::vector<PieceCost>(4, whole(1, 2));
  EXPECT_EQ(run_pipeline(made, alike)->time, run_pipeline(made, spelled)->time);
  PipelineCosts differ;
  differ.unequal = {whole(1, 2), whole(3, 6), whole(1, 2), whole(3, 6)};
  // Forwards 1, 3 and 3 on the second stage; its backwards 2 and 6, then 6 on the first.
  EXPECT_EQ(run_pipeline(made, differ)->time, Picos{1 + 3 + 3 + 2 + 6 + 6});
}

// 1F1B with one stage three times as slow: it is always at work, except for the way of the first
// micro-batch down to it and of the last one back.
TEST(RunPipeline, TheSlowestStageSetsThePace) {
  const PipelineProgram of = program(PipelineSchedule::one_f_one_b, {4, 16, 1});
  for (std::int32_t slow = 0; slow < 4; ++slow) {
    PipelineCosts costs = equal_costs(of, whole(1, 2));
    costs.pieces[static_cast<std::size_t>(slow)] = whole(3, 6);
    const PipelineRun one = *run_pipeline(of, costs);
    EXPECT_EQ(one.time, Picos{16 * 9 + slow * 3}) << "stage " << slow;
    EXPECT_EQ(one.idle[static_cast<std::size_t>(slow)], Picos{slow * 3});
  }
}

// GPipe with transfers: both ways through the pipeline take (p - 1) of them.
TEST(RunPipeline, TransfersDelayOnlyTheFillAndTheDrain) {
  const PipelineProgram of = program(PipelineSchedule::gpipe, {4, 8, 1});
  PipelineCosts costs = equal_costs(of, whole(10, 20));
  costs.send = Picos{3};
  EXPECT_EQ(run_pipeline(of, costs)->time, Picos{11 * 30 + 2 * 3 * 3});
  // The vee turns within the last stage, and begins and ends in the first: no transfer there.
  const PipelineProgram vee = program(PipelineSchedule::zbv, {1, 3, 2});
  PipelineCosts alone = equal_costs(vee, parts(1, 1, 1));
  alone.send = Picos{1000};
  EXPECT_EQ(run_pipeline(vee, alone)->time, Picos{18});
}

// The slow obvious way: relax every task until nothing changes. Returns the ends, by stage and
// task.
std::vector<std::vector<std::int64_t>> oracle(const PipelineProgram& of,
                                              const PipelineCosts& costs) {
  std::vector<std::vector<std::int64_t>> end(of.tasks.size());
  for (std::size_t s = 0; s < of.tasks.size(); ++s) end[s].assign(of.tasks[s].size(), 0);
  std::map<std::array<std::int32_t, 3>, std::int64_t> done, arrived;  // work, micro-batch, piece
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t s = 0; s < of.tasks.size(); ++s) {
      // A link in one direction carries one message at a time; those of a vee's two chunks, which
      // go opposite ways, have nothing to do with each other.
      std::map<std::array<std::int32_t, 2>, std::int64_t> link;
      for (std::size_t i = 0; i < of.tasks[s].size(); ++i) {
        const PipelineTask& task = of.tasks[s][i];
        const std::int32_t piece = of.piece(static_cast<std::int32_t>(s), task.chunk);
        const PieceCost& cost = costs.of(of.shape, piece, task.micro_batch);
        std::int64_t start = i == 0 ? 0 : end[s][i - 1];
        const auto need = [&](Work work, std::int32_t from) {
          auto& times = of.stage_of(from) == static_cast<std::int32_t>(s) ? done : arrived;
          start = std::max(start, times[{static_cast<std::int32_t>(work), task.micro_batch, from}]);
        };
        if (task.work == Work::forward && piece > 0) need(Work::forward, piece - 1);
        if (task.work == Work::backward) need(Work::forward, piece);
        if (task.work == Work::backward && piece + 1 < of.shape.pieces())
          need(Work::backward, piece + 1);
        if (task.work == Work::weight) need(Work::backward, piece);
        const Picos takes = task.work == Work::forward    ? cost.forward
                            : task.work == Work::backward ? cost.backward
                                                          : cost.weight;
        const std::int64_t ends = start + takes.value;
        const auto work = static_cast<std::int32_t>(task.work);
        std::int64_t& busy = link[{work, of.vee ? task.chunk : 0}];
        // The last piece sends no forward, the first no backward, nobody a weight part.
        const std::int32_t to = task.work == Work::forward ? piece + 1 : piece - 1;
        if (to >= 0 && to < of.shape.pieces() && of.stage_of(to) != static_cast<std::int32_t>(s))
          busy = std::max(busy, ends) + costs.send.value;
        const std::array<std::int32_t, 3> key = {work, task.micro_batch, piece};
        changed = changed || ends != end[s][i] || arrived[key] != busy;
        end[s][i] = done[key] = ends;
        arrived[key] = busy;
      }
    }
  }
  return end;
}

TEST(RunPipeline, AgreesWithTheOracleForAnyCosts) {
  std::mt19937 random(4);
  const auto up_to = [&](std::uint32_t most) { return static_cast<std::int64_t>(random() % most); };
  int seen = 0;
  for (const std::string& name : pipeline_schedule_names())
    for (std::int32_t p = 1; p <= 5; ++p)
      for (std::int32_t m = 1; m <= 10; ++m)
        for (std::int32_t v = 1; v <= 3; ++v) {
          const Result<PipelineProgram> made =
              make_pipeline(*parse_pipeline_schedule(name), {p, m, v});
          if (!made) continue;
          PipelineCosts costs;
          const bool unequal = up_to(2) == 0;
          for (std::int32_t i = 0; i < made->shape.pieces() * (unequal ? m : 1); ++i)
            (unequal ? costs.unequal : costs.pieces)
                .push_back(parts(up_to(9), up_to(9), made->split ? up_to(9) : 0));
          costs.send = Picos{up_to(6)};
          const PipelineRun ran = *run_pipeline(*made, costs);
          const std::vector<std::vector<std::int64_t>> ends = oracle(*made, costs);
          std::int64_t last = 0;
          for (std::size_t stage = 0; stage < ends.size(); ++stage) {
            last = std::max(last, ends[stage].back());
            std::vector<std::int64_t> of_tasks;
            for (const StepInterval& task : ran.tasks[stage]) of_tasks.push_back(task.end.value);
            // Tasks that take no time are not intervals.
            std::vector<std::int64_t> expected;
            for (std::size_t t = 0; t < ends[stage].size(); ++t) {
              const PipelineTask& task = made->tasks[stage][t];
              const PieceCost& cost =
                  costs.of(made->shape, made->piece(static_cast<std::int32_t>(stage), task.chunk),
                           task.micro_batch);
              const Picos takes = task.work == Work::forward    ? cost.forward
                                  : task.work == Work::backward ? cost.backward
                                                                : cost.weight;
              if (takes.value > 0) expected.push_back(ends[stage][t]);
            }
            ASSERT_EQ(of_tasks, expected) << name << " " << p << " " << m << " " << v;
          }
          ASSERT_EQ(ran.time.value, last) << name << " " << p << " " << m << " " << v;
          ++seen;
        }
  EXPECT_GT(seen, 300);
}

TEST(RunPipeline, RefusesTimesBeyondTheClock) {
  const PipelineProgram of = program(PipelineSchedule::one_f_one_b, {4, 8, 1});
  EXPECT_THAT(
      run_pipeline(of, equal_costs(of, whole(Picos::forever().value / 2, 2))).error().message,
      HasSubstr("longer than the clock reaches"));
}

}  // namespace
}  // namespace lockstep::sim
