#include "sim/machine/work_time.h"

#include <cmath>
#include <utility>

#include <gtest/gtest.h>

#include "sim/collectives/closed_form.h"
#include "sim/forecast/timed_run.h"

namespace lockstep::sim {
namespace {

// 1 TFLOP/s of which products reach half, 1 GB/s, a microsecond a kernel.
Machine plain() {
  Machine machine;
  machine.compute["float32"] = {FlopRate{1'000'000'000'000}, 0.5, 0.25};
  machine.memory_bandwidth = Bandwidth{8'000'000'000};
  machine.launch = Picos{1'000'000};
  machine.launches_hidden = false;
  machine.links = {{Picos{1'000'000}, Bandwidth{8'000'000'000}, std::nullopt}};
  return machine;
}

trace::WorkCost work(double matmul, double convolution, double product_bytes, double memory_bytes,
                     std::int64_t kernels) {
  trace::WorkCost out;
  out.flops = {{"float32", matmul, convolution}};
  out.product_bytes = product_bytes;
  out.memory_bytes = memory_bytes;
  out.kernels = kernels;
  return out;
}

TEST(WorkTime, ProductsTakeTheirShareOfThePeak) {
  EXPECT_DOUBLE_EQ(work_seconds(work(5e11, 0, 0, 0, 0), plain()), 1.0);
  EXPECT_DOUBLE_EQ(work_seconds(work(0, 5e11, 0, 0, 0), plain()), 2.0);
}

TEST(WorkTime, ProductsThatMoveMuchAreBoundByMemory) {
  EXPECT_DOUBLE_EQ(work_seconds(work(5e11, 0, 3e9, 0, 0), plain()), 3.0);
  EXPECT_DOUBLE_EQ(work_seconds(work(5e11, 0, 0.5e9, 0, 0), plain()), 1.0);
}

TEST(WorkTime, TheRestTakesMemoryAndLaunches) {
  EXPECT_DOUBLE_EQ(work_seconds(work(0, 0, 0, 1e9, 500'000), plain()), 1.5);
}

TEST(WorkTime, EveryOperationIsDispatched) {
  Machine machine = plain();
  machine.dispatch = Picos{2'000'000};
  trace::WorkCost views;
  views.operations = 1000;
  EXPECT_DOUBLE_EQ(work_seconds(views, machine), 2e-3);
}

TEST(WorkTime, HiddenLaunchesCountOnlyWhereTheyAreLonger) {
  Machine machine = plain();
  machine.launches_hidden = true;
  EXPECT_DOUBLE_EQ(work_seconds(work(0, 0, 0, 1e9, 500'000), machine), 1.0);
  EXPECT_DOUBLE_EQ(work_seconds(work(0, 0, 0, 1e9, 2'000'000), machine), 2.0);
}

TEST(WorkTime, ATypeThatTheMachineDoesNotKnowIsPricedAsTheNextWiderOne) {
  Machine machine = plain();
  machine.compute["float64"] = {FlopRate{1}, 1, 1};
  EXPECT_EQ(compute_for(machine, "bfloat16").peak.per_second, 1'000'000'000'000);
  EXPECT_EQ(compute_for(machine, "float64").peak.per_second, 1);
  machine.compute.erase("float64");
  EXPECT_EQ(compute_for(machine, "float64").peak.per_second, 1'000'000'000'000);
}

TEST(WorkTime, WhatWasTimedTakesAsLongAsItTook) {
  trace::RankCosts costs;
  costs.work = {work(5e11, 0, 0, 0, 0), work(5e11, 0, 0, 0, 0), work(0, 0, 0, 0, 0)};
  costs.work[0].nanos = 1'500'000'000;
  costs.work[2].nanos = 5;
  correct_by_times(costs, plain());
  EXPECT_DOUBLE_EQ(work_seconds(costs.work[0], plain()), 1.5);
  EXPECT_DOUBLE_EQ(work_seconds(costs.work[1], plain()), 1.0) << "it was not timed";
  EXPECT_DOUBLE_EQ(work_seconds(costs.work[2], plain()), 0) << "there is nothing to price";
  Machine twice = plain();
  twice.compute["float32"].peak.per_second *= 2;
  EXPECT_DOUBLE_EQ(work_seconds(costs.work[0], twice), 0.75) << "as far from the rates as before";
  correct_by_times(costs, plain());
  EXPECT_DOUBLE_EQ(work_seconds(costs.work[0], plain()), 1.5) << "corrected once, not twice";
}

TEST(WorkTime, SamplesArePreparedAsTheyWereTimed) {
  Machine machine = plain();
  machine.cores = 1;
  machine.sample = Picos{1'000'000};
  trace::RankCosts costs;
  costs.work = {work(0, 0, 0, 0, 0), work(0, 0, 0, 0, 0)};
  costs.work[1].step = 1;
  EXPECT_EQ(work_nanos(costs, 3, machine, 2), (std::vector<trace::Nanos>{3000, 3000}));
  costs.other_threads_nanos = 1000;  // of both steps
  EXPECT_EQ(work_nanos(costs, 3, machine, 2), (std::vector<trace::Nanos>{500, 500}));
  machine.cores = 3;
  EXPECT_EQ(work_nanos(costs, 3, machine, 2), (std::vector<trace::Nanos>{0, 0}))
      << "a core is left over";
}

TEST(WorkTime, OfASlowRankIsLonger) {
  trace::RankCosts costs;
  costs.work = {work(3e9, 0, 0, 0, 0)};
  const std::vector<trace::Nanos> usual = work_nanos(costs, 0, plain(), 2);
  EXPECT_EQ(work_nanos(costs, 0, plain(), 2, 1.5)[0], usual[0] * 3 / 2);
}

TEST(WorkTime, GroupsArePlacedByTheirNodes) {
  EXPECT_EQ(layout_of({0, 1, 2, 3}, 4), (GroupLayout{4, 1, 4}));
  EXPECT_EQ(layout_of({0, 1, 4, 5}, 4), (GroupLayout{4, 2, 2}));
  EXPECT_EQ(layout_of({0, 4, 8}, 4), (GroupLayout{3, 3, 1}));
  EXPECT_EQ(layout_of({0, 1, 4}, 4), (GroupLayout{3, 2, 1, 0, 0, 0, 2}));
}

ProgramCall all_reduce(std::int64_t bytes) {
  ProgramCall call;
  call.bytes = Bytes{bytes};
  return call;
}

TEST(CallTime, InsideANodeItIsTheFormulaOfTheCommand) {
  const Machine machine = plain();
  const auto time = call_time(all_reduce(1'000'000), {4, 1, 4}, machine);
  ASSERT_TRUE(time);
  EXPECT_EQ(*time, *default_time(trace::Op::all_reduce, 4, Bytes{1'000'000}, machine.links[0]));
}

TEST(CallTime, OneRankAloneTakesNone) {
  EXPECT_EQ(call_time(all_reduce(1000), {1, 1, 1}, plain())->value, 0);
}

TEST(CallTime, BetweenNodesTheRanksOfANodeSendTogether) {
  Machine machine = plain();
  machine.ranks_per_node = 4;
  machine.links.push_back({Picos{10'000'000}, Bandwidth{800'000'000}, std::nullopt});
  // 2·3 hops inside, 2·1 between; 2·7/8·8 MB at four times 100 MB/s.
  EXPECT_EQ(call_time(all_reduce(8'000'000), {8, 2, 4}, machine)->value,
            6 * 1'000'000 + 2 * 10'000'000 + 35'000'000'000);
  // The links inside bound what can be sent: 40 times 100 MB/s are more than 1 GB/s.
  EXPECT_EQ(call_time(all_reduce(8'000'000), {80, 2, 40}, machine)->value,
            78 * 1'000'000 + 2 * 10'000'000 + 15'800'000'000);
}

TEST(CallTime, WhatIsNotSimulatedIsRefused) {
  ProgramCall call;
  call.op = trace::Op::scan;
  EXPECT_FALSE(call_time(call, {4, 1, 4}, plain()));
}

// Eight A100 of which NCCL found twelve channels of 20 GB/s each.
Machine with_nccl() {
  Machine machine = plain();
  machine.ranks_per_node = 8;
  machine.nccl.emplace();
  machine.nccl->gpu = GpuGeneration::ampere;
  machine.nccl->inside.ring = *parse_nccl_channels("12x20GB/s");
  return machine;
}

TEST(CallTime, NcclCarriesWhatItTunes) {
  const Machine machine = with_nccl();
  const auto chosen = nccl_call({trace::Op::all_reduce, Bytes{8}}, {8, 1, 8}, machine);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->protocol, NcclProtocol::ll);
  EXPECT_EQ(call_time(all_reduce(8), {8, 1, 8}, machine)->value,
            std::llround(chosen->seconds * 1e12));
}

// All-to-alls and messages take NCCL's start of a call, and then their formula.
TEST(CallTime, WhatNcclsModelDoesNotKnowTakesItsFormula) {
  const Machine machine = with_nccl();
  Machine without = machine;
  without.nccl.reset();
  ProgramCall to_all;
  to_all.op = trace::Op::all_to_all;
  to_all.bytes = Bytes{1000};
  for (const auto& [call, layout] :
       {std::pair{to_all, GroupLayout{8, 1, 8}}, std::pair{all_reduce(8), GroupLayout{1, 1, 1}},
        std::pair{all_reduce(8), GroupLayout{9, 2, 1, 0, 0, 0, 8}},
        std::pair{all_reduce(8), GroupLayout{16, 2, 8}}}) {
    EXPECT_FALSE(nccl_call({call.op, call.bytes}, layout, machine));
    const Picos start{call.op == trace::Op::all_to_all ? 6'600'000 : 0};
    EXPECT_EQ(*call_time(call, layout, machine), *call_time(call, layout, without) + start);
  }
}

TEST(CallTime, ATimeThatDoesNotFitIsRefused) {
  Machine machine = with_nccl();
  machine.nccl->inside.ring.each = Bandwidth{8};
  EXPECT_FALSE(call_time(all_reduce(std::int64_t{1} << 60U), {8, 1, 8}, machine));
}

}  // namespace
}  // namespace lockstep::sim
