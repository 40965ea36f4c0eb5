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
// kPlanSchema has all keys.
#pragma once

#include <optional>
#include <string>
#include <string_view>

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
};

// Errors, with the location: what the schema does not allow; an unknown model, or one with a
// missing key; a size without a unit; GPUs that tensor x context x stages do not divide; ranks,
// batches, stages and chunks that do not fit together (workload_problem(), and the schedule's own
// conditions).
Result<PlanFile> parse_plan(const std::string& text, const std::string& file);
// The same for a parsed document.
Result<PlanFile> read_plan(const YamlDocument& document);

// True if `text` is meant as a plan: it has the key "plan".
bool is_plan(const std::string& text);

// The cost parameters of the plan's machines: the calibration's, with the plan's gpus_per_node.
// Errors: GPUs that do not fill several nodes.
Result<CostParameters> plan_cost(const PlanFile& plan, const CostParameters& calibration);

// The JSON Schema of plan files: which keys exist and which are required. plan_file.cc checks how
// their values fit together.

inline constexpr std::string_view kPlanSchema = R"({
  "$schema": "http://json-schema.org/draft-07/schema#",
  "type": "object",
  "additionalProperties": false,
  "required": ["plan", "name", "calibration", "model", "sequence", "gpus", "global_batch"],
  "properties": {
    "plan": {"type": "integer", "minimum": 1, "maximum": 1,
             "description": "version of the format: 1"},
    "name": {"type": "string", "minLength": 1, "maxLength": 200,
             "description": "what people call it"},
    "calibration": {"type": "string", "minLength": 1, "maxLength": 4096,
                    "description": "the machines: h100-cluster or the like, or a file"},
    "model": {
      "description": "a published model, as llama3-70b, or its hyper-parameters",
      "oneOf": [
        {"type": "string", "minLength": 1, "maxLength": 60,
         "description": "the name of a published model"},
        {
          "type": "object",
          "additionalProperties": false,
          "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 60,
                     "description": "a published model, which the other keys change"},
            "layers": {"type": "integer", "minimum": 1, "maximum": 16384,
                       "description": "transformer layers"},
            "hidden": {"type": "integer", "minimum": 1, "maximum": 1048576,
                       "description": "width of the model, in elements"},
            "heads": {"type": "integer", "minimum": 1, "maximum": 1048576,
                      "description": "heads of attention"},
            "kv_heads": {"type": "integer", "minimum": 1, "maximum": 1048576,
                         "description": "fewer than heads for grouped queries; left out: heads"},
            "ffn": {"type": "integer", "minimum": 1, "maximum": 1048576,
                    "description": "width inside the feed-forward block; left out: 4 x hidden"},
            "vocabulary": {"type": "integer", "minimum": 1, "maximum": 1048576,
                           "description": "words"},
            "gated": {"type": "boolean",
                      "description": "SwiGLU: a third matrix in the feed-forward block, no biases"},
            "tied_embeddings": {"type": "boolean",
                                "description": "one table for input and output; left out: yes"},
            "fused_attention": {"type": "boolean",
                                "description": "FlashAttention; left out: yes, not so gpt*"},
            "causal": {"type": "boolean",
                       "description": "skips what the mask hides; left out: as fused_attention"}
          }
        }
      ]
    },
    "sequence": {"type": "integer", "minimum": 1, "maximum": 1048576,
                 "description": "tokens of a sequence"},
    "gpus": {"type": "integer", "minimum": 1, "maximum": 1048576,
             "description": "all: tensor x context x pipeline.stages x data parallel"},
    "gpus_per_node": {"type": "integer", "minimum": 1, "maximum": 4096,
                      "description": "left out: the calibration's"},
    "gpu_memory": {"type": "string", "minLength": 1, "maxLength": 60,
                   "description": "of each, as 80GB; left out: not judged"},
    "tensor": {"type": "integer", "minimum": 1, "maximum": 32768, "default": 1,
               "description": "GPUs that a layer is cut over: tensor parallelism"},
    "sequence_parallel": {"type": "boolean", "default": false,
                          "description": "norms and dropouts are cut over the tensor ranks"},
    "async_tensor": {"type": "boolean", "default": false,
                     "description": "its collectives run beside the matrix products"},
    "overlap": {
      "type": "object",
      "description": "what else runs beside computing, and only slows it down",
      "additionalProperties": false,
      "properties": {
        "gradients": {"type": "boolean", "default": false,
                      "description": "the gradients' exchange, beside the last backward pass"},
        "context": {"type": "boolean", "default": false,
                    "description": "context-parallel collectives, as in ring attention"},
        "pipeline": {"type": "boolean", "default": false,
                     "description": "sends between pipeline stages"}
      }
    },
    "context": {"type": "integer", "minimum": 1, "maximum": 32768, "default": 1,
                "description": "GPUs that a sequence is cut over: context parallelism"},
    "pipeline": {
      "type": "object",
      "description": "pipeline parallelism",
      "additionalProperties": false,
      "properties": {
        "stages": {"type": "integer", "minimum": 1, "maximum": 32768, "default": 1,
                   "description": "GPUs that the layers are dealt over"},
        "schedule": {"type": "string",
                     "enum": ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zbv"],
                     "default": "1f1b", "description": "the order of a stage's micro-batches"},
        "chunks": {"type": "integer", "minimum": 1, "maximum": 16384,
                   "description": "of the model on a stage; left out: 2 for interleaved, zbv"}
      }
    },
    "zero": {"type": "integer", "minimum": 0, "maximum": 3, "default": 0,
             "description": "shared by data-parallel ranks: 1 optimizer, 2 gradients, 3 all"},
    "micro_batch": {"type": "integer", "minimum": 1, "maximum": 1048576, "default": 1,
                    "description": "sequences that a GPU computes at once"},
    "global_batch": {"type": "integer", "minimum": 1, "maximum": 1048576,
                     "description": "sequences of a step, on all GPUs"},
    "failures": {
      "type": "object",
      "description": "how often GPUs fail; left out: never",
      "additionalProperties": false,
      "required": ["gpu_mtbf_hours", "checkpoint", "restart"],
      "properties": {
        "gpu_mtbf_hours": {"type": "number", "minimum": 0.001, "maximum": 1e9,
                           "description": "mean time between failures of one GPU and its share of the node"},
        "checkpoint": {"type": "string", "minLength": 1, "maxLength": 60,
                       "description": "for how long saving one stops the job, as 30s"},
        "restart": {"type": "string", "minLength": 1, "maxLength": 60,
                    "description": "from a failure to the next step, as 10min"},
        "every": {"type": "string", "minLength": 1, "maxLength": 60,
                  "description": "work between two checkpoints; left out: the best"}
      }
    },
    "recompute": {"type": "string", "enum": ["none", "selective", "full"], "default": "none",
                  "description": "what the backward pass computes again"},
    "dtype": {"type": "string", "enum": ["bfloat16", "float8"], "default": "bfloat16",
              "description": "of the linear layers' products; all else is bfloat16"},
    "gradient_dtype": {"type": "string", "enum": ["float32", "bfloat16"], "default": "float32",
                       "description": "of gradients, in memory and as they are summed"},
    "compile": {"type": "boolean", "default": false,
                "description": "a compiler fuses element-wise operations"}
  }
})";

}  // namespace lockstep::sim
