// The shipped machines against measured tables: how far off they are, with NCCL's choice and
// without, and that their fitted numbers are what a fit to the rows that they name gives.
#include "tests/sim/collectives/measured_nccl.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <gtest/gtest.h>

#include "base/quantities.h"
#include "base/text.h"
#include "sim/machine/work_time.h"

namespace lockstep::sim {
namespace {

Machine shipped(const std::string& name) {
  const auto machine = load_machine(LOCKSTEP_SOURCE_DIR "/sim/machines/" + name + ".yaml");
  EXPECT_TRUE(machine) << machine.error().str();
  // The model by itself: with its measurements the machine predicts them by themselves.
  Machine modelled = *machine;
  modelled.measured.clear();
  return modelled;
}

double predicted(const MeasuredNccl& table, std::int64_t bytes, const Machine& machine) {
  ProgramCall call;
  call.bytes = Bytes{bytes};
  return call_time(call, {table.ranks, table.nodes, table.ranks / table.nodes}, machine)
             ->seconds() *
         1e6;
}

// As `calibrate check` labels it.
std::string label(const MeasuredNccl& table, std::int64_t bytes) {
  return table.machine + ", " + std::to_string(table.ranks) + " GPUs, " + bytes_text(bytes);
}

bool fitted_to(const Machine& machine, const MeasuredNccl& table, std::int64_t bytes) {
  const auto& rows = machine.nccl->fitted_to;
  return std::find(rows.begin(), rows.end(), label(table, bytes)) != rows.end();
}

// The mean absolute error over rows that nothing was fitted to.
double unseen_error(const MeasuredNccl& table, const Machine& machine, const Machine& fits) {
  double sum = 0;
  int count = 0;
  for (const auto& row : table.rows) {
    if (fitted_to(fits, table, row.bytes)) continue;
    sum += std::abs(predicted(table, row.bytes, machine) / row.microseconds - 1);
    ++count;
  }
  return sum / count;
}

TEST(MeasuredNcclTables, ChoosingAsNcclDoesIsCloserThanARing) {
  struct Case {
    const char* machine;
    std::string table;
    double bound;
  };
  for (const Case& c : {Case{"dgx-h100", "h100_8_nvls", 0.08}, Case{"dgx-h100", "h100_32_ib", 0.1},
                        Case{"dgx-a100", "a100_16_40gb", 0.13}, Case{"dgx-a100", "a100", 0.24}}) {
    const Machine machine = shipped(c.machine);
    Machine without = machine;
    without.nccl.reset();
    Machine unfitted = machine;
    for (NcclLevel* level : {&unfitted.nccl->inside, &*unfitted.nccl->between})
      level->latency = level->speed = 1, level->fill = 0;
    for (const MeasuredNccl& table : measured_nccl()) {
      if (table.machine != c.table) continue;
      const double now = unseen_error(table, machine, machine);
      const double before = unseen_error(table, without, machine);
      std::printf("%-13s %2ld GPUs: %4.1f %%, NCCL's constants alone %4.1f %%, a ring %4.1f %%\n",
                  c.table.c_str(), static_cast<long>(table.ranks), 100 * now,
                  100 * unseen_error(table, unfitted, machine), 100 * before);
      EXPECT_LT(now, c.bound) << c.table;
      EXPECT_LT(now, before) << c.table;
    }
  }
}

// Squared errors of logarithms over the fitted rows of a level, and little for leaving 1, 1, 0.5:
// two rows do not settle three numbers.
double misfit(const Machine& machine, bool between) {
  double sum = 0;
  for (const MeasuredNccl& table : measured_nccl())
    for (const auto& row : table.rows)
      if ((table.nodes > 1) == between && fitted_to(machine, table, row.bytes))
        sum += std::pow(std::log(predicted(table, row.bytes, machine) / row.microseconds), 2);
  const NcclLevel& level = between ? *machine.nccl->between : machine.nccl->inside;
  return sum + 0.02 * std::pow(std::log(level.latency), 2) +
         0.2 * std::pow(std::log(level.speed), 2) + 0.0005 * std::pow(level.fill - 0.5, 2);
}

TEST(MeasuredNcclTables, TheShippedNumbersAreTheirFit) {
  for (const char* name : {"dgx-h100", "dgx-a100"})
    for (const bool between : {false, true}) {
      const Machine machine = shipped(name);
      const double best = misfit(machine, between);
      for (double NcclLevel::*number : {&NcclLevel::latency, &NcclLevel::speed, &NcclLevel::fill})
        for (const double step : {-0.05, 0.05}) {
          Machine moved = machine;
          NcclLevel& level = between ? *moved.nccl->between : moved.nccl->inside;
          level.*number = std::max(0.0, level.*number + step);
          EXPECT_GE(misfit(moved, between), best - 1e-12)
              << name << (between ? " between" : " inside") << " " << level.*number;
        }
    }
}

TEST(MeasuredNcclTables, AtMostATenthOfTheRowsWasFittedTo) {
  for (const char* name : {"dgx-h100", "dgx-a100"}) {
    const Machine machine = shipped(name);
    std::size_t rows = 0, fitted = 0;
    for (const MeasuredNccl& table : measured_nccl())
      for (const auto& row : table.rows) {
        if (!std::string(name).ends_with(table.machine.substr(0, 4))) continue;
        ++rows;
        if (fitted_to(machine, table, row.bytes)) ++fitted;
      }
    EXPECT_EQ(fitted, machine.nccl->fitted_to.size()) << name;
    EXPECT_GE(fitted, 4U);
    EXPECT_LE(fitted, rows / 9) << name;
  }
}

}  // namespace
}  // namespace lockstep::sim
