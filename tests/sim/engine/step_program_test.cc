// A step as the engine runs it: its exchange is the closed forms', its replicas meet. Its
// pipelines: run_pipeline_test.cc.
#include "sim/engine/step_program.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "sim/engine/step_picture.h"

namespace lockstep::sim {
namespace {

using WorkKind = StepWork::Kind;

StepProgram step_of(const PipelineProgram& order, const PipelineCosts& costs,
                    const StepExchange& exchange = {}, Picos update = {}) {
  return make_step_program(order, {StepReplica{costs}},
                           std::vector<StageExchange>(order.tasks.size(), {exchange}), update);
}

std::int64_t end_of(const PipelineProgram& order, const PipelineCosts& costs,
                    const StepExchange& exchange = {}, Picos update = {}) {
  return execute_step(step_of(order, costs, exchange, update))->end.value;
}

// Two stages of GPipe whose forwards take 1, with messages of 10: a link carries one at a time.
TEST(StepProgram, MessagesOfOneDirectionFollowOneAnother) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::gpipe, {2, 3, 1});
  PipelineCosts costs{
      {{.forward = Picos{1}, .backward = Picos{2}}, {.forward = Picos{1}, .backward = Picos{20}}},
      Picos{10}};
  const PipelineRun run = *run_pipeline(order, costs);
  EXPECT_EQ(run.tasks[1][0].begin, Picos{11});
  EXPECT_EQ(run.tasks[1][1].begin, Picos{21});
  EXPECT_EQ(run.tasks[1][2].begin, Picos{31});
  // Its backwards are slower than the link: 32, 52, 72 and 92, then the way back and a backward.
  EXPECT_EQ(end_of(order, costs), 92 + 10 + 2);
}

PipelineCosts one_piece(std::int64_t forward, std::int64_t backward) {
  return {{{.forward = Picos{forward}, .backward = Picos{backward}}}, Picos{}};
}

TEST(StepProgram, AnExchangeWithoutBucketsIsAroundTheTasks) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::one_f_one_b, {1, 3, 1});
  EXPECT_EQ(end_of(order, one_piece(4, 8), {Picos{100}, Picos{50}, 0, 0.5}, Picos{7}),
            100 + 3 * 12 + 50 + 7);
}

// n buckets of x beside a backward of B: the last one is left over, or, of longer ones, all after
// the first part of the backward.
TEST(StepProgram, GradientsAreReducedDuringTheLastBackward) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::one_f_one_b, {1, 3, 1});
  constexpr std::int64_t kF = 40, kB = 80;
  for (std::int32_t n : {1, 2, 4, 8})
    for (std::int64_t x : {1, 5, 10, 30, 200})
      EXPECT_EQ(end_of(order, one_piece(kF, kB), {Picos{}, Picos{x}, n, 0}),
                2 * (kF + kB) + kF + kB / n + std::max(n * x, kB - kB / n + x))
          << n << " " << x;
}

// Of every micro-batch: what is left over is waited for each time, or hidden by the next one.
TEST(StepProgram, EachMicroBatchMayReduceItsOwnGradients) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::one_f_one_b, {1, 3, 1});
  constexpr std::int64_t kF = 40, kB = 80;
  for (std::int32_t n : {1, 2, 4, 8})
    for (std::int64_t x : {1, 5, 10, 30, 200}) {
      StepExchange exchange{Picos{}, Picos{x}, n, 0};
      exchange.each_micro_batch = true;
      const std::int64_t hidden = end_of(order, one_piece(kF, kB), exchange);
      // Between the two, some of it outlasts the task, and some of that the next one.
      const bool fits = n * x <= kB;
      if (fits || n * x >= kF + kB) {
        EXPECT_EQ(hidden, fits ? 3 * (kF + kB) + x : kF + kB / n + 3 * n * x);
      }
      exchange.waits = true;
      EXPECT_EQ(end_of(order, one_piece(kF, kB), exchange),
                3 * (kF + kB / n + std::max(n * x, kB - kB / n + x)))
          << n << " " << x;
      // All but the last of each micro-batch is hidden, and half of it slows the tasks down.
      exchange.slowdown = 0.5;
      if (n * x > kB) continue;
      EXPECT_EQ(end_of(order, one_piece(kF, kB), exchange),
                3 * (kF + kB + x) + (3 * (n - 1) * x + 1) / 2)
          << n << " " << x;
    }
  // The weights' part where the backward pass is split.
  const PipelineProgram split = *make_pipeline(PipelineSchedule::zb_h1, {1, 2, 1});
  const PipelineCosts parts{{{.forward = Picos{8}, .backward = Picos{8}, .weight = Picos{8}}},
                            Picos{}};
  StepExchange exchange{Picos{}, Picos{3}, 2, 0};
  exchange.each_micro_batch = exchange.waits = true;
  EXPECT_EQ(end_of(split, parts, exchange), 2 * (24 + 3));
}

