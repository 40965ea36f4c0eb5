// A sweep in a file: the command line of `lockstep sweep`, to keep and share.
//
//   sweep: 1
//   scenario: job.yaml
//   machines: [sim/machines/dgx-h100.yaml]
//   vary:
//     strategy: [ddp, fsdp]
//     ranks: 2..64*2
//   best: samples_per_second
//   memory_limit: 80GB
//
// For a plan file: `plan: FILE` and `calibrations: [NAME or FILE, …]`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/sweep/variation.h"

namespace lockstep::sim {

struct SweepFile {
  // As written: a scenario and at least one machine, or a plan.
  std::string scenario, plan;
  std::vector<std::string> machines;
  std::vector<std::string> calibrations;  // empty: the plan's own
  std::vector<Axis> axes;                 // in the file's order
  std::optional<std::string> best, memory_limit;
  std::optional<std::int64_t> trials, seed, steps;
};

// The JSON Schema of sweep files, sweep.schema.json.
std::string_view sweep_schema();

// Empty if the text is not a sweep: it has no key "sweep". Errors: what is wrong with a sweep, with
// its location. Keys and values are not checked against the scenario (ScenarioGrid::make(),
// PlanGrid::make() do).
Result<std::optional<SweepFile>> parse_sweep_file(const std::string& text, const std::string& file);

}  // namespace lockstep::sim
