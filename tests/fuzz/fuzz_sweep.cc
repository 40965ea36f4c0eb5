// Sweeps: their files and their results.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "runtime/job/scenario.h"
#include "sim/sweep/row.h"
#include "sim/sweep/scenario_grid.h"
#include "sim/sweep/sweep_file.h"
#include "tests/fuzz/targets.h"

namespace lockstep {

namespace {

constexpr const char* kScenario =
    "lockstep: 1\nname: a job\nranks: 4\nstrategy: ddp\n"
    "data: {modality: [{ranks: [3], has: [text]}, {has: [image, text]}]}\ntrain: {steps: 5}\n";
constexpr const char* kMachine =
    "machine: 1\nname: small\ncompute: {float32: {peak: 1TFLOP/s}}\n"
    "memory: {bandwidth: 1GB/s}\nlinks: [{alpha: 1us, beta: 1GB/s}]\n";

void try_points(const sim::ScenarioGrid& plan) {
  constexpr sim::PointId kTried = 4;
  const sim::PointId size = plan.variation().grid().size();
  LOCKSTEP_CHECK(size >= 1, "a grid has a point");
  for (sim::PointId i = 0; i < std::min(size, kTried); ++i) {
    const sim::PointId point = i % 2 == 0 ? i : size - i;
    plan.variation().values(point);
    if (const Result<std::string> text = plan.scenario_text(point))
      LOCKSTEP_CHECK(runtime::parse_scenario(*text, "point"), "a point is a scenario");
    const Result<sim::Machine> machine = plan.machine(point);
    LOCKSTEP_CHECK(machine || !machine.error().message.empty(), "an error says what is wrong");
  }
}

}  // namespace

// Any bytes as a sweep's file: an error, or axes that a job can be varied along. The points
// of a sweep that fits are scenarios and machines, or refused.
void fuzz_sweep_file(std::string_view bytes) {
  const auto file = sim::parse_sweep_file(std::string(bytes), "fuzz.yaml");
  if (!file) {
    LOCKSTEP_CHECK(!file.error().message.empty(), "an error says what is wrong");
    return;
  }
  if (!*file || !(*file)->plan.empty()) return;
  LOCKSTEP_CHECK(!(*file)->machines.empty(), "the schema's bounds hold");
  const auto plan = sim::ScenarioGrid::make({"job.yaml", kScenario}, {{"m.yaml", kMachine}},
                                            (*file)->axes, std::nullopt);
  if (plan) return try_points(*plan);
  LOCKSTEP_CHECK(!plan.error().message.empty(), "an error says what is wrong");
}

// Any bytes as a line of a sweep's results: an error, or a row that can be written and is the same
// again.
void fuzz_sweep_row(std::string_view bytes) {
  const Result<sim::Row> row = sim::parse_row(bytes);
  if (!row) {
    LOCKSTEP_CHECK(!row.error().message.empty(), "an error says what is wrong");
    return;
  }
  const std::string line = sim::row_line(*row, true);
  LOCKSTEP_CHECK(line.find('\n') == line.size() - 1, "a row is a line");
  const Result<sim::Row> again = sim::parse_row(line);
  LOCKSTEP_CHECK(again, "what was written can be read");
  LOCKSTEP_CHECK(sim::row_line(*again, true) == line, "and is the same");
  LOCKSTEP_CHECK(
      sim::point_key(row->machine, row->values) == sim::point_key(again->machine, again->values),
      "of the same point");
}

}  // namespace lockstep
