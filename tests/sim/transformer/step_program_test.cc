// A step as the engine runs it: its pipeline is run_pipeline()'s, its exchange the closed forms'.
#include "sim/transformer/step_program.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::sim {
namespace {

using Kind = StepWork::Kind;

std::int64_t end_of(const PipelineProgram& order, const PipelineCosts& costs,
                    const StepExchange& exchange = {}, Picos update = {}) {
  return execute_step(make_step_program(order, costs, exchange, update)).end.value;
}

// The tasks of a stage as spans, whatever they are cut into.
std::vector<TaskSpan> spans_of(const StepProgram& step, std::size_t stage,
                               const ExecutionResult& result) {
  std::vector<TaskSpan> out;
  for (const StepStretch& one : stretches(step, stage, result.classes[stage]))
    if (one.work.kind <= Kind::weight) out.push_back({one.begin, one.end});
  return out;
}

// The two ways to run a pipeline are one, where no message takes longer than a task: those of one
// channel then never wait for each other.
TEST(StepProgram, RunsAPipelineAsRunPipelineDoes) {
  std::mt19937 random(11);
  const auto from = [&](std::int64_t least, std::uint32_t range) {
    return Picos{least + static_cast<std::int64_t>(random() % range)};
  };
  int seen = 0;
  for (const std::string& name : pipeline_schedule_names())
    for (std::int32_t p = 1; p <= 5; ++p)
      for (std::int32_t m = 1; m <= 12; ++m)
        for (std::int32_t v = 1; v <= 3; ++v) {
          const Result<PipelineProgram> order =
              make_pipeline(*parse_pipeline_schedule(name), {p, m, v});
          if (!order) continue;
          PipelineCosts costs;
          const std::int64_t least = 1 + static_cast<std::int64_t>(random() % 5);
          const bool unequal = random() % 2 == 0;
          const std::int32_t count = order->shape.pieces() * (unequal ? m : 1);
          for (std::int32_t i = 0; i < count; ++i)
            (unequal ? costs.unequal : costs.pieces)
                .push_back({.forward = from(least, 20),
                            .backward = from(least, 20),
                            .weight = order->split ? from(least, 20) : Picos{}});
          costs.send = from(0, static_cast<std::uint32_t>(least) + 1);
          const PipelineRun run = *run_pipeline(*order, costs);
          const StepProgram step = make_step_program(*order, costs, {}, Picos{});
          const ExecutionResult result = execute_step(step);
          ASSERT_EQ(result.end, run.time) << name << " " << p << " " << m << " " << v;
          for (std::size_t stage = 0; stage < run.spans.size(); ++stage) {
            const std::vector<TaskSpan> spans = spans_of(step, stage, result);
            ASSERT_EQ(spans.size(), run.spans[stage].size());
            for (std::size_t t = 0; t < spans.size(); ++t) {
              ASSERT_EQ(spans[t].start, run.spans[stage][t].start) << name << " " << stage;
              ASSERT_EQ(spans[t].end, run.spans[stage][t].end) << name << " " << stage;
            }
          }
          ++seen;
        }
  EXPECT_GT(seen, 300);
}

// Two stages of GPipe whose forwards take 1, with messages of 10: a link carries one at a time.
TEST(StepProgram, MessagesOfOneDirectionFollowOneAnother) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::gpipe, {2, 3, 1});
  PipelineCosts costs{
      {{.forward = Picos{1}, .backward = Picos{2}}, {.forward = Picos{1}, .backward = Picos{20}}},
      Picos{10}};
  const StepProgram step = make_step_program(order, costs, {}, Picos{});
  const std::vector<TaskSpan> spans = spans_of(step, 1, execute_step(step));
  EXPECT_EQ(spans[0].start, Picos{11});
  EXPECT_EQ(spans[1].start, Picos{21});
  EXPECT_EQ(spans[2].start, Picos{31});
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
TEST(StepProgram, GradientsAreReducedBesideTheLastBackward) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::one_f_one_b, {1, 3, 1});
  constexpr std::int64_t kF = 40, kB = 80;
  for (std::int32_t n : {1, 2, 4, 8})
    for (std::int64_t x : {1, 5, 10, 30, 200})
      EXPECT_EQ(end_of(order, one_piece(kF, kB), {Picos{}, Picos{x}, n, 0}),
                2 * (kF + kB) + kF + kB / n + std::max(n * x, kB - kB / n + x))
          << n << " " << x;
}

// One gather ahead (as FSDP's forward, L layers): g + (L - 1) max(g, c) + c.
TEST(StepProgram, ParametersAreGatheredBesideTheFirstForward) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::gpipe, {1, 2, 1});
  for (std::int32_t n : {1, 2, 4})
    for (std::int64_t g : {1, 10, 40, 100})
      EXPECT_EQ(end_of(order, one_piece(40, 80), {Picos{g}, Picos{}, n, 0}),
                std::max<std::int64_t>(n * g + 40 / n, g + 40) + 40 + 2 * 80)
          << n << " " << g;
}

TEST(StepProgram, WhatIsHiddenSlowsTheTasksDown) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::gpipe, {1, 1, 1});
  // Of four buckets of 10 three are hidden: half of their time, then the last one.
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
  const StepProgram step = make_step_program(order, costs, {Picos{}, Picos{15}, 0, 0}, Picos{3});
  const ExecutionResult result = execute_step(step);
  EXPECT_EQ(result.end, Picos{5 * 30 + 15 + 3});
  std::vector<StepStretch> last = stretches(step, 1, result.classes[1]);
  std::erase_if(last, [](const StepStretch& one) { return one.work.kind != Kind::reduce; });
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].begin, Picos{130});

  const PipelineProgram split = *make_pipeline(PipelineSchedule::zb_h1, {1, 2, 1});
  const PipelineCosts parts{{{.forward = Picos{8}, .backward = Picos{8}, .weight = Picos{8}}},
                            Picos{}};
  EXPECT_EQ(end_of(split, parts, {Picos{}, Picos{3}, 2, 0}), 2 * 24 + 3);
}

TEST(StepProgram, StretchesHaveNoGaps) {
  const PipelineProgram order = *make_pipeline(PipelineSchedule::interleaved, {3, 6, 2});
  PipelineCosts costs;
  for (std::int64_t piece = 0; piece < 6; ++piece)
    costs.pieces.push_back({.forward = Picos{5 + piece}, .backward = Picos{12 - piece}});
  costs.send = Picos{2};
  const StepProgram step = make_step_program(order, costs, {Picos{4}, Picos{6}, 3, 0.25}, Picos{9});
  const ExecutionResult result = execute_step(step);
  for (std::size_t stage = 0; stage < 3; ++stage) {
    Picos now;
    for (const StepStretch& one : stretches(step, stage, result.classes[stage])) {
      EXPECT_EQ(one.begin, now);
      now = one.end;
    }
    EXPECT_EQ(now, result.end);
  }
}

}  // namespace
}  // namespace lockstep::sim
