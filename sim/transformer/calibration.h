// What a machine type costs: the few numbers of which a step's time is made. They are data, in the
// YAML files of sim/machines/calibration*.yaml, and each has a meaning of its own:
//
//   kernels   max(FLOPs / (peak x efficiency), bytes / bandwidth), where the efficiency of a matrix
//             product falls with half-filled waves of tiles and with a short inner dimension
//   launches  the host issues kernels at its own pace; what the GPU does faster than that waits
//   network   alpha-beta inside a node (NVLink) and between nodes (network cards shared by the
//             ranks of a node)
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/embedded_file.h"
#include "base/result.h"

namespace lockstep::sim {

struct CostParameters {
  // Given by the data sheet.
  double peak_flops = 312e12;  // dense 16-bit, FLOP/s
  double processors = 108;     // streaming multiprocessors
  double ranks_per_node = 8;
  // Fitted.
  double gemm_efficiency = 0.8;      // of the peak, for full waves and a deep product
  double gemm_half_depth = 150;      // inner dimension at which half of it is left
  double memory_bandwidth = 1.4e12;  // bytes/s that element-wise kernels reach
  double attention_traffic = 1;      // scale of the bytes of softmax and dropout on the scores
  double logit_traffic = 60;         // bytes per logit: loss, its gradient, float32 copies
  double launch_forward = 1e-3;      // s per layer and micro-batch, forward
  double launch_backward = 1.4e-3;   // … backward
  double launch_unfused = 0.8e-3;    // … more where the fused softmax cannot be used
  double launch_micro_batch = 2e-3;  // s per micro-batch and stage
  double step_overhead = 4e-3;       // s per step
  double optimizer_traffic = 40;     // bytes per parameter of clipping, update and copy
  double node_latency = 30e-6;       // s per collective inside a node, of 8 ranks
  double node_bandwidth = 230e9;     // bus bandwidth inside a node, bytes/s
  double network_latency = 40e-6;    // s per doubling of ranks, between nodes
  double network_bandwidth = 12e9;   // bytes/s of one GPU's share of the network cards
  double stage_handover = 2e-4;      // s that a send and a receive occupy a pipeline stage
  double compiled_traffic = 0.6;     // element-wise bytes left by a compiler's fusion
  double fp8_gain = 1.5;             // linear layers in 8 bits, over 16 bits
  double overlap_slowdown = 0.1;     // share of hidden communication that computing pays for
  double reserved_memory = 3e9;      // bytes of context, libraries and fragmentation
};

struct CostParameter {
  std::string_view name;  // of the YAML file
  double CostParameters::*value;
  std::string_view unit;
  double low, high;  // what is taken for possible
};

// Every parameter, in the order of the struct.
const std::vector<CostParameter>& cost_parameters();

// A machine type's parameters, and where they are from.
struct Calibration {
  std::string name;    // "a100-node"
  std::string origin;  // file, for messages
  CostParameters cost;
  std::vector<std::string> fitted_on;  // rows of tables: "vtrain-single 12"
};

// Reads `text` of the YAML file `file`:
//   name: a100-node
//   parameters: {peak_flops: 312e12, …}      every parameter, none twice
//   fitted_on: [vtrain-single 12, …]         may be left out
// Errors, with the place: a missing or unknown key, a value that is no number or outside of what is
// possible.
Result<Calibration> parse_calibration(const std::string& text, const std::string& file);
std::string calibration_yaml(const Calibration& calibration);

// The calibrations that come with the program: sim/machines/calibration-*.yaml, embedded when it is
// built, so that it needs no file at run time.

// "a100-node", "a100-cluster", …
std::vector<std::string> shipped_calibration_names();

// The text of sim/machines/calibration-NAME.yaml; nothing: no such machine type.
std::optional<std::string_view> shipped_calibration_text(std::string_view name);

// Errors: no such machine type.
Result<Calibration> shipped_calibration(std::string_view name);

// `given` is a file, the name of a shipped calibration, or empty: then that of `machine_type`.
// Errors: shipped_calibration() and parse_calibration()'s; a file that cannot be read.
Result<Calibration> load_calibration(const std::string& given, const std::string& machine_type);

// The text of sim/machines/calibration-nccl.yaml: see nccl_curves.h.
std::string_view shipped_nccl_curves();

// The files sim/machines/calibration-*.yaml.
std::span<const EmbeddedFile> shipped_calibrations();

}  // namespace lockstep::sim
