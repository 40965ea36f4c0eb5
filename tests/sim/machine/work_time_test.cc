#include "sim/machine/work_time.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "sim/collectives/choice.h"

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

WorkCost work(double matmul, double convolution, double product_bytes, double memory_bytes,
              std::int64_t kernels) {
  WorkCost out;
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
  WorkCost views;
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

TEST(WorkTime, GroupsArePlacedByTheirNodes) {
  EXPECT_EQ(place_of({0, 1, 2, 3}, 4), (GroupPlace{4, 1, 4}));
  EXPECT_EQ(place_of({0, 1, 4, 5}, 4), (GroupPlace{4, 2, 2}));
  EXPECT_EQ(place_of({0, 4, 8}, 4), (GroupPlace{3, 3, 1}));
  EXPECT_EQ(place_of({0, 1, 4}, 4), (GroupPlace{3, 2, 0}));
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
  EXPECT_EQ(*time, *default_time(Op::all_reduce, 4, Bytes{1'000'000}, machine.links[0]));
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
  call.op = Op::scan;
  EXPECT_FALSE(call_time(call, {4, 1, 4}, plain()));
}

// Out of place all-reduces of NCCL, of machines/calibration-nccl.yaml: where bandwidth rules the
// shipped machines are within a quarter, and where latency rules within a half.
TEST(CallTime, TheShippedMachinesAgreeWithMeasuredTables) {
  struct Row {
    const char* machine;
    GroupPlace place;
    std::int64_t bytes;
    double measured_us, bound;
  };
  const std::vector<Row> rows = {
      {"dgx-h100", {8, 1, 8}, 134'217'728, 586.4, 0.25},
      {"dgx-h100", {8, 1, 8}, 4'294'967'296, 15'749, 0.25},
      {"dgx-h100", {32, 4, 8}, 65'536, 50.83, 0.5},
      {"dgx-h100", {32, 4, 8}, 67'108'864, 579.1, 0.5},
      {"dgx-h100", {32, 4, 8}, 8'589'934'592, 45'606, 0.25},
      {"dgx-a100", {16, 2, 8}, 65'536, 51.69, 0.5},
      {"dgx-a100", {16, 2, 8}, 67'108'864, 821.7, 0.25},
      {"dgx-a100", {16, 2, 8}, 4'294'967'296, 34'176, 0.25},
  };
  for (const Row& row : rows) {
    const auto machine =
        load_machine(std::string(LOCKSTEP_SOURCE_DIR "/machines/") + row.machine + ".yaml");
    ASSERT_TRUE(machine) << machine.error().str();
    const double predicted = call_time(all_reduce(row.bytes), row.place, *machine)->seconds() * 1e6;
    EXPECT_LT(std::abs(predicted / row.measured_us - 1), row.bound)
        << row.machine << " " << row.bytes << ": " << predicted;
  }
}

}  // namespace
}  // namespace lockstep::sim