// One gather ahead (as FSDP's forward, L layers): g + (L - 1) max(g, c) + c.
TEST(StepProgram, ParametersAreGatheredDuringTheFirstForward) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::gpipe, {1, 2, 1});
  for (std::int32_t n : {1, 2, 4})
    for (std::int64_t g : {1, 10, 40, 100})
      EXPECT_EQ(end_of(order, one_piece(40, 80), {Picos{g}, Picos{}, n, 0}),
                std::max<std::int64_t>(n * g + 40 / n, g + 40) + 40 + 2 * 80)
          << n << " " << g;
}

TEST(StepProgram, WhatIsHiddenSlowsTheTasksDown) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::gpipe, {1, 1, 1});
  // Three of the four buckets of 10 are hidden, and cost half of their time; then the last one.
  EXPECT_EQ(end_of(order, one_piece(40, 80), {Picos{}, Picos{10}, 4, 0.5}), 40 + 80 + 15 + 10);
  // The same before the forward.
  EXPECT_EQ(end_of(order, one_piece(40, 80), {Picos{4}, Picos{}, 4, 0.5}), 4 + 40 + 80 + 6);
  // Longer buckets than tasks: nothing but they counts.
  EXPECT_EQ(end_of(order, one_piece(40, 80), {Picos{}, Picos{60}, 4, 0.25}), 40 + 20 + 4 * 60);
}

// The gradients are complete with the weights' part where the backward pass is split, and the last
// stages exchange theirs while the first ones still compute.
TEST(StepProgram, EachStageExchangesWhenItIsDone) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::one_f_one_b, {2, 4, 1});
  PipelineCosts costs{{{.forward = Picos{10}, .backward = Picos{20}},
                       {.forward = Picos{10}, .backward = Picos{20}}},
                      Picos{}};
  const StepProgram step = step_of(order, costs, {Picos{}, Picos{15}, 0, 0}, Picos{3});
  const ExecutionResult result = *execute_step(step);
  EXPECT_EQ(result.end, Picos{5 * 30 + 15 + 3});
  std::vector<StepInterval> last = intervals(step, 1, result.classes[1]);
  std::erase_if(last, [](const StepInterval& one) { return one.work.kind != WorkKind::reduce; });
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].begin, Picos{130});

  const PipelineProgram split = *make_pipeline(PipelineSchedule::zb_h1, {1, 2, 1});
  const PipelineCosts parts{{{.forward = Picos{8}, .backward = Picos{8}, .weight = Picos{8}}},
                            Picos{}};
  EXPECT_EQ(end_of(split, parts, {Picos{}, Picos{3}, 2, 0}), 2 * 24 + 3);
}

