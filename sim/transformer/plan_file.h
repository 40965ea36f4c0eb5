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
// plan_schema.h has all keys.
#pragma once

#include <optional>
#include <string>

#include "base/documents/yaml_document.h"
#include "base/quantities.h"
#include "base/result.h"
#include "sim/transformer/cost_parameters.h"
#include "sim/transformer/transformer.h"

namespace lockstep::sim {

struct PlanFile {
  std::string name;
  std::string calibration;  // a name or a file, as it stands
  std::string model_name;   // of the published model; empty: none is named
  Transformer model;
  TrainingPlan plan;
  std::optional<std::int64_t> gpus_per_node;
  std::optional<Bytes> gpu_memory;
};

// Errors, with the place: what the schema does not allow; a model that is not known, or of which a
// key is missing; a size without a unit; GPUs that do not divide by tensor x context x stages;
// ranks, batches, stages and chunks that do not fit together (workload_problem(), and what the
// schedule asks of them).
Result<PlanFile> parse_plan(const std::string& text, const std::string& file);
// The same of a document.
Result<PlanFile> read_plan(const YamlDocument& document);

// Whether `text` is meant to be a plan: it has the key "plan".
bool is_plan(const std::string& text);

// What the plan's machines cost: the calibration's numbers with the plan's gpus_per_node.
// Errors: GPUs of several nodes that do not fill them.
Result<CostParameters> plan_cost(const PlanFile& plan, const CostParameters& calibration);

}  // namespace lockstep::sim
