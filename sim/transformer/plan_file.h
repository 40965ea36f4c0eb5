// A plan file: the training of a transformer on a cluster, in YAML.
//
//   plan: 1
//   name: Llama 3 70B on 512 H100
//   calibration: h100-cluster
//   model: llama3-70b             # or {layers: 80, hidden: 8192, heads: 64, …}
//   sequence: 8192
//   gpus: 512
//   gpu_memory: 80GB
//   tensor: 8
//   pipeline: {stages: 4, schedule: 1f1b}
//   zero: 1
//   global_batch: 1024
//   recompute: selective
//
// plan.schema.json has all keys.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/documents/yaml_document.h"
#include "base/quantities.h"
#include "base/result.h"
#include "sim/transformer/calibration.h"
#include "sim/transformer/transformer.h"

namespace lockstep::sim {

struct PlanFile {
  std::string name;
  std::string calibration;  // a name or a file, as written
  std::string model_name;   // of the published model; empty: none is named
  Transformer model;
  TrainingPlan plan;
  std::optional<std::int64_t> gpus_per_node;
  std::optional<Bytes> gpu_memory;  // empty: the machine's
  // How often GPUs fail and what that costs; empty: they do not.
  struct Failures {
    double gpu_mtbf_hours = 0;
    Picos checkpoint, restart;
    std::optional<Picos> every;  // work between two checkpoints; empty: the best
  };
  std::optional<Failures> failures;
  // Where the file says how many GPUs there are, and what they multiply in: whether the machines
  // can is known later.
  Location gpus_at, dtype_at;
  // What a command set beside the file, by key, in the order given: {"gpus": 64}. Not read from it.
  nlohmann::ordered_json settings;
};

// Errors, with the location: what the schema does not allow; an unknown model, or one with a
// missing key; a size without a unit; GPUs that tensor x context x stages do not divide; ranks,
// batches, stages and chunks that do not fit together (workload_problem(), and the schedule's own
// conditions).
Result<PlanFile> read_plan(const YamlDocument& document);

// True if `text` is meant as a plan: it has the key "plan".
bool is_plan(const std::string& text);

// Whether the machines multiply in 8 bits, as far as their file says of which generation they are:
// Hopper was NVIDIA's first. An error, at `dtype_at`, if they do not.
Status check_float8(const CostParameters& calibration, const Location& dtype_at);

// The cost parameters of the plan's machines: the calibration's, with the plan's gpus_per_node.
// Errors, with the location in the plan: GPUs that do not fill several nodes; check_float8()'s.
Result<CostParameters> plan_cost(const PlanFile& plan, const CostParameters& calibration);

// The JSON Schema of plan files, plan.schema.json. plan_file.cc checks how their values fit
// together.
std::string_view plan_schema();

}  // namespace lockstep::sim