TEST(StepProgram, IntervalsHaveNoGaps) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::interleaved, {3, 6, 2});
  PipelineCosts costs;
  for (std::int64_t piece = 0; piece < 6; ++piece)
    costs.pieces.push_back({.forward = Picos{5 + piece}, .backward = Picos{12 - piece}});
  costs.send = Picos{2};
  const StepProgram step = step_of(order, costs, {Picos{4}, Picos{6}, 3, 0.25}, Picos{9});
  const ExecutionResult result = *execute_step(step);
  for (std::size_t stage = 0; stage < 3; ++stage) {
    Picos now;
    for (const StepInterval& one : intervals(step, stage, result.classes[stage])) {
      EXPECT_EQ(one.begin, now);
      now = one.end;
    }
    EXPECT_EQ(now, result.end);
  }
}

// Two replicas of two stages, the second one slower by one micro-batch: each stage's gradients are
// summed when both have done their part, and both update after that.
TEST(StepProgram, ReplicasMeetWhereGradientsAreSummed) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::gpipe, {2, 1, 1});
  StepReplica fast, slow;
  fast.costs.pieces = {{.forward = Picos{10}, .backward = Picos{20}},
                       {.forward = Picos{10}, .backward = Picos{20}}};
  slow.costs.pieces = {{.forward = Picos{10}, .backward = Picos{20}},
                       {.forward = Picos{40}, .backward = Picos{60}}};
  slow.before = Picos{5};
  slow.after = Picos{7};
  StepExchange first, last;
  first.reduce = Picos{3};
  last.reduce = Picos{100};
  const StepProgram step = make_step_program(order, {fast, slow}, {{first}, {last}}, Picos{11});
  const ExecutionResult result = *execute_step(step, true);
  // The slow one's last stage: 5 + 10 + 40 + 60, then 7; its exchange outlasts the first stage's
  // backward.
  EXPECT_EQ(step.tasks_end(3, result), Picos{115});
  EXPECT_EQ(result.end, Picos{115 + 7 + 100 + 11});
  const StepPicture picture = draw_step(step, result, {"a", "b"});
  EXPECT_EQ(picture.end, result.end);
  EXPECT_EQ(picture.tasks_end(), Picos{115 + 20 + 7});
  // The picture shows the slow replica.
  EXPECT_EQ(picture.stages[1].host[0].work.kind, WorkKind::encode);
  EXPECT_EQ(picture.stages[1].host[0].end, Picos{5});
  Picos path;
  for (const StepPicture::PathSum& sum : picture.path) path += sum.time;
  EXPECT_EQ(path, result.end);
  EXPECT_EQ(picture.path[0].stage, 1U);
  EXPECT_EQ(picture.path[0].kind, WorkKind::reduce);
  EXPECT_EQ(picture.path[0].time, Picos{100});
}

// What encoders do in tasks is shown separately and changes no time.
TEST(StepProgram, AnEncodersPartComesFirstAndLast) {
  for (const PipelineSchedule schedule : {PipelineSchedule::gpipe, PipelineSchedule::zb_h1}) {
    const PipelineProgram order = *make_pipeline(schedule, {2, 2, 1});
    PipelineCosts costs;
    costs.pieces = {{.forward = Picos{10}, .backward = Picos{20}, .weight = Picos{}},
                    {.forward = Picos{10}, .backward = Picos{20}, .weight = Picos{}}};
    const StepExchange buckets{Picos{2}, Picos{1}, 3, 0};
    const std::int64_t end = end_of(order, costs), in_buckets = end_of(order, costs, buckets);
    costs.pieces[0].encode_forward = Picos{4};
    costs.pieces[0].encode_backward = Picos{50};  // all of it
    costs.pieces[1].encode_backward = Picos{6};
    EXPECT_EQ(end_of(order, costs), end);
    EXPECT_EQ(end_of(order, costs, buckets), in_buckets);
    const PipelineRun run = *run_pipeline(order, costs);
    EXPECT_EQ(run.tasks[0][0].work.kind, WorkKind::encode);
    EXPECT_EQ(run.tasks[0][0].end, Picos{4});
    EXPECT_EQ(run.tasks[0][1].work.kind, WorkKind::forward);
    EXPECT_EQ(run.tasks[0][1].end, Picos{10});
    EXPECT_EQ(run.tasks[0].back().work.kind, WorkKind::encode);
    EXPECT_EQ(run.tasks[0].back().end - run.tasks[0].back().begin, Picos{20});
    EXPECT_EQ(run.tasks[1].back().work.kind, WorkKind::encode);
    EXPECT_EQ(run.tasks[1].back().end - run.tasks[1].back().begin, Picos{6});
  }
}

// A stage with a tower in front: the model's gradients are complete before the encoder's part of
// the backward, the encoder's at its end; each has a stream of its own.
TEST(StepProgram, TowersExchangeBesideEachOther) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::gpipe, {1, 1, 1});
  PipelineCosts costs = one_piece(40, 80);
  costs.pieces[0].encode_forward = Picos{20};
  costs.pieces[0].encode_backward = Picos{50};
  const auto end = [&](const StageExchange& exchanges, Picos around = {}) {
    StepReplica replica{costs};
    replica.after = around;
    return execute_step(make_step_program(order, {replica}, {exchanges}, Picos{}))->end.value;
  };
  StepExchange model{Picos{}, Picos{10}, 2, 0, StepExchange::Of::model};
  StepExchange encoder{Picos{}, Picos{10}, 2, 0, StepExchange::Of::encoders};
  // The model's backward takes 30, so that its last bucket ends at 80: hidden beside the encoder's.
  EXPECT_EQ(end({model}), 40 + 80 + 10);
  EXPECT_EQ(end({model, encoder}), 40 + 80 + 10);
  // Buckets of 60 begin at 40 + 15 and follow one another; the encoder's at 95 and 155 beside them.
  model.reduce = Picos{60};
  EXPECT_EQ(end({model, encoder}), 55 + 2 * 60);
  encoder.reduce = Picos{60};
  EXPECT_EQ(end({model, encoder}), 95 + 2 * 60);
  // After the tasks, in three parts of 30.
  StepExchange around{Picos{}, Picos{20}, 3, 0, StepExchange::Of::around};
  EXPECT_EQ(end({around}, Picos{90}), 40 + 80 + 90 + 20);
  around.reduce = Picos{50};
  EXPECT_EQ(end({around}, Picos{90}), 40 + 80 + 30 + 3 * 50);
  // Parameters are waited for where their part begins: the model's in the middle of the forward.
  StepExchange gathered{Picos{30}, Picos{}, 1, 0, StepExchange::Of::model};
  EXPECT_EQ(end({gathered}), 30 + 20 + 80);
  gathered.gather = Picos{20};
  EXPECT_EQ(end({gathered}), 40 + 80);
}

// An encoder on every GPU: the ranks of all stages sum its gradients in one call.
TEST(StepProgram, WhatIsAroundTheTasksIsExchangedByAllStages) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::gpipe, {2, 1, 1});
  StepReplica replica;
  replica.costs.pieces = {{.forward = Picos{10}, .backward = Picos{20}},
                          {.forward = Picos{10}, .backward = Picos{20}}};
  replica.before = Picos{4};
  replica.after = Picos{6};
  const StepExchange around{Picos{}, Picos{100}, 0, 0, StepExchange::Of::around};
  const StepProgram step = make_step_program(order, {replica}, {{around}, {around}}, Picos{});
  EXPECT_EQ(step.exchanges[0][0].reduce, step.exchanges[1][0].reduce);
  const ExecutionResult result = *execute_step(step);
  // The first stage is the last to end.
  EXPECT_EQ(result.end, Picos{4 + 60 + 6 + 100});
  std::vector<StepInterval> last = intervals(step, 1, result.classes[1]);
  std::erase_if(last, [](const StepInterval& one) { return one.work.kind != WorkKind::reduce; });
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].begin, Picos{4 + 40 + 6});
  EXPECT_EQ(last[0].end, result.end);
  // A stage without it does not take part.
  const StepProgram without = make_step_program(order, {replica}, {{around}, {}}, Picos{});
  EXPECT_EQ(execute_step(without)->end, Picos{4 + 60 + 6 + 100});
}

}  // namespace
}  // namespace lockstep::sim
